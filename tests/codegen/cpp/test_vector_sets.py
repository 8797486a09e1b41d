"""Kernels for the vector sets of other processors: what math.h writes differently for each is right on all."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from .. import operators
from ..harness import check, make


def test_operators_on_special_values(vector_set: str) -> None:
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x = operators.values((5, 47), dtype)
        functions = list(operators.UNARY.values())
        check(lambda x: tuple(fn(x) for fn in functions[:24]), x, library=None)
    x, y = operators.values((5, 47), torch.float32), operators.values((5, 47), torch.float32, 1)
    check(lambda x, y: (x.maximum(y), x.minimum(y), x.fmax(y), x.fmin(y)), x, y)


def test_rounding_of_narrow_floats(vector_set: str) -> None:
    """Every float16 and bfloat16, and floats on both sides of the middle between two of them."""
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    for dtype in (torch.float16, torch.bfloat16):
        narrow = bits.view(dtype)
        exact = narrow.float()[narrow.isfinite()]
        around = torch.stack([exact, exact * 1.0001, exact * (1 + 2**-9), exact * (1 + 2**-12)])
        check(lambda x: x.float() * 0.5, narrow, library=None)
        check(lambda x, dtype=dtype: (x * 1.5).to(dtype), around, library=None)
        check(lambda x: x + x * 0.25, narrow, library=None)


def test_reductions_and_normalizations(vector_set: str) -> None:
    x = torch.randn(37, 83)
    x[3, 5] = torch.nan
    for y in (x, x.t().contiguous().t()):
        check(lambda x: (x.amax(-1), x.sum(-1), x.argmax(-1), torch.softmax(x, -1)), y)
        check(lambda x: F.layer_norm(x, (83,)) + torch.tanh(x), y)


ONE = {
    name: getattr(torch, name)
    for name in "exp2 log2 log10 sinh cosh asin acos atan asinh acosh atanh tan erfc".split()
}
TWO = {name: getattr(torch, name) for name in "atan2 hypot pow fmod remainder".split()}
EDGES = torch.tensor([
    0.0, -0.0, 1.0, -1.0, torch.inf, -torch.inf, torch.nan, 1e-40, -1e-40, 0.5, -0.5, 1.5, 2.0, 3.0, -2.0, -3.0, 88.5,
    -103.5, 1e30, -1e30, 16777216.0, -16777217.0, 8388609.0, -8388609.0, 1e-30, 127.0, -149.0, 10.0, 1000.0, 1e9,
])  # fmt: skip


def _arguments(seed: int) -> torch.Tensor:
    torch.manual_seed(seed)
    bits = torch.randint(-(2**31), 2**31 - 1, (2000,)).to(torch.int32).view(torch.float32)
    near, far = torch.rand(2000) * 2 - 1, torch.randn(2000) * 20
    return torch.cat([bits[bits == bits], near, far, torch.randn(500) * 1e6, EDGES])


def _within(ours: torch.Tensor, fn: Callable[..., torch.Tensor], *xs: torch.Tensor) -> None:
    """One unit in the last place (0.51 for most of them; exp2 without fused multiplication more), and eager's infinities,
    nans and signs of zeros."""
    bound = 1.6 if fn is torch.exp2 else 1.0
    exact, eager = fn(*[x.double() for x in xs]), fn(*xs)
    rounded = exact.float()
    unit = (torch.nextafter(rounded.abs(), torch.tensor(torch.inf)) - rounded.abs()).double()
    normal = rounded.isfinite() & (rounded.abs() > 1.2e-38)
    assert (((ours.double() - exact).abs() / unit)[normal] <= bound).all()
    other = ~normal & ~(exact.isfinite() & (rounded != 0)) & ~(eager.isnan() & exact.isfinite())
    assert torch.equal(ours[other].nan_to_num(7.0), eager[other].nan_to_num(7.0))
    zeros = other & (eager == 0)
    assert torch.equal(ours[zeros].signbit(), eager[zeros].signbit())


def test_functions_in_double(vector_set: str) -> None:
    x = _arguments(0)
    made = make(lambda x: tuple(fn(x) for fn in ONE.values()), x)
    for fn, found in zip(ONE.values(), made.run(x), strict=True):
        _within(found, fn, x)
    grid = torch.cartesian_prod(EDGES, EDGES)
    x, y = torch.cat([x, grid[:, 0]]), torch.cat([_arguments(1)[: len(x)].roll(77), grid[:, 1]])
    x, y = x[: len(y)], y[: len(x)]
    for pair in ((x, y), (x.abs(), y.clamp(-20, 20)), (x, y.clamp(-9, 9).round())):
        made = make(lambda x, y: tuple(fn(x, y) for fn in TWO.values()), *pair)
        for fn, found in zip(TWO.values(), made.run(*pair), strict=True):
            _within(found, fn, *pair)


def test_rests_of_doubles_are_exact(vector_set: str) -> None:
    """Where the quotient rounds up to a whole number, beyond all vectors' reach, and at the ends of the range."""
    torch.manual_seed(0)
    whole, y = torch.randint(1, 2**51, (999,)).double(), torch.rand(999, dtype=torch.float64)
    edges = torch.cartesian_prod(*[torch.cat([EDGES.double(), torch.tensor([5e-324, 1e308])])] * 2)
    x = torch.cat([
        torch.nextafter(whole * y, torch.zeros(())), torch.randn(999).double() * 1e9, edges[:, 0],
    ])  # fmt: skip
    y = torch.cat([y, torch.randn(999).double(), edges[:, 1]])
    (found,) = make(torch.fmod, x, y).run(x, y)
    strange = x.isinf() | (y == 0) | x.isnan() | y.isnan()
    pairs = zip(x.tolist(), y.tolist(), strange.tolist(), strict=True)
    rests = [math.nan if odd else math.fmod(a, b) for a, b, odd in pairs]
    exact = torch.tensor(rests, dtype=torch.float64)
    assert torch.equal(found.nan_to_num(7.0), exact.nan_to_num(7.0))
    assert torch.equal(found.signbit() & ~strange, exact.signbit() & ~strange)
    check(lambda x, y: (x % y, torch.div(x, y, rounding_mode="floor")), x[999:1998], y[999:1998])


