"""Result rules of creation operators, copies, and random numbers."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..errors import NoRule
from ..graph.layout import (
    Sizes,
    contiguous_strides,
    format_strides,
    is_contiguous,
    is_dense,
    like_strides,
    numel,
    suggested_format,
    wrap_dim,
)
from ..graph.nodes import Meta
from ..graph.opdef import rule
from ..symbolic.expr import Expr, is_int, is_symbolic

CPU = torch.device("cpu")
CPU_STRIDED = (None, torch.strided)


def _new(
    size: Sizes, dtype: Any = None, layout: Any = None, device: Any = None, default: Any = None
) -> Meta:
    if layout not in CPU_STRIDED:
        raise NoRule
    if any(extent < 0 for extent in size):
        raise RuntimeError(f"negative size in {list(size)}")
    dtype = dtype or default or torch.get_default_dtype()
    return Meta(
        tuple(size), contiguous_strides(tuple(size)), dtype, torch.device(device) if device else CPU
    )


def scalar_dtype(value: Any) -> torch.dtype:
    """The dtype of `torch.full(size, value)`."""
    if isinstance(value, bool):
        return torch.bool
    if is_int(value):
        return torch.int64
    if isinstance(value, (float, Expr)):
        return torch.get_default_dtype()
    raise NoRule


@rule("create", "empty.memory_format zeros ones")
def _sized(
    op: Any,
    size: Sizes,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    memory_format: Any = None,
) -> Meta:
    meta = _new(size, dtype, layout, device)
    if memory_format not in (None, torch.contiguous_format):
        strides = format_strides(meta.shape, memory_format)
        return Meta(meta.shape, strides, meta.dtype, meta.device)
    return meta


@rule("create", "empty_strided")
def _empty_strided(
    op: Any,
    size: Sizes,
    stride: Sizes,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
) -> Meta:
    meta = _new(size, dtype, layout, device)
    return Meta(meta.shape, tuple(stride), meta.dtype, meta.device)


@rule("create", "full")
def _full(op: Any, size: Sizes, fill_value: Any, *, dtype: Any = None, **options: Any) -> Meta:
    return _sized(op, size, dtype=dtype or scalar_dtype(fill_value), **options)


@rule("create", "scalar_tensor")
def _scalar_tensor(op: Any, s: Any, *, dtype: Any = None, **options: Any) -> Meta:
    return _sized(op, (), dtype=dtype, **options)


def _count(start: Any, end: Any, step: Any) -> int:
    if all(is_int(v) for v in (start, end, step)) and is_symbolic((start, end)) and step > 0:
        if end < start:
            raise RuntimeError("arange: bounds and step point in different directions")
        return (end - start + step - 1) // step  # type: ignore[no-any-return]
    if step == 0 or not all(map(math.isfinite, (start, end, step))):
        raise RuntimeError("arange: bad bounds or step")
    if (end - start) * (1 if step > 0 else -1) < 0:
        raise RuntimeError("arange: bounds and step point in different directions")
    return math.ceil((end - start) / step)


def _arange_meta(start: Any, end: Any, step: Any, dtype: Any, options: dict[str, Any]) -> Meta:
    start, end, step = (int(v) if type(v) is bool else v for v in (start, end, step))
    if dtype is None and all(is_int(v) for v in (start, end, step)):
        dtype = torch.int64
    dtype = dtype or torch.get_default_dtype()
    if dtype is torch.bool or dtype.is_complex:
        raise NoRule  # torch has no kernel
    whole = all(is_int(v) for v in (start, end, step))
    if not whole and not dtype.is_floating_point:
        # For int64 torch truncates the bounds before it counts; for narrower types it does not.
        raise NoRule
    return _sized(None, (_count(start, end, step),), dtype=dtype, **options)


@rule("create", "arange")
def _arange(op: Any, end: Any, *, dtype: Any = None, **options: Any) -> Meta:
    return _arange_meta(0, end, 1, dtype, options)


@rule("create", "arange.start")
def _arange_start(op: Any, start: Any, end: Any, *, dtype: Any = None, **options: Any) -> Meta:
    return _arange_meta(start, end, 1, dtype, options)


@rule("create", "arange.start_step")
def _arange_step(
    op: Any, start: Any, end: Any, step: Any = 1, *, dtype: Any = None, **options: Any
) -> Meta:
    return _arange_meta(start, end, step, dtype, options)


@rule("create", "linspace logspace")
def _linspace(op: Any, start: Any, end: Any, steps: int, *args: Any, **options: Any) -> Meta:
    dtype = options.get("dtype") or torch.get_default_dtype()
    if not dtype.is_floating_point or any(isinstance(one, complex) for one in (start, end)):
        raise NoRule
    return _sized(op, (steps,), **options)


@rule("create", "eye")
def _eye(op: Any, n: int, **options: Any) -> Meta:
    return _sized(op, (n, n), **options)


@rule("create", "eye.m")
def _eye_m(op: Any, n: int, m: int, **options: Any) -> Meta:
    return _sized(op, (n, m), **options)


# -- like another tensor


def like(
    self: Meta,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    memory_format: Any = None,
) -> Meta:
    """`torch.empty_like(self, ...)`."""
    if layout not in CPU_STRIDED:
        raise NoRule
    if memory_format in (None, torch.preserve_format):
        strides = like_strides(self.shape, self.stride)
    else:
        strides = format_strides(self.shape, memory_format)
    device = torch.device(device) if device else self.device
    return Meta(self.shape, strides, dtype or self.dtype, device)


@rule("create", "empty_like zeros_like ones_like")
def _like(
    op: Any,
    self: Meta,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    memory_format: Any = None,
) -> Meta:
    return like(self, dtype, layout, device, memory_format)


@rule("create", "full_like")
def _full_like(op: Any, self: Meta, fill_value: Any, **options: Any) -> Meta:
    return _like(op, self, **options)


@rule("create", "fill.Scalar fill.Tensor")
def _fill(op: Any, self: Meta, value: Any) -> Meta:
    if type(value) is Meta and value.shape:
        raise RuntimeError("fill takes a zero-dimensional value")
    return like(self)


@rule("create", "new_empty new_zeros new_ones")
def _new_sized(
    op: Any,
    self: Meta,
    size: Sizes,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
) -> Meta:
    return _new(size, dtype, layout, device or self.device, self.dtype)


@rule("create", "new_full")
def _new_full(op: Any, self: Meta, size: Sizes, fill_value: Any, **options: Any) -> Meta:
    return _new_sized(op, self, size, **options)


@rule("create", "new_empty_strided")
def _new_strided(op: Any, self: Meta, size: Sizes, stride: Sizes, **options: Any) -> Meta:
    meta = _new_sized(op, self, size, **options)
    return Meta(meta.shape, tuple(stride), meta.dtype, meta.device)


# -- copies


@rule("copy", "clone")
def _clone(op: Any, self: Meta, *, memory_format: Any = None) -> Meta:
    return like(self, memory_format=memory_format)


@rule("copy", "_to_copy")
def _to_copy(
    op: Any,
    self: Meta,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    non_blocking: bool = False,
    memory_format: Any = None,
) -> Meta:
    warn_of_cast(self.dtype, dtype)
    return like(self, dtype, layout, device, memory_format)


def warn_of_cast(given: torch.dtype, asked: torch.dtype | None) -> None:
    """Have torch warn, once per process, of a cast that drops imaginary parts."""
    if given.is_complex and asked is not None and not asked.is_complex:
        torch.zeros((), dtype=given).to(asked)


@rule("copy", "copy")
def _copy(op: Any, self: Meta, src: Meta, non_blocking: bool = False) -> Meta:
    if not is_dense(self.shape, self.stride):
        raise NoRule
    return Meta(self.shape, self.stride, self.dtype, self.device)


@rule("copy", "flip")
def _flip(op: Any, self: Meta, dims: Sizes) -> Meta:
    wrapped = [wrap_dim(dim, len(self.shape)) for dim in dims]
    if len(set(wrapped)) != len(wrapped):
        raise RuntimeError("flip: a dimension twice")
    return like(self)


@rule("copy", "roll")
def _roll(op: Any, self: Meta, shifts: Sizes, dims: Sizes = ()) -> Meta:
    if len(dims) != 1 or len(shifts) != 1:
        raise NoRule
    if not self.shape:
        raise IndexError("roll: a dimension of a tensor that has none")
    wrap_dim(dims[0], len(self.shape))
    if numel(self.shape) == 0:
        return like(self)
    # On the processor it is a cat of two slices, whose format may be channels last.
    if not is_contiguous(self.shape, self.stride):
        raise NoRule
    return Meta(self.shape, contiguous_strides(self.shape), self.dtype, self.device)


@rule("copy", "repeat")
def _repeat(op: Any, self: Meta, repeats: Sizes) -> Meta:
    lead = len(repeats) - len(self.shape)
    if lead < 0 or any(count < 0 for count in repeats):
        raise RuntimeError("repeat: bad counts")
    shape = tuple(
        count * (self.shape[i - lead] if i >= lead else 1) for i, count in enumerate(repeats)
    )
    return Meta(shape, contiguous_strides(shape), self.dtype, self.device)


@rule("copy", "tril triu")
def _triangle(op: Any, self: Meta, diagonal: int = 0) -> Meta:
    if len(self.shape) < 2:
        raise RuntimeError("tril and triu need two dimensions")
    return Meta(self.shape, contiguous_strides(self.shape), self.dtype, self.device)


@rule("copy", "constant_pad_nd")
def _pad(op: Any, self: Meta, pad: Sizes, value: Any = 0) -> Meta:
    rank = len(self.shape)
    if len(pad) % 2 or len(pad) > 2 * rank:
        raise RuntimeError("pad: bad length of pad")
    shape = list(self.shape)
    for i in range(len(pad) // 2):
        dim = rank - 1 - i
        shape[dim] += pad[2 * i] + pad[2 * i + 1]
        if shape[dim] < 0:
            raise RuntimeError("pad: a negative size comes out")
    if all(p <= 0 for p in pad):
        raise NoRule  # a clone of a slice
    size = tuple(shape)
    return Meta(size, format_strides(size, suggested_format(self)), self.dtype, self.device)


@rule("copy", "pixel_shuffle")
def _pixel_shuffle(op: Any, self: Meta, upscale_factor: int) -> Meta:
    *lead, channels, height, width = self.shape
    factor = upscale_factor
    if factor <= 0 or channels % (factor * factor):
        raise RuntimeError("pixel_shuffle: channels do not divide")
    shape = (*lead, channels // factor**2, height * factor, width * factor)
    if suggested_format(self) is not torch.contiguous_format:
        raise NoRule
    return Meta(shape, contiguous_strides(shape), self.dtype, self.device)


# -- random numbers


@rule("random", "rand randn")
def _rand(op: Any, size: Sizes, **options: Any) -> Meta:
    return _sized(op, size, **options)


@rule("random", "randint")
def _randint(op: Any, high: int, size: Sizes, *, dtype: Any = None, **options: Any) -> Meta:
    return _sized(op, size, dtype=dtype or torch.int64, **options)


@rule("random", "randint.low")
def _randint_low(
    op: Any, low: int, high: int, size: Sizes, *, dtype: Any = None, **options: Any
) -> Meta:
    return _sized(op, size, dtype=dtype or torch.int64, **options)


@rule("random", "randperm")
def _randperm(op: Any, n: int, *, dtype: Any = None, **options: Any) -> Meta:
    return _sized(op, (n,), dtype=dtype or torch.int64, **options)


@rule("random", "rand_like randn_like")
def _rand_like(op: Any, self: Meta, **options: Any) -> Meta:
    return _like(op, self, **options)


@rule("random", "randint_like randint_like.low_dtype")
def _randint_like(op: Any, self: Meta, *bounds: int, **options: Any) -> Meta:
    return _like(op, self, **options)


@rule("random", "bernoulli")
def _bernoulli(op: Any, self: Meta, *, generator: Any = None) -> Meta:
    return Meta(self.shape, contiguous_strides(self.shape), self.dtype, self.device)


@rule("random", "bernoulli.p poisson normal_functional uniform exponential")
def _noise(op: Any, self: Meta, *args: Any, generator: Any = None) -> Meta:
    return like(self)


@rule("random", "native_dropout")
def _native_dropout(op: Any, input: Meta, p: float, train: bool | None) -> tuple[Meta, Meta]:
    out = like(input)
    return out, Meta(out.shape, out.stride, torch.bool, out.device)


@rule("random", "rrelu_with_noise")
def _rrelu(op: Any, self: Meta, noise: Meta, *args: Any, **options: Any) -> Meta:
    """The CPU kernel returns a contiguous tensor; torch's meta kernel differs."""
    if self.device.type != "cpu":
        raise NoRule
    return Meta(self.shape, contiguous_strides(self.shape), self.dtype, self.device)


@rule("random", "normal.Tensor_Tensor normal.Tensor_float normal.float_Tensor")
def _normal(op: Any, mean: Any, std: Any = 1.0, *, generator: Any = None) -> Meta:
    metas = [m for m in (mean, std) if type(m) is Meta]
    if len(metas) == 2 and metas[0].shape != metas[1].shape:
        raise NoRule
    strides = contiguous_strides(metas[0].shape)
    return Meta(metas[0].shape, strides, metas[0].dtype, metas[0].device)


@rule("random", "multinomial")
def _multinomial(
    op: Any, self: Meta, num_samples: int, replacement: bool = False, *, generator: Any = None
) -> Meta:
    shape = (*self.shape[:-1], num_samples)
    return Meta(shape, contiguous_strides(shape), torch.int64, self.device)
