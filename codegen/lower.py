"""Lowering of pointwise ATen operators: the table from operator to expression.

Each rule computes as eager does: in float32 for bfloat16 and float16, rounded once after the operator; integers
wrap; what eager refuses or what depends on data (integer division by zero) has no rule and stays an ATen step.
The table is read by `lowering.rule_for`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ..ir.graph import Node
from . import affine
from .lowering import RULES, At, Rule, opmath, result_type

aten = torch.ops.aten


def _float_result(node: Node) -> bool:
    return node.meta.dtype.is_floating_point


def _not_bool(node: Node) -> bool:
    return node.meta.dtype != torch.bool


def _fits_integer(node: Node) -> bool:
    """Python numbers among the operands are in the range of the result's integer type."""
    dtype = node.meta.dtype
    if dtype.is_floating_point or dtype == torch.bool:
        return dtype != torch.bool
    limits = torch.iinfo(dtype)
    numbers = [a for a in (*node.args, *node.kwargs.values()) if isinstance(a, (int, float))]
    return all(isinstance(n, int) and limits.min <= n <= limits.max for n in numbers)


# --- one operand ---


def _unary(op: str) -> Callable[[At], int]:
    def build(at: At) -> int:
        return at.done(at.apply(op, at.get(at.arg(0), at.math)))

    return build


def _same_or_float(op: str) -> Callable[[At], int]:
    """Rounding operators: integers pass unchanged."""

    def build(at: At) -> int:
        value = at.get(at.arg(0), at.math)
        return at.done(at.apply(op, value) if at.dtype.is_floating_point else value)

    return build


def _test(op: str) -> Callable[[At], int]:
    def build(at: At) -> int:
        source = at.arg(0).meta.dtype
        if not source.is_floating_point:
            return at.const(op == "isfinite", torch.bool)
        return at.apply(op, at.get(at.arg(0), opmath(source)))

    return build


def _copy(at: At) -> int:
    return at.get(at.arg(0), at.dtype)


def _copy_from(at: At) -> int:
    return at.get(at.arg(1), at.dtype)


def _relu(at: At) -> int:
    x, nothing = at.get(at.arg(0), at.math), at.const(0)
    return at.done(at.apply("where", at.apply("lt", x, nothing), nothing, x))


def _relu6(at: At) -> int:
    return _clamped(at, 0.0, 6.0)


def _gelu(at: At) -> int:
    x = at.get(at.arg(0), at.math)
    if at.arg(1, "approximate", "none") == "tanh":
        cube = at.apply("mul", at.apply("mul", x, x), x)
        inner = at.apply("add", x, at.apply("mul", at.const(0.044715), cube))
        inner = at.apply("mul", at.const(math.sqrt(2.0 / math.pi)), inner)
        grown = at.apply("add", at.const(1.0), at.apply("tanh", inner))
    else:
        grown = at.apply("erf", at.apply("mul", x, at.const(math.sqrt(0.5))))
        grown = at.apply("add", at.const(1.0), grown)
    return at.done(at.apply("mul", at.apply("mul", at.const(0.5), x), grown))


def _silu(at: At) -> int:
    x = at.get(at.arg(0), at.math)
    return at.done(
        at.apply("div", x, at.apply("add", at.const(1.0), at.apply("exp", at.apply("neg", x))))
    )


def _leaky_relu(at: At) -> int:
    x = at.get(at.arg(0), at.math)
    slope = at.const(at.arg(1, "negative_slope", 0.01))
    positive = at.apply("gt", x, at.const(0.0))
    return at.done(at.apply("where", positive, x, at.apply("mul", x, slope)))


def _elu(at: At) -> int:
    x = at.get(at.arg(0), at.math)
    alpha, scale = at.arg(1, "alpha", 1), at.arg(2, "scale", 1)
    inner = at.apply("expm1", at.apply("mul", x, at.const(at.arg(3, "input_scale", 1))))
    below = at.apply("mul", inner, at.const(alpha * scale))
    above = at.apply("mul", x, at.const(scale))
    return at.done(at.apply("where", at.apply("lt", x, at.const(0.0)), below, above))


