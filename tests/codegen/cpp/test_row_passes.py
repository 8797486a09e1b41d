"""Passes over rows and columns: vectors of rows side by side, values kept where the result will lie, positions."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from ..harness import check, make

LENGTHS = [1, 15, 16, 17, 31, 64, 127, 128, 129, 200, 257, 300]


@pytest.mark.parametrize("length", LENGTHS)
def test_columns_of_any_number(length: int) -> None:
    x, w = torch.randn(70, length), torch.randn(length)
    check(lambda x, w: (x.sum(0), x.amax(0) * w, x.std(0), (x > 0).any(0)), x, w)
    check(lambda x, w: torch.softmax(x * w, 0), x, w)
    check(lambda x, w: (x - x.mean(0)) * torch.rsqrt(x.var(0) + 1e-5) * w, x, w)
    check(lambda x, w: x.logsumexp(0), x, w)


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.bfloat16, torch.int32, torch.uint8], ids=str
)
def test_columns_of_other_types(dtype: torch.dtype) -> None:
    x = (torch.randn(50, 3, 270) * 10).abs().to(dtype)
    check(lambda x: (x.sum(0), x.amin(0), x.amax((0, 1))), x)
    check(lambda x: x.amax(0) - x.amin(0) * 2, x)


def test_columns_are_taken_side_by_side() -> None:
    """The text says so: neighbours of a line of memory are read together."""
    x = torch.randn(64, 512)
    assert "auto wide" in make(lambda x: x.sum(0), x).source
    assert "auto wide" not in make(lambda x: x.sum(1), x).source
    assert "auto wide" not in make(lambda x: x[:, :8].sum(0), x).source


def test_what_is_kept_lies_where_the_result_will() -> None:
    """Softmax has no row of its own on the stack, however long; two results do not share a place."""
    for shape in ((40, 1000), (3, 200_001), (9, 30_000)):
        x = torch.randn(shape)
        made = check(lambda x: torch.softmax(x, -1), x, kernels=1)
        assert "alignas(64) float" not in made.source
    x = torch.randn(20, 700)
    check(lambda x: (torch.softmax(x, -1), torch.softmax(x * 2, -1)), x)
    check(lambda x: (torch.exp(x) / torch.exp(x).sum(-1, keepdim=True), torch.exp(x)), x)
    check(lambda x: torch.softmax(x, -1).to(torch.bfloat16), x)
    check(lambda x: torch.softmax(x.bfloat16(), -1), x)
    check(lambda x: torch.cat([torch.softmax(x, -1), torch.softmax(x, 0)]), x, library=None)
    check(lambda x: torch.softmax(x, -1).t().contiguous(), x)
    check(lambda x: torch.tanh(x).div(torch.tanh(x).abs().sum(-1, keepdim=True)).sum(-1), x)


POSITIONS = {
    "all as bad as the identity": torch.full((5, 40), -math.inf),
    "ties": torch.zeros(5, 133),
    "nan": torch.where(torch.arange(200.0) % 7 == 5, math.nan, torch.arange(200.0)).reshape(2, 100),
    "infinities": torch.tensor([[-math.inf] * 30 + [math.inf] * 4 + [0.0] * 30] * 3),
    "one column": torch.randn(17, 1),
    "long": torch.randn(2, 140_000),
    "integers": torch.randint(-3, 3, (6, 150)),
    "lowest": torch.full((4, 35), torch.iinfo(torch.int32).min, dtype=torch.int32),
    "small": torch.randint(0, 3, (6, 150), dtype=torch.uint8),
    "double": torch.randn(6, 150, dtype=torch.float64),
}


@pytest.mark.parametrize("name", POSITIONS)
def test_positions(name: str) -> None:
    x = POSITIONS[name]
    for y in (x, x.t(), x.t().contiguous()):
        check(lambda x: (x.argmax(-1), x.argmin(-1)), y)
        check(lambda x: (x.argmax(0), x.argmax()), y)
        check(lambda x: (*x.max(-1), *x.min(0)), y)
        check(lambda x: x.argmax(-1) + x.argmin(-1) * 2, y)


def test_positions_behind_other_work() -> None:
    x = torch.randn(12, 3, 37)
    check(lambda x: (torch.sin(x) * 2).argmax(-1), x)
    check(lambda x: F.one_hot(x.argmax(-1), 37), x, library=None)
    check(lambda x: torch.softmax(x, -1).max(-1), x)
    check(lambda x: x.flatten().argmin(), x)
