"""Every operator and every cast of the loop IR in Triton text, run by Triton's interpreter, against eager."""

from __future__ import annotations

import importlib.util
import itertools

import pytest
import torch

from graftjit.codegen.loops import operators as expr
from graftjit.codegen.loops.loop_nest import Index
from graftjit.codegen.triton import renderer as triton
from graftjit.codegen.triton.dialect import FORMS

from .nests import Build

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -1.5, 3.0, 1e-40, -1e-40, 1e30, -1e30]
SPECIAL += [float("inf"), float("-inf"), float("nan")]

# operator -> eager's; an operator that is not here is torch's own of that name
EAGER = {
    "div": torch.true_divide,
    "floor_div": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "int_floor_div": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "int_trunc_div": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "int_remainder": torch.remainder,
    "int_fmod": torch.fmod,
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
    "not": torch.bitwise_not,
    "shl": torch.bitwise_left_shift,
    "shr": torch.bitwise_right_shift,
    "fma": lambda a, b, c: torch.addcmul(c, a, b),
    "erf": torch.special.erf,
    "erfc": torch.special.erfc,
    "hypot": torch.hypot,
}
INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
BY_CONSTANT = ("int_floor_div", "int_trunc_div", "int_remainder", "int_fmod")


def eager(name):
    return EAGER.get(name) or getattr(torch, name)


def run(worker, build):
    kernel = triton.render(build.nest())
    return build.outputs(worker.run(kernel, build.tensors))


def floats(dtype):
    """All pairs of special values, and plain ones."""
    pairs = torch.tensor(list(itertools.product(SPECIAL, SPECIAL)), dtype=dtype)
    plain = torch.randn(64, 2, dtype=dtype) * 3
    return torch.cat([pairs, plain]).unbind(1)


def integers(dtype):
    limits = torch.iinfo(dtype)
    few = [limits.min, limits.max, 0, 1, 2, 3, 7, 63, 100]
    few += [] if dtype == torch.uint8 else [-1, -2, -3, -7, -100]
    return torch.tensor(list(itertools.product(few, few)), dtype=dtype).unbind(1)


def same(found, wanted, rtol=0.0):
    """Equal with nan in the same places, and zeros of the same sign."""
    torch.testing.assert_close(found, wanted, rtol=rtol, atol=0, equal_nan=True)
    if wanted.dtype.is_floating_point:
        zero = wanted == 0
        assert torch.equal(torch.signbit(found[zero]), torch.signbit(wanted[zero]))


def build_of(name, a, b):
    build = Build(name, (), (len(a),))
    x, y = build.load(a), build.load(b)
    if name == "where":
        return build, build.op("where", build.op("lt", x, y), x, y)
    return build, build.op(name, *(x, y, x)[: expr.OPS[name].arity])


def eager_of(name, a, b):
    if name == "where":
        return torch.where(a < b, a, b)
    return eager(name)(*(a, b, a)[: expr.OPS[name].arity])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", [n for n, op in expr.OPS.items() if "f" in op.kinds])
def test_float(worker, name, dtype):
    a, b = floats(dtype)
    if name in ("exp", "exp2", "sinh", "cosh", "expm1") or name in ("sin", "cos", "tan"):
        a = torch.where(a.abs() == 1e30, a.sign() * 50, a)  # periods of huge numbers: numpy's own
    build, value = build_of(name, a, b)
    build.store(value)
    wanted = eager_of(name, a, b)
    exact = expr.OPS[name].cost <= 4 or name == "fmod"  # eager's own sqrt is MKL's
    tolerance = 0.0 if exact else 1e-5 if dtype == torch.float32 else 1e-12
    (found,) = run(worker, build)
    if name in ("maximum", "minimum", "fmax", "fmin"):  # which zero comes out is open
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
    else:
        same(found, wanted, tolerance)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize(
    "name", [n for n, op in expr.OPS.items() if "i" in op.kinds and n not in BY_CONSTANT]
)
def test_integer(worker, name, dtype):
    a, b = integers(dtype)
    if name == "sign" and dtype == torch.uint8:
        wanted = (a > 0).to(dtype)
    else:
        wanted = eager_of(name, a, b)
    build, value = build_of(name, a, b)
    build.store(value)
    same(run(worker, build)[0], wanted)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("name", BY_CONSTANT)
