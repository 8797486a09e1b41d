"""Lowering of operators with one tensor operand: activations, rounding, tests, copies, bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ...ir.graph.nodes import Node
from ..loops.extents import in_vectors
from .builder import At, opmath
from .conditions import fits_integer

aten = torch.ops.aten


def unary(op: str) -> Callable[[At], int]:
    def build(at: At) -> int:
        return at.done(at.apply(op, at.get(at.arg(0), at.math)))

    return build


def same_or_float(op: str) -> Callable[[At], int]:
    """Rounding operators: integers pass unchanged."""

    def build(at: At) -> int:
        value = at.get(at.arg(0), at.math)
        return at.done(at.apply(op, value) if at.dtype.is_floating_point else value)

    return build


def test(op: str) -> Callable[[At], int]:
    def build(at: At) -> int:
        source = at.arg(0).meta.dtype
        if not source.is_floating_point:
            return at.const(op == "isfinite", torch.bool)
        return at.apply(op, at.get(at.arg(0), opmath(source)))

    return build


def copy(at: At) -> int:
    return at.get(at.arg(0), at.dtype)


def copy_from(at: At) -> int:
    return at.get(at.arg(1), at.dtype)


def relu(at: At) -> int:
    x, nothing = at.get(at.arg(0), at.math), at.const(0)
    if not at.dtype.is_floating_point:
        return at.apply("maximum", x, nothing)
    return at.done(at.apply("where", at.apply("lt", x, nothing), nothing, x))


def relu6(at: At) -> int:
    return clamped(at, 0.0, 6.0)


def gelu(at: At) -> int:
    x = at.get(at.arg(0), at.math)
    if at.arg(1, "approximate", "none") == "tanh":
        cube = at.apply("mul", at.apply("mul", x, x), x)
        inner = at.apply("fma", at.const(0.044715), cube, x)
        inner = at.apply("mul", at.const(math.sqrt(2.0 / math.pi)), inner)
        grown = at.apply("add", at.const(1.0), at.apply("tanh", inner))
    else:
        grown = at.apply("erf", at.apply("mul", x, at.const(math.sqrt(0.5))))
        grown = at.apply("add", at.const(1.0), grown)
    return at.done(at.apply("mul", at.apply("mul", at.const(0.5), x), grown))


def silu(at: At) -> int:
    x = at.get(at.arg(0), at.math)
    return at.done(
        at.apply("div", x, at.apply("add", at.const(1.0), at.apply("exp", at.apply("neg", x))))
    )


def leaky_relu(at: At) -> int:
    x = at.get(at.arg(0), at.math)
    slope = at.const(at.arg(1, "negative_slope", 0.01))
    positive = at.apply("gt", x, at.const(0.0))
    return at.done(at.apply("where", positive, x, at.apply("mul", x, slope)))


def elu(at: At) -> int:
    x = at.get(at.arg(0), at.math)
    alpha, scale = at.arg(1, "alpha", 1), at.arg(2, "scale", 1)
    inner = at.apply("expm1", at.apply("mul", x, at.const(at.arg(3, "input_scale", 1))))
    below = at.apply("mul", inner, at.const(alpha * scale))
    above = at.apply("mul", x, at.const(scale))
    return at.done(at.apply("where", at.apply("lt", x, at.const(0.0)), below, above))


def hardtanh(at: At) -> int:
    return clamped(at, at.arg(1, "min_val", -1), at.arg(2, "max_val", 1))


def clamped(at: At, low: Any, high: Any) -> int:
    """clamp: nan stays. Of equal values the operand stays; if the bound is a tensor and eager uses
    vectors, the bound does.
    """
    x = at.get(at.arg(0), at.math, through=at.dtype)
    if low is not None:
        bound = at.get(low, at.math, through=at.dtype)
        x = bounded(at, "lt", x, bound, isinstance(low, Node))
    if high is not None:
        bound = at.get(high, at.math, through=at.dtype)
        x = bounded(at, "gt", x, bound, isinstance(high, Node))
    return at.done(x)


def bounded(at: At, op: str, x: int, bound: int, may_be_nan: bool) -> int:
    if not at.dtype.is_floating_point:
        return at.apply("maximum" if op == "lt" else "minimum", x, bound)
    if may_be_nan and in_vectors(at.node):
        op = {"lt": "le", "gt": "ge"}[op]
    beyond = at.apply(op, x, bound)
    if may_be_nan:
        beyond = at.apply("or", beyond, at.apply("isnan", bound))
        found = at.apply("where", beyond, bound, x)
        return at.apply("where", at.apply("isnan", x), x, found)
    return at.apply("where", beyond, bound, x)


def clamp(at: At) -> int:
    return clamped(at, at.arg(1, "min"), at.arg(2, "max"))


def clamp_min(at: At) -> int:
    return clamped(at, at.arg(1, "min"), None)


def clamp_max(at: At) -> int:
    return clamped(at, None, at.arg(1, "max"))


def no_nan_bounds(node: Node) -> bool:
    numbers = [a for a in (*node.args[1:], *node.kwargs.values()) if isinstance(a, float)]
    return fits_integer(node) and not any(math.isnan(number) for number in numbers)


def hard_part(at: At, x: int) -> int:
    """min(max(x + 3, 0), 6)."""
    shifted = at.apply("add", x, at.const(3.0))
    low, high = at.const(0.0), at.const(6.0)
    shifted = at.apply("where", at.apply("lt", shifted, low), low, shifted)
    return at.apply("where", at.apply("gt", shifted, high), high, shifted)


def hardswish(at: At) -> int:
    x = at.get(at.arg(0), at.math)
    return at.done(at.apply("div", at.apply("mul", x, hard_part(at, x)), at.const(6.0)))


def hardsigmoid(at: At) -> int:
    return at.done(at.apply("div", hard_part(at, at.get(at.arg(0), at.math)), at.const(6.0)))


def softplus(at: At) -> int:
    x = at.get(at.arg(0), at.math)
    beta, threshold = at.const(at.arg(1, "beta", 1)), at.const(at.arg(2, "threshold", 20))
    grown = at.apply("mul", x, beta)
    soft = at.apply("div", at.apply("log1p", at.apply("exp", grown)), beta)
    return at.done(at.apply("where", at.apply("gt", grown, threshold), x, soft))


def mish(at: At) -> int:
    x = at.get(at.arg(0), at.math)
    return at.done(at.apply("mul", x, at.apply("tanh", at.apply("log1p", at.apply("exp", x)))))


def logical_not(at: At) -> int:
    return at.apply("not", at.get(at.arg(0), torch.bool))


def nan_to_num(at: At) -> int:
    x = at.get(at.arg(0), at.math)
    if not at.dtype.is_floating_point:
        return at.done(x)
    limits = torch.finfo(at.dtype)
    names = (("nan", 0.0), ("posinf", limits.max), ("neginf", limits.min))
    nan, high, low = (
        other if at.arg(i + 1, name) is None else at.arg(i + 1, name)
        for i, (name, other) in enumerate(names)
    )
    infinite = at.apply("isinf", x)
    edge = at.apply("where", at.apply("gt", x, at.const(0.0)), at.const(high), at.const(low))
    found = at.apply("where", infinite, edge, x)
    return at.done(at.apply("where", at.apply("isnan", x), at.const(nan), found))


def frac(at: At) -> int:
    x = at.get(at.arg(0), at.math)
    return at.done(at.apply("sub", x, at.apply("trunc", x)))
