"""Lowering of operators with two operands: arithmetic, division in its modes, powers, comparisons,
bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...ir.graph.nodes import Node
from ...ir.symbolic.expr import Expr
from ..loops.extents import one_by_one
from .builder import At, Scalar, always, argument, fill, opmath, promoted, result_type
from .conditions import fits_integer, float_result, not_bool

aten = torch.ops.aten


def binary(op: str, exact_second: bool = False) -> Callable[[At], Scalar]:
    """The rule of an operator. `exact_second`: a number (or CPU scalar) on the right is not rounded
    to bfloat16 or float16 first.
    """

    def build(at: At) -> Scalar:
        left, right = at.arg(0), at.arg(1)
        exact = exact_second and not (isinstance(right, Node) and right.meta.shape)
        a = at.get(left, at.math, through=at.dtype)
        return a.apply(op, at.get(right, at.math, through=None if exact else at.dtype))

    return build


def _turned(op: str) -> Callable[[At], Scalar]:
    return promoted(lambda a, b: b.apply(op, a))


def extremum(op: str) -> Callable[[At], Scalar]:
    """maximum and minimum. Of two zeros eager's loop over single elements gives the first one, its
    vectors give the second.
    """
    plain, turned = binary(op), _turned(op)
    return lambda at: (turned if at.dtype.is_floating_point and one_by_one(at.node) else plain)(at)


def other_extremum(op: str) -> Callable[[At], Scalar]:
    """fmax and fmin. Of two zeros eager gives the first one; for bfloat16 the second."""
    plain, turned = binary(op), _turned(op)
    return lambda at: (plain if at.dtype == torch.bfloat16 else turned)(at)


def mul(at: At) -> Scalar:
    left, right = at.arg(0), at.arg(1)
    exact_left = isinstance(left, Node) and not left.meta.shape and bool(at.meta.shape)
    exact_right = not (isinstance(right, Node) and right.meta.shape)
    a = at.get(left, at.math, through=None if exact_left else at.dtype)
    return a * at.get(right, at.math, through=None if exact_right else at.dtype)


def sum_of(op: str, reverse: bool = False) -> Callable[[At], Scalar]:
    """a + alpha * b or a - alpha * b; floats are rounded once, as in eager's kernel."""

    def build(at: At) -> Scalar:
        a, b = at.operands(2, through=at.dtype)
        if reverse:
            a, b = b, a
        alpha = at.arg(2, "alpha", 1)
        if alpha == 1:
            return a.apply(op, b)
        factor = at.get(alpha, at.math, through=at.dtype)
        if not at.dtype.is_floating_point:
            return a.apply(op, b * factor)
        return b.fma(-factor if op == "sub" else factor, a)

    return build


def division(op: str, exact_second: bool = False) -> Callable[[At], Scalar]:
    """An operator that divides integers by constants only."""
    of_floats = binary(op, exact_second)

    def build(at: At) -> Scalar:
        if at.dtype.is_floating_point:
            return of_floats(at)
        return at.get(at.arg(0), at.dtype).apply(f"int_{op}", at.arg(1))

    return build


def _div_trunc(at: At) -> Scalar:
    if not at.dtype.is_floating_point:
        return at.get(at.arg(0), at.dtype).int_trunc_div(at.arg(1))
    a, b = at.operands(2, through=at.dtype)
    return (a / b).trunc()


MODES = {
    None: binary("div", exact_second=True),
    "floor": division("floor_div", exact_second=True),
    "trunc": _div_trunc,
}


def safe_divisor(node: Node) -> bool:
    """Whether the division cannot trap: true for floats, and for integers divided by a constant
    other than 0 and -1.
    """
    dtype = node.meta.dtype
    if dtype.is_floating_point:
        return True
    divisor = node.args[1]
    if dtype == torch.bool or type(divisor) is not int or divisor in (0, -1):
        return False
    return fits_integer(node)


def div_when(node: Node) -> bool:
    mode = argument(node, 2, "rounding_mode")
    return safe_divisor(node) if mode is not None else float_result(node)


