"""Lowering of rarer pointwise operators and reductions by compositions of the loop IR's operators:
shrinkages, logarithms of sums, entropies, signs of infinity, counts.

Each rule follows eager's kernel. Some of those compute in bfloat16 and float16 step by step:
`_stepwise` rounds there too. `builder.rule_for` reads the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from ...ir.graph.nodes import Node
from ..loops.extents import in_vectors
from .builder import At, Scalar, always, fill, opmath, over, promoted
from .conditions import fits_integer, float_result, not_bool
from .reduction import DIMS, elements, folded, number_result

aten = torch.ops.aten


def _stepwise(at: At, value: Scalar) -> Scalar:
    """A value rounded to the operator's own dtype, then in the dtype of the computation again."""
    return value.to(at.dtype).to(at.math)


def _is_infinity(infinity: float) -> Callable[[At], Scalar]:
    def build(at: At) -> Scalar:
        source = at.arg(0).meta.dtype
        if not source.is_floating_point:
            return at.const(False, torch.bool)
        return at.get(at.arg(0), opmath(source)) == infinity

    return build


def _signbit(at: At) -> Scalar:
    source = at.arg(0).meta.dtype
    if source in (torch.bool, torch.uint8):
        return at.const(False, torch.bool)
    value = at.get(at.arg(0), opmath(source))
    return value.signbit() if source.is_floating_point else value < 0


def _heaviside(x: Scalar, middle: Scalar) -> Scalar:
    step = (x > 0).to(x.dtype)
    return (x == 0).where(middle, step)


def _log_sigmoid(x: Scalar) -> Scalar:
    """min(x, 0) - log1p(exp(-|x|)); the second result, for backward, has no rule."""
    zero = x.const(0.0)
    away = (-abs(x)).exp()
    return x.minimum(zero) - away.log1p()


def _softshrink(at: At) -> Scalar:
    x = at.get(at.arg(0), at.math)
    edge = x.const(at.arg(1, "lambd", 0.5))
    zero = x * 0.0  # nan stays
    if in_vectors(at.node):  # eager's vectors give no -0, its loop over single elements does
        zero = zero + 0.0
    below = (x < -edge).where(x + edge, zero)
    return (x > edge).where(x - edge, below)


def _celu(x: Scalar, alpha: float = 1.0) -> Scalar:
    below = (x * (1.0 / float(alpha))).expm1() * float(alpha)
    return (x < 0.0).where(below, x)


def _log_sum(function: str) -> Callable[[At], Scalar]:
    """log(e^a + e^b) from the larger one; equal infinities stay."""

    def expression(a: Scalar, b: Scalar) -> Scalar:
        top = a.maximum(b)
        grown = (-abs(a - b)).apply(function).log1p()
        if function == "exp2":
            grown = grown * (1 / math.log(2))
        stuck = a.isinf() & (a == b)
        return stuck.where(a, top + grown)

    return promoted(expression)


def _times_log(function: str) -> Callable[[At], Scalar]:
    """x * log(y): 0 where x is 0, nan where y is."""

    def build(at: At) -> Scalar:
        x, y = at.operands(2, through=at.dtype)
        product = x * _stepwise(at, y.apply(function))
        found = (x == 0.0).where(0.0, product)
        return y.isnan().where(math.nan, found)

    return build


def _entropy(at: At) -> Scalar:
    (x,) = at.operands(1, through=at.dtype)
    zero = x.const(0.0)
    product = -x * _stepwise(at, x.log())
    rest = (x == zero).where(zero, -math.inf)
    found = (x > zero).where(product, rest)
    return x.isnan().where(x, found)


def _logit(at: At) -> Scalar:
    (x,), eps = at.operands(1, through=at.dtype), at.arg(1, "eps")
    one = x.const(1.0)
    if eps is not None:
        low = at.get(float(eps), at.math, through=at.dtype)
        high = _stepwise(at, one - low)
        x = (x < low).where(low, x)
        x = (x > high).where(high, x)
    return (x / (one - x)).log()


