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
from .builder import RULES, At, Rule, Scalar, over

aten = torch.ops.aten
# as in eager's kernel, for all dtypes
_SIXTH = float(torch.tensor(1.0 / 6.0, dtype=torch.float32))


def gelu(g: Scalar, x: Scalar, approximate: str = "none") -> Scalar:
    half = x.const(0.5)
    if approximate == "tanh":
        square = x * x
        cube = square * x
        scale = x.const(math.sqrt(2.0 / math.pi))
        bent = (scale * (x + 0.044715 * cube)).tanh()
        one = x.const(1.0)
        slope = scale * (one + 3 * 0.044715 * square)
        left = half * (one + bent)
        rest = one - bent * bent
        return g * (left + half * x * rest * slope)
    left = half * (1.0 + (x * math.sqrt(0.5)).erf())
    exponent, density = x.const(-0.5), 1.0 / math.sqrt(2.0 * math.pi)
    bell = (x * x * exponent).exp()
    factor = x.const(density)
    return g * (left + x * bell * factor)


def silu(g: Scalar, x: Scalar) -> Scalar:
    s = x.sigmoid()
    inner = 1.0 + x * (1.0 - s)
    return g * s * inner


def leaky_relu(g: Scalar, x: Scalar, slope: float, is_result: bool) -> Scalar:
    below = g * slope
    return (x > 0.0).where(g, below)


def elu(at: At) -> Scalar:
    alpha, scale, steep, is_result = at.node.args[1:5]
    g, x = at.get(at.arg(0), at.math), at.get(at.arg(5), at.math)
    factor = x.const(steep)
    if is_result:
        shifted = x + alpha * scale
        below = g * factor * shifted
    else:
        grown, low = (x * factor).exp(), x.const(alpha * scale)
        below = g * factor * low * grown
    above = g * scale
    # eager's loop over single elements compares the other way, which matters for nan
    if one_by_one(at.node, WIDEST):
        return (x <= 0.0).where(below, above)
    return (x > 0.0).where(above, below)


def softplus(g: Scalar, x: Scalar, beta: float, threshold: float) -> Scalar:
    steep = x * beta
    grown = steep.exp()
    below = g * grown / (grown + 1.0)
    return (steep > threshold).where(g, below)


def hardtanh(at: At) -> Scalar:
    g, x, low, high = (at.get(at.arg(i), at.math) for i in range(4))
    # eager's loop over single elements compares the other way, which matters for nan
    if one_by_one(at.node):
        return ((x <= low) | (x >= high)).where(0.0, g)
    return ((x > low) & (x < high)).where(g, 0.0)


def mish(g: Scalar, x: Scalar) -> Scalar:
    s = x.sigmoid()
    soft = x.exp().log1p().tanh()
    rest = 1.0 - soft * soft
    return g * (soft + x * s * rest)


def log_sigmoid(g: Scalar, x: Scalar, z: Scalar) -> Scalar:
    below, one = x < 0.0, x.const(1.0)
    most = below.where(one, 0.0)
    sign = below.where(one, -1.0)
    return g * (most - sign * (z / (one + z)))


def _numbers_only(*positions: int) -> Callable[[Node], bool]:
    """Whether these arguments are plain numbers and the result has the operands' dtype."""

    def fits(node: Node) -> bool:
        same = all(a.meta.dtype is node.meta.dtype for a in node.args if isinstance(a, Node))
        numbers = all(type(node.args[p]) in (int, float) for p in positions if p < len(node.args))
        return same and numbers and conditions.float_result(node)

    return fits


POINTWISE: dict[Any, tuple[Callable[[At], Scalar], Callable[[Node], bool]]] = {
    aten.sigmoid_backward.default: (over(lambda g, y: g * (1.0 - y) * y), _numbers_only()),
    aten.tanh_backward.default: (over(lambda g, y: g * (1.0 - y * y)), _numbers_only()),
    aten.threshold_backward.default: (
        over(lambda g, x, edge: (x <= edge).where(0.0, g)), _numbers_only(2),
    ),
    aten.gelu_backward.default: (over(gelu), _numbers_only()),
    aten.silu_backward.default: (over(silu), _numbers_only()),
    aten.leaky_relu_backward.default: (over(leaky_relu), _numbers_only(2)),
    aten.elu_backward.default: (elu, _numbers_only(1, 2, 3)),
    aten.softplus_backward.default: (over(softplus), _numbers_only(2, 3)),
    aten.hardtanh_backward.default: (hardtanh, _numbers_only(2, 3)),
    aten.hardsigmoid_backward.default: (
        over(lambda g, x: ((x > -3.0) & (x < 3.0)).where(g * _SIXTH, 0.0)), _numbers_only(),
    ),
    aten.mish_backward.default: (over(mish), _numbers_only()),
    aten.log_sigmoid_backward.default: (over(log_sigmoid), _numbers_only()),
}  # fmt: skip
for _op, (_rule, _when) in POINTWISE.items():
    RULES[_op] = Rule(_rule, when=_when)
