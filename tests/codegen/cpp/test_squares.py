"""Rows in lanes that lie in memory one after the other: squares of them are turned over in registers, in and out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from ..harness import check, make

PLACES: dict[str, Callable[..., Any]] = {
    "positions": lambda x: (x.argmin(-1), x.argmax(-1)),
    "maximum": lambda x: torch.max(x, -1),
    "distance": lambda x: x - x.amin(-1, keepdim=True),
    "counted": lambda x: (x == x.amax(-1, keepdim=True)).sum(-1),
}
FLOATS: dict[str, Callable[..., Any]] = {
    "softmax": lambda x: torch.softmax(x * 2, -1),
    "logarithms": lambda x: (torch.log_softmax(x, -1), x.logsumexp(-1)),
    "norm": lambda x: F.layer_norm(x, (x.shape[-1],)) + 1,
    "centred": lambda x: (x - x.mean(-1, keepdim=True), x.var(-1)),
    "masked": lambda x: torch.softmax(torch.where(x > 1, x, 0.0), -1),
}
# one square, more, with columns and rows that are left, and rows in more than one dimension
SHAPES = [(64, 16), (53, 32), (35, 21), (3, 40, 19), (70, 64)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64], ids=str)  # fmt: skip
def test_short_rows(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randint(-5, 6, shape).to(dtype)  # many are equal
    for case in PLACES.values():
        check(case, x)
    if dtype.is_floating_point:
        x = torch.randn(shape).to(dtype)
        for case in FLOATS.values():
            check(case, x)
        x[1, 3], x[2, 5:9], x[-1] = torch.nan, torch.inf, -torch.inf
        check(PLACES["positions"], x)
        check(FLOATS["softmax"], x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
def test_read_in_one_order_and_written_in_another(dtype: torch.dtype) -> None:
    """Rows of any length: what is read along the rows is written along the columns, or meets what is."""
    torch.manual_seed(0)
    for shape in ((64, 512), (37, 300), (100, 65)):
        x, y = torch.randn(shape).to(dtype), torch.randn(shape[::-1]).to(dtype)
        for case in FLOATS.values():
            check(lambda x, case=case: case(x.t()), y)
        check(lambda x, y: torch.softmax(x + y.t(), -1), x, y)
        check(lambda x: torch.log_softmax(x, 0), x.t())
        check(lambda x, y: (x * y.t()).sum(-1), x, y)
        check(lambda x, y: torch.max(x * y.t() + x, -1), x, y)
        check(lambda x, y: (torch.softmax(x + y.t(), -1), (x + y.t()).amax(-1)), x, y)


def test_squares_are_taken() -> None:
    x = torch.randn(256, 32)
    for case, given in ((FLOATS["softmax"], x), (PLACES["positions"], x), (FLOATS["norm"], x)):
        assert "square(" in make(case, given).source
    assert "square(" in make(lambda x: torch.log_softmax(x, 0), torch.randn(512, 512).t()).source
    assert "square(" not in make(FLOATS["softmax"], torch.randn(64, 1024)).source
