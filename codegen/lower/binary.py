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
from .builder import At, opmath, result_type
from .conditions import fits_integer, float_result

aten = torch.ops.aten


def binary(op: str, exact_second: bool = False) -> Callable[[At], int]:
    """The rule of an operator. `exact_second`: a number (or CPU scalar) on the right is not rounded
    to bfloat16 or float16 first.
    """

    def build(at: At) -> int:
        left, right = at.arg(0), at.arg(1)
        exact = exact_second and not (isinstance(right, Node) and right.meta.shape)
        a = at.get(left, at.math, through=at.dtype)
        b = at.get(right, at.math, through=None if exact else at.dtype)
        return at.done(at.apply(op, a, b))

    return build


def extremum(op: str) -> Callable[[At], int]:
    """maximum and minimum. Of two zeros eager's loop over single elements gives the first one, its
    vectors give the second.
    """
    plain, turned = binary(op), _turned(op)
    return lambda at: (turned if at.dtype.is_floating_point and one_by_one(at.node) else plain)(at)


def other_extremum(op: str) -> Callable[[At], int]:
    """fmax and fmin. Of two zeros eager gives the first one; for bfloat16 the second."""
    plain, turned = binary(op), _turned(op)
    return lambda at: (plain if at.dtype == torch.bfloat16 else turned)(at)


def _turned(op: str) -> Callable[[At], int]:
    def build(at: At) -> int:
        a, b = (at.get(at.arg(i), at.math, through=at.dtype) for i in (0, 1))
        return at.done(at.apply(op, b, a))

    return build


def mul(at: At) -> int:
    left, right = at.arg(0), at.arg(1)
    exact_left = isinstance(left, Node) and not left.meta.shape and bool(at.meta.shape)
    exact_right = not (isinstance(right, Node) and right.meta.shape)
    a = at.get(left, at.math, through=None if exact_left else at.dtype)
    b = at.get(right, at.math, through=None if exact_right else at.dtype)
    return at.done(at.apply("mul", a, b))


def sum_of(op: str, reverse: bool = False) -> Callable[[At], int]:
    def build(at: At) -> int:
        a = at.get(at.arg(0), at.math, through=at.dtype)
        b = at.get(at.arg(1), at.math, through=at.dtype)
        if reverse:
            a, b = b, a
        alpha = at.arg(2, "alpha", 1)
        return at.done(at.apply(op, a, b) if alpha == 1 else scaled_sum(at, op, a, b, alpha))

    return build


def rsub(at: At) -> int:
    a = at.get(at.arg(0), at.math, through=at.dtype)
    b = at.get(at.arg(1), at.math, through=at.dtype)
    alpha = at.arg(2, "alpha", 1)
    return at.done(at.apply("sub", b, a) if alpha == 1 else scaled_sum(at, "sub", b, a, alpha))


def scaled_sum(at: At, op: str, a: int, b: int, alpha: Any) -> int:
    """a + alpha * b or a - alpha * b; floats are rounded once, as in eager's kernel."""
    factor = at.get(alpha, at.math, through=at.dtype)
    if not at.dtype.is_floating_point:
        return at.apply(op, a, at.apply("mul", b, factor))
    return at.apply("fma", b, at.apply("neg", factor) if op == "sub" else factor, a)


MODES = {None: "div", "trunc": "div", "floor": "floor_div"}
INTEGER_MODES = {"trunc": "int_trunc_div", "floor": "int_floor_div"}


def div_mode(at: At) -> int:
    mode = at.arg(2, "rounding_mode")
    if mode is not None and not at.dtype.is_floating_point:
        a = at.get(at.arg(0), at.dtype)
        return at.apply(INTEGER_MODES[mode], a, at.const(at.arg(1)))
    value = binary(MODES[mode], exact_second=True)
    if mode != "trunc":
        return value(at)
    a = at.get(at.arg(0), at.math, through=at.dtype)
    b = at.get(at.arg(1), at.math, through=at.dtype)
    return at.done(at.apply("trunc", at.apply("div", a, b)))


def floor_divide(at: At) -> int:
    if not at.dtype.is_floating_point:
        return at.apply("int_floor_div", at.get(at.arg(0), at.dtype), at.const(at.arg(1)))
    return binary("floor_div")(at)


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
    mode = node.kwargs.get("rounding_mode", node.args[2] if len(node.args) > 2 else None)
    return safe_divisor(node) if mode is not None else float_result(node)


def modulo(op: str) -> Callable[[At], int]:
    def build(at: At) -> int:
        if not at.dtype.is_floating_point:
            return at.apply(f"int_{op}", at.get(at.arg(0), at.dtype), at.const(at.arg(1)))
        return binary(op)(at)

    return build


def pow_number(at: At) -> int:
    exponent = at.arg(1)
    x = at.get(at.arg(0), at.math, through=at.dtype)
    square = at.apply("mul", x, x)
    if exponent == 2:
        return at.done(square)
    if exponent == 3:
        return at.done(at.apply("mul", square, x))
    special = {0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}
    # eager does the same: pow and sqrt differ at -inf and -0
    through_pow = abs(exponent) == 0.5 and at.dtype == torch.float16
    if exponent in special and not through_pow:
        return at.done(at.apply(special[exponent], x))
    if exponent == -2:
        return at.done(at.apply("reciprocal", square))
    if exponent == 1:
        return at.done(x)
    return at.done(at.apply("pow", x, at.get(exponent, at.math, through=at.dtype)))


def pow_when(node: Node) -> bool:
    return float_result(node) or (
        node.meta.dtype != torch.bool and type(node.args[1]) is int and node.args[1] in (1, 2, 3)
    )


def compare(op: str) -> Callable[[At], int]:
    def build(at: At) -> int:
        common = result_type(at.arg(0), at.arg(1))
        a = at.get(at.arg(0), opmath(common), through=common)
        b = at.get(at.arg(1), opmath(common), through=common)
        if common == torch.bool and op in ("lt", "le", "gt", "ge"):
            return compare_bools(at, op, a, b)
        return at.apply(op, a, b)

    return build


def compare_bools(at: At, op: str, a: int, b: int) -> int:
    if op in ("gt", "ge"):
        a, b = b, a
    strict = op in ("lt", "gt")
    not_a = at.apply("not", a)
    return at.apply("and" if strict else "or", not_a, b)


def compare_when(node: Node) -> bool:
    common = result_type(node.args[0], node.args[1])
    number = node.args[1]
    if isinstance(number, complex):
        return False
    if isinstance(number, (Node, Expr)) or common.is_floating_point or common == torch.bool:
        return True
    limits = torch.iinfo(common)
    return limits.min <= number <= limits.max


def logical(op: str) -> Callable[[At], int]:
    def build(at: At) -> int:
        return at.apply(op, at.get(at.arg(0), torch.bool), at.get(at.arg(1), torch.bool))

    return build


def bitwise(op: str) -> Callable[[At], int]:
    def build(at: At) -> int:
        return at.apply(op, at.get(at.arg(0), at.dtype), at.get(at.arg(1), at.dtype))

    return build


def bitwise_when(node: Node) -> bool:
    return node.meta.dtype == torch.bool or fits_integer(node)


def integer_result(node: Node) -> bool:
    return (
        node.meta.dtype != torch.bool
        and not node.meta.dtype.is_floating_point
        and fits_integer(node)
    )
