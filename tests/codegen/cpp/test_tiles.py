"""Operands that lie across the lanes are loaded as squares and turned over (`codegen.cpp.tile`)."""

from __future__ import annotations

import pytest
import torch

from ..harness import check, make

SHAPES = ((48, 80), (37, 53), (16, 16), (17, 33), (20, 7), (130, 700), (5, 600), (1, 40))
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8,
          torch.uint8, torch.bool)  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_crossed_operands(dtype: torch.dtype) -> None:
    for a, b in SHAPES:
        x, y = (torch.randn(a, b) * 10).to(dtype), (torch.randn(b, a) * 10).to(dtype)
        check(lambda x, y: (x.t() == y, x.t().contiguous(), torch.where(y > 0, x.t(), y)), x, y)


def test_on_all_vector_sets(vector_set: str) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.uint8):
        x, y = (torch.randn(70, 90) * 10).to(dtype), (torch.randn(90, 70) * 10).to(dtype)
        check(lambda x, y: (x.t() + y, x.t().contiguous()), x, y)


def test_more_dimensions() -> None:
    x = torch.randn(3, 20, 5, 40)
    check(lambda x: (x.permute(0, 3, 2, 1) * 2).contiguous(), x)
    check(lambda x: x.permute(3, 1, 0, 2) * 2 + x.permute(3, 1, 0, 2).contiguous(), x)
    check(lambda x: x.permute(0, 2, 3, 1).contiguous(), x)
    channels = x.contiguous(memory_format=torch.channels_last)
    check(lambda x, y: (x + y, x.contiguous(), y[:, :, :, ::2] * 2), channels, x)
    check(
        lambda x, y: x[1:, 2:].permute(0, 2, 3, 1) + y.permute(0, 2, 3, 1)[1:, ..., 2:], channels, x
    )


def test_beside_row_and_column_values() -> None:
    x, y, row, column = (
        torch.randn(40, 60),
        torch.randn(60, 40),
        torch.randn(40),
        torch.randn(60, 1),
    )
    check(lambda x, y, r, c: (x.t() * r + c.exp()) / (y + c), x, y, row, column)
    check(lambda x, y: (x.t() + y).sum(0), x, y)
    check(lambda x: x.t() + torch.arange(40) * 2 + torch.arange(60)[:, None], x, library=None)


def test_a_square_is_in_the_kernel_where_it_pays() -> None:
    assert (
        "turn_over" in make(lambda x, y: x.t() + y, torch.randn(64, 64), torch.randn(64, 64)).source
    )
    assert (
        "turn_over"
        not in make(lambda x, y: x.t() + y, torch.randn(64, 3), torch.randn(3, 64)).source
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_triangles_are_spans_of_lanes(dtype: torch.dtype) -> None:
    for shape in ((8, 52), (52, 8), (3, 17, 19), (1, 5), (5, 1)):
        x = (torch.randn(shape) * 10).to(dtype)
        check(lambda x: [f(x, k) for f in (torch.triu, torch.tril) for k in (-60, -3, 0, 1, 60)], x)
        check(lambda x: (torch.triu(x.mT, 1), x.tril().sum(-1)), x)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8], ids=str)
def test_bounds_of_integers(dtype: torch.dtype) -> None:
    x, y = torch.randint(0, 100, (9, 37)).to(dtype), torch.randint(0, 100, (9, 37)).to(dtype)
    check(
        lambda x, y: (
            x.clamp(7, 50),
            x.clamp_min(20),
            x.relu(),
            x.clamp_max(30),
            torch.clamp(x, y, y - 3),
        ),
        x,
        y,
    )
    check(lambda x, y: (torch.nn.functional.relu6(x), x.clamp(50, 7), x.maximum(y)), x - 50, y)
