"""Result rules of matrix products, convolutions, pools, attention and losses."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import torch

from ..errors import NoRule, Unsupported
from ..graph.layout import (
    Sizes,
    broadcast,
    format_strides,
    is_contiguous,
    like_strides,
    pointwise_strides,
    suggested_format,
)
from ..graph.nodes import Meta
from ..graph.opdef import rule
from .meta_kernels import result_dtype
from .reduction import plain


def _same_dtype(*metas: Meta) -> torch.dtype:
    if any(meta.dtype is not metas[0].dtype for meta in metas):
        raise RuntimeError("operands of different dtypes")
    if metas[0].dtype is torch.bool:
        raise NoRule
    return metas[0].dtype


def _ranks(*given: tuple[Meta, int]) -> None:
    if any(len(meta.shape) != rank for meta, rank in given):
        raise RuntimeError("an operand has another number of dimensions")


@rule("matmul", "mm")
def _mm(op: Any, self: Meta, mat2: Meta) -> Meta:
    _ranks((self, 2), (mat2, 2))
    if self.shape[1] != mat2.shape[0]:
        raise RuntimeError("mm: inner sizes differ")
    return plain((self.shape[0], mat2.shape[1]), _same_dtype(self, mat2), self.device)


@rule("matmul", "bmm")
def _bmm(op: Any, self: Meta, mat2: Meta) -> Meta:
    _ranks((self, 3), (mat2, 3))
    if self.shape[2] != mat2.shape[1] or self.shape[0] != mat2.shape[0]:
        raise RuntimeError("bmm: sizes differ")
    shape = (self.shape[0], self.shape[1], mat2.shape[2])
    return plain(shape, _same_dtype(self, mat2), self.device)


@rule("matmul", "addmm _addmm_activation")
def _addmm(op: Any, self: Meta, mat1: Meta, mat2: Meta, **options: Any) -> Meta:
    product = _mm(op, mat1, mat2)
    _same_dtype(self, mat1)
    if broadcast(self.shape, product.shape) != product.shape:
        raise RuntimeError("addmm: self does not expand to the product")
    return product


@rule("matmul", "baddbmm")
def _baddbmm(op: Any, self: Meta, batch1: Meta, batch2: Meta, **options: Any) -> Meta:
    product = _bmm(op, batch1, batch2)
    _same_dtype(self, batch1)
    if broadcast(self.shape, product.shape) != product.shape:
        raise RuntimeError("baddbmm: self does not expand to the product")
    return product


@rule("matmul", "mv")
def _mv(op: Any, self: Meta, vec: Meta) -> Meta:
    _ranks((self, 2), (vec, 1))
    if self.shape[1] != vec.shape[0]:
        raise RuntimeError("mv: inner sizes differ")
    return plain(self.shape[:1], _same_dtype(self, vec), self.device)


@rule("matmul", "addmv")
def _addmv(op: Any, self: Meta, mat: Meta, vec: Meta, **options: Any) -> Meta:
    product = _mv(op, mat, vec)
    _same_dtype(self, mat)
    if broadcast(self.shape, product.shape) != product.shape:
        raise RuntimeError("addmv: self does not expand to the product")
    return product


@rule("matmul", "dot vdot")
def _dot(op: Any, self: Meta, tensor: Meta) -> Meta:
    _ranks((self, 1), (tensor, 1))
    if self.shape != tensor.shape:
        raise RuntimeError("dot: sizes differ")
    return plain((), _same_dtype(self, tensor), self.device)


# -- convolutions


def _spread(value: Sizes, rank: int) -> Sizes:
    return tuple(value) * rank if len(value) == 1 else tuple(value)


def _check_window(
    rank: int, stride: Sizes, padding: Sizes, dilation: Sizes, output_padding: Sizes
) -> None:
    """Raise for parameters that eager refuses; some torch kernels and ours would take them."""
    if any(step <= 0 for step in (*stride, *dilation)) or any(pad < 0 for pad in padding):
        raise RuntimeError("convolution: stride, padding or dilation out of range")
    steps = zip(_spread(stride, rank), _spread(dilation, rank), strict=True)
    for extra, (step, gap) in zip(_spread(output_padding, rank), steps, strict=False):
        if extra < 0 or (extra >= step and extra >= gap):
            raise RuntimeError("convolution: output padding out of range")


def _is_turned_image(meta: Meta) -> bool:
    """Whether the operand of a 1-d convolution is channels last as an image of height one."""
    count, channels, length = meta.shape
    outer, step, inner = meta.stride
    image = replace(
        meta, shape=(count, channels, 1, length), stride=(outer, step, inner * length, inner)
    )
    return suggested_format(image) is not torch.contiguous_format


@rule("window", "convolution")
def _convolution(
    op: Any,
    input: Meta,
    weight: Meta,
    bias: Meta | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
) -> Meta:
    """Batched convolution; sizes as in torch.nn.ConvNd and ConvTransposeNd."""
    rank = len(weight.shape) - 2
    _check_window(rank, stride, padding, dilation, output_padding if transposed else ())
    if len(input.shape) != rank + 2 or rank not in (1, 2, 3):
        raise NoRule
    if 0 in input.shape or 0 in weight.shape or input.device.type != "cpu":
        raise NoRule
    dtype = _same_dtype(input, weight)
    if not dtype.is_floating_point or (bias is not None and bias.dtype is not dtype):
        raise NoRule
    stride, padding, dilation = (_spread(v, rank) for v in (stride, padding, dilation))
    extra = _spread(output_padding, rank)
    channels = weight.shape[0]
    wanted = weight.shape[1] * groups
    if transposed:
        channels, wanted = weight.shape[1] * groups, weight.shape[0]
    if input.shape[1] != wanted or groups <= 0 or channels % groups:
        raise RuntimeError("convolution: channels do not fit")
    if bias is not None and bias.shape != (channels,):
        raise RuntimeError("convolution: bias of another size")
    sizes = []
    for i in range(rank):
        size, kernel = input.shape[2 + i], weight.shape[2 + i]
        reach = dilation[i] * (kernel - 1)
        if transposed:
            sizes.append((size - 1) * stride[i] - 2 * padding[i] + reach + extra[i] + 1)
        else:
            sizes.append((size + 2 * padding[i] - reach - 1) // stride[i] + 1)
    if any(size <= 0 for size in sizes):
        raise RuntimeError("convolution: the result would be empty")
    shape = (input.shape[0], channels, *sizes)
    formats = {suggested_format(input), suggested_format(weight)} - {torch.contiguous_format}
    if rank == 1 and (
        _is_turned_image(weight)
        or (is_contiguous(input.shape, input.stride) and _is_turned_image(input))
    ):
        # ATen takes a contiguous copy of other inputs.
        raise NoRule
    # With one thread ATen chooses another layout.
    if rank == 3 and formats and dtype is torch.float32:
        raise Unsupported("layout", "a convolution in three dimensions, channels last")
    if rank == 1 or not formats:
        return plain(shape, dtype, input.device)
    if len(formats) > 1 or dtype is torch.float64 or transposed:
        raise NoRule
    return Meta(shape, format_strides(shape, formats.pop()), dtype, input.device)


# -- pools


def pooled(size: int, kernel: int, stride: int, pad: int, dilation: int, ceil: bool) -> int:
    """Output size of a pool along one dimension."""
    reach = size + 2 * pad - dilation * (kernel - 1) - 1
    count = (reach + (stride - 1 if ceil else 0)) // stride + 1
    if ceil and (count - 1) * stride >= size + pad:
        count -= 1
    return count


def _pool_meta(
    self: Meta, rank: int, kernel: Sizes, stride: Sizes, pad: Sizes, dilation: Sizes, ceil: bool
) -> Meta:
    if len(self.shape) not in (rank + 1, rank + 2) or 0 in self.shape:
        raise NoRule
    kernel = _spread(kernel, rank)
    stride = _spread(stride, rank) if stride else kernel
    pad, dilation = _spread(pad, rank), _spread(dilation, rank)
    lead = self.shape[: len(self.shape) - rank]
    sizes = []
    for i in range(rank):
        if (
            kernel[i] <= 0
            or stride[i] <= 0
            or dilation[i] <= 0
            or not 0 <= pad[i] <= kernel[i] // 2
        ):
            raise RuntimeError("pool: bad window")
        size = self.shape[len(lead) + i]
        sizes.append(pooled(size, kernel[i], stride[i], pad[i], dilation[i], ceil))
    if any(size <= 0 for size in sizes):
        raise RuntimeError("pool: the result would be empty")
    return _window_meta(self, (*lead, *sizes))


def _window_meta(self: Meta, shape: Sizes) -> Meta:
    return Meta(shape, format_strides(shape, suggested_format(self)), self.dtype, self.device)


def _with_indices(values: Meta) -> tuple[Meta, Meta]:
    return values, Meta(values.shape, values.stride, torch.int64, values.device)


@rule("window", "max_pool2d_with_indices max_pool3d_with_indices")
def _max_pool(
    op: Any,
    self: Meta,
    kernel_size: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    dilation: Sizes = (1,),
    ceil_mode: bool = False,
) -> tuple[Meta, Meta]:
    if not self.dtype.is_floating_point:
        raise NoRule
    rank = 2 if "2d" in op._opname else 3
    # Without a batch, torch asks for the format with a dimension of size one before the others.
    if len(self.shape) == rank + 1 and not is_contiguous(self.shape, self.stride):
        raise NoRule
    pooled = _pool_meta(self, rank, kernel_size, stride, padding, dilation, ceil_mode)
    return _with_indices(pooled)


@rule("window", "avg_pool2d avg_pool3d")
def _avg_pool(
    op: Any,
    self: Meta,
    kernel_size: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Meta:
    if divisor_override == 0:
        raise RuntimeError("avg_pool: the divisor is zero")
    if not self.dtype.is_floating_point:
        raise NoRule
    rank = 2 if "2d" in op._opname else 3
    if rank == 3 and suggested_format(self) is not torch.contiguous_format:
        raise NoRule
    return _pool_meta(self, rank, kernel_size, stride, padding, (1,), ceil_mode)


@rule("window", "_adaptive_avg_pool2d _adaptive_avg_pool3d")
def _adaptive_avg(op: Any, self: Meta, output_size: Sizes) -> Meta:
    rank = len(output_size)
    if len(self.shape) not in (rank + 1, rank + 2) or 0 in self.shape:
        raise NoRule
    if not self.dtype.is_floating_point:
        raise NoRule
    shape = (*self.shape[:-rank], *output_size)
    if rank == 3:
        if suggested_format(self) is not torch.contiguous_format:
            raise NoRule
        return plain(shape, self.dtype, self.device)
    return _window_meta(self, shape)


@rule("window", "adaptive_max_pool2d adaptive_max_pool3d")
def _adaptive_max(op: Any, self: Meta, output_size: Sizes) -> tuple[Meta, Meta]:
    return _with_indices(_adaptive_avg(op, self, output_size))


@rule(
    "window",
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d"
    " upsample_trilinear3d upsample_bicubic2d _upsample_nearest_exact1d _upsample_nearest_exact2d",
)
def _upsample(op: Any, self: Meta, output_size: Sizes, *args: Any) -> Meta:
    if len(self.shape) != len(output_size) + 2 or not self.dtype.is_floating_point:
        raise NoRule
    if 0 in self.shape or any(size <= 0 for size in output_size):
        raise NoRule
    return _window_meta(self, (*self.shape[:2], *output_size))


def _columns(
    sizes: Sizes, kernel: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes
) -> list[int]:
    """The number of windows along each dimension."""
    if len(kernel) != 2 or any(v <= 0 for v in (*kernel, *dilation, *stride)):
        raise NoRule
    found = [
        (size + 2 * pad - reach * (length - 1) - 1) // step + 1
        for size, length, reach, pad, step in zip(
            sizes, kernel, dilation, padding, stride, strict=True
        )
    ]
    if any(pad < 0 for pad in padding) or any(count < 1 for count in found):
        raise RuntimeError("no window fits")
    return found


@rule("window", "im2col")
def _im2col(
    op: Any, self: Meta, kernel_size: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes
) -> Meta:
    if len(self.shape) not in (3, 4) or 0 in self.shape or len(kernel_size) != 2:
        raise NoRule
    places = _columns(self.shape[-2:], kernel_size, dilation, padding, stride)
    rows = self.shape[-3] * kernel_size[0] * kernel_size[1]
    shape = (*self.shape[:-3], rows, places[0] * places[1])
    return plain(shape, self.dtype, self.device)


@rule("window", "col2im")
def _col2im(
    op: Any,
    self: Meta,
    output_size: Sizes,
    kernel_size: Sizes,
    dilation: Sizes,
    padding: Sizes,
    stride: Sizes,
) -> Meta:
    if len(self.shape) not in (2, 3) or 0 in self.shape or len(output_size) != 2:
        raise NoRule
    places = _columns(output_size, kernel_size, dilation, padding, stride)
    window = kernel_size[0] * kernel_size[1]
    if self.shape[-2] % window != 0 or self.shape[-1] != places[0] * places[1]:
        raise RuntimeError("col2im: sizes do not fit")
    shape = (*self.shape[:-2], self.shape[-2] // window, *output_size)
    return plain(shape, self.dtype, self.device)


# -- attention


@rule("attention", "_scaled_dot_product_flash_attention_for_cpu")
def _flash_cpu(
    op: Any,
    query: Meta,
    key: Meta,
    value: Meta,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Meta | None = None,
    scale: float | None = None,
) -> tuple[Meta, Meta]:
    batch, heads, length, size = query.shape
    if value.shape[-1] != size or not query.dtype.is_floating_point:
        raise NoRule
    sums = ((batch, heads, length), (length * heads, 1, heads))
    float_type = torch.float64 if query.dtype is torch.float64 else torch.float32
    stride: Sizes = (length * heads * size, size, heads * size, 1)
    if _keeps_query_layout():
        stride = like_strides(query.shape, query.stride)
    out = Meta(query.shape, stride, query.dtype, query.device)
    return out, Meta(*sums, float_type, query.device)


@cache
def _keeps_query_layout() -> bool:
    """torch 2.13 keeps the query's layout; earlier versions use [batch, length, heads, size]."""
    probe = torch.zeros(1, 2, 2, 8)
    with torch._C._AutoDispatchBelowAutograd():
        out, _ = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(probe, probe, probe)
    return out.is_contiguous()


