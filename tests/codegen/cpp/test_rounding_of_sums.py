"""Operators whose sums eager's kernels round once (a * b + c): compiled they have the very bits of eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from ..harness import make

SUMS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b, c: torch.add(a, b, alpha=0.3),
    "sub": lambda a, b, c: torch.sub(a, b, alpha=0.3),
    "rsub": lambda a, b, c: torch.rsub(a, b, alpha=0.3),
    "addcmul": lambda a, b, c: torch.addcmul(a, b, c, value=0.3),
    "addcdiv": lambda a, b, c: torch.addcdiv(a, b, c, value=0.3),
    "lerp near": lambda a, b, c: torch.lerp(a, b, 0.3),
    "lerp far": lambda a, b, c: torch.lerp(a, b, 0.7),
    "lerp tensor": lambda a, b, c: torch.lerp(a, b, c),
    "batch norm": lambda a, b, c: F.batch_norm(a, b[0].abs(), c[0].abs(), b[1], c[1]),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_bits_of_eager(dtype: torch.dtype) -> None:
    given = [torch.randn(256, 64, dtype=torch.float64).to(dtype) for _ in range(3)]
    found = make(lambda *x: [fn(*x) for fn in SUMS.values()], *given)
    assert not found.library
    for name, fn, ours in zip(SUMS, SUMS.values(), found.run(*given), strict=True):
        if (name, dtype) != (
            "batch norm",
            torch.float16,
        ):  # there eager's compiler went another way
            assert torch.equal(ours, fn(*given)), name


def test_variances_of_float32_add_up_in_double() -> None:
    """As eager's do: the result is the float64 one, rounded once; means that cancel, too."""
    x = torch.randn(300, 125) * 3
    found = make(lambda x: torch.var_mean(x, 1), x)
    assert not found.library
    for ours, exact in zip(found.run(x), torch.var_mean(x.double(), 1), strict=True):
        assert torch.equal(ours, exact.float())


@pytest.mark.parametrize("rows", [32, 64, 128, 512])
def test_sums_of_columns_err_no_more_than_eagers(rows: int) -> None:
    """The gradient of a bias: eager adds up a batch in four parts."""
    generator = torch.Generator().manual_seed(0)
    draws = [torch.randn(rows, 256, generator=generator) for _ in range(8)]
    found = make(lambda x: (x * 2).sum(0), draws[0])
    assert not found.library
    ours, eager = 0.0, 0.0
    for x in draws:
        exact = (x.double() * 2).sum(0)
        ours += (found.run(x)[0] - exact).square().sum().item()
        eager += ((x * 2).sum(0) - exact).square().sum().item()
    assert ours <= 1.1 * eager
