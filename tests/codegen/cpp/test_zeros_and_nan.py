"""Signs of zeros and nan, beside eager's: its kernels choose by rules that are no part of an operator's meaning.

Sizes are below and at a multiple of what eager's vectors take: between them it chooses by place (tests/test_footguns.py).
"""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from graftjit import jit

NAN, INF = float("nan"), float("inf")
SPECIAL = (0.0, -0.0, NAN, INF, -INF, 1.0, -1.0, 2.5, -3.0)
OPERATORS = {
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "clamp_min": lambda a, b: a.clamp_min(b),
    "clamp_max": lambda a, b: a.clamp_max(b),
    "clamp": lambda a, b: a.clamp(b, b),
    "clamp by numbers": lambda a, b: (a.clamp_min(-0.0), b.clamp_max(0.0), b.clamp(0.0, -0.0)),
    "lerp": lambda a, b: (torch.lerp(a, b, 1.0), torch.lerp(a, b, 0.25)),
    "softshrink": lambda a, b: (F.softshrink(a), F.softshrink(b)),
    "hardshrink": lambda a, b: (F.hardshrink(a), F.relu(b)),
    "pow": lambda a, b: (a**-0.5, b**0.5, a**2, b**-1),
    "remainder": lambda a, b: (torch.remainder(a, 2.0), torch.fmod(b, 2.0)),
    "where": lambda a, b: (torch.where(a > b, a, b), torch.where(a <= b, a, b)),
}


def _fresh(fn: Any) -> Any:
    return types.FunctionType(fn.__code__.replace(), fn.__globals__, fn.__name__)