def pow_number(at: At) -> Scalar:
    exponent = at.arg(1)
    x = at.get(at.arg(0), at.math, through=at.dtype)
    square = x * x
    if exponent == 2:
        return square
    if exponent == 3:
        return square * x
    special = {0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}
    # eager does the same: pow and sqrt differ at -inf and -0
    through_pow = abs(exponent) == 0.5 and at.dtype == torch.float16
    if exponent in special and not through_pow:
        return x.apply(special[exponent])
    if exponent == -2:
        return square.reciprocal()
    return x if exponent == 1 else x.pow(at.get(exponent, at.math, through=at.dtype))


def pow_when(node: Node) -> bool:
    return float_result(node) or (
        node.meta.dtype != torch.bool and type(node.args[1]) is int and node.args[1] in (1, 2, 3)
    )


def compare(op: str) -> Callable[[At], Scalar]:
    def build(at: At) -> Scalar:
        common = result_type(at.arg(0), at.arg(1))
        a, b = at.operands(2, opmath(common), through=common)
        if common != torch.bool or op in ("eq", "ne"):
            return a.apply(op, b)
        if op in ("gt", "ge"):
            a, b = b, a
        return ~a & b if op in ("lt", "gt") else ~a | b

    return build


def compare_when(node: Node) -> bool:
    common = result_type(node.args[0], node.args[1])
    number = node.args[1]
    if isinstance(number, complex):
        return False
    if isinstance(number, (Node, Expr)) or common.is_floating_point or common == torch.bool:
        return True
    limits = torch.iinfo(common)
    return limits.min <= number <= limits.max


def bits(op: str, dtype: torch.dtype | None = None) -> Callable[[At], Scalar]:
    """An operator on bits, or on bools (`dtype`), of two operands."""

    def build(at: At) -> Scalar:
        a, b = at.operands(2, dtype or at.dtype)
        return a.apply(op, b)

    return build


def bitwise_when(node: Node) -> bool:
    return node.meta.dtype == torch.bool or fits_integer(node)


def integer_result(node: Node) -> bool:
    return (
        node.meta.dtype != torch.bool
        and not node.meta.dtype.is_floating_point
        and fits_integer(node)
    )


def _both(name: str, second: str = "Scalar") -> tuple[Any, Any]:
    """The overloads of an operator for a tensor and for a number on the right."""
    packet = getattr(aten, name)
    return packet.Tensor, getattr(packet, second)


_LOGIC = ("and", "or", "xor")
_SHIFTS = (("left", "__lshift__", "shl"), ("right", "__rshift__", "shr"))

fill(fits_integer, {
    _both("add"): sum_of("add"),
    _both("sub"): sum_of("sub"),
    _both("rsub"): sum_of("sub", reverse=True),
    _both("mul"): mul,
}, symbolic="numbers")  # fmt: skip
fill(float_result, {_both("div"): binary("div", exact_second=True)}, symbolic="numbers")
fill(
    compare_when, {_both(op): compare(op) for op in ("lt", "le", "gt", "ge", "eq", "ne")},
    symbolic="numbers",
)  # fmt: skip
fill(div_when, {
    (aten.div.Tensor_mode, aten.div.Scalar_mode):
        lambda at: MODES[at.arg(2, "rounding_mode")](at),
})  # fmt: skip
fill(safe_divisor, {
    (aten.floor_divide.default, aten.floor_divide.Scalar): division("floor_div"),
    _both("remainder"): division("remainder"),
    _both("fmod"): division("fmod"),
})  # fmt: skip
fill(pow_when, {aten.pow.Tensor_Scalar: pow_number})
fill(float_result, {
    (aten.pow.Tensor_Tensor, aten.pow.Scalar): binary("pow"),
    aten.atan2.default: binary("atan2"),
    aten.hypot.default: binary("hypot"),
    aten.copysign.Tensor: binary("copysign"),
    aten.fmax.default: other_extremum("fmax"),
    aten.fmin.default: other_extremum("fmin"),
})  # fmt: skip
fill(not_bool, {
    aten.maximum.default: extremum("maximum"),
    aten.minimum.default: extremum("minimum"),
})  # fmt: skip
fill(always, {getattr(aten, f"logical_{op}").default: bits(op, torch.bool) for op in _LOGIC})
fill(bitwise_when, {_both(f"bitwise_{op}"): bits(op) for op in _LOGIC})
for _side, _operator, _op in _SHIFTS:
    fill(integer_result, {
        _both(f"bitwise_{_side}_shift", "Tensor_Scalar"): bits(_op),
        _both(_operator): bits(_op),
    })  # fmt: skip
