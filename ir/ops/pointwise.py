"""Result rules of pointwise operators: one rule for all.

Shape by broadcasting, strides by TensorIterator, dtype from ATen, once per signature
(`meta_kernels.result_dtype`).
"""

from __future__ import annotations

from typing import Any

import torch

from ..errors import NoRule
from ..graph.layout import (
    Sizes,
    broadcast,
    contiguous_strides,
    has_zero,
    is_contiguous,
    like_strides,
    pointwise_strides,
)
from ..graph.nodes import Meta
from ..graph.opdef import add_rows, rule
from .meta_kernels import result_dtype

UNARY = """
    acos acosh asin asinh atan atanh bitwise_not ceil cos cosh digamma erf erfc
    erfinv exp exp2 expm1 floor frac i0 isnan isneginf isposinf lgamma log log10 log1p log2
    logical_not logit mish neg reciprocal relu round round.decimals rsqrt sgn
    sigmoid sign signbit silu sin sinc sinh special_bessel_j0 special_bessel_j1 special_entr
    special_erfcx special_i0e special_i1 special_i1e special_log_ndtr special_ndtri sqrt tan tanh
    trunc celu elu gelu hardshrink hardsigmoid hardswish leaky_relu softplus softshrink
    threshold
"""

BINARY = """
    add.Tensor add.Scalar sub.Tensor sub.Scalar rsub.Tensor rsub.Scalar mul.Tensor mul.Scalar
    div.Tensor div.Scalar div.Tensor_mode div.Scalar_mode floor_divide floor_divide.Scalar
    remainder.Tensor remainder.Scalar remainder.Scalar_Tensor fmod.Tensor fmod.Scalar
    pow.Tensor_Tensor pow.Tensor_Scalar atan2 copysign.Tensor copysign.Scalar hypot nextafter
    maximum minimum fmax fmin heaviside xlogy.Tensor xlogy.Scalar_Self xlogy.Scalar_Other
    special_xlog1py logaddexp logaddexp2 gcd lcm eq.Tensor eq.Scalar ne.Tensor ne.Scalar lt.Tensor
    lt.Scalar le.Tensor le.Scalar gt.Tensor gt.Scalar ge.Tensor ge.Scalar logical_and logical_or
    logical_xor bitwise_and.Tensor bitwise_and.Scalar bitwise_and.Scalar_Tensor bitwise_or.Tensor
    bitwise_or.Scalar bitwise_or.Scalar_Tensor bitwise_xor.Tensor bitwise_xor.Scalar
    bitwise_xor.Scalar_Tensor bitwise_left_shift.Tensor bitwise_left_shift.Tensor_Scalar
    bitwise_left_shift.Scalar_Tensor bitwise_right_shift.Tensor bitwise_right_shift.Tensor_Scalar
    bitwise_right_shift.Scalar_Tensor __lshift__.Tensor __lshift__.Scalar __rshift__.Tensor
    __rshift__.Scalar gelu_backward sigmoid_backward tanh_backward silu_backward threshold_backward
    hardtanh_backward hardswish_backward hardsigmoid_backward elu_backward leaky_relu_backward
    softplus_backward mish_backward
"""

TERNARY = """
    where.self clamp clamp.Tensor clamp_min clamp_min.Tensor clamp_max clamp_max.Tensor
    lerp.Scalar lerp.Tensor addcmul addcdiv polar complex
"""


def _tensors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Meta]:
    metas = [arg for arg in args if type(arg) is Meta]
    if kwargs:
        metas += [value for value in kwargs.values() if type(value) is Meta]
    return metas


def common_device(metas: list[Meta]) -> torch.device:
    """The device of an operator's tensors; zero-dimensional CPU tensors combine with any device."""
    device = metas[0].device
    for meta in metas[1:]:
        if meta.device != device:
            if not meta.shape and meta.device.type == "cpu":
                continue
            if device.type == "cpu" and all(not m.shape for m in metas if m.device == device):
                device = meta.device
                continue
            raise RuntimeError(f"tensors on {device} and {meta.device}")
    return device


def pointwise(op: Any, *args: Any, **kwargs: Any) -> Meta:
    """The result of any pointwise operator."""
    metas = _tensors(args, kwargs)
    dtype = result_dtype(op, args, kwargs)
    if len(metas) == 1:
        shape = metas[0].shape
        device = metas[0].device
    else:
        shape = broadcast(*(meta.shape for meta in metas))
        device = common_device(metas)
    if has_zero(shape):
        # Nothing to compute, and some operators keep unusual strides.
        raise NoRule
    operands = [(meta.shape, meta.stride) for meta in metas]
    if device.type == "cpu":
        operands = _cast(metas, dtype, operands)
    if op._opname in _TURNED:
        operands.reverse()
    if _wraps_number(op, args):
        operands.append(((), ()))
    return Meta(shape, pointwise_strides(shape, tuple(operands)), dtype, device)


# Operators whose kernel takes the second operand first: rsub is sub(other, self), and these
# gradients read the input.
_TURNED = {"rsub", "threshold_backward", "leaky_relu_backward"}

