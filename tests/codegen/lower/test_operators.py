"""Each lowered operator against eager: dtypes, shapes, strides, broadcasting, special values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from ..harness import check, differs, make
from ..operators import BINARY, UNARY, values

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def integers(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    limits = torch.iinfo(dtype)
    x = torch.randint(max(limits.min, -50), min(limits.max, 50), shape, generator=generator)
    flat = x.flatten()
    flat[:2] = torch.tensor([limits.min, limits.max])
    return flat.reshape(shape).to(dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_unary_operators_of_floats(dtype: torch.dtype) -> None:
    _all_the_same(UNARY, values((5, 47), dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_binary_operators_of_floats(dtype: torch.dtype) -> None:
    x, y = values((5, 47), dtype), values((5, 47), dtype, seed=1)
    y = torch.where(y.abs() < 1e-30, 1.0, y)  # eager's fmod makes nan of a denormal divisor
    _all_the_same(BINARY, x, y)


def _all_the_same(
    table: dict[str, Callable[..., Any]], *inputs: torch.Tensor, exact: bool = False
) -> None:
    """Every function of the table against eager; many in one graph, so that one compilation serves them."""
    known = {}
    for name, fn in table.items():
        try:
            with torch.no_grad():
                known[name] = fn(*inputs)
        except (RuntimeError, NotImplementedError):
            continue  # eager has no such operator for these types
    made = make(lambda *inputs: [table[name](*inputs) for name in known], *inputs)
    found = made.run(*inputs)
    for (name, theirs), ours in zip(known.items(), found, strict=True):
        problem = differs(ours, theirs)
        if exact and not problem and not torch.equal(ours, theirs):
            problem = "not exact"
        assert not problem, f"{name} of {inputs[0].dtype}: {problem}; ours {ours}, eager {theirs}"


INTEGER: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "add_number": lambda x, y: x + 3,
    "true_div": lambda x, y: x / (y * y + 1),
    "floor_div": lambda x, y: x // 7,
    "remainder": lambda x, y: x % 7,
    "fmod": lambda x, y: torch.fmod(x, 7),
    "trunc_div": lambda x, y: torch.div(x, 7, rounding_mode="trunc"),
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "not": lambda x, y: ~x,
    "neg": lambda x, y: -x,
    "abs": lambda x, y: x.abs(),
    "sign": lambda x, y: x.sign(),
    "relu": lambda x, y: x.relu(),
    "maximum": lambda x, y: torch.maximum(x, y),
    "clamp": lambda x, y: x.clamp(1, 9),
    "lt": lambda x, y: x < y,
    "eq": lambda x, y: x == y,
    "gt_float": lambda x, y: x > 2.5,
    "where": lambda x, y: torch.where(x > y, x, y),
    "square": lambda x, y: x**2,
    "cube": lambda x, y: x**3,
    "shift_left": lambda x, y: x << (y & 3),
    "shift_right": lambda x, y: x >> (y & 3),
    "shift_number": lambda x, y: x << 2,
    "to_float": lambda x, y: x.float() + 0.5,
    "to_double": lambda x, y: x.double(),
    "to_bool": lambda x, y: x.bool(),
    "to_int64": lambda x, y: x.long() + y,
    "to_int8": lambda x, y: x.to(torch.int8),
    "to_uint8": lambda x, y: x.to(torch.uint8),
    "to_bfloat16": lambda x, y: x.bfloat16(),
    "sum": lambda x, y: x.sum(-1),
    "prod": lambda x, y: x.prod(-1),
    "amax": lambda x, y: x.amax(-1),
    "amin": lambda x, y: x.amin(-1),
    "argmin": lambda x, y: x.argmin(-1),
    "mix": lambda x, y: x + y.float() * 0.5,
    "masked_fill": lambda x, y: x.masked_fill(y > 0, 3),
    "logical_and": lambda x, y: torch.logical_and(x, y),
    "heaviside": lambda x, y: torch.heaviside(x, y),
    "threshold": lambda x, y: F.threshold(x, 3, -7 if x.dtype.is_signed else 7),
    "signbit": lambda x, y: torch.signbit(x),
    "sgn": lambda x, y: torch.sgn(x),
    "isposinf": lambda x, y: torch.isposinf(x),
    "count_nonzero": lambda x, y: torch.count_nonzero(x, 0),
    "aminmax": lambda x, y: torch.aminmax(x).max,
}


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_operators_of_integers_are_exact(dtype: torch.dtype) -> None:
    x, y = integers((5, 47), dtype), integers((5, 47), dtype, seed=1)
    _all_the_same(INTEGER, x, y, exact=True)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_shifts_are_kernels_for_any_count(dtype: torch.dtype) -> None:
    x = integers((5, 67), dtype)
    counts = torch.arange(67).sub(9 if dtype.is_signed else 0).to(dtype)
    check(lambda x, y: (x << y, x >> y, x << 2, x >> 70), x, counts)
    check(lambda x, y: (torch.bitwise_left_shift(x, y), torch.bitwise_right_shift(x, y)), x, counts)


def test_operators_of_bools() -> None:
    x, y = torch.rand(7, 33) > 0.5, torch.rand(33) > 0.5
    for fn in (
        lambda x, y: x & y,
        lambda x, y: x | y,
        lambda x, y: x ^ y,
        lambda x, y: ~x,
        lambda x, y: x == y,
        lambda x, y: x < y,
        lambda x, y: x >= y,
        lambda x, y: torch.where(x, y, ~y),
        lambda x, y: x.sum(-1),
        lambda x, y: x.any(-1) | y.all(),
        lambda x, y: x.float() * 2,
        lambda x, y: x.to(torch.uint8) + 1,
        lambda x, y: x.long() * y,
        lambda x, y: x.amax(-1),
    ):
        check(fn, x, y, library=None)


CASTS = (*FLOATS, *INTEGERS, torch.bool)


@pytest.mark.parametrize("source", CASTS, ids=str)
def test_casts_to_all_types(source: torch.dtype) -> None:
    x = torch.linspace(0 if source.is_floating_point else -100, 100, 67, dtype=torch.float64).to(
        source
    )
    table = {f"to {target}": lambda x, to=target: x.to(to, copy=True) for target in CASTS}
    _all_the_same(table, x, exact=True)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 67])
def test_tails(size: int) -> None:
    x, y = torch.randn(3, size), torch.randn(size, dtype=torch.float64)
    check(lambda x, y: torch.sin(x) * 2 + x.float(), x, y)
    check(lambda x, y: x + y, x, y)
    check(lambda x, y: (torch.softmax(x, -1), x.sum(-1), x.amax(-1), x.argmax(-1)), x, y)
    check(lambda x, y: (x > 0) & (x < 1), x, y)


SHAPES = [(), (1,), (0,), (4, 0), (1, 1), (2, 3, 4), (3, 1, 5), (1, 7), (129, 3)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    check(lambda x: torch.tanh(x) + x * 2, x, library=None)
    check(lambda x: x.sum(), x, library=None)
    check(lambda x: (x * 2).mean(), x, library=None)
    if shape and 0 not in shape:
        check(lambda x: torch.softmax(x, 0) + 1, x, library=None)
        check(lambda x: F.layer_norm(x, x.shape[-1:]), x)
        check(lambda x: x.var(-1), x) if shape[-1] > 1 else None


def test_strides_and_broadcasting() -> None:
    x, y = torch.randn(6, 5, 4), torch.randn(4, 5, 6)
    check(lambda x, y: x + y.permute(2, 1, 0), x, y)
    check(lambda x, y: x.transpose(0, 2) * y, x, y)
    check(lambda x, y: x[:, ::2] + y[0, 0, 0], x, y)
    check(lambda x, y: x[1:3, :, 2] * y[0, :, 1], x, y)
    check(lambda x, y: x.unsqueeze(1) + y[:1, :, :4], x, y)
    check(lambda x, y: torch.relu(x).permute(2, 0, 1) + 1, x, y)
    check(lambda x, y: (x * 2).view(30, 4) + y.reshape(30, 4), x, y)
    check(lambda x, y: (x * 2).view(6, 20).sin(), x, y)
    check(lambda x, y: x.expand(2, 6, 5, 4) + 1, x, y)
    check(lambda x, y: (x + 1)[:, 0] * y[0, 0, :4], x, y)
    check(lambda x, y: x.flatten() + y.flatten(), x, y)
    check(lambda x, y: torch.as_strided(x, (3, 3), (2, 5)) + 1, x, y)
    check(lambda x, y: x.diagonal(0, 1, 2) * 2, x, y)
    channels_last = torch.randn(2, 8, 5, 5).to(memory_format=torch.channels_last)
    check(lambda x: torch.relu(x) * 2, channels_last)
    check(lambda x: x + torch.ones(5), channels_last, library=None)


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": lambda x, d, k: x.sum(d, keepdim=k),
    "mean": lambda x, d, k: x.mean(d, keepdim=k),
    "amax": lambda x, d, k: x.amax(d, keepdim=k),
    "amin": lambda x, d, k: x.amin(d, keepdim=k),
    "var": lambda x, d, k: x.var(d, keepdim=k),
    "std": lambda x, d, k: x.std(d, unbiased=False, keepdim=k),
    "any": lambda x, d, k: (x > 2).any(d, keepdim=k),
    "all": lambda x, d, k: (x > -2).all(d, keepdim=k),
    "logsumexp": lambda x, d, k: torch.logsumexp(x, d, keepdim=k),
    "norm": lambda x, d, k: torch.linalg.vector_norm(x, 2, d, keepdim=k),
    "norm1": lambda x, d, k: torch.linalg.vector_norm(x, 1, d, keepdim=k),
    "var_mean": lambda x, d, k: torch.var_mean(x, d, keepdim=k),
}
ONE_DIM: dict[str, Callable[..., Any]] = {
    "argmax": lambda x, d: x.argmax(d),
    "argmin": lambda x, d: x.argmin(d, keepdim=True),
    "prod": lambda x, d: x.prod(d),
    "max": lambda x, d: tuple(x.max(d)),
    "min": lambda x, d: tuple(x.min(d, keepdim=True)),
    "softmax": lambda x, d: torch.softmax(x, d),
    "log_softmax": lambda x, d: torch.log_softmax(x, d),
}
DIMS = [(-1,), (0,), (1,), (0, 1), (1, 2), (0, 2), (0, 1, 2)]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_reductions(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 19, 37).to(dtype)
    for dims in DIMS:
        table = {
            f"{name} {dims} {keep}": lambda x, fn=fn, k=keep, d=dims: fn(x, d, k)
            for (name, fn), keep in itertools.product(REDUCTIONS.items(), (False, True))
        }
        _all_the_same(_flat(table, x), x)
    for dim in (0, 1, -1):
        table = {f"{name} {dim}": lambda x, fn=fn, d=dim: fn(x, d) for name, fn in ONE_DIM.items()}
        _all_the_same(_flat(table, x), x)
    names = ("sum", "mean", "max", "min", "argmax", "var", "prod")
    _all_the_same({name: lambda x, name=name: getattr(x, name)() for name in names}, x)


def _flat(table: dict[str, Callable[..., Any]], x: torch.Tensor) -> dict[str, Callable[..., Any]]:
    """A function for each result of those that have several."""
    found = {}
    for name, fn in table.items():
        if isinstance(fn(x), tuple):
            for i in range(2):
                found[f"{name} {i}"] = lambda x, fn=fn, i=i: fn(x)[i]
        else:
            found[name] = fn
    return found


def test_reductions_with_nan_and_infinities() -> None:
    rows = torch.randn(6, 50)
    rows[0, 3] = math.nan
    rows[1, 4] = math.inf
    rows[2] = -math.inf
    rows[3, 7], rows[3, 9] = math.inf, -math.inf
    rows[4] = 0.0
    rows[5, 10] = rows[5, 20] = rows[5].max() + 1
    for fn in (
        lambda x: x.amax(-1),
        lambda x: x.amin(-1),
        lambda x: x.argmax(-1),
        lambda x: x.argmin(-1),
        lambda x: x.sum(-1),
        lambda x: torch.softmax(x, -1),
        lambda x: torch.log_softmax(x, -1),
        lambda x: torch.logsumexp(x, -1),
        lambda x: tuple(x.max(-1)),
        lambda x: x.mean(),
    ):
        check(fn, rows)
        check(fn, rows.t().contiguous().t())


def test_a_long_sum_is_as_accurate_as_eager() -> None:
    x = torch.rand(3_000_001)
    exact = x.double().sum()
    made = check(lambda x: x.sum(), x, kernels=1)
    ours = abs(made.run(x)[0].double() - exact)
    assert ours <= 4 * abs(x.sum().double() - exact) + exact * 2e-7
    columns = torch.rand(50_000, 8)
    made = check(lambda x: x.sum(0), columns, kernels=1)
    assert (made.run(columns)[0].double() - columns.double().sum(0)).abs().max() < 0.02


def test_normalizations_are_one_kernel() -> None:
    x, w, b = torch.randn(11, 7, 64), torch.randn(64), torch.randn(64)
    check(lambda x: torch.softmax(x, -1), x, kernels=1)
    check(lambda x, w, b: F.layer_norm(x, (64,), w, b), x, w, b, kernels=1)
    check(lambda x, w, b: F.gelu(F.layer_norm(x, (64,), w, b)) + x, x, w, b, kernels=1)
    check(lambda x, w: F.rms_norm(x, (64,), w), x, w, kernels=1)
    check(lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w, x, w, kernels=1)
    check(lambda x: torch.softmax(x * 0.125 + 1, -1) * 2, x, kernels=1)
    check(lambda x: (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True), x, kernels=1)
    check(lambda x: F.normalize(x, dim=-1), x, kernels=1)
    check(lambda x: x / x.norm(), x, kernels=1)
    check(lambda x: torch.softmax(x, 1), x, kernels=1)
    check(lambda x: x.bfloat16().softmax(-1), x, kernels=1)


def test_batch_norm_of_inference_joins_its_neighbours() -> None:
    x = torch.randn(3, 8, 6, 6)
    norm = torch.nn.BatchNorm2d(8).eval()
    norm.running_mean.uniform_(-1, 1)
    norm.running_var.uniform_(0.5, 2)
    check(lambda x: torch.relu(norm(x)) + x, x, kernels=1)


def test_creation_and_indices() -> None:
    x = torch.randn(9, 9)
    check(lambda x: x + torch.arange(9), x, library=None)
    check(lambda x: x * torch.arange(0, 4.5, 0.5), x, library=None)
    check(lambda x: torch.tril(x) + torch.triu(x, 1), x)
    check(lambda x: x.masked_fill(torch.ones(9, 9).tril() == 0, -1e9), x, library=None)
    check(lambda x: torch.zeros(9, 9), x, library=None)
    check(lambda x: (x * 0 + torch.full((9,), 3.0)).cos(), x)


def test_arange_of_integers_between_floats() -> None:
    x = torch.ones((), dtype=torch.int8)
    for dtype in (torch.int8, torch.int32, torch.int64):
        bounds = (
            (0.0, -8.000001, -4.0),
            (-0.9, 2.1, 2.0),
            (0.1, -7.9, -4.0),
            (3.1,),
            (0.5, 9, 1.5),
        )
        for given in bounds:
            check(lambda x, given=given, dtype=dtype: torch.arange(*given, dtype=dtype) + x, x,
                  library=None)  # fmt: skip


def test_random_relu_of_a_transposed_operand() -> None:
    x = torch.randn(5, 7).t()
    made = make(lambda x: -F.rrelu(-x, 0.0, 1.0, training=True), x)
    torch.manual_seed(3)
    expected = -F.rrelu(-x, 0.0, 1.0, training=True)
    torch.manual_seed(3)
    (found,) = made.run(x)
    assert found.stride() == expected.stride()
    assert torch.equal(found, expected)


def test_zeros_have_eager_s_sign() -> None:
    x = torch.tensor([-0.3, 0.3, -0.0, 0.0, -1.0, math.nan, 0.2, -0.2] * 4)
    assert torch.equal(torch.signbit(make(F.softshrink, x).run(x)[0]),
                       torch.signbit(F.softshrink(x)))  # fmt: skip
    one, weight = torch.tensor([[3.0], [1.0]]), torch.tensor([-2.0])
    made = make(lambda x, w: F.layer_norm(x, (1,), w), one, weight)
    assert not torch.signbit(made.run(one, weight)[0]).any()
    assert not torch.signbit(F.layer_norm(one, (1,), weight)).any()


def test_a_batch_of_products_with_long_rows() -> None:
    x, y = torch.randn(3, 7, 1), torch.randn(3, 1, 11)
    check(lambda x, y: -torch.bmm(-x, -y), x, y)
