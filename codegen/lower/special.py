"""Lowering of rarer pointwise operators and reductions by compositions of the loop IR's operators:
shrinkages, logarithms of sums, entropies, signs of infinity, counts.

Each rule follows eager's kernel. Some of those compute in bfloat16 and float16 step by step:
`_stepwise` rounds there too. `builder.rule_for` reads the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ...ir.graph.nodes import Node
from ..loops.extents import in_vectors
from . import conditions, unary
from .builder import RULES, At, Rule, Scalar, opmath
from .reduction import _DIM, _DIMS, _elements, _fold_rule, _folded, _number_result

aten = torch.ops.aten


def _stepwise(at: At, number: int) -> int:
    """A value rounded to the operator's own dtype, then in the dtype of the computation again."""
    return Scalar.to(Scalar.to(number, at.dtype), at.math)


def _operand(at: At, position: int) -> int:
    """An operand after promotion to the result's dtype."""
    return at.get(at.arg(position), at.math, through=at.dtype)


def _scaled_by(factor: float) -> Callable[[At], int]:
    def build(at: At) -> int:
        return at.done(at.apply("mul", at.get(at.arg(0), at.math), at.const(factor)))

    return build


def _is_infinity(infinity: float) -> Callable[[At], int]:
    def build(at: At) -> int:
        source = at.arg(0).meta.dtype
        if not source.is_floating_point:
            return at.const(False, torch.bool)
        kind = opmath(source)
        return at.apply("eq", at.get(at.arg(0), kind), at.const(infinity, kind))

    return build


def _signbit(at: At) -> int:
    source = at.arg(0).meta.dtype
    if source in (torch.bool, torch.uint8):
        return at.const(False, torch.bool)
    value = at.get(at.arg(0), opmath(source))
    if source.is_floating_point:
        return at.apply("signbit", value)
    return at.apply("lt", value, at.const(0, source))


def _heaviside(at: At) -> int:
    x, middle = _operand(at, 0), _operand(at, 1)
    zero = at.const(0)
    step = Scalar.to(at.apply("gt", x, zero), at.math)
    return at.done(at.apply("where", at.apply("eq", x, zero), middle, step))


def _log_sigmoid(at: At) -> int:
    """min(x, 0) - log1p(exp(-|x|)); the second result, for backward, has no rule."""
    x, zero = at.get(at.arg(0), at.math), at.const(0.0)
    away = at.apply("exp", at.apply("neg", at.apply("abs", x)))
    return at.done(at.apply("sub", at.apply("minimum", x, zero), at.apply("log1p", away)))


def _threshold(at: At) -> int:
    x, edge, other = (_operand(at, position) for position in range(3))
    return at.done(at.apply("where", at.apply("le", x, edge), other, x))


def _hardshrink(at: At) -> int:
    x = _operand(at, 0)
    edge = at.arg(1, "lambd", 0.5)
    inside = at.apply("and", at.apply("ge", x, at.const(-edge)), at.apply("le", x, at.const(edge)))
    return at.done(at.apply("where", inside, at.const(0.0), x))


def _softshrink(at: At) -> int:
    x = _operand(at, 0)
    edge = at.const(at.arg(1, "lambd", 0.5))
    zero = at.apply("mul", x, at.const(0.0))  # nan stays
    if in_vectors(at.node):  # eager's vectors give no -0, its loop over single elements does
        zero = at.apply("add", zero, at.const(0.0))
    far = at.apply("lt", x, at.apply("neg", edge))
    below = at.apply("where", far, at.apply("add", x, edge), zero)
    return at.done(at.apply("where", at.apply("gt", x, edge), at.apply("sub", x, edge), below))


def _celu(at: At) -> int:
    x, alpha = at.get(at.arg(0), at.math), float(at.arg(1, "alpha", 1.0))
    inner = at.apply("expm1", at.apply("mul", x, at.const(1.0 / alpha)))
    below = at.apply("mul", inner, at.const(alpha))
    return at.done(at.apply("where", at.apply("lt", x, at.const(0.0)), below, x))