def _hardtanh(at: At) -> int:
    return _clamped(at, at.arg(1, "min_val", -1), at.arg(2, "max_val", 1))


def _clamped(at: At, low: Any, high: Any) -> int:
    """clamp: nan stays, and of equals the operand stays."""
    x = at.get(at.arg(0), at.math, through=at.dtype)
    if low is not None:
        bound = at.get(low, at.math, through=at.dtype)
        x = _bounded(at, "lt", x, bound, isinstance(low, Node))
    if high is not None:
        bound = at.get(high, at.math, through=at.dtype)
        x = _bounded(at, "gt", x, bound, isinstance(high, Node))
    return at.done(x)


def _bounded(at: At, op: str, x: int, bound: int, may_be_nan: bool) -> int:
    beyond = at.apply(op, x, bound)
    if may_be_nan and at.dtype.is_floating_point:
        beyond = at.apply("or", beyond, at.apply("isnan", bound))
        found = at.apply("where", beyond, bound, x)
        return at.apply("where", at.apply("isnan", x), x, found)
    return at.apply("where", beyond, bound, x)


def _clamp(at: At) -> int:
    return _clamped(at, at.arg(1, "min"), at.arg(2, "max"))


def _clamp_min(at: At) -> int:
    return _clamped(at, at.arg(1, "min"), None)


def _clamp_max(at: At) -> int:
    return _clamped(at, None, at.arg(1, "max"))


def _no_nan_bounds(node: Node) -> bool:
    numbers = [a for a in (*node.args[1:], *node.kwargs.values()) if isinstance(a, float)]
    return _fits_integer(node) and not any(math.isnan(number) for number in numbers)


def _hard_part(at: At, x: int) -> int:
    """min(max(x + 3, 0), 6)"""
    shifted = at.apply("add", x, at.const(3.0))
    low, high = at.const(0.0), at.const(6.0)
    shifted = at.apply("where", at.apply("lt", shifted, low), low, shifted)
    return at.apply("where", at.apply("gt", shifted, high), high, shifted)


def _hardswish(at: At) -> int:
    x = at.get(at.arg(0), at.math)
    return at.done(at.apply("div", at.apply("mul", x, _hard_part(at, x)), at.const(6.0)))


def _hardsigmoid(at: At) -> int:
    return at.done(at.apply("div", _hard_part(at, at.get(at.arg(0), at.math)), at.const(6.0)))


def _softplus(at: At) -> int:
    x = at.get(at.arg(0), at.math)
    beta, threshold = at.const(at.arg(1, "beta", 1)), at.const(at.arg(2, "threshold", 20))
    grown = at.apply("mul", x, beta)
    soft = at.apply("div", at.apply("log1p", at.apply("exp", grown)), beta)
    return at.done(at.apply("where", at.apply("gt", grown, threshold), x, soft))


def _mish(at: At) -> int:
    x = at.get(at.arg(0), at.math)
    return at.done(at.apply("mul", x, at.apply("tanh", at.apply("log1p", at.apply("exp", x)))))


def _logical_not(at: At) -> int:
    return at.apply("not", at.get(at.arg(0), torch.bool))


def _nan_to_num(at: At) -> int:
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


def _frac(at: At) -> int:
    x = at.get(at.arg(0), at.math)
    return at.done(at.apply("sub", x, at.apply("trunc", x)))


# --- two operands ---


def _binary(op: str, exact_second: bool = False) -> Callable[[At], int]:
    """exact_second: a number (or CPU scalar) on the right is not rounded to bfloat16 or float16 first."""

    def build(at: At) -> int:
        left, right = at.arg(0), at.arg(1)
        exact = exact_second and not (isinstance(right, Node) and right.meta.shape)
        a = at.get(left, at.math, through=at.dtype)
        b = at.get(right, at.math, through=None if exact else at.dtype)
        return at.done(at.apply(op, a, b))

    return build


