"""Bools between comparisons and choices of eight bytes: they stay wide, and are masks as soon as anything else reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ..harness import check, make

CASES: dict[str, Callable[..., Any]] = {
    "choice": lambda x, y, m: torch.where(x < y, x, y * 2),
    "clamp": lambda x, y, m: x.clamp(-1, 1) + torch.where((x < 0) & ~(y > 1), x, y),
    "stored": lambda x, y, m: (torch.where(x < y, x, y), x < y),
    "stored later": lambda x, y, m: (torch.where((x < y) | (x == 0), x, y), (x < y) ^ (y == 0)),
    "a mask from memory": lambda x, y, m: torch.where((x < y) & m, x, y),
    "narrow choice": lambda x, y, m: (torch.where(x < y, m, ~m), torch.where(x < y, x, y)),
    "both widths": lambda x, y, m: torch.where((x < y) & (x.float() < 1), x, y),
    "narrow values": lambda x, y, m: torch.where(x > y, x.float(), y.float()),
    "counted": lambda x, y, m: ((x < y).sum(-1), torch.where(x < y, x, y).sum(-1)),
    "a row's mask": lambda x, y, m: torch.where(x.amax(-1, keepdim=True) > y, x, y),
    "columns": lambda x, y, m: torch.where(x > y, x, y).amax(0) + torch.where(x != y, x, y)[0],
    "passes": lambda x, y, m: torch.where(x > y, x, y) - torch.where(x > y, x, y).amax(-1, True),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64], ids=str)
def test_bools_of_eight_bytes(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, y = (torch.randint(-3, 4, (21, 83)).to(dtype) for _ in "xy")
    m = torch.rand(21, 83) < 0.5
    for name, case in CASES.items():
        check(case, x, y, m)
        if name not in ("counted", "a row's mask", "passes"):
            check(case, x, y[:, :1], m)
            check(case, x.t().contiguous().t(), y, m)
    if dtype == torch.float64:
        x[::3, ::5] = torch.nan
        check(lambda x, y: torch.where(x.isnan(), y, x) + torch.nan_to_num(x, 1.0), x, y)


def test_no_mask_is_between() -> None:
    """The text of such a kernel narrows nothing."""
    x, y = torch.randn(2, 64, 64, dtype=torch.float64)
    source = make(CASES["clamp"], x, y, y > 0).source
    body = source[source.index('extern "C" void k') :]
    assert "narrow" not in body and "mask" not in body
