"""The families of kernels: what each computes over a given number of bytes, and the bytes that it has to move.

`FAMILIES[name](nbytes, device)` gives a `Case`. `moved` counts inputs that are read once and results that are written once, so
that `moved / time` beside a copy's is how near a kernel is to the bandwidth of the memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

from .. import kernels as k

Tensor = torch.Tensor
FLOAT = 4


@dataclass(frozen=True, slots=True)
class Case:
    """`function` is what systems wrap. `trains`: a backward is part of the call, and gives the gradient of the first input."""

    function: Callable[..., Any]
    inputs: tuple[Any, ...]
    moved: int
    trains: bool = False


def _rows(nbytes: int, columns: int, device: Any) -> Tensor:
    rows = max(1, nbytes // (FLOAT * columns))
    return torch.randn(rows, columns, device=device)


def _chain(x: Tensor) -> Tensor:
    return F.gelu(x) * torch.sigmoid(x) + 0.5


def _broadcast(x: Tensor, column: Tensor, row: Tensor) -> Tensor:
    return torch.relu(x * column + row)


def _cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(logits, target)


def _embed(places: Tensor, table: Tensor) -> Tensor:
    return F.embedding(places, table) * 2.0


def _columns(x: Tensor) -> Tensor:
    return (x * x).sum(0)


def _whole(x: Tensor) -> Tensor:
    return x.abs().sum()


def _cat(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat((x, y * 2), dim=1)


def _pointwise(nbytes: int, device: Any) -> Case:
    x = torch.randn(nbytes // FLOAT, device=device)
    return Case(_chain, (x,), 2 * nbytes)


def _pointwise_bf16(nbytes: int, device: Any) -> Case:
    x = torch.randn(nbytes // 2, device=device, dtype=torch.bfloat16)
    return Case(_chain, (x,), 2 * nbytes)


def _broadcasts(nbytes: int, device: Any) -> Case:
    x = _rows(nbytes, 4096, device)
    column, row = torch.randn(x.shape[0], 1, device=device), torch.randn(4096, device=device)
    return Case(_broadcast, (x, column, row), 2 * nbytes)


def _transposed(nbytes: int, device: Any) -> Case:
    side = int((nbytes // FLOAT) ** 0.5) // 32 * 32 or 32
    x, y = (torch.randn(side, side, device=device) for _ in range(2))
    return Case(k.transpose_add, (x, y), 3 * FLOAT * side * side)


def _softmax(nbytes: int, device: Any) -> Case:
    return Case(k.softmax, (_rows(nbytes, 4096, device),), 2 * nbytes)


def _long_softmax(nbytes: int, device: Any) -> Case:
    return Case(k.softmax, (_rows(nbytes, 1 << 17, device),), 2 * nbytes)


def _layer_norm(nbytes: int, device: Any) -> Case:
    w, b = (torch.randn(4096, device=device) for _ in range(2))
    return Case(k.layer_norm, (_rows(nbytes, 4096, device), w, b), 2 * nbytes)


def _rms_norm(nbytes: int, device: Any) -> Case:
    w = torch.randn(4096, device=device)
    return Case(k.rms_norm, (_rows(nbytes, 4096, device), w), 2 * nbytes)


def _losses(nbytes: int, device: Any) -> Case:
    x = _rows(nbytes, 1 << 15, device).requires_grad_()
    target = torch.randint(0, x.shape[1], (x.shape[0],), device=device)
    return Case(_cross_entropy, (x, target), 3 * nbytes, trains=True)


def _gather(nbytes: int, device: Any) -> Case:
    table = _rows(nbytes, 1024, device)
    places = torch.randint(0, table.shape[0], (table.shape[0],), device=device)
    return Case(_embed, (places, table), 2 * nbytes + places.numel() * 8)


def _cumsum(nbytes: int, device: Any) -> Case:
    return Case(lambda x: x.cumsum(-1), (_rows(nbytes, 4096, device),), 2 * nbytes)


def _column_sums(nbytes: int, device: Any) -> Case:
    return Case(_columns, (_rows(nbytes, 4096, device),), nbytes)


def _sum(nbytes: int, device: Any) -> Case:
    return Case(_whole, (torch.randn(nbytes // FLOAT, device=device),), nbytes)


def _cats(nbytes: int, device: Any) -> Case:
    x, y = (_rows(nbytes // 2, 2048, device) for _ in range(2))
    return Case(_cat, (x, y), 2 * nbytes)


# In the order in which they are measured: those that a bound is given for come first.
FAMILIES: dict[str, Callable[[int, Any], Case]] = {
    "pointwise": _pointwise,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "cross_entropy": _losses,
    "rms_norm": _rms_norm,
    "transposed": _transposed,
    "column_sum": _column_sums,
    "sum": _sum,
    "cumsum": _cumsum,
    "embedding": _gather,
    "broadcast": _broadcasts,
    "cat": _cats,
    "softmax_long": _long_softmax,
    "pointwise_bf16": _pointwise_bf16,
}
BOUND = 0.9  # of a copy's bandwidth, for the first four
BOUNDED = tuple(FAMILIES)[:4]