# -- losses (reduction: 0 none, 1 mean, 2 sum)


@rule("loss", "nll_loss_forward")
def _nll_loss(
    op: Any, self: Meta, target: Meta, weight: Meta | None, reduction: int, ignore_index: int
) -> tuple[Meta, Meta]:
    if len(self.shape) not in (1, 2) or len(target.shape) != len(self.shape) - 1:
        raise RuntimeError("nll_loss: bad sizes")
    if len(self.shape) == 2 and self.shape[0] != target.shape[0]:
        raise RuntimeError("nll_loss: batch sizes differ")
    if target.dtype not in (torch.int64, torch.uint8):
        raise RuntimeError("nll_loss: bad target dtype")
    if weight is not None and weight.shape != self.shape[-1:]:
        raise RuntimeError("nll_loss: a weight for each class is needed")
    if not self.dtype.is_floating_point:
        raise NoRule
    scalar = plain((), self.dtype, self.device)
    if reduction == 0 and len(self.shape) == 2:
        return plain(self.shape[:1], self.dtype, self.device), scalar
    return scalar, scalar


@rule("loss", "nll_loss2d_forward")
def _nll_loss2d(
    op: Any, self: Meta, target: Meta, weight: Meta | None, reduction: int, ignore_index: int
) -> tuple[Meta, Meta]:
    _ranks((self, 4), (target, 3))
    if (self.shape[0], *self.shape[2:]) != target.shape or not self.dtype.is_floating_point:
        raise RuntimeError("nll_loss2d: sizes differ")
    if weight is not None and weight.shape != self.shape[1:2]:
        raise RuntimeError("nll_loss2d: a weight for each class is needed")
    scalar = plain((), self.dtype, self.device)
    if reduction == 0:
        return plain(target.shape, self.dtype, self.device), scalar
    return scalar, scalar


