"""Lowering of pointwise backward operators: one expression each, computed in eager's precision and
rounded once.

Each is the derivative of f at x times the gradient g. Where eager's kernel treats an edge specially
(the kink of relu), the expression does the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ...ir.graph.nodes import Node
from ..loops.extents import WIDEST, one_by_one
from . import conditions
from .builder import RULES, At, Rule

aten = torch.ops.aten
# as in eager's kernel, for all dtypes
_SIXTH = float(torch.tensor(1.0 / 6.0, dtype=torch.float32))


def _both(at: At) -> tuple[int, int]:
    return at.get(at.arg(0), at.math), at.get(at.arg(1), at.math)


def _times(at: At, *values: int) -> int:
    found = values[0]
    for value in values[1:]:
        found = at.apply("mul", found, value)
    return found


def _one_minus(at: At, x: int) -> int:
    return at.apply("sub", at.const(1.0), x)


def sigmoid(at: At) -> int:
    g, y = _both(at)
    return at.done(_times(at, g, _one_minus(at, y), y))


def tanh(at: At) -> int:
    g, y = _both(at)
    return at.done(_times(at, g, _one_minus(at, _times(at, y, y))))


def threshold(at: At) -> int:
    g, x = _both(at)
    edge = at.const(at.arg(2))
    return at.done(at.apply("where", at.apply("le", x, edge), at.const(0.0), g))


def gelu(at: At) -> int:
    g, x = _both(at)
    half = at.const(0.5)
    if at.arg(2, "approximate", "none") == "tanh":
        square = _times(at, x, x)
        cube = _times(at, square, x)
        scale = at.const(math.sqrt(2.0 / math.pi))
        inner = _times(at, scale, at.apply("add", x, _times(at, at.const(0.044715), cube)))
        bent = at.apply("tanh", inner)
        slope = _times(
            at, scale, at.apply("add", at.const(1.0), _times(at, at.const(3 * 0.044715), square))
        )
        left = _times(at, half, at.apply("add", at.const(1.0), bent))
        right = _times(at, half, x, _one_minus(at, _times(at, bent, bent)), slope)
    else:
        turned = at.apply("erf", _times(at, x, at.const(math.sqrt(0.5))))
        left = _times(at, half, at.apply("add", at.const(1.0), turned))
        bell = at.apply("exp", _times(at, x, x, at.const(-0.5)))
        right = _times(at, x, bell, at.const(1.0 / math.sqrt(2.0 * math.pi)))
    return at.done(_times(at, g, at.apply("add", left, right)))


def silu(at: At) -> int:
    g, x = _both(at)
    s = at.apply("sigmoid", x)
    inner = at.apply("add", at.const(1.0), _times(at, x, _one_minus(at, s)))
    return at.done(_times(at, g, s, inner))


def leaky_relu(at: At) -> int:
    g, x = _both(at)
    below = _times(at, g, at.const(at.arg(2)))
    return at.done(at.apply("where", at.apply("gt", x, at.const(0.0)), g, below))


def elu(at: At) -> int:
    g, alpha, scale, steep, is_result = (at.arg(i) for i in range(5))
    g, x = at.get(g, at.math), at.get(at.arg(5), at.math)
    low = alpha * scale
    if is_result:
        below = _times(at, g, at.const(steep), at.apply("add", x, at.const(low)))
    else:
        grown = at.apply("exp", _times(at, x, at.const(steep)))
        below = _times(at, g, at.const(steep), at.const(low), grown)
    above = _times(at, g, at.const(scale))
    # eager's loop over single elements compares the other way, which matters for nan
    if one_by_one(at.node, WIDEST):
        negative = at.apply("le", x, at.const(0.0))
        return at.done(at.apply("where", negative, below, above))
    return at.done(at.apply("where", at.apply("gt", x, at.const(0.0)), above, below))


def softplus(at: At) -> int:
    g, x = _both(at)
    steep = _times(at, x, at.const(at.arg(2)))
    grown = at.apply("exp", steep)
    below = at.apply("div", _times(at, g, grown), at.apply("add", grown, at.const(1.0)))
    above = at.apply("gt", steep, at.const(at.arg(3)))
    return at.done(at.apply("where", above, g, below))


def hardtanh(at: At) -> int:
    g, x = _both(at)
    low, high = at.const(at.arg(2)), at.const(at.arg(3))
    # eager's loop over single elements compares the other way, which matters for nan
    if one_by_one(at.node):
        outside = at.apply("or", at.apply("le", x, low), at.apply("ge", x, high))
        return at.done(at.apply("where", outside, at.const(0.0), g))
    inside = at.apply("and", at.apply("gt", x, low), at.apply("lt", x, high))
    return at.done(at.apply("where", inside, g, at.const(0.0)))


def hardsigmoid(at: At) -> int:
    g, x = _both(at)
    inside = at.apply("and", at.apply("gt", x, at.const(-3.0)), at.apply("lt", x, at.const(3.0)))
    return at.done(at.apply("where", inside, _times(at, g, at.const(_SIXTH)), at.const(0.0)))


def mish(at: At) -> int:
    g, x = _both(at)
    s = at.apply("sigmoid", x)
    soft = at.apply("tanh", at.apply("log1p", at.apply("exp", x)))
    rest = _times(at, x, s, _one_minus(at, _times(at, soft, soft)))
    return at.done(_times(at, g, at.apply("add", soft, rest)))


def log_sigmoid(at: At) -> int:
    g, x = _both(at)
    z = at.get(at.arg(2), at.math)
    below = at.apply("lt", x, at.const(0.0))
    most = at.apply("where", below, at.const(1.0), at.const(0.0))
    sign = at.apply("where", below, at.const(1.0), at.const(-1.0))
    rest = at.apply("div", z, at.apply("add", at.const(1.0), z))
    return at.done(_times(at, g, at.apply("sub", most, _times(at, sign, rest))))


def _numbers_only(*positions: int) -> Callable[[Node], bool]:
    """Whether these arguments are plain numbers and the result has the operands' dtype."""

    def fits(node: Node) -> bool:
        same = all(a.meta.dtype is node.meta.dtype for a in node.args if isinstance(a, Node))
        numbers = all(type(node.args[p]) in (int, float) for p in positions if p < len(node.args))
        return same and numbers and conditions.float_result(node)

    return fits


POINTWISE: dict[Any, tuple[Callable[[At], int], Callable[[Node], bool]]] = {
    aten.sigmoid_backward.default: (sigmoid, _numbers_only()),
    aten.tanh_backward.default: (tanh, _numbers_only()),
    aten.threshold_backward.default: (threshold, _numbers_only(2)),
    aten.gelu_backward.default: (gelu, _numbers_only()),
    aten.silu_backward.default: (silu, _numbers_only()),
    aten.leaky_relu_backward.default: (leaky_relu, _numbers_only(2)),
    aten.elu_backward.default: (elu, _numbers_only(1, 2, 3)),
    aten.softplus_backward.default: (softplus, _numbers_only(2, 3)),
    aten.hardtanh_backward.default: (hardtanh, _numbers_only(2, 3)),
    aten.hardsigmoid_backward.default: (hardsigmoid, _numbers_only()),
    aten.mish_backward.default: (mish, _numbers_only()),
    aten.log_sigmoid_backward.default: (log_sigmoid, _numbers_only()),
}
RULES.update({op: Rule(build, when=fits) for op, (build, fits) in POINTWISE.items()})