def _mul(at: At) -> int:
    left, right = at.arg(0), at.arg(1)
    exact_left = isinstance(left, Node) and not left.meta.shape and bool(at.meta.shape)
    exact_right = not (isinstance(right, Node) and right.meta.shape)
    a = at.get(left, at.math, through=None if exact_left else at.dtype)
    b = at.get(right, at.math, through=None if exact_right else at.dtype)
    return at.done(at.apply("mul", a, b))


def _sum_of(op: str, reverse: bool = False) -> Callable[[At], int]:
    def build(at: At) -> int:
        a = at.get(at.arg(0), at.math, through=at.dtype)
        b = at.get(at.arg(1), at.math, through=at.dtype)
        if reverse:
            a, b = b, a
        alpha = at.arg(2, "alpha", 1)
        if alpha != 1:
            b = at.apply("mul", b, at.get(alpha, at.math, through=at.dtype))
        return at.done(at.apply(op, a, b))

    return build


def _rsub(at: At) -> int:
    a = at.get(at.arg(0), at.math, through=at.dtype)
    b = at.get(at.arg(1), at.math, through=at.dtype)
    alpha = at.arg(2, "alpha", 1)
    if alpha != 1:
        a = at.apply("mul", a, at.get(alpha, at.math, through=at.dtype))
    return at.done(at.apply("sub", b, a))


_MODES = {None: "div", "trunc": "div", "floor": "floor_div"}
_INTEGER_MODES = {"trunc": "int_trunc_div", "floor": "int_floor_div"}


def _div_mode(at: At) -> int:
    mode = at.arg(2, "rounding_mode")
    if mode is not None and not at.dtype.is_floating_point:
        a = at.get(at.arg(0), at.dtype)
        return at.apply(_INTEGER_MODES[mode], a, at.const(at.arg(1)))
    value = _binary(_MODES[mode], exact_second=True)
    if mode != "trunc":
        return value(at)
    a = at.get(at.arg(0), at.math, through=at.dtype)
    b = at.get(at.arg(1), at.math, through=at.dtype)
    return at.done(at.apply("trunc", at.apply("div", a, b)))


def _floor_divide(at: At) -> int:
    if not at.dtype.is_floating_point:
        return at.apply("int_floor_div", at.get(at.arg(0), at.dtype), at.const(at.arg(1)))
    return _binary("floor_div")(at)


def _safe_divisor(node: Node) -> bool:
    """Floats always; integers by a constant that cannot trap."""
    dtype = node.meta.dtype
    if dtype.is_floating_point:
        return True
    divisor = node.args[1]
    if dtype == torch.bool or type(divisor) is not int or divisor in (0, -1):
        return False
    return _fits_integer(node)


def _div_when(node: Node) -> bool:
    mode = node.kwargs.get("rounding_mode", node.args[2] if len(node.args) > 2 else None)
    return _safe_divisor(node) if mode is not None else _float_result(node)


def _modulo(op: str) -> Callable[[At], int]:
    def build(at: At) -> int:
        if not at.dtype.is_floating_point:
            return at.apply(f"int_{op}", at.get(at.arg(0), at.dtype), at.const(at.arg(1)))
        return _binary(op)(at)

    return build


def _pow_number(at: At) -> int:
    exponent = at.arg(1)
    x = at.get(at.arg(0), at.math, through=at.dtype)
    square = at.apply("mul", x, x)
    if exponent == 2:
        return at.done(square)
    if exponent == 3:
        return at.done(at.apply("mul", square, x))
    special = {0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}
    through_pow = exponent == 0.5 and at.dtype == torch.float16  # in eager too: differs at -inf
    if exponent in special and not through_pow:
        return at.done(at.apply(special[exponent], x))
    if exponent == -2:
        return at.done(at.apply("reciprocal", square))
    if exponent == 1:
        return at.done(x)
    return at.done(at.apply("pow", x, at.get(exponent, at.math, through=at.dtype)))


def _pow_when(node: Node) -> bool:
    return _float_result(node) or (
        node.meta.dtype != torch.bool and type(node.args[1]) is int and node.args[1] in (1, 2, 3)
    )


