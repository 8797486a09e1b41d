"""Lowering of pointwise ATen operators: the table from operator to expression.

Each rule computes as eager does: in float32 for bfloat16 and float16, rounded once after the
operator; integers wrap. Calls that eager refuses, or whose errors depend on data (integer division
by zero), have no rule and stay ATen steps. `builder.rule_for` reads the table.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ...ir.graph.nodes import Node
from ...ir.symbolic.expr import kind_of
from ..loops import affine
from ..loops.extents import in_vectors
from . import conditions as when
from . import unary
from .builder import At, Scalar, always, fill, over

aten = torch.ops.aten


def _where(at: At) -> Scalar:
    condition = at.get(at.arg(0), torch.bool)
    return condition.where(at.get(at.arg(1), at.dtype), at.get(at.arg(2), at.dtype))


def _masked_fill(at: At) -> Scalar:
    filled = at.get(at.arg(2), at.dtype)
    return at.get(at.arg(1), torch.bool).where(filled, at.get(at.arg(0), at.dtype))


def _lerp(at: At) -> Scalar:
    start, end, weight = at.operands(3)
    span = end - start
    near = weight.fma(span, start)
    if in_vectors(at.node):
        far = (weight - 1.0).fma(span, end)
    else:  # the same number, except for the signs of zeros
        rest = 1.0 - weight
        far = (-span).fma(rest, end)
    return (abs(weight) < 0.5).where(near, far)


def _filled(position: int, name: str) -> Callable[[At], Scalar]:
    return lambda at: at.get(at.arg(position, name), at.dtype)


def _number(value: int) -> Callable[[At], Scalar]:
    return lambda at: at.const(value, at.dtype)


def _arange(at: At) -> Scalar:
    start, step = at.arg(0), at.arg(2, "step", 1)
    form = at.where[0]
    if all(kind_of(number) == "int" for number in (start, step)):
        return at.index(affine.scaled(form, step, start))
    on_cpu = at.meta.device.type == "cpu"
    wide = torch.float64 if on_cpu else at.math  # eager: start + step * i in double, rounded once
    position = at.index(form).to(wide)
    if not on_cpu:  # eager: in its own type, by one instruction
        return position.fma(step, start)
    moved = position * step
    return at.const(start, wide) + moved


def _arange_when(node: Node) -> bool:
    floats = any(kind_of(number) == "float" for number in node.args)
    return not node.kwargs.get("pin_memory") and (node.meta.dtype.is_floating_point or not floats)


def _triangle(op: str) -> Callable[[At], Scalar]:
    def build(at: At) -> Scalar:
        row, column = at.where[-2], at.where[-1]
        n_axes = len(row.strides)
        ahead = affine.added([column, affine.scaled(row, -1)], n_axes)
        diagonal = at.arg(1, "diagonal", 0)
        if at.meta.device.type == "cpu":  # a span of lanes
            rows, columns = at.meta.shape[-2:]
            bounds = (-rows, diagonal + 1) if op == "le" else (diagonal, columns)
            inside = at.inside((ahead, *bounds))
        else:
            inside = at.index(ahead).apply(op, diagonal)
        return inside.where(at.get(at.arg(0), at.dtype), 0)

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


_MASK_SECOND = (aten.masked_fill.Scalar, aten.masked_fill.Tensor)


def _batch_norm(at: At) -> Scalar:
    """Inference: x * alpha + beta with alpha = weight / sqrt(var + eps), beta = bias - mean *
    alpha.

    Both sums are rounded once, as in eager's kernel for the CPU.
    """
    x, weight, bias, mean, variance = (at.arg(i) for i in range(5))
    eps = at.arg(6 if at.node.target is _NO_TRAINING else 7)
    channel = (at.where[1],)
    kind = torch.float64 if x.meta.dtype == torch.float64 else torch.float32

    def per_channel(node: Node | None, other: float) -> Scalar:
        return at.const(other, kind) if node is None else at.full(node, channel).to(kind)

    spread = (per_channel(variance, 1.0) + eps).sqrt()
    # (x - mean) / spread * weight + bias, as eager computes it there
    if at.meta.device.type != "cpu":
        away = at.full(x, at.where).to(kind) - per_channel(mean, 0.0)
        return away * (per_channel(weight, 1.0) / spread) + per_channel(bias, 0.0)
    alpha = 1.0 / spread * per_channel(weight, 1.0)
    beta = (-per_channel(mean, 0.0)).fma(alpha, per_channel(bias, 0.0))
    return at.full(x, at.where).to(kind).fma(alpha, beta)


def _batch_norm_of_inference(node: Node) -> bool:
    own_training = node.target is not _NO_TRAINING
    return (
        not (own_training and node.args[5])
        and len(node.args[0].meta.shape) >= 2
        and node.args[3] is not None
    )


_NO_TRAINING = aten._native_batch_norm_legit_no_training.default

fill(_mask_is_bool, {aten.where.self: _where, _MASK_SECOND: _masked_fill})
fill(when.float_result, {
    # an fma, as in the machine code of eager's kernel
    aten.addcmul.default: over(lambda x, a, b, value=1: (value * a).fma(b, x)),
    aten.addcdiv.default: over(lambda x, a, b, value=1: x + value * a / b),
    (aten.lerp.Scalar, aten.lerp.Tensor): _lerp,
})  # fmt: skip
fill(_same_device, {
    (aten.clone.default, aten._to_copy.default, aten.contiguous.default): unary.copy(0),
})  # fmt: skip
fill(when.real_numbers, {(aten.fill.Scalar, aten.fill.Tensor): _filled(1, "value")})
fill(always, {
    aten.tril.default: _triangle("le"),
    aten.triu.default: _triangle("ge"),
}, symbolic="sizes")  # fmt: skip
fill(_arange_when, {aten.arange.start_step: _arange}, symbolic="sizes")
fill(_on_cpu, {
    (aten.full.default, aten.full_like.default): _filled(1, "fill_value"),
    aten.new_full.default: _filled(2, "fill_value"),
    aten.scalar_tensor.default: _filled(0, "s"),
    (aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default): _number(0),
    (aten.ones.default, aten.ones_like.default, aten.new_ones.default): _number(1),
}, kind="create", symbolic="shape")  # fmt: skip
fill(_batch_norm_of_inference, {
    (aten.native_batch_norm.default, aten.cudnn_batch_norm.default, _NO_TRAINING): _batch_norm,
})  # fmt: skip