def _prelu(at: At) -> int:
    x, slope = at.get(at.arg(0), at.math), at.get(at.arg(1), at.math)
    positive = at.apply("gt", x, at.const(0.0))
    return at.done(at.apply("where", positive, x, at.apply("mul", slope, x)))


def _log_sum(function: str) -> Callable[[At], int]:
    """log(e^a + e^b) from the larger one; equal infinities stay."""

    def build(at: At) -> int:
        a, b = _operand(at, 0), _operand(at, 1)
        top = at.apply("maximum", a, b)
        away = at.apply("neg", at.apply("abs", at.apply("sub", a, b)))
        grown = at.apply("log1p", at.apply(function, away))
        if function == "exp2":
            grown = at.apply("mul", grown, at.const(1 / math.log(2)))
        stuck = at.apply("and", at.apply("isinf", a), at.apply("eq", a, b))
        return at.done(at.apply("where", stuck, a, at.apply("add", top, grown)))

    return build


def _times_log(function: str) -> Callable[[At], int]:
    """x * log(y): 0 where x is 0, nan where y is."""

    def build(at: At) -> int:
        x, y = _operand(at, 0), _operand(at, 1)
        product = at.apply("mul", x, _stepwise(at, at.apply(function, y)))
        found = at.apply("where", at.apply("eq", x, at.const(0.0)), at.const(0.0), product)
        return at.done(at.apply("where", at.apply("isnan", y), at.const(math.nan), found))

    return build


def _entropy(at: At) -> int:
    x = _operand(at, 0)
    zero = at.const(0.0)
    product = at.apply("mul", at.apply("neg", x), _stepwise(at, at.apply("log", x)))
    rest = at.apply("where", at.apply("eq", x, zero), zero, at.const(-math.inf))
    found = at.apply("where", at.apply("gt", x, zero), product, rest)
    return at.done(at.apply("where", at.apply("isnan", x), x, found))


def _logit(at: At) -> int:
    x, eps = _operand(at, 0), at.arg(1, "eps")
    one_ = at.const(1.0)
    if eps is not None:
        low = at.get(float(eps), at.math, through=at.dtype)
        high = _stepwise(at, at.apply("sub", one_, low))
        x = at.apply("where", at.apply("lt", x, low), low, x)
        x = at.apply("where", at.apply("gt", x, high), high, x)
    return at.done(at.apply("log", at.apply("div", x, at.apply("sub", one_, x))))


def _sinc(at: At) -> int:
    x = _operand(at, 0)
    turned = at.apply("mul", at.const(math.pi), x)
    found = at.apply("div", at.apply("sin", turned), turned)
    return at.done(at.apply("where", at.apply("eq", x, at.const(0.0)), at.const(1.0), found))


def _angle(at: At) -> int:
    x = at.get(at.arg(0), at.math)
    found = at.apply("where", at.apply("lt", x, at.const(0.0)), at.const(math.pi), at.const(0.0))
    return at.done(at.apply("where", at.apply("isnan", x), x, found))


def _ldexp(at: At) -> int:
    """x * 2^n; the power has the type of eager's pow."""
    exponent = at.arg(1)
    kind = exponent.meta.dtype if exponent.meta.dtype.is_floating_point else torch.float32
    power = at.apply("pow", at.const(2.0, opmath(kind)), at.get(exponent, opmath(kind)))
    power = Scalar.to(Scalar.to(power, kind), at.math)
    return at.done(at.apply("mul", _operand(at, 0), power))


def _ldexp_when(node: Node) -> bool:
    exponent = node.args[1].meta
    plain = exponent.dtype.is_floating_point or exponent.shape
    # then the power would be computed for each element, and not for each element of the exponent as
    # in eager
    spread = exponent.shape != node.meta.shape
    return (
        conditions.float_result(node)
        and bool(plain)
        and not spread
        and torch.get_default_dtype() == torch.float32
    )