def _compare(op: str) -> Callable[[At], int]:
    def build(at: At) -> int:
        common = result_type(at.arg(0), at.arg(1))
        a = at.get(at.arg(0), opmath(common), through=common)
        b = at.get(at.arg(1), opmath(common), through=common)
        if common == torch.bool and op in ("lt", "le", "gt", "ge"):
            return _compare_bools(at, op, a, b)
        return at.apply(op, a, b)

    return build


def _compare_bools(at: At, op: str, a: int, b: int) -> int:
    if op in ("gt", "ge"):
        a, b = b, a
    strict = op in ("lt", "gt")
    not_a = at.apply("not", a)
    return at.apply("and" if strict else "or", not_a, b)


def _compare_when(node: Node) -> bool:
    common = result_type(node.args[0], node.args[1])
    number = node.args[1]
    if isinstance(number, Node) or common.is_floating_point or common == torch.bool:
        return not isinstance(number, complex)
    limits = torch.iinfo(common)
    return limits.min <= number <= limits.max


def _logical(op: str) -> Callable[[At], int]:
    def build(at: At) -> int:
        return at.apply(op, at.get(at.arg(0), torch.bool), at.get(at.arg(1), torch.bool))

    return build


def _bitwise(op: str) -> Callable[[At], int]:
    def build(at: At) -> int:
        return at.apply(op, at.get(at.arg(0), at.dtype), at.get(at.arg(1), at.dtype))

    return build


def _bitwise_when(node: Node) -> bool:
    return node.meta.dtype == torch.bool or _fits_integer(node)


def _integer_result(node: Node) -> bool:
    return (
        node.meta.dtype != torch.bool
        and not node.meta.dtype.is_floating_point
        and _fits_integer(node)
    )


# --- three operands, and the rest ---


def _where(at: At) -> int:
    condition = at.get(at.arg(0), torch.bool)
    return at.apply("where", condition, at.get(at.arg(1), at.dtype), at.get(at.arg(2), at.dtype))


def _masked_fill(at: At) -> int:
    filled = at.get(at.arg(2), at.dtype)
    return at.apply("where", at.get(at.arg(1), torch.bool), filled, at.get(at.arg(0), at.dtype))


def _addcmul(op: str) -> Callable[[At], int]:
    def build(at: At) -> int:
        x, a, b = (at.get(at.arg(i), at.math) for i in range(3))
        scale = at.const(at.arg(3, "value", 1))
        if op == "div":
            return at.done(at.apply("add", x, at.apply("div", at.apply("mul", scale, a), b)))
        return at.done(at.apply("add", x, at.apply("mul", at.apply("mul", scale, a), b)))

    return build


def _lerp(at: At) -> int:
    start, end, weight = (at.get(at.arg(i), at.math) for i in range(3))
    span = at.apply("sub", end, start)
    near = at.apply("add", start, at.apply("mul", weight, span))
    rest = at.apply("sub", at.const(1.0), weight)
    far = at.apply("sub", end, at.apply("mul", span, rest))
    small = at.apply("lt", at.apply("abs", weight), at.const(0.5))
    return at.done(at.apply("where", small, near, far))


def _filled(position: int, name: str) -> Callable[[At], int]:
    def build(at: At) -> int:
        return at.get(at.arg(position, name), at.dtype)

    return build


def _number(value: int) -> Callable[[At], int]:
    return lambda at: at.const(value, at.dtype)


def _arange(at: At) -> int:
    start, step = at.arg(0), at.arg(2, "step", 1)
    form = at.where[0]
    if all(isinstance(number, int) for number in (start, step)):
        return at.builder.cast(at.builder.index(affine.scaled(form, step, start)), at.dtype)
    wide = torch.float64  # eager: start + step * i in double, rounded once
    position = at.builder.cast(at.builder.index(form), wide)
    moved = at.apply("mul", position, at.const(step, wide))
    return at.done(at.apply("add", at.const(start, wide), moved))


def _triangle(op: str) -> Callable[[At], int]:
    def build(at: At) -> int:
        row, column = at.where[-2], at.where[-1]
        n_axes = len(row.strides)
        ahead = affine.added([column, affine.scaled(row, -1)], n_axes)
        inside = at.apply(
            op, at.builder.index(ahead), at.const(at.arg(1, "diagonal", 0), torch.int64)
        )
        return at.apply("where", inside, at.get(at.arg(0), at.dtype), at.const(0, at.dtype))

    return build


