"""Lowering of operators with one tensor operand: activations, rounding, tests, copies, bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ...ir.graph.nodes import Node
from ..loops.extents import in_vectors
from .builder import At, Scalar, always, fill, opmath, over
from .conditions import fits_integer, float_result, not_bool

aten = torch.ops.aten
FUNCTIONS = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "sin",
    "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf",
    "erfc", "sigmoid",
)  # fmt: skip


def unary(op: str) -> Callable[[At], Scalar]:
    return over(lambda x: x.apply(op))


def rounding(op: str) -> Callable[[At], Scalar]:
    """Integers pass unchanged."""
    return over(lambda x: x.apply(op) if x.dtype.is_floating_point else x)


def test(op: str) -> Callable[[At], Scalar]:
    def build(at: At) -> Scalar:
        source = at.arg(0).meta.dtype
        if not source.is_floating_point:
            return at.const(op == "isfinite", torch.bool)
        return at.get(at.arg(0), opmath(source)).apply(op)

    return build


def copy(position: int) -> Callable[[At], Scalar]:
    return lambda at: at.get(at.arg(position), at.dtype)


# --- activations ---


def relu(at: At) -> Scalar:
    """On the CPU relu(-0.0) is -0.0."""
    x = at.get(at.arg(0), at.math)
    if at.meta.device.type != "cpu" or not x.dtype.is_floating_point:
        return x.maximum(0)
    return (x < 0).where(0, x)


def gelu(x: Scalar, approximate: str = "none") -> Scalar:
    if approximate == "tanh":
        cube = x * x * x
        inner = x.const(0.044715).fma(cube, x)
        inner = math.sqrt(2.0 / math.pi) * inner
        grown = x.const(1.0) + inner.tanh()
    else:
        grown = 1.0 + (x * math.sqrt(0.5)).erf()
    return 0.5 * x * grown


def leaky_relu(x: Scalar, negative_slope: float = 0.01) -> Scalar:
    slope = x.const(negative_slope)
    return (x > 0.0).where(x, x * slope)


def elu(x: Scalar, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Scalar:
    below = (x * input_scale).expm1() * (alpha * scale)
    above = x * scale
    return (x < 0.0).where(below, above)


def hard_part(x: Scalar) -> Scalar:
    """min(max(x + 3, 0), 6)."""
    shifted = x + 3.0
    low, high = x.const(0.0), x.const(6.0)
    shifted = (shifted < low).where(low, shifted)
    return (shifted > high).where(high, shifted)


def softplus(x: Scalar, beta: Any = 1, threshold: Any = 20) -> Scalar:
    factor, edge = x.const(beta), x.const(threshold)
    grown = x * factor
    soft = grown.exp().log1p() / factor
    return (grown > edge).where(x, soft)


# --- bounds ---


def clamped(at: At, low: Any, high: Any) -> Scalar:
    """clamp: nan stays. Of equal values the operand stays; if the bound is a tensor and eager uses
    vectors, the bound does. On a GPU the maximum of zeros is 0.0, and the minimum -0.0.
    """
    x = at.get(at.arg(0), at.math, through=at.dtype)
    for op, bound in (("lt", low), ("gt", high)):
        if bound is not None:
            limit = at.get(bound, at.math, through=at.dtype)
            x = bounded(at, op, x, limit, isinstance(bound, Node))
    return x


def bounded(at: At, op: str, x: Scalar, bound: Scalar, may_be_nan: bool) -> Scalar:
    if at.meta.device.type != "cpu" or not at.dtype.is_floating_point:
        return x.maximum(bound) if op == "lt" else x.minimum(bound)
    if may_be_nan and in_vectors(at.node):
        op = {"lt": "le", "gt": "ge"}[op]
    beyond = x.apply(op, bound)
    if may_be_nan:
        found = (beyond | bound.isnan()).where(bound, x)
        return x.isnan().where(x, found)
    return beyond.where(bound, x)


def no_nan_bounds(node: Node) -> bool:
    numbers = [a for a in (*node.args[1:], *node.kwargs.values()) if isinstance(a, float)]
    return fits_integer(node) and not any(math.isnan(number) for number in numbers)


def nan_to_num(at: At) -> Scalar:
    x = at.get(at.arg(0), at.math)
    if not at.dtype.is_floating_point:
        return x
    limits = torch.finfo(at.dtype)
    names = (("nan", 0.0), ("posinf", limits.max), ("neginf", limits.min))
    given = (at.arg(i, name) for i, (name, _other) in enumerate(names, 1))
    nan, high, low = (
        other if value is None else value
        for value, (_name, other) in zip(given, names, strict=True)
    )
    infinite = x.isinf()
    edge = (x > 0.0).where(x.const(high), low)
    found = infinite.where(edge, x)
    return x.isnan().where(nan, found)


fill(float_result, {getattr(aten, name).default: unary(name) for name in FUNCTIONS})
fill(not_bool, {getattr(aten, name).default: unary(name) for name in ("neg", "abs", "sign")})
fill(
    not_bool,
    {getattr(aten, name).default: rounding(name) for name in ("floor", "ceil", "trunc", "round")},
)
fill(always, {getattr(aten, name).default: test(name) for name in ("isnan", "isinf", "isfinite")})
fill(float_result, {
    aten.gelu.default: over(gelu),
    aten.silu.default: over(lambda x: x / (x.const(1.0) + (-x).exp())),
    aten.leaky_relu.default: over(leaky_relu),
    aten.elu.default: over(elu),
    aten.hardswish.default: over(lambda x: x * hard_part(x) / 6.0),
    aten.hardsigmoid.default: over(lambda x: hard_part(x) / 6.0),
    aten.softplus.default: over(softplus),
    aten.mish.default: over(lambda x: x * x.exp().log1p().tanh()),
    aten.frac.default: over(lambda x: x - x.trunc()),
})  # fmt: skip
fill(not_bool, {
    aten.relu.default: relu,
    aten.relu6.default: lambda at: clamped(at, 0.0, 6.0),
    aten.nan_to_num.default: nan_to_num,
})  # fmt: skip
fill(no_nan_bounds, {
    aten.hardtanh.default:
        lambda at: clamped(at, at.arg(1, "min_val", -1), at.arg(2, "max_val", 1)),
    (aten.clamp.default, aten.clamp.Tensor):
        lambda at: clamped(at, at.arg(1, "min"), at.arg(2, "max")),
    (aten.clamp_min.default, aten.clamp_min.Tensor):
        lambda at: clamped(at, at.arg(1, "min"), None),
    (aten.clamp_max.default, aten.clamp_max.Tensor):
        lambda at: clamped(at, None, at.arg(1, "max")),
})  # fmt: skip
fill(always, {
    aten.logical_not.default: lambda at: ~at.get(at.arg(0), torch.bool),
    aten.bitwise_not.default: unary("not"),
    aten.copy.default: copy(1),
})  # fmt: skip