def test_integer_by_constant(worker, name, dtype):
    a, _b = integers(dtype)
    divisors = [2, 3, 7, 100] + ([] if dtype == torch.uint8 else [-2, -3, -7, -100])
    build = Build(name, (), (len(a),))
    x = build.load(a)
    for divisor in divisors:
        build.store(build.op(name, x, build.const(divisor, dtype)))
    for found, divisor in zip(run(worker, build), divisors, strict=True):
        same(found, eager(name)(a, torch.tensor(divisor, dtype=dtype)))


@pytest.mark.parametrize("name", ["and", "or", "xor", "not", "eq", "ne", "where"])
def test_bool(worker, name):
    a, b = torch.tensor([[False, False], [False, True], [True, False], [True, True]]).unbind(1)
    build = Build(name, (), (4,))
    x, y = build.load(a), build.load(b)
    arguments = {"not": (x,), "where": (x, y, build.op("not", y))}.get(name, (x, y))
    build.store(build.op(name, *arguments))
    wanted = torch.where(a, b, ~b) if name == "where" else eager_of(name, a, b)
    same(run(worker, build)[0], wanted)


CASTS = (*INTEGERS, torch.bool, torch.float32, torch.float64, torch.bfloat16, torch.float16)


@pytest.mark.parametrize("source", CASTS, ids=str)
def test_casts(worker, source):
    if source.is_floating_point:
        numbers = [0.0, -0.0, 1.0, 1.4999, 2.5, -3.75, 1 / 3, 100.0, -100.0, 65504.0, 1e-7]
        values = torch.tensor(numbers, dtype=torch.float64).to(source)
    elif source == torch.bool:
        values = torch.tensor([True, False])
    else:
        values = integers(source)[0].contiguous()
    targets = [t for t in CASTS if t != source]
    build = Build("casts", (), (len(values),))
    x = build._add("load", (), source, (build._buffer(values, False), Index((1,))))
    for target in targets:
        build.store(x, target)
    for found, target in zip(run(worker, build), targets, strict=True):
        wanted = values
        if source.is_floating_point and not target.is_floating_point and target != torch.bool:
            kept = values.double().abs() < (2**31 if target != torch.int16 else 2**15)
            if target in (torch.int8, torch.uint8):
                kept = values.double().abs() <= 100  # out of range is not defined in eager either
            found, wanted = found[kept], values[kept]
        same(found, wanted.to(target))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_constants(worker, dtype):
    numbers = [0.0, -0.0, 1 / 3, -2.5, 1e-30, float("inf"), float("-inf"), float("nan"), 3]
    build = Build("constants", (), (5,))
    for number in numbers:
        build.store(build.const(number, dtype))
    for found, number in zip(run(worker, build), numbers, strict=True):
        same(found, torch.full((5,), number, dtype=dtype))


def test_integer_constants(worker):
    for dtype in INTEGERS:
        limits = torch.iinfo(dtype)
        build = Build("constants", (), (3,))
        for number in (limits.min, limits.max, 0, 1):
            build.store(build.const(number, dtype))
        for found, number in zip(run(worker, build), (limits.min, limits.max, 0, 1), strict=True):
            same(found, torch.full((3,), number, dtype=dtype))
    build = Build("flags", (), (3,))
    build.store(build.const(True, torch.bool))
    build.store(build.const(False, torch.bool))
    found = run(worker, build)
    assert found[0].all() and not found[1].any()


def test_narrow_floats_round_where_the_nest_says(worker):
    for dtype in (torch.bfloat16, torch.float16):
        a, b, c = (torch.randn(300).to(dtype) for _ in range(3))
        build = Build("chain", (), (300,))
        x, y, z = build.load(a), build.load(b), build.load(c)
        product = build.cast(build.cast(build.op("mul", x, y), dtype), torch.float32)
        build.store(build.op("add", product, z), dtype)  # rounded twice, as eager
        build.store(build.op("add", build.op("mul", x, y), z), dtype)  # rounded at the store
        twice, once = run(worker, build)
        same(twice, a * b + c)
        same(once, (a.float() * b.float() + c.float()).to(dtype))


def test_every_operator_has_a_form():
    for name, op in expr.OPS.items():
        for kind in op.kinds:
            assert f"{name}:{kind}" in FORMS or name in FORMS