def _same_device(node: Node) -> bool:
    device = node.kwargs.get("device")
    return (
        device is None or torch.device(device) == node.args[0].meta.device
    ) and not node.kwargs.get("pin_memory")


def _on_cpu(node: Node) -> bool:
    return not node.kwargs.get("pin_memory")


def _mask_is_bool(node: Node) -> bool:
    mask = node.args[1] if node.target in _MASK_SECOND else node.args[0]
    return isinstance(mask, Node) and mask.meta.dtype == torch.bool


_MASK_SECOND = frozenset({aten.masked_fill.Scalar, aten.masked_fill.Tensor})


def _batch_norm(at: At) -> int:
    """Inference: x * alpha + beta with alpha = weight / sqrt(var + eps), beta = bias - mean * alpha."""
    x, weight, bias, mean, variance = (at.arg(i) for i in range(5))
    eps = (
        at.arg(6)
        if at.node.target is aten._native_batch_norm_legit_no_training.default
        else at.arg(7)
    )
    channel = (at.where[1],)
    kind = torch.float64 if x.meta.dtype == torch.float64 else torch.float32

    def per_channel(node: Node | None, other: float) -> int:
        if node is None:
            return at.const(other, kind)
        return at.builder.cast(at.full(node, channel), kind)

    spread = at.apply("sqrt", at.apply("add", per_channel(variance, 1.0), at.const(eps, kind)))
    alpha = at.apply("mul", at.apply("div", at.const(1.0, kind), spread), per_channel(weight, 1.0))
    beta = at.apply("sub", per_channel(bias, 0.0), at.apply("mul", per_channel(mean, 0.0), alpha))
    value = at.builder.cast(at.full(x, at.where), kind)
    return at.done(at.apply("add", at.apply("mul", value, alpha), beta))


def _batch_norm_of_inference(node: Node) -> bool:
    own_training = node.target is aten.native_batch_norm.default
    return (
        not (own_training and node.args[5])
        and len(node.args[0].meta.shape) >= 2
        and node.args[3] is not None
    )


def _register(
    build: Callable[[At], Any], names: Any, when: Any = None, kind: str = "pointwise"
) -> None:
    for op in names if isinstance(names, tuple) else (names,):
        RULES[op] = Rule(build, kind, when=when) if when else Rule(build, kind)


for _name in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "sin",
              "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf",
              "erfc", "sigmoid"):  # fmt: skip
    _register(_unary(_name), getattr(aten, _name).default, _float_result)
for _name in ("neg", "abs", "sign"):
    _register(_unary(_name), getattr(aten, _name).default, _not_bool)
for _name in ("floor", "ceil", "trunc", "round"):
    _register(_same_or_float(_name), getattr(aten, _name).default, _not_bool)
for _name in ("isnan", "isinf", "isfinite", "signbit"):
    _op = getattr(aten, _name, None)
    if _name != "signbit" and _op is not None:
        _register(_test(_name), _op.default)
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    _packet = getattr(aten, _name)
    _register(_compare(_name), (_packet.Tensor, _packet.Scalar), _compare_when)
for _name, _op in (("logical_and", "and"), ("logical_or", "or"), ("logical_xor", "xor")):
    _register(_logical(_op), getattr(aten, _name).default)
for _name, _op in (("bitwise_and", "and"), ("bitwise_or", "or"), ("bitwise_xor", "xor")):
    _packet = getattr(aten, _name)
    _register(_bitwise(_op), (_packet.Tensor, _packet.Scalar), _bitwise_when)
for _name, _op in (("bitwise_left_shift", "shl"), ("bitwise_right_shift", "shr")):
    _packet = getattr(aten, _name)
    _register(_bitwise(_op), (_packet.Tensor, _packet.Tensor_Scalar), _integer_result)
for _name in ("maximum", "minimum"):
    _register(_binary(_name), getattr(aten, _name).default, _not_bool)
for _name in ("fmax", "fmin", "atan2", "hypot"):
    _register(_binary(_name), getattr(aten, _name).default, _float_result)