def _given(dtype: torch.dtype, size: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    zeros = torch.zeros(size, dtype=dtype)
    pool, made = torch.tensor(SPECIAL, dtype=dtype), torch.Generator().manual_seed(size)
    drawn = [pool[torch.randint(len(pool), (size,), generator=made)] for _ in range(2)]
    rows = torch.arange(size) % 2 * -0.0
    apart = torch.stack([rows, rows], 1).to(dtype)[:, 0]  # strided: eager takes it one by one
    return [
        (zeros, -zeros),
        (-zeros, zeros),
        (drawn[0], drawn[1]),
        (zeros, -apart),
        (apart, -zeros),
    ]


def _bits(found: Any) -> list[tuple[Any, Any]]:
    """Where a result is nan, and the sign of what is not."""
    flat = found if isinstance(found, tuple) else (found,)
    return [(x.isnan().tolist(), (torch.signbit(x) & ~x.isnan()).tolist()) for x in flat]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_signs_of_zeros_and_nan(dtype: torch.dtype) -> None:
    def all_of(given: Any) -> Any:
        return [[of(a, b) for a, b in given] for of in OPERATORS.values()]

    given = [pair for size in (7, 64) for pair in _given(dtype, size)]
    plain, found = all_of(given), jit(_fresh(all_of))(given)
    wrong = [
        f"{name}, {a[:2].tolist()}... of {len(a)}"
        for name, ours, theirs in zip(OPERATORS, found, plain, strict=True)
        for (a, _), x, y in zip(given, ours, theirs, strict=True)
        if _bits(x) != _bits(y)
    ]
    assert not wrong, "\n".join(wrong)


def along(x: torch.Tensor, dim: int) -> tuple[torch.Tensor, ...]:
    """Values with places, values alone, and those of what is computed."""
    alone = (x.max(dim).values, (x * 0.5).min(dim, keepdim=True).values)
    return (*x.min(dim), *alone, *x.aminmax(dim=dim))


# Short rows, rows in lanes, rows turned over, a row in pieces, more rows than lanes.
SHAPES = ((3, 8), (33, 40), (70, 17), (5, 128), (300, 70))
POOLS = ((0.0, -0.0), (0.0, -0.0, -1.0, -2.0), (0.0, -0.0, 1.0), (0.0, -0.0, NAN, -INF))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_of_zeros_along_a_dimension_the_first_one_stays(dtype: torch.dtype) -> None:
    """Eager's folds of two results go along the dimension, element by element, whatever its strides."""
    made = torch.Generator().manual_seed(0)
    for shape in SHAPES if dtype == torch.float32 else SHAPES[1:3]:
        for pool in POOLS:
            x = torch.tensor(pool, dtype=dtype)[torch.randint(len(pool), shape, generator=made)]
            for dim in (0, 1):
                plain, found = along(x, dim), jit(along)(x, dim)
                assert _bits(found) == _bits(plain), f"{shape} {pool} along {dim}"


def test_of_zeros_in_a_row_for_several_threads_the_first_one_stays() -> None:
    of = jit(lambda x: x.max(-1).values)
    for first in (0.0, -0.0):
        x = torch.full((2, 140_000), -1.0)
        x[:, 30_003:] = -first
        x[:, 30_001] = first
        x[1, 60_001:] = first
        assert torch.signbit(of(x)).tolist() == torch.signbit(x.max(-1).values).tolist()


NORMS = {
    "layer": lambda x: F.layer_norm(x, x.shape[1:]),
    "layer with weight": lambda x: F.layer_norm(x, x.shape[1:], -x[0].abs() - 1),
    "layer with bias": lambda x: F.layer_norm(x, x.shape[1:], None, x[0] * 0),
    "batch": lambda x: F.batch_norm(x, None, None, training=True),
    "batch with weight": lambda x: F.batch_norm(x, None, None, -x[0].abs() - 1, training=True),
    "instance": lambda x: F.instance_norm(x[None]),
    "group": lambda x: F.group_norm(x, 1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norms_of_zeros(dtype: torch.dtype) -> None:
    """Where no bias is given eager adds zeros, and a negative zero becomes a positive one."""

    def all_of(x: torch.Tensor) -> Any:
        return [of(x) for of in NORMS.values()]

    for shape in ((3, 8), (40, 3), (33, 40)):
        made = torch.Generator().manual_seed(0)
        x = torch.tensor((0.0, -0.0), dtype=dtype)[torch.randint(2, shape, generator=made)]
        plain, found = all_of(x), jit(_fresh(all_of))(x)
        for name, ours, theirs in zip(NORMS, found, plain, strict=True):
            assert _bits(ours) == _bits(theirs), f"{name} {shape}"


@pytest.mark.parametrize("size", [3, 6, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_at_nan(size: int, dtype: torch.dtype) -> None:
    def total(x: torch.Tensor, of: Any) -> torch.Tensor:
        return of(x).nansum()

    for of in (F.elu, F.celu, F.selu):
        grads = []
        for call in (total, jit(_fresh(total))):
            x = torch.full((size,), NAN, dtype=dtype, requires_grad=True)
            call(x, of).backward()
            grads.append(x.grad)
        torch.testing.assert_close(*grads, rtol=0, atol=0, equal_nan=True)


ACTIVATIONS = (
    F.relu, F.relu6, F.leaky_relu, F.elu, F.celu, F.selu, F.silu, F.softplus, F.hardtanh, F.hardsigmoid, F.mish,
    F.logsigmoid, torch.sigmoid, torch.tanh,
)  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_at_special_numbers(dtype: torch.dtype) -> None:
    def all_of(x: torch.Tensor, y: torch.Tensor) -> Any:
        return [of(one) for of in ACTIVATIONS for one in (x, y)]

    greatest = torch.finfo(dtype).max
    points = torch.tensor([*SPECIAL, greatest, -greatest], dtype=dtype)
    above = torch.tensor([1.0, 2.5, greatest, -INF, NAN, -0.0, -3.0], dtype=dtype)
    pairs = torch.cartesian_prod(points, above).t().contiguous()
    grads = []
    for call in (all_of, jit(_fresh(all_of))):
        x, y = (pairs[0][:n].clone().requires_grad_() for n in (7, 64))
        outs = call(x, y)
        above = [pairs[1][: len(out)] for out in outs]
        each = [
            torch.autograd.grad(o, (x, y), g, True, allow_unused=True)
            for o, g in zip(outs, above, strict=True)
        ]
        grads.append([g for pair in each for g in pair if g is not None])
    for number, (ours, theirs) in enumerate(zip(*grads, strict=True)):
        wrong = _bits(ours) != _bits(theirs)
        assert not wrong, f"{ACTIVATIONS[number // 2].__name__} of {len(ours)}"


def test_inverse_hyperbolic_functions_of_large_doubles() -> None:
    x = torch.tensor([1e160, 1e308, 1e10, 3.0], dtype=torch.float64)
    for of in (torch.asinh, torch.acosh):
        assert torch.allclose(jit(lambda x, of=of: of(x))(x), of(x), rtol=1e-15)
    assert torch.allclose(jit(lambda x: torch.asinh(-x))(x), torch.asinh(-x), rtol=1e-15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("whole", [torch.int64, torch.int32, torch.int16, torch.int8])
def test_floats_through_integers(dtype: torch.dtype, whole: torch.dtype) -> None:
    """A conversion to integers and back is not trunc: -0.5 becomes 0.0, and nan a number."""

    def there_and_back(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        scaled = x * 1
        return scaled.to(whole).to(dtype), scaled.to(whole).float(), scaled.to(whole).double()

    for size in (7, 64):
        pool = torch.tensor([-0.5, -0.0, 0.75, NAN, INF, -INF, 1e20, -3.5, 100.0], dtype=dtype)
        x = pool[torch.arange(size) % len(pool)]
        wanted, found = there_and_back(x), jit(there_and_back)(x)
        assert _bits(found) == _bits(wanted)
        for one, other in zip(wanted, found, strict=True):
            assert torch.equal(one.nan_to_num(), other.nan_to_num())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_numbers_among_narrow_floats_are_rounded_to_the_nearest(dtype: torch.dtype) -> None:
    def chosen(m: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.where(m, 3.7, x), torch.where(m, x, -0.1), x.masked_fill(m, 3.7), x * 2 + 0.3

    for size in (5, 64):
        x = torch.arange(size).to(dtype)
        wanted, found = chosen(x > 2, x), jit(_fresh(chosen))(x > 2, x)
        assert all(torch.equal(one, other) for one, other in zip(wanted, found, strict=True))