# Binary operators wrap a Python number into a zero-dimensional operand, so that not all shapes are
# equal.
_WRAPPING = {"Scalar", "Tensor", "Scalar_mode", "Tensor_mode", "Tensor_Scalar", "Scalar_Tensor"}
_WRAPPING |= {"Scalar_Self", "Scalar_Other"}
_UNWRAPPED = {"pow", "clamp", "masked_fill", "lerp", "addcmul", "addcdiv"}


def _cast(
    metas: list[Meta], dtype: torch.dtype, operands: list[tuple[Sizes, Sizes]]
) -> list[tuple[Sizes, Sizes]]:
    """The operands as the processor's iterator sees them: it first copies those of another dtype
    than it computes in."""
    if all(meta.dtype is dtype for meta in metas):
        return operands
    if dtype is torch.bool:  # a comparison
        both = len(metas) == 2
        dtype = result_dtype(torch.ops.aten.add.Tensor, (*metas,), {}) if both else metas[0].dtype
    return [
        (shape, stride if meta.dtype is dtype else like_strides(shape, stride))
        for meta, (shape, stride) in zip(metas, operands, strict=True)
    ]


def _wraps_number(op: Any, args: tuple[Any, ...]) -> bool:
    return (
        (op._overloadname in _WRAPPING or op._opname == "floor_divide")
        and len(args) > 1
        and not (type(args[0]) is Meta and type(args[1]) is Meta)
        and op._opname not in _UNWRAPPED
    )


@rule("pointwise", "masked_fill.Scalar masked_fill.Tensor")
def _masked_fill(op: Any, self: Meta, mask: Meta, value: Any) -> Meta:
    """A row-major clone of self, expanded to the mask, then filled."""
    result_dtype(op, (self, mask, value), {})
    if type(value) is Meta and value.shape:
        raise RuntimeError("masked_fill takes a zero-dimensional value")
    shape = broadcast(self.shape, mask.shape)
    return Meta(shape, contiguous_strides(shape), self.dtype, self.device)


@rule("pointwise", "pow.Scalar")
def _power_of_number(op: Any, self: Any, exponent: Meta) -> Meta:
    """Row-major for every layout of the exponent."""
    found = pointwise(op, self, exponent)
    return Meta(found.shape, contiguous_strides(found.shape), found.dtype, found.device)


@rule("pointwise", "deg2rad hardtanh nan_to_num rad2deg")
def _like_operand(op: Any, self: Meta, *args: Any, **kwargs: Any) -> Meta:
    """The layout of `empty_like(self)`."""
    found = pointwise(op, self, *args, **kwargs)
    return Meta(found.shape, like_strides(self.shape, self.stride), found.dtype, found.device)


@rule("pointwise", "abs angle")
def _size_of_number(op: Any, self: Meta) -> Meta:
    """Of complex numbers, `abs` has the layout of `empty_like(self)`, and `angle` is row-major."""
    found = pointwise(op, self)
    if not self.dtype.is_complex or self.device.type != "cpu":
        return found
    is_abs = op._opname == "abs"
    stride = like_strides(self.shape, self.stride) if is_abs else contiguous_strides(self.shape)
    return Meta(found.shape, stride, found.dtype, found.device)


@rule("pointwise", "isinf")
def _isinf(op: Any, self: Meta) -> Meta:
    """A comparison of `abs`, except for whole numbers; of complex ones that of their real parts."""
    if not (self.dtype.is_floating_point or self.dtype.is_complex):
        stride = like_strides(self.shape, self.stride)
        return Meta(self.shape, stride, torch.bool, self.device)
    shape, stride = self.shape, self.stride
    if has_zero(shape):
        raise NoRule
    if self.dtype.is_complex:
        stride = tuple(2 * step for step in stride)
    size = pointwise_strides(shape, ((shape, stride),))
    stride = pointwise_strides(shape, ((shape, size), ((), ())))
    return Meta(shape, stride, torch.bool, self.device)


@rule("pointwise", "mse_loss_backward")
def _mse_loss_backward(op: Any, *args: Any) -> Meta:
    found = pointwise(op, *args)
    return Meta(found.shape, contiguous_strides(found.shape), found.dtype, found.device)


@rule("pointwise", "ldexp.Tensor")
def _ldexp(op: Any, self: Meta, other: Meta) -> Meta:
    """A product with a power, which is row-major in some dtypes."""
    if not is_contiguous(other.shape, other.stride):
        raise NoRule
    return pointwise(op, self, other)


@rule("pointwise", "_prelu_kernel")
def _prelu(op: Any, self: Meta, weight: Meta) -> Meta:
    """The layout of `empty_like(self)`, to which the weight expands."""
    found = pointwise(op, self, weight)
    if found.shape != self.shape:
        raise NoRule
    return Meta(found.shape, like_strides(self.shape, self.stride), found.dtype, found.device)


add_rows("pointwise", UNARY + BINARY + TERNARY, pointwise)