def test_hyperbolic_functions_of_doubles_near_their_overflow(vector_set: str) -> None:
    x = torch.cat([torch.linspace(-713, 713, 2001, dtype=torch.float64), EDGES.double()])
    for fn, exactly in ((torch.sinh, math.sinh), (torch.cosh, math.cosh)):
        (found,) = make(fn, x).run(x)
        near, far = x.abs() < 710.4, ~(x.abs() < 711)  # eager is infinite from 710 on
        exact = torch.tensor([exactly(v) for v in x[near].tolist()], dtype=torch.float64)
        assert torch.allclose(found[near], exact, rtol=4e-16, atol=0)
        assert torch.equal(found[far].nan_to_num(7.0), fn(x)[far].nan_to_num(7.0))


def test_parts_of_vectors(vector_set: str) -> None:
    """Loads and stores of some lanes, of each width: what lies beside them stays."""
    for dtype in (
        torch.float16,
        torch.bfloat16,
        torch.int16,
        torch.uint8,
        torch.float32,
        torch.int64,
    ):
        x = torch.randint(0, 100, (6, 80)).to(dtype)
        check(lambda x: tuple(x[:, :n] + x[:, n : 2 * n] for n in (1, 2, 3, 7, 8, 13, 31, 33)), x)
        check(lambda x: torch.cat([x[:, 5:] * 2, x[:, :3] + x[:, 2:5], x[:, :9] * 3], 1), x)
        check(lambda x, y: torch.where(y[:, :9], x[:, :9].double(), x[:, 1:10].double()), x, x > 50)