@rule("loss", "mse_loss smooth_l1_loss huber_loss soft_margin_loss")
def _elementwise_loss(
    op: Any, self: Meta, target: Meta, reduction: int = 1, *args: Any, **options: Any
) -> Meta:
    dtype = result_dtype(op, (self, target, reduction, *args), options)
    shape = broadcast(self.shape, target.shape)
    if reduction != 0:
        return plain((), dtype, self.device)
    strides = pointwise_strides(shape, ((self.shape, self.stride), (target.shape, target.stride)))
    return Meta(shape, strides, dtype, self.device)


@rule("loss", "binary_cross_entropy_with_logits")
def _bce_logits(
    op: Any,
    self: Meta,
    target: Meta,
    weight: Meta | None = None,
    pos_weight: Meta | None = None,
    reduction: int = 1,
) -> Meta:
    return _reduced_bce(op, reduction, self, target, weight, pos_weight)


@rule("loss", "binary_cross_entropy")
def _bce(op: Any, self: Meta, target: Meta, weight: Meta | None = None, reduction: int = 1) -> Meta:
    return _reduced_bce(op, reduction, self, target, weight)


def _reduced_bce(op: Any, reduction: int, *given: Meta | None) -> Meta:
    metas = [meta for meta in given if meta is not None]
    self, target = metas[:2]
    if reduction == 0 or any(meta.dtype is not self.dtype for meta in metas):
        raise NoRule
    if self.shape != target.shape or not self.dtype.is_floating_point:
        raise NoRule
    if broadcast(*(meta.shape for meta in metas)) != self.shape:
        raise NoRule
    return plain((), self.dtype, self.device)
