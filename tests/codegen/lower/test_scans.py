"""Cumulative operators as kernels: against eager over dtypes, dimensions, layouts and sizes; order, nans, errors."""

from __future__ import annotations

import pytest
import torch

import graftjit

from ..harness import check, make
from ..symbolic import check_open

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
SUMS = {
    "cumsum": torch.cumsum,
    "cumprod": torch.cumprod,
    "cumsum of what is computed": lambda x, d: (x.abs() + 1).cumsum(d),
    "cumsum and on": lambda x, d: x.cumsum(d) * 2 - x,
    "cumsum, then a fold": lambda x, d: x.cumsum(d).amax(d),
    "a fold, then cumsum": lambda x, d: (x - x.amax(d, keepdim=True)).cumsum(d),
    "twice": lambda x, d: x.cumsum(d).cumsum(d),
    "of one value": lambda x, d: x.amin(d, keepdim=True).expand_as(x).cumsum(d),
}
BEST = {"cummax": torch.cummax, "cummin": torch.cummin}


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    return (torch.randn(shape, generator=generator) * 2).to(dtype)


def odd(x: torch.Tensor) -> torch.Tensor:
    """With infinities, nans and both zeros in some rows and columns."""
    for place, value in enumerate(("inf", "nan", "-inf", "-0.0", "0.0", "3e38", "-3e38")):
        x.view(-1)[place * 37 + 11 :: 311] = float(value)
    return x


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("dtype", (*FLOATS, *INTEGERS))
def test_sums_and_products(name, dtype):
    fn = SUMS[name]
    for shape in ((4, 5, 37), (3, 2), (100, 9)):
        x = numbers(*shape, dtype=dtype)
        check(lambda x: [fn(x, d) for d in range(x.dim())], x, library=None)
    x = numbers(5, 4, 37, dtype=dtype).transpose(0, -1)
    check(lambda x: [fn(x, d) for d in range(x.dim())], x, library=None)
    check(lambda x: fn(x, 0), numbers(1000, dtype=dtype), library=None)


@pytest.mark.parametrize("name", BEST)
@pytest.mark.parametrize("dtype", (*FLOATS, *INTEGERS))
def test_best_so_far(name, dtype):
    fn = BEST[name]
    for shape in ((4, 5, 37), (3, 2)):
        x = numbers(*shape, dtype=dtype)
        check(lambda x: [part for d in range(x.dim()) for part in fn(x, d)], x)
    x = numbers(37, 5, 40, dtype=dtype).transpose(0, -1)
    check(lambda x: [fn(x * 2, d)[1] + 1 for d in range(x.dim())], x)


def test_what_dtype_is_asked_for():
    x = numbers(7, 40)
    for dtype in (torch.float64, torch.bfloat16, torch.int32):
        check(lambda x, dtype=dtype: x.cumsum(-1, dtype=dtype), x, library=None)
        check(lambda x, dtype=dtype: x.cumprod(0, dtype=dtype), x, library=None)
    check(lambda x: (x > 0).cumsum(1), x)
    check(lambda x: x.to(torch.uint8).cumsum(1, dtype=torch.uint8), x.abs() * 100)


@pytest.mark.parametrize("dtype", FLOATS)
def test_infinities_nans_and_zeros(dtype):
    x = odd(numbers(40, 100)).to(dtype)
    for d in (0, 1):
        check(lambda x, d=d: (x.cumsum(d), x.cumprod(d)), x, library=None)
        for fn in BEST.values():
            found = make(lambda x, d=d, fn=fn: tuple(fn(x, d)), x).run(x)
            for ours, eager in zip(found, fn(x, d), strict=True):
                torch.testing.assert_close(ours, eager, rtol=0, atol=0, equal_nan=True)
                if ours.is_floating_point():
                    assert torch.equal(ours.signbit() & (ours == 0), eager.signbit() & (eager == 0))


def test_what_hangs_on_the_order_has_eagers():
    huge = torch.tensor([-1e308, 1e308, 1e308, -1e308] * 8, dtype=torch.float64).repeat(20, 1)
    tiny = torch.tensor([1e200, 1e-200, 1e-200, 1e200] * 8, dtype=torch.float64).repeat(20, 1)
    for d in (0, 1):
        x = huge if d else huge.t().contiguous()
        y = tiny if d else tiny.t().contiguous()
        found = make(lambda x, y, d=d: (x.cumsum(d) + 0, y.cumprod(d) + 0), x, y).run(x, y)
        assert torch.equal(found[0], x.cumsum(d))
        assert torch.equal(found[1], y.cumprod(d))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("dim", (0, 1))
def test_errors_are_no_larger_than_twice_eagers(dtype, dim):
    for x in (torch.randn(3000, 70), torch.rand(70, 3000)):
        x = x.to(dtype)
        found = graftjit.jit(lambda x: x.cumsum(dim))(x)
        exact, eager = x.double().cumsum(dim), x.cumsum(dim)
        allowed = 2 * (eager - exact).abs().max()
        assert (found - exact).abs().max() <= allowed


def test_vector_sets(vector_set):
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int8):
        x = numbers(9, 70, dtype=dtype)
        for d in (0, 1):
            check(lambda x, d=d: (x.cumsum(d), x.cumprod(d), *x.cummax(d)), x, library=None)


def test_one_kernel():
    x = numbers(30, 50)
    check(lambda x: (x * 2).cumsum(-1).exp(), x, kernels=1)
    check(lambda x: torch.softmax(x, -1).cumsum(-1), x, kernels=1)
    check(lambda x: (x.cumsum(0) / x.sum(0)).sum(0), x, kernels=1)


def test_what_stays_with_aten():
    x = numbers(3, 1)
    for fn in (
        lambda x: x.cumsum(1),
        lambda x: x[0, 0].cumsum(0),
        lambda x: x[:, :0].cumsum(0),
    ):
        assert check(fn, x, library=None).library


def test_open_sizes():
    make = lambda n: (numbers(n, 9), numbers(5, n))  # noqa: E731
    sizes = (5, 40, 2, 17, 64, 3000)
    for dims in (((0,), (1,)), ((0,), ())):
        if dims[1]:
            fn = lambda x, y: (x.cumsum(0) * 2, y.cumsum(1) + 1)  # noqa: E731
            check_open(fn, make, dims, sizes)
            fn = lambda x, y: (*x.cummax(0), y.cumprod(1) + 1)  # noqa: E731
            check_open(fn, make, dims, sizes)
        check_open(
            lambda x, y: x.cumsum(1).sum(0), lambda n: (numbers(n, 9), numbers(5, 5)), dims, sizes
        )


def test_long_rows_and_many_threads():
    for shape in ((300_000,), (2, 200_000), (200_000, 2), (600, 600)):
        x = numbers(*shape)
        for d in range(x.dim()):
            check(lambda x, d=d: (x * 0.01).cumsum(d).tanh(), x)
