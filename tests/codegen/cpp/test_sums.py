"""Float sums of many terms: errors beside eager's against float64, and infinities and nans among the blocks."""

from __future__ import annotations

import pytest
import torch

import graftjit

SHAPES = {
    "columns": ((4096, 64), 0),
    "long columns": ((1 << 17, 8), 0),
    "rows": ((3, 70000), 1),
    "one row": ((400_000,), 0),
    "middle": ((2, 5000, 17), 1),
    "two axes": ((60, 16, 400), (0, 2)),
}


def total(x, dim):
    return x.sum(dim), (x * 0.5).mean(dim)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_errors_are_no_larger_than_twice_eagers(name, dynamic):
    shape, dim = SHAPES[name]
    for make in (torch.randn, torch.rand):
        x = make(shape)
        found = graftjit.jit(total, dynamic=dynamic)(x, dim)
        for own, eager, exact in zip(found, total(x, dim), total(x.double(), dim), strict=True):
            least = exact.abs().max() * 2**-23  # of few sums eager's may be exact by chance
            assert (own - exact).abs().max() <= 2 * max((eager - exact).abs().max(), least)
            assert (own - exact).square().mean() <= 4 * max(
                (eager - exact).square().mean(), least**2
            )


def test_deviations_of_columns_are_near_eagers() -> None:
    """Eager's are sums in float64, rounded once."""
    x = torch.randn(4096, 1024)
    found, eager, exact = graftjit.jit(lambda x: x.std(0))(x), x.std(0), x.double().std(0)
    assert (found - exact).abs().max() <= 2 * (eager - exact).abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("values", ["inf", "-inf", "nan", "inf -inf", "3e38 3e38"])
def test_what_is_not_finite_stays_so(name, values, dtype):
    shape, dim = SHAPES[name]
    x = torch.randn(shape, dtype=dtype)
    flat, given = x.view(-1), [float(value) for value in values.split()]
    for place, value in enumerate(given):
        flat[place * (flat.numel() // len(given)) + 7] = value
    compiled = graftjit.jit(total)
    torch.testing.assert_close(
        compiled(x, dim), total(x, dim), equal_nan=True, rtol=1e-4, atol=1e-3
    )