def _sinc(x: Scalar) -> Scalar:
    turned = math.pi * x
    found = turned.sin() / turned
    return (x == 0.0).where(1.0, found)


def _angle(x: Scalar) -> Scalar:
    found = (x < 0.0).where(x.const(math.pi), 0.0)
    return x.isnan().where(x, found)


def _ldexp(at: At) -> Scalar:
    """x * 2^n; the power has the type of eager's pow."""
    exponent = at.arg(1)
    kind = exponent.meta.dtype if exponent.meta.dtype.is_floating_point else torch.float32
    power = at.const(2.0, opmath(kind)).pow(at.get(exponent, opmath(kind)))
    power = power.to(kind).to(at.math)
    return at.get(at.arg(0), at.math, through=at.dtype) * power


def _ldexp_when(node: Node) -> bool:
    exponent = node.args[1].meta
    plain = exponent.dtype.is_floating_point or exponent.shape
    # then the power would be computed for each element, and not for each element of the exponent as
    # in eager
    spread = exponent.shape != node.meta.shape
    return (
        float_result(node)
        and bool(plain)
        and not spread
        and torch.get_default_dtype() == torch.float32
    )


def _nan_sum(at: At) -> Scalar:
    value = folded(at, opmath(at.arg(0).meta.dtype)).to(at.math)
    return value.isnan().where(0.0, value).reduce("sum")


def _nan_sum_when(node: Node) -> bool:
    source = node.args[0].meta.dtype
    return bool(source.is_floating_point) and node.meta.dtype == source and elements(node)


def _both_ends(at: At) -> tuple[Scalar, ...]:
    value = folded(at, opmath(at.dtype))
    along = at.node.kwargs.get("dim") is not None and at.dtype.is_floating_point
    return tuple(value.reduce(f"first {kind}" if along else kind) for kind in ("min", "max"))


fill(float_result, {
    aten.deg2rad.default: over(lambda x: x * (math.pi / 180)),
    aten.rad2deg.default: over(lambda x: x * (180 / math.pi)),
    aten.hardshrink.default: over(
        lambda x, lambd=0.5: ((x >= -lambd) & (x <= lambd)).where(0.0, x)
    ),
    aten.softshrink.default: _softshrink,
    aten.celu.default: over(_celu),
    aten._prelu_kernel.default: over(lambda x, slope: (x > 0.0).where(x, slope * x)),
    aten.logaddexp.default: _log_sum("exp"),
    aten.logaddexp2.default: _log_sum("exp2"),
    (aten.xlogy.Tensor, aten.xlogy.Scalar_Self, aten.xlogy.Scalar_Other): _times_log("log"),
    aten.special_xlog1py.default: _times_log("log1p"),
    aten.special_entr.default: _entropy,
    aten.logit.default: _logit,
    aten.sinc.default: promoted(_sinc),
    aten.angle.default: over(_angle),
})  # fmt: skip
fill(always, {
    aten.isposinf.default: _is_infinity(math.inf),
    aten.isneginf.default: _is_infinity(-math.inf),
    aten.signbit.default: _signbit,
    aten.log_sigmoid_forward.default: over(_log_sigmoid),
})  # fmt: skip
fill(not_bool, {
    aten.sgn.default: over(lambda x: x.sign()),
    aten.heaviside.default: promoted(_heaviside),
})  # fmt: skip
fill(fits_integer, {
    aten.threshold.default: promoted(lambda x, edge, other: (x <= edge).where(other, x)),
})  # fmt: skip
fill(_ldexp_when, {aten.ldexp.Tensor: _ldexp})
fill(_nan_sum_when, {aten.nansum.default: _nan_sum}, kind="fold", folds=DIMS)
fill(elements, {
    (aten.count_nonzero.default, aten.count_nonzero.dim_IntList):
        lambda at: folded(at, torch.bool).to(torch.int64).reduce("sum"),
}, kind="fold", folds=DIMS)  # fmt: skip
fill(
    number_result, {aten.aminmax.default: _both_ends}, kind="fold", folds=DIMS, rows=(0, 1)
)  # fmt: skip
