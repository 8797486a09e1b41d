"""Cat without a call: operands that kernels compute are written into their places of the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ..harness import check
from ..symbolic import check_open

T = torch.Tensor
X = torch.linspace(-3.0, 3.0, 4 * 6 * 8).reshape(4, 6, 8)
IMAGE = (
    torch.linspace(-1.0, 1.0, 2 * 3 * 4 * 5)
    .reshape(2, 3, 4, 5)
    .to(memory_format=torch.channels_last)
)


def _stacked(x: T) -> T:
    return torch.stack([x * 2, x.abs(), x], -1)


def _rotated(x: T) -> T:
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * 2 - b, b * 2 + a], -1).flatten(-2)


def _written_before_and_after(x: T) -> T:
    y = x.clone()
    y.add_(1)
    joined = torch.cat([y * 3, y], 0)
    y.mul_(5)
    joined.sub_(1)
    return joined + y.sum()


def _states(x: T) -> T:
    """Each state is read by the next step, too."""
    h, found = x[0], []
    for _ in range(20):
        h = torch.tanh(h @ SQUARE @ SQUARE) * 0.5
        found.append(h)
    return torch.stack(found, 1)


SQUARE = torch.linspace(-0.5, 0.5, 64).reshape(8, 8)
# name, function, kernels, cats that are left
ROWS: tuple[tuple[str, Callable[[T], Any], int, int], ...] = (
    ("one kernel for operands of one shape", lambda x: torch.cat([x * 2, x.abs()], -1), 1, 0),
    ("an input is copied beside", lambda x: torch.cat([x * 2, x], 0), 1, 0),
    ("slices", lambda x: torch.cat([-x[..., 4:], x[..., :4]], -1), 1, 0),
    ("stack", _stacked, 1, 0),
    ("interleaved", _rotated, 1, 0),
    ("transposed", lambda x: torch.cat([(x[0] + 1).t(), x[1].t()], 0), 1, 0),
    ("reshaped", lambda x: torch.cat([(x + 1).view(24, 8), x.view(24, 8)], 1), 1, 0),
    ("of two dtypes", lambda x: torch.cat([x * 2, x > 0], 1), 1, 0),
    ("of three dtypes", lambda x: torch.cat([x * 2, x > 0, x.double()], 1), 1, 0),
    ("rows and elements", lambda x: torch.cat([x + 1, x.amax(-1, keepdim=True)], -1), 1, 0),
    ("scalars", lambda x: torch.stack([x.amin(), x.amax()]) * 2, 2, 0),
    ("read on", lambda x: torch.cat([x * 2, x], 0).softmax(0) + 1, 2, 0),
    ("returned twice", lambda x: (c := torch.cat([x * 2, x], 0), c[1:3] + 1, c.view(-1)), 2, 0),
    ("in one another", lambda x: torch.cat([torch.cat([x * 2, x], 0), x + 1], 0), 2, 0),
    ("product", lambda x: torch.cat([x[0] @ x[1].t(), x[0, :, :6] + 1], 1), 2, 0),
    ("bfloat16", lambda x: torch.cat([x.bfloat16() * 2, x.bfloat16()], 1), 1, 0),
    ("nothing computed", lambda x: torch.cat([x, x[:2]], 0), 0, 1),
    ("states of a loop", _states, None, 0),
    ("computed for others too", lambda x: (y := x * 2, torch.cat([y, x], 0)), 1, 1),
    ("an empty operand", lambda x: torch.cat([x * 2, x[:0]], 0), 1, 0),
    ("an empty list entry", lambda x: torch.cat([x * 2, x.new_empty(0)], 0), 1, 0),
    ("writes around it", _written_before_and_after, 2, 0),
)  # fmt: skip


C, S = torch.linspace(0.1, 1.0, 48).reshape(6, 8), torch.linspace(1.0, 2.0, 48).reshape(6, 8)
WIDE, NARROW = S.t().repeat(1, 8), C.repeat(8, 1)  # products too large for nests of ours
ROW, ONE, COLUMN = C[0], C[0, :1], C[:, :1].contiguous()


def _turned(x: T) -> T:
    return torch.cat([-x[..., 4:], x[..., :4]], -1)


def _of_a_product(x: T) -> T:
    y = x @ WIDE @ NARROW
    return y * C + _turned(y) * S


def _of_a_norm(x: T) -> T:
    """What the cat moves slices of lies in memory, so the rest reads it there."""
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * ROW
    return y * C + _turned(y) * S


# The same, of pointwise work behind the cat.
BEHIND: tuple[tuple[str, Callable[[T], Any], int, int], ...] = (
    ("rotary", lambda x: x * C + _turned(x) * S, 1, 0),
    ("rotary of a product", _of_a_product, 1, 2),
    ("rotary of a norm", _of_a_norm, 2, 0),
    ("what is the same for all parts", lambda x: _turned(x) * COLUMN + 1 - ONE, 1, 0),
    ("along rows", lambda x: torch.cat([x[:1], x[1:].abs()], 0) * ROW + COLUMN, 2, 0),
    ("two cats", lambda x: torch.where(_turned(x) > 0, _turned(x * 2), x), None, 0),
    ("cats that divide otherwise", lambda x: _turned(x) + torch.cat([x[..., :2], x[..., 2:]], -1), None, None),
    ("inputs", lambda x: torch.cat([x, x[:2]], 0) * 2 + 1, 2, 0),
    ("promotion", lambda x: torch.cat([x > 0, x * 2], -1) * 2, 2, 0),
    ("read elsewhere", lambda x: (t := _turned(x), t * 2), 2, 0),
    ("another operand that a kernel computes", lambda x: _turned(x) * x.softmax(-1), 2, 0),
    ("one value a row", lambda x: _turned(x) * x.sum(-1, keepdim=True), 2, 0),
    ("stacked scalars", lambda x: torch.stack([x.sum(), x.amax()]) * 2, 2, 0),
    ("turned parts", lambda x: torch.stack([x * 2, x.abs()], 1) * 3, 2, 0),
    ("broadcast behind", lambda x: _turned(x)[..., None] * x[..., None].expand(4, 6, 8, 2), 2, 0),
    ("a triangle", lambda x: torch.cat([x[0] + 1, x[1]], 0).tril() * 2, 2, 0),
)  # fmt: skip


@pytest.mark.parametrize("row", BEHIND, ids=[row[0] for row in BEHIND])
def test_pointwise_work_behind_a_cat(row) -> None:
    _name, fn, kernels, library = row
    check(fn, X, kernels=kernels, library=library)


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_what_is_joined_is_written_in_place(row) -> None:
    _name, fn, kernels, cats = row
    made = check(fn, X, kernels=kernels, library=None)
    left = [op for op in made.library if op is torch.ops.aten.cat.default]
    assert len(left) == cats


def test_strides_are_those_of_eager() -> None:
    """Channels last stays so where all operands have it; a mix of layouts is contiguous."""
    check(lambda x: torch.cat([x + 1, x], 1), IMAGE)
    check(lambda x: torch.cat([x + 1, x.contiguous()], 1), IMAGE)
    check(lambda x: torch.cat([x.transpose(2, 3) + 1, x.transpose(2, 3)], 2), IMAGE)


def test_parts_of_a_result_that_is_large() -> None:
    """Threads share the kernels; rows of no whole vector."""
    x = torch.randn(300, 401)
    check(lambda x: torch.cat([x * 2, x[:, :17].exp(), x.sum(-1, keepdim=True)], 1), x)


def test_results_share_no_memory() -> None:
    def fn(x: T) -> tuple[T, ...]:
        return torch.cat([x * 2, x], 0), torch.cat([x + 1, x], 0)

    made = check(fn, X)
    first, second = made.run(X), made.run(X)
    addresses = {tensor.untyped_storage().data_ptr() for tensor in (*first, *second, X)}
    assert len(addresses) == 5


OPEN = (
    ("rows", lambda x, y: torch.cat([x * 2, y], 0), [[0], [0]]),
    ("columns", lambda x, y: torch.cat([x[:3] * 2, y[:3]], 1).sin(), [[0], [0]]),
    ("stack", lambda x, y: torch.stack([x * 2, y[: x.shape[0]]], 1), [[0], [0]]),
)


@pytest.mark.parametrize("row", OPEN, ids=[row[0] for row in OPEN])
def test_sizes_that_are_not_known(row) -> None:
    _name, fn, dims = row
    check_open(
        fn, lambda n: [torch.randn(n, 8), torch.randn(n, 8)], dims, (9, 3, 17, 64), None, None
    )
