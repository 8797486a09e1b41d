"""The families of kernels: what each computes over a given number of bytes, and the bytes that it has to move.

`FAMILIES[name](nbytes, device)` gives a `Case`. `moved` counts inputs that are read once and results that are written once, so
that `moved / time` beside a copy's is how near a kernel is to the bandwidth of the memory. A backward reads again what its
forward has read: the gradient needs the loss first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

from .. import kernels as k

Tensor = torch.Tensor
F32, BF16 = torch.float32, torch.bfloat16


@dataclass(frozen=True, slots=True)
class Case:
    """`function` is what systems wrap. `trains`: a backward is part of the call, for the inputs that require a gradient."""

    function: Callable[..., Any]
    inputs: tuple[Any, ...]
    moved: int
    trains: bool = False

    @property
    def asked(self) -> tuple[Tensor, ...]:
        """The inputs whose gradients a call computes."""
        return tuple(one for one in self.inputs if one.requires_grad)


Make = Callable[[int, Any], Case]


def over(
    function: Callable[..., Any],
    columns: int = 4096,
    dtype: torch.dtype = F32,
    *,
    matrices: int = 1,
    vectors: int = 0,
    moved: float = 2,
    more: Callable[[Tensor], tuple[Tensor, ...]] = lambda x: (),
    trains: bool = False,
) -> Make:
    """A family over matrices of `nbytes` with so many columns (0: one dimension). Inputs: the matrices, vectors as long as a row,
    and what `more` makes for the first matrix. `moved`: in matrices."""

    def make(nbytes: int, device: Any) -> Case:
        count = nbytes // dtype.itemsize
        shape = (max(1, count // columns), columns) if columns else (count,)
        wide = [torch.randn(shape, device=device, dtype=dtype) for _ in range(matrices)]
        narrow = [torch.randn(columns, device=device, dtype=dtype) for _ in range(vectors)]
        rest = more(wide[0])
        if trains:
            for one in (wide[0], *narrow):
                one.requires_grad_()
        size = wide[0].numel() * dtype.itemsize
        return Case(function, (*wide, *narrow, *rest), int(moved * size), trains)

    return make


# -- functions that only this file has


def _chain(x: Tensor) -> Tensor:
    return F.gelu(x) * torch.sigmoid(x) + 0.5


def _broadcast(x: Tensor, column: Tensor, row: Tensor) -> Tensor:
    return torch.relu(x * column + row)


def _cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(logits, target)


def _embed(table: Tensor, places: Tensor) -> Tensor:
    return F.embedding(places, table) * 2.0


def _cat(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat((x, y * 2), dim=1)


def _rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions of heads of 128: x is [positions, 32 * 128], cos and sin are [positions, 1, 128]."""
    heads = x.view(x.shape[0], -1, 128)
    first, second = heads.chunk(2, dim=-1)
    return heads * cos + torch.cat((-second, first), dim=-1) * sin


def _norm_loss(norm: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """(x, gradient of the norm's result, parameters) -> a loss whose backward is the norm's."""
    return lambda x, gradient, *parameters: (norm(x, *parameters) * gradient).sum()


# -- further inputs


def _targets(x: Tensor) -> tuple[Tensor, ...]:
    return (torch.randint(0, x.shape[1], (x.shape[0],), device=x.device),)


def _places(x: Tensor) -> tuple[Tensor, ...]:
    return (torch.randint(0, x.shape[0], (x.shape[0],), device=x.device),)


def _column_and_row(x: Tensor) -> tuple[Tensor, ...]:
    return x.new_empty(x.shape[0], 1).normal_(), x.new_empty(x.shape[1]).normal_()


def _angles(x: Tensor) -> tuple[Tensor, ...]:
    return tuple(x.new_empty(x.shape[0], 1, 128).normal_() for _ in range(2))


def _transposed(nbytes: int, device: Any, dtype: torch.dtype = F32) -> Case:
    side = int((nbytes // dtype.itemsize) ** 0.5) // 64 * 64 or 64
    x, y = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    return Case(k.transpose_add, (x, y), 3 * dtype.itemsize * side * side)


# Every family in both dtypes, except where one is enough. A norm's backward counts two reads by the loss (of x and of the
# gradient), two by the backward, and a write. That of a cross-entropy counts a read and a write by both: autograd keeps what the
# loss made of the logits, because the program may write to them before the backward.
_BOTH: dict[str, Callable[[torch.dtype], Make]] = {
    "pointwise": lambda d: over(_chain, 0, d),
    "softmax": lambda d: over(k.softmax, dtype=d),
    "layer_norm": lambda d: over(k.layer_norm, dtype=d, vectors=2),
    "cross_entropy": lambda d: over(_cross_entropy, 1 << 15, d, moved=4, more=_targets, trains=True),
    "rms_norm": lambda d: over(k.rms_norm, dtype=d, vectors=1),
    "swiglu": lambda d: over(k.swiglu, 0, d, matrices=2, moved=3),
    "rope": lambda d: over(_rope, dtype=d, moved=2 + 2 / 32, more=_angles),
    "embedding": lambda d: over(_embed, 1024, d, more=_places),
    "column_sum": lambda d: over(lambda x: (x * x).sum(0), dtype=d, moved=1),
    "layer_norm_backward": lambda d: over(_norm_loss(k.layer_norm), dtype=d, matrices=2, vectors=2, moved=5, trains=True),
    "rms_norm_backward": lambda d: over(_norm_loss(k.rms_norm), dtype=d, matrices=2, vectors=1, moved=5, trains=True),
    "softmax_1k": lambda d: over(k.softmax, 1 << 10, d),
    "softmax_16k": lambda d: over(k.softmax, 1 << 14, d),
    "softmax_odd": lambda d: over(k.softmax, 50257, d),
    "softmax_long": lambda d: over(k.softmax, 1 << 17, d),
    "softmax_262k": lambda d: over(k.softmax, 1 << 18, d),
    "layer_norm_32k": lambda d: over(k.layer_norm, 1 << 15, d, vectors=2),
    "cross_entropy_odd": lambda d: over(_cross_entropy, 50257, d, moved=4, more=_targets, trains=True),
    "transposed": lambda d: lambda nbytes, device: _transposed(nbytes, device, d),
}  # fmt: skip
# In the order in which they are measured: those that a bound is given for come first.
FAMILIES: dict[str, Make] = {
    **{f"{name}{mark}": make(dtype) for name, make in _BOTH.items() for mark, dtype in (("", F32), ("_bf16", BF16))},
    "sum": over(lambda x: x.abs().sum(), 0, moved=1),
    "cumsum": over(lambda x: x.cumsum(-1)),
    "broadcast": over(_broadcast, more=_column_and_row),
    "cat": over(_cat, 2048, matrices=2, moved=4),
}  # fmt: skip
BOUND = 0.9  # of a copy's bandwidth, for those of `_BOTH`
BOUNDED = tuple(name for name in FAMILIES if name.removesuffix("_bf16") in _BOTH)