def _nan_sum(at: At) -> int:
    value = Scalar.to(_folded(at, opmath(at.arg(0).meta.dtype)), at.math)
    value = at.apply("where", at.apply("isnan", value), at.const(0.0), value)
    return at.done(at.reduce("sum", value))


def _nan_sum_when(node: Node) -> bool:
    source = node.args[0].meta.dtype
    return bool(source.is_floating_point) and node.meta.dtype == source and _elements(node)


def _count(at: At) -> int:
    found = Scalar.to(_folded(at, torch.bool), torch.int64)
    return at.reduce("sum", found)


def _both_ends(at: At) -> tuple[int, int]:
    value = _folded(at, opmath(at.dtype))
    along = at.node.kwargs.get("dim") is not None and at.dtype.is_floating_point
    low, high = (at.reduce(f"first {kind}" if along else kind, value) for kind in ("min", "max"))
    return at.done(low), at.done(high)


def _ends_dims(node: Node) -> Any:
    """aminmax: one dimension or all."""
    operand, dim = node.args[0], node.kwargs.get("dim")
    rank = len(operand.meta.shape)
    dims = tuple(range(rank)) if dim is None else (dim % rank,) if rank else ()
    return operand, dims, bool(node.kwargs.get("keepdim", False))


POINTWISE: dict[Any, tuple[Callable[[At], int], Callable[[Node], bool]]] = {
    aten.deg2rad.default: (_scaled_by(math.pi / 180), conditions.float_result),
    aten.rad2deg.default: (_scaled_by(180 / math.pi), conditions.float_result),
    aten.isposinf.default: (_is_infinity(math.inf), lambda node: True),
    aten.isneginf.default: (_is_infinity(-math.inf), lambda node: True),
    aten.signbit.default: (_signbit, lambda node: True),
    aten.sgn.default: (unary.unary("sign"), conditions.not_bool),
    aten.heaviside.default: (_heaviside, conditions.not_bool),
    aten.threshold.default: (_threshold, conditions.fits_integer),
    aten.hardshrink.default: (_hardshrink, conditions.float_result),
    aten.softshrink.default: (_softshrink, conditions.float_result),
    aten.celu.default: (_celu, conditions.float_result),
    aten._prelu_kernel.default: (_prelu, conditions.float_result),
    aten.log_sigmoid_forward.default: (_log_sigmoid, lambda node: True),
    aten.logaddexp.default: (_log_sum("exp"), conditions.float_result),
    aten.logaddexp2.default: (_log_sum("exp2"), conditions.float_result),
    aten.xlogy.Tensor: (_times_log("log"), conditions.float_result),
    aten.xlogy.Scalar_Self: (_times_log("log"), conditions.float_result),
    aten.xlogy.Scalar_Other: (_times_log("log"), conditions.float_result),
    aten.special_xlog1py.default: (_times_log("log1p"), conditions.float_result),
    aten.special_entr.default: (_entropy, conditions.float_result),
    aten.logit.default: (_logit, conditions.float_result),
    aten.sinc.default: (_sinc, conditions.float_result),
    aten.angle.default: (_angle, conditions.float_result),
    aten.ldexp.Tensor: (_ldexp, _ldexp_when),
}
RULES.update({op: Rule(build, when=fits) for op, (build, fits) in POINTWISE.items()})
RULES.update({
    aten.nansum.default: _fold_rule(_nan_sum, _DIMS, _nan_sum_when),
    aten.count_nonzero.default: _fold_rule(_count, _DIM, _elements),
    aten.count_nonzero.dim_IntList: _fold_rule(_count, _DIMS, _elements),
    aten.aminmax.default: Rule(_both_ends, "fold", _ends_dims, _number_result, rows=(0, 1)),
})  # fmt: skip
