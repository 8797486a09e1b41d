"""Lowering of pointwise ATen operators: the table from operator to expression.

Each rule computes as eager does: in float32 for bfloat16 and float16, rounded once after the
operator; integers wrap. Calls that eager refuses, or whose errors depend on data (integer division
by zero), have no rule and stay ATen steps. `builder.rule_for` reads the table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...ir.graph.nodes import Node
from ...ir.symbolic.expr import kind_of
from ..loops import affine
from ..loops.extents import in_vectors
from . import binary, unary
from . import conditions as when
from .builder import RULES, At, Rule, Scalar

aten = torch.ops.aten


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
        # an fma, as in the machine code of eager's kernel
        return at.done(at.apply("fma", at.apply("mul", scale, a), b, x))

    return build


def _lerp(at: At) -> int:
    start, end, weight = (at.get(at.arg(i), at.math) for i in range(3))
    span = at.apply("sub", end, start)
    near = at.apply("fma", weight, span, start)
    if in_vectors(at.node):
        far = at.apply("fma", at.apply("sub", weight, at.const(1.0)), span, end)
    else:  # the same number, except for the signs of zeros
        rest = at.apply("sub", at.const(1.0), weight)
        far = at.apply("fma", at.apply("neg", span), rest, end)
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
    if all(kind_of(number) == "int" for number in (start, step)):
        return Scalar.to(at.index(affine.scaled(form, step, start)), at.dtype)
    on_cpu = at.meta.device.type == "cpu"
    wide = torch.float64 if on_cpu else at.math  # eager: start + step * i in double, rounded once
    position = Scalar.to(at.index(form), wide)
    if not on_cpu:  # eager: in its own type, by one instruction
        return at.done(at.apply("fma", position, at.const(step, wide), at.const(start, wide)))
    moved = at.apply("mul", position, at.const(step, wide))
    return at.done(at.apply("add", at.const(start, wide), moved))


def _arange_when(node: Node) -> bool:
    floats = any(kind_of(number) == "float" for number in node.args)
    return not node.kwargs.get("pin_memory") and (node.meta.dtype.is_floating_point or not floats)


def _triangle(op: str) -> Callable[[At], int]:
    def build(at: At) -> int:
        row, column = at.where[-2], at.where[-1]
        n_axes = len(row.strides)
        ahead = affine.added([column, affine.scaled(row, -1)], n_axes)
        diagonal = at.arg(1, "diagonal", 0)
        if at.meta.device.type == "cpu":  # a span of lanes
            rows, columns = at.meta.shape[-2:]
            bounds = (-rows, diagonal + 1) if op == "le" else (diagonal, columns)
            inside = at.inside((ahead, *bounds))
        else:
            inside = at.apply(op, at.index(ahead), at.const(diagonal, torch.int64))
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
    """Inference: x * alpha + beta with alpha = weight / sqrt(var + eps), beta = bias - mean *
    alpha.

    Both sums are rounded once, as in eager's kernel for the CPU.
    """
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
        return Scalar.to(at.full(node, channel), kind)

    spread = at.apply("sqrt", at.apply("add", per_channel(variance, 1.0), at.const(eps, kind)))
    # (x - mean) / spread * weight + bias, as eager computes it there
    if at.meta.device.type != "cpu":
        value = Scalar.to(at.full(x, at.where), kind)
        away = at.apply("sub", value, per_channel(mean, 0.0))
        scaled = at.apply("mul", away, at.apply("div", per_channel(weight, 1.0), spread))
        return at.done(at.apply("add", scaled, per_channel(bias, 0.0)))
    alpha = at.apply("mul", at.apply("div", at.const(1.0, kind), spread), per_channel(weight, 1.0))
    beta = at.apply("fma", at.apply("neg", per_channel(mean, 0.0)), alpha, per_channel(bias, 0.0))
    value = Scalar.to(at.full(x, at.where), kind)
    return at.done(at.apply("fma", value, alpha, beta))


def _batch_norm_of_inference(node: Node) -> bool:
    own_training = node.target is not aten._native_batch_norm_legit_no_training.default
    return (
        not (own_training and node.args[5])
        and len(node.args[0].meta.shape) >= 2
        and node.args[3] is not None
    )


def _register(
    build: Callable[[At], Any],
    names: Any,
    when: Callable[[Node], bool] = lambda node: True,
    kind: str = "pointwise",
    symbolic: str = "",
) -> None:
    for op in names if isinstance(names, tuple) else (names,):
        RULES[op] = Rule(build, kind, when=when, symbolic=symbolic)


for _name in (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "sin",
    "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf",
    "erfc", "sigmoid",
):  # fmt: skip
    _register(unary.unary(_name), getattr(aten, _name).default, when.float_result)
for _name in ("neg", "abs", "sign"):
    _register(unary.unary(_name), getattr(aten, _name).default, when.not_bool)
for _name in ("floor", "ceil", "trunc", "round"):
    _register(unary.same_or_float(_name), getattr(aten, _name).default, when.not_bool)
for _name in ("isnan", "isinf", "isfinite", "signbit"):
    _op = getattr(aten, _name, None)
    if _name != "signbit" and _op is not None:
        _register(unary.test(_name), _op.default)
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    _packet = getattr(aten, _name)
    _register(
        binary.compare(_name),
        (_packet.Tensor, _packet.Scalar),
        binary.compare_when,
        symbolic="numbers",
    )
for _name, _op in (("logical_and", "and"), ("logical_or", "or"), ("logical_xor", "xor")):
    _register(binary.logical(_op), getattr(aten, _name).default)
for _name, _op in (("bitwise_and", "and"), ("bitwise_or", "or"), ("bitwise_xor", "xor")):
    _packet = getattr(aten, _name)
    _register(binary.bitwise(_op), (_packet.Tensor, _packet.Scalar), binary.bitwise_when)
for _name, _op in (("bitwise_left_shift", "shl"), ("bitwise_right_shift", "shr")):
    _packet = getattr(aten, _name)
    _register(binary.bitwise(_op), (_packet.Tensor, _packet.Tensor_Scalar), binary.integer_result)
for _name, _op in (("__lshift__", "shl"), ("__rshift__", "shr")):  # the operators << and >>
    _packet = getattr(aten, _name)
    _register(binary.bitwise(_op), (_packet.Tensor, _packet.Scalar), binary.integer_result)
for _name in ("maximum", "minimum"):
    _register(binary.extremum(_name), getattr(aten, _name).default, when.not_bool)
for _name in ("fmax", "fmin"):
    _register(binary.other_extremum(_name), getattr(aten, _name).default, when.float_result)
for _name in ("atan2", "hypot"):
    _register(binary.binary(_name), getattr(aten, _name).default, when.float_result)

_register(binary.binary("copysign"), aten.copysign.Tensor, when.float_result)
_register(
    binary.sum_of("add"), (aten.add.Tensor, aten.add.Scalar), when.fits_integer, symbolic="numbers"
)
_register(
    binary.sum_of("sub"), (aten.sub.Tensor, aten.sub.Scalar), when.fits_integer, symbolic="numbers"
)
_register(binary.rsub, (aten.rsub.Tensor, aten.rsub.Scalar), when.fits_integer, symbolic="numbers")
_register(binary.mul, (aten.mul.Tensor, aten.mul.Scalar), when.fits_integer, symbolic="numbers")
_register(
    binary.binary("div", exact_second=True), (aten.div.Tensor, aten.div.Scalar), when.float_result,
    symbolic="numbers",
)  # fmt: skip
_register(binary.div_mode, (aten.div.Tensor_mode, aten.div.Scalar_mode), binary.div_when)
_register(
    binary.floor_divide, (aten.floor_divide.default, aten.floor_divide.Scalar), binary.safe_divisor
)
_register(
    binary.modulo("remainder"), (aten.remainder.Tensor, aten.remainder.Scalar), binary.safe_divisor
)
_register(binary.modulo("fmod"), (aten.fmod.Tensor, aten.fmod.Scalar), binary.safe_divisor)
_register(binary.pow_number, aten.pow.Tensor_Scalar, binary.pow_when)
_register(binary.binary("pow"), (aten.pow.Tensor_Tensor, aten.pow.Scalar), when.float_result)
_register(unary.relu, aten.relu.default, when.not_bool)
_register(unary.relu6, aten.relu6.default, when.not_bool)
_register(unary.gelu, aten.gelu.default, when.float_result)
_register(unary.silu, aten.silu.default, when.float_result)
_register(unary.leaky_relu, aten.leaky_relu.default, when.float_result)
_register(unary.elu, aten.elu.default, when.float_result)
_register(unary.hardtanh, aten.hardtanh.default, unary.no_nan_bounds)
_register(unary.hardswish, aten.hardswish.default, when.float_result)
_register(unary.hardsigmoid, aten.hardsigmoid.default, when.float_result)
_register(unary.softplus, aten.softplus.default, when.float_result)
_register(unary.mish, aten.mish.default, when.float_result)
_register(unary.clamp, (aten.clamp.default, aten.clamp.Tensor), unary.no_nan_bounds)
_register(unary.clamp_min, (aten.clamp_min.default, aten.clamp_min.Tensor), unary.no_nan_bounds)
_register(unary.clamp_max, (aten.clamp_max.default, aten.clamp_max.Tensor), unary.no_nan_bounds)
_register(unary.logical_not, aten.logical_not.default)
_register(unary.unary("not"), aten.bitwise_not.default)
_register(unary.nan_to_num, aten.nan_to_num.default, when.not_bool)
_register(unary.frac, aten.frac.default, when.float_result)
_register(_where, aten.where.self, _mask_is_bool)
_register(_masked_fill, (aten.masked_fill.Scalar, aten.masked_fill.Tensor), _mask_is_bool)
_register(_addcmul("mul"), aten.addcmul.default, when.float_result)
_register(_addcmul("div"), aten.addcdiv.default, when.float_result)
_register(_lerp, (aten.lerp.Scalar, aten.lerp.Tensor), when.float_result)
_register(
    unary.copy, (aten.clone.default, aten._to_copy.default, aten.contiguous.default), _same_device
)
_register(unary.copy_from, aten.copy.default)
_register(_triangle("le"), aten.tril.default, symbolic="sizes")
_register(_triangle("ge"), aten.triu.default, symbolic="sizes")
_register(_filled(1, "value"), (aten.fill.Scalar, aten.fill.Tensor), when.real_numbers)
_register(
    _filled(1, "fill_value"),
    (aten.full.default, aten.full_like.default),
    _on_cpu,
    "create",
    "shape",
)
_register(_filled(2, "fill_value"), aten.new_full.default, _on_cpu, "create", "shape")
_register(_filled(0, "s"), aten.scalar_tensor.default, _on_cpu, "create", "shape")
_register(
    _number(0),
    (aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default),
    _on_cpu,
    "create",
    "shape",
)
_register(
    _number(1),
    (aten.ones.default, aten.ones_like.default, aten.new_ones.default),
    _on_cpu,
    "create",
    "shape",
)
_register(_arange, aten.arange.start_step, _arange_when, symbolic="sizes")
_register(
    _batch_norm,
    (
        aten.native_batch_norm.default,
        aten.cudnn_batch_norm.default,
        aten._native_batch_norm_legit_no_training.default,
    ),
    _batch_norm_of_inference,
)
