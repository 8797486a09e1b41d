"""The forms of functions in Triton text: as exact as eager's where float32 matters, cheaper where the result is rounded to 16 bits.

Triton's interpreter runs them, with fused products and correctly rounded powers of 2; truth is float64.
"""

from __future__ import annotations

import importlib.util
import math

import pytest
import torch

from graftjit.codegen.triton import renderer as triton

from .nests import Build, close

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)
F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16


def every(dtype):
    """All values of a type of 16 bits."""
    return torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(dtype)


def wide_range():
    """Numbers of all sizes, denser where functions bend, and special ones."""
    some = torch.cat([torch.linspace(-12, 12, 40001), torch.logspace(-44, 38, 4001)])
    special = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0029599, 0.6]
    return torch.cat([some, -some, torch.tensor(special)])


def ulps(found, wanted):
    """The largest distance from float64's value, in units of float32's last place."""
    rounded = wanted.float()
    unit = (torch.nextafter(rounded.abs(), torch.tensor(math.inf)) - rounded.abs()).double()
    known = rounded.isfinite()
    assert torch.equal(found[~known].nan_to_num(7), rounded[~known].nan_to_num(7))
    return ((found.double() - wanted).abs() / unit)[known].max().item()


def built(x, expression, dtype=None):
    build = Build("made", (), tuple(x.shape))
    build.store(expression(build, build.load(x)), dtype)
    return build


def run(worker, build):
    kernel = triton.render(build.nest())
    return kernel, build.outputs(worker.run(kernel, build.tensors))[0]


@pytest.mark.parametrize("name", ["erf", "tanh"])
def test_functions_without_branches_are_as_near_as_eagers(worker, name):
    x = wide_range()
    kernel, found = run(worker, built(x, lambda b, v: b.op(name, v)))
    assert f"libdevice.{name}" not in kernel.source
    assert ulps(found, getattr(torch, name)(x.double())) < 2.5
    assert torch.equal(found.signbit()[~x.isnan()], x.signbit()[~x.isnan()])


def gelu(b, v):
    grown = b.op("erf", b.op("mul", v, b.const(math.sqrt(0.5), F32)))
    grown = b.op("add", b.const(1.0, F32), grown)
    return b.op("mul", b.op("mul", b.const(0.5, F32), v), grown)


def gelu_tanh(b, v):
    cube = b.op("mul", b.op("mul", v, v), v)
    inner = b.op("fma", b.const(0.044715, F32), cube, v)
    inner = b.op("mul", b.const(math.sqrt(2 / math.pi), F32), inner)
    grown = b.op("add", b.const(1.0, F32), b.op("tanh", inner))
    return b.op("mul", b.op("mul", b.const(0.5, F32), v), grown)


# what it computes, the form of its text, values of bfloat16 and of float16 that may differ
ROUNDED = {
    "gelu": (gelu, "_one_plus_erf", 0, 0),
    "gelu_tanh": (gelu_tanh, "_one_plus_tanh", 0, 1),
    "sigmoid": (lambda b, v: b.op("sigmoid", v), "_sigmoid_16", 0, 3),
    "exp": (lambda b, v: b.op("exp", v), "_exp_16", 1, 1),
}


@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("name", ROUNDED)
def test_all_values_of_16_bits_round_as_exact_forms_do(worker, name, dtype):
    """Step by step in float32, as eager. What differs is the neighbour of a value that is almost in the middle."""
    expression, form, *allowed = ROUNDED[name]
    x = every(dtype).float()  # the interpreter reads small values of bfloat16 wrongly
    kernel, found = run(worker, built(x, expression, dtype))
    assert (form in kernel.source) == (name != "gelu" or dtype == BF16)
    exact, wanted = run(worker, built(x, expression, F32))
    assert form not in exact.source
    wanted = wanted.to(dtype)
    known = ~wanted.isnan()
    assert torch.equal(found.isnan(), ~known)
    apart = known & (found.view(torch.int16) != wanted.view(torch.int16))
    assert int(apart.sum()) <= allowed[dtype == F16]
    steps = found.view(torch.int16).int() - wanted.view(torch.int16).int()
    assert not (steps[apart].abs() > 1).any()


def test_values_that_are_kept_in_float32_are_exact():
    x = torch.empty(64, dtype=BF16)
    build = Build("both", (), (64,))
    value = build.op("sigmoid", build.load(x))
    build.store(value, BF16)
    build.store(value, F32)
    assert "_sigmoid_16" not in triton.render(build.nest()).source
    added = built(x, lambda b, v: b.op("add", b.op("sigmoid", v), b.const(-1.0, F32)), BF16)
    assert "_sigmoid_16" not in triton.render(added.nest()).source
    scaled = built(x, lambda b, v: b.op("neg", b.op("mul", b.op("sigmoid", v), v)), BF16)
    assert "_sigmoid_16" in triton.render(scaled.nest()).source


def test_a_function_beside_1_plus_it_is_computed(worker):
    x = torch.randn(64)
    build = Build("both", (), (64,))
    value = build.op("erf", build.load(x))
    build.store(build.op("add", value, build.const(1.0, F32)), BF16)
    build.store(value, F32)
    kernel = triton.render(build.nest())
    assert "_one_plus_erf(v" in kernel.source and "= _erf(v" in kernel.source
    more, plain = build.outputs(worker.run(kernel, build.tensors))
    close(more, (1 + torch.erf(x)).bfloat16())
    close(plain, torch.erf(x))
    alone = built(x, lambda b, v: b.op("add", b.op("erf", v), b.const(1.0, F32)), BF16)
    assert "= _erf(v" not in triton.render(alone.nest()).source
    double = built(
        x.double(), lambda b, v: b.op("add", b.const(1.0, torch.float64), b.op("erf", v)), BF16
    )
    close(run(worker, double)[1], (1 + torch.erf(x.double())).bfloat16())


@pytest.mark.parametrize("dtype", [BF16, F32])
def test_softmax_divides_once_a_row_where_it_is_rounded(worker, dtype):
    x = (torch.randn(5, 300) * 8).to(dtype)
    x[0] = -math.inf
    x[1, :3] = torch.tensor([math.inf, 0.0, math.nan])
    build = Build("softmax", (5,), (300,))
    element = build.load(x)
    power = build.op("exp", build.op("sub", element, build.reduce("max", element)))
    build.store(build.op("div", power, build.reduce("sum", power)), dtype)
    kernel, found = run(worker, build)
    assert ("_exp_16" in kernel.source) == (dtype == BF16)
    assert ("* tl.div_rn(tl.full((), 1.0" in kernel.source) == (dtype == BF16)
    close(found, torch.softmax(x, -1))