_register(_binary("copysign"), aten.copysign.Tensor, _float_result)
_register(_sum_of("add"), (aten.add.Tensor, aten.add.Scalar), _fits_integer)
_register(_sum_of("sub"), (aten.sub.Tensor, aten.sub.Scalar), _fits_integer)
_register(_rsub, (aten.rsub.Tensor, aten.rsub.Scalar), _fits_integer)
_register(_mul, (aten.mul.Tensor, aten.mul.Scalar), _fits_integer)
_register(_binary("div", exact_second=True), (aten.div.Tensor, aten.div.Scalar), _float_result)
_register(_div_mode, (aten.div.Tensor_mode, aten.div.Scalar_mode), _div_when)
_register(_floor_divide, (aten.floor_divide.default, aten.floor_divide.Scalar), _safe_divisor)
_register(_modulo("remainder"), (aten.remainder.Tensor, aten.remainder.Scalar), _safe_divisor)
_register(_modulo("fmod"), (aten.fmod.Tensor, aten.fmod.Scalar), _safe_divisor)
_register(_pow_number, aten.pow.Tensor_Scalar, _pow_when)
_register(_binary("pow"), (aten.pow.Tensor_Tensor, aten.pow.Scalar), _float_result)
_register(_relu, aten.relu.default, _not_bool)
_register(_relu6, aten.relu6.default, _not_bool)
_register(_gelu, aten.gelu.default, _float_result)
_register(_silu, aten.silu.default, _float_result)
_register(_leaky_relu, aten.leaky_relu.default, _float_result)
_register(_elu, aten.elu.default, _float_result)
_register(_hardtanh, aten.hardtanh.default, _no_nan_bounds)
_register(_hardswish, aten.hardswish.default, _float_result)
_register(_hardsigmoid, aten.hardsigmoid.default, _float_result)
_register(_softplus, aten.softplus.default, _float_result)
_register(_mish, aten.mish.default, _float_result)
_register(_clamp, (aten.clamp.default, aten.clamp.Tensor), _no_nan_bounds)
_register(_clamp_min, (aten.clamp_min.default, aten.clamp_min.Tensor), _no_nan_bounds)
_register(_clamp_max, (aten.clamp_max.default, aten.clamp_max.Tensor), _no_nan_bounds)
_register(_logical_not, aten.logical_not.default)
_register(_unary("not"), aten.bitwise_not.default)
_register(_nan_to_num, aten.nan_to_num.default, _not_bool)
_register(_frac, aten.frac.default, _float_result)
_register(_where, aten.where.self, _mask_is_bool)
_register(_masked_fill, (aten.masked_fill.Scalar, aten.masked_fill.Tensor), _mask_is_bool)
_register(_addcmul("mul"), aten.addcmul.default, _float_result)
_register(_addcmul("div"), aten.addcdiv.default, _float_result)
_register(_lerp, (aten.lerp.Scalar, aten.lerp.Tensor), _float_result)
_register(_copy, (aten.clone.default, aten._to_copy.default, aten.contiguous.default), _same_device)
_register(_copy_from, aten.copy.default)
_register(_triangle("le"), aten.tril.default)
_register(_triangle("ge"), aten.triu.default)
_register(_filled(1, "value"), (aten.fill.Scalar, aten.fill.Tensor))
_register(_filled(1, "fill_value"), (aten.full.default, aten.full_like.default), _on_cpu, "create")
_register(_filled(2, "fill_value"), aten.new_full.default, _on_cpu, "create")
_register(_filled(0, "s"), aten.scalar_tensor.default, _on_cpu, "create")
_register(
    _number(0),
    (aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default),
    _on_cpu,
    "create",
)
_register(
    _number(1),
    (aten.ones.default, aten.ones_like.default, aten.new_ones.default),
    _on_cpu,
    "create",
)
_register(_arange, aten.arange.start_step, _on_cpu)
_register(
    _batch_norm,
    (aten.native_batch_norm.default, aten._native_batch_norm_legit_no_training.default),
    _batch_norm_of_inference,
)