def test_sines_of_large_arguments(vector_set: str) -> None:
    x = torch.cat([torch.randn(3000) * 10.0**k for k in range(3, 13)] + [EDGES[EDGES.abs() < 1e30]])
    for fn in (torch.sin, torch.cos):
        (found,) = make(fn, x).run(x)
        exact = fn(x.double())
        kept = exact.isfinite()
        assert ((found - exact).abs()[kept] <= 1e-7).all()
        assert torch.equal(found.isnan(), exact.isnan())


def test_sines_are_within_a_unit(vector_set: str) -> None:
    """Also close to their zeros, where what pi / 2 is rounded by is all that is left."""
    if vector_set == "baseline":
        pytest.skip("without fused multiplication the products of the reduction are rounded")
    turns = (torch.arange(1, 5215) * (torch.pi / 2)).float()
    near = [
        turns,
        torch.nextafter(turns, torch.tensor(torch.inf)),
        torch.nextafter(turns, torch.tensor(0.0)),
    ]
    x = torch.cat([torch.empty(1 << 15).uniform_(-r, r) for r in (1, 4, 100, 8000)] + near)
    for fn in (torch.sin, torch.cos):
        (found,) = make(fn, x).run(x)
        exact = fn(x.double())
        unit = 2.0 ** (exact.abs().log2().floor() - 23)
        assert ((found.double() - exact).abs() / unit).max() <= 1.0


def test_functions_between_other_widths(vector_set: str) -> None:
    """Lanes of doubles that are as many as the floats', and fewer columns than lanes."""
    x, n = torch.rand(9, 37) * 3 + 1, torch.randint(1, 90, (9, 37))
    check(
        lambda x, n: (x.log2() + n, n.atan(), torch.atan2(n, x), (n * 0.1).sinh()),
        x,
        n,
        library=None,
    )
    check(lambda x: (x.log10(), x.cosh(), x**x, x.erfc()), x[:, :3])
    check(lambda x: (x.half().asinh(), x.bfloat16().acosh(), x.half() % 0.7), x)


def test_erf_within_a_unit(vector_set: str) -> None:
    """With AVX-512; two units elsewhere. Odd, never beyond one, and one for what is large."""
    x = torch.cat([_arguments(3), torch.linspace(0, 4.5, 400_000), torch.linspace(0, 1e-3, 10_000)])
    (found,) = make(torch.erf, x).run(x)
    exact = torch.erf(x.double())
    unit = 2.0 ** (exact.abs().log2().floor() - 23).clamp(min=-149)
    kept = exact.isfinite()
    bound = 1.0 if vector_set == "v4" else 2.0
    assert ((found.double() - exact).abs() / unit)[kept].max() <= bound
    assert found[kept].abs().max() == 1.0 and (found[x > 4] == 1.0).all()
    assert torch.equal(found.isnan(), x.isnan())
    assert torch.equal(found.signbit()[~x.isnan()], x.signbit()[~x.isnan()])


def test_nans_that_are_rounded_to_bfloat16(vector_set: str) -> None:
    """Those of all payloads, from memory of either dtype, and those that functions make."""
    narrow = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    check(lambda x: (x * x, x - x, x.exp(), x.log(), x.sqrt(), x.tanh(), x.erf(), x.sigmoid(), x.log1p(),
                     x.expm1(), x.sin(), x.exp2(), x.rsqrt(), x.abs().neg(), x.floor(), (x + x).amax()),
          narrow, library=None)  # fmt: skip
    bits = torch.tensor([0x7F800001, 0x7FFFFFFF, -1, -0x7FFFFF, 0x7F80FFFF], dtype=torch.int32)
    wide = bits.view(torch.float32).repeat(13)
    check(lambda x: (x.bfloat16(), (x + 1).bfloat16(), (-x).bfloat16()), wide)
