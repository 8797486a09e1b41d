"""Result rules of reductions, scans, softmax, norms and sorts. New results are row-major."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import NoRule
from ..graph.layout import (
    Sizes,
    channels_last_strides,
    contiguous_strides,
    format_strides,
    from_data,
    is_contiguous,
    like_strides,
    numel,
    suggested_format,
    wrap_dim,
)
from ..graph.nodes import Meta
from ..graph.opdef import rule
from ..symbolic.expr import ACTIVE, is_symbolic

Dims = int | Sizes | None


def plain(shape: Sizes, dtype: torch.dtype, device: torch.device) -> Meta:
    """A new row-major tensor."""
    return Meta(tuple(shape), contiguous_strides(tuple(shape)), dtype, device)


def reduced_dims(rank: int, dim: Dims, empty_is_all: bool = True) -> set[int]:
    """The reduced dimensions; raises for one that is named twice."""
    if dim is None or (dim == () and empty_is_all):
        return set(range(rank))
    dims = [wrap_dim(d, rank) for d in ((dim,) if isinstance(dim, int) else dim)]
    if len(set(dims)) != len(dims):
        raise RuntimeError("a dimension is named twice")
    return set(dims)


def reduced_shape(shape: Sizes, dim: Dims, keepdim: bool, empty_is_all: bool = True) -> Sizes:
    dims = reduced_dims(len(shape), dim, empty_is_all)
    if keepdim:
        return tuple(1 if i in dims else size for i, size in enumerate(shape))
    return tuple(size for i, size in enumerate(shape) if i not in dims)


def reduction(self: Meta, dim: Dims, keepdim: bool, dtype: torch.dtype) -> Meta:
    return plain(reduced_shape(self.shape, dim, keepdim), dtype, self.device)


def _summed(self: Meta, dtype: torch.dtype | None) -> torch.dtype:
    if dtype is not None:
        return dtype
    return self.dtype if self.dtype.is_floating_point or self.dtype.is_complex else torch.int64


def _floating(dtype: torch.dtype) -> torch.dtype:
    if not (dtype.is_floating_point or dtype.is_complex):
        raise RuntimeError("a floating point type is needed")
    return dtype


@rule("reduction", "sum prod")
def _sum(op: Any, self: Meta, *, dtype: Any = None) -> Meta:
    return reduction(self, None, False, _summed(self, dtype))


@rule("reduction", "sum.dim_IntList prod.dim_int nansum")
def _sum_dim(
    op: Any, self: Meta, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> Meta:
    return reduction(self, dim, keepdim, _summed(self, dtype))


@rule("reduction", "mean")
def _mean(op: Any, self: Meta, *, dtype: Any = None) -> Meta:
    return reduction(self, None, False, _floating(dtype or self.dtype))


@rule("reduction", "mean.dim")
def _mean_dim(
    op: Any, self: Meta, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> Meta:
    return reduction(self, dim, keepdim, _floating(dtype or self.dtype))


def _ordered(dtype: torch.dtype) -> torch.dtype:
    if dtype.is_complex:
        raise RuntimeError("complex numbers have no order")
    return dtype


def _is_empty(size: Any) -> bool:
    if from_data(size):  # the program checks it
        return not ACTIVE.facts.require("!=", size, 0)
    return bool(size == 0)


def _nonempty(self: Meta, dim: Dims) -> None:
    dims = reduced_dims(len(self.shape), dim)
    if any(_is_empty(self.shape[d]) for d in dims if d < len(self.shape)):
        raise RuntimeError("no identity for an empty dimension")


@rule("reduction", "amax amin")
def _amax(op: Any, self: Meta, dim: Dims = (), keepdim: bool = False) -> Meta:
    _nonempty(self, dim)
    return reduction(self, dim, keepdim, _ordered(self.dtype))


@rule("reduction", "max min")
def _max(op: Any, self: Meta) -> Meta:
    _nonempty(self, None)
    return reduction(self, None, False, _ordered(self.dtype))


@rule("reduction", "max.dim min.dim")
def _max_dim(op: Any, self: Meta, dim: int, keepdim: bool = False) -> tuple[Meta, Meta]:
    _nonempty(self, dim)
    values = reduction(self, dim, keepdim, _ordered(self.dtype))
    return values, plain(values.shape, torch.int64, self.device)


@rule("reduction", "aminmax")
def _aminmax(
    op: Any, self: Meta, *, dim: int | None = None, keepdim: bool = False
) -> tuple[Meta, Meta]:
    if dim is None and keepdim:
        raise NoRule
    _nonempty(self, dim)
    one = reduction(self, dim, keepdim, _ordered(self.dtype))
    return one, one


@rule("reduction", "argmax argmin")
def _argmax(op: Any, self: Meta, dim: int | None = None, keepdim: bool = False) -> Meta:
    _nonempty(self, dim)
    _ordered(self.dtype)
    return reduction(self, dim, keepdim, torch.int64)


def _truth(self: Meta) -> torch.dtype:
    return torch.uint8 if self.dtype is torch.uint8 else torch.bool


@rule("reduction", "any all")
def _any(op: Any, self: Meta) -> Meta:
    return reduction(self, None, False, _truth(self))


@rule("reduction", "any.dim all.dim any.dims all.dims")
def _any_dim(op: Any, self: Meta, dim: Dims = None, keepdim: bool = False) -> Meta:
    shape = reduced_shape(self.shape, dim, keepdim, empty_is_all=False)
    return plain(shape, _truth(self), self.device)


@rule("reduction", "count_nonzero count_nonzero.dim_IntList")
def _count(op: Any, self: Meta, dim: Dims = None) -> Meta:
    return reduction(self, dim, False, torch.int64)


def _real(dtype: torch.dtype) -> torch.dtype:
    return _floating(dtype).to_real() if dtype.is_complex else _floating(dtype)


@rule("reduction", "var.correction std.correction")
def _var(
    op: Any, self: Meta, dim: Dims = None, *, correction: Any = None, keepdim: bool = False
) -> Meta:
    return reduction(self, dim, keepdim, _real(self.dtype))


@rule("reduction", "var_mean.correction std_mean.correction")
def _var_mean(
    op: Any, self: Meta, dim: Dims = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[Meta, Meta]:
    return (
        reduction(self, dim, keepdim, _real(self.dtype)),
        reduction(self, dim, keepdim, self.dtype),
    )


@rule("reduction", "logsumexp")
def _logsumexp(op: Any, self: Meta, dim: Dims, keepdim: bool = False) -> Meta:
    dtype = self.dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        dtype = torch.get_default_dtype()
    return reduction(self, dim, keepdim, dtype)


@rule("reduction", "linalg_vector_norm")
def _vector_norm(
    op: Any, self: Meta, ord: Any = 2, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> Meta:
    if ord in (float("inf"), float("-inf")) or ord < 0:
        _nonempty(self, dim)
    return reduction(self, dim, keepdim, _real(dtype or self.dtype))


@rule("reduction", "norm.Scalar")
def _norm(op: Any, self: Meta, p: Any = 2) -> Meta:
    return reduction(self, None, False, _real(self.dtype))


@rule("reduction", "norm.ScalarOpt_dim")
def _norm_dim(op: Any, self: Meta, p: Any, dim: Dims, keepdim: bool = False) -> Meta:
    return reduction(self, dim, keepdim, _real(self.dtype))


# -- scans


@rule("scan", "cumsum cumprod")
def _cumsum(op: Any, self: Meta, dim: int, *, dtype: Any = None) -> Meta:
    wrap_dim(dim, len(self.shape))
    return plain(self.shape, _summed(self, dtype), self.device)


@rule("scan", "cummax cummin")
def _cummax(op: Any, self: Meta, dim: int) -> tuple[Meta, Meta]:
    wrap_dim(dim, len(self.shape))
    values = Meta(self.shape, contiguous_strides(self.shape), _ordered(self.dtype), self.device)
    return values, plain(self.shape, torch.int64, self.device)


# -- softmax and the norms


@rule("normalize", "_softmax _log_softmax")
def _softmax(op: Any, self: Meta, dim: int, half_to_float: bool) -> Meta:
    wrap_dim(dim, len(self.shape))
    _floating(self.dtype)
    if half_to_float and (self.dtype is not torch.float16 or self.device.type != "cuda"):
        raise NoRule
    return plain(self.shape, torch.float32 if half_to_float else self.dtype, self.device)


@rule("normalize", "_safe_softmax")
def _safe_softmax(op: Any, self: Meta, dim: int, dtype: Any = None) -> Meta:
    """softmax that gives zeros for rows that are all -inf."""
    if dtype not in (None, self.dtype):
        raise NoRule
    return _softmax(op, self, dim, False)


def _saved_dtype(input: Meta, *parameters: Meta | None) -> torch.dtype:
    """The dtype of saved statistics of layer and batch norm; on a GPU the computation's."""
    if input.device.type == "cuda" and input.dtype.itemsize == 2:
        return torch.float32
    return input.dtype if input.device.type == "cuda" else _stat_dtype(input, *parameters)


def _stat_dtype(input: Meta, *parameters: Meta | None) -> torch.dtype:
    given = [p.dtype for p in parameters if p is not None]
    if any(dtype != input.dtype for dtype in given):
        return torch.float32
    return input.dtype


@rule("normalize", "native_layer_norm")
def _layer_norm(
    op: Any,
    input: Meta,
    normalized_shape: Sizes,
    weight: Meta | None,
    bias: Meta | None,
    eps: float,
) -> tuple[Meta, Meta, Meta]:
    split = len(input.shape) - len(normalized_shape)
    if not normalized_shape or split < 0 or input.shape[split:] != tuple(normalized_shape):
        raise RuntimeError("layer_norm: normalized_shape does not fit")
    for parameter in (weight, bias):
        if parameter is not None and parameter.shape != tuple(normalized_shape):
            raise RuntimeError("layer_norm: a parameter of another shape")
    _check_stats("layer_norm", input, weight, bias)
    stats = plain(
        (*input.shape[:split], *(1,) * len(normalized_shape)),
        _saved_dtype(input, weight, bias),
        input.device,
    )
    return plain(input.shape, input.dtype, input.device), stats, stats


def _check_stats(name: str, input: Meta, *parameters: Meta | None) -> None:
    """NoRule unless parameters have the input's dtype, or float32 beside half precision."""
    if not input.dtype.is_floating_point:
        raise NoRule
    for parameter in parameters:
        if parameter is None or parameter.dtype is input.dtype:
            continue
        if input.dtype.itemsize != 2 or parameter.dtype is not torch.float32:
            raise NoRule


@rule("normalize", "native_group_norm")
def _group_norm(
    op: Any,
    input: Meta,
    weight: Meta | None,
    bias: Meta | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
) -> tuple[Meta, Meta, Meta]:
    if group <= 0 or C % group or numel(input.shape) != N * C * HxW:
        raise RuntimeError("group_norm: sizes do not fit")
    layout = suggested_format(input)
    if input.stride != format_strides(input.shape, layout):
        # torch refuses such an input, except for strides of dimensions of size 1.
        raise NoRule
    _check_stats("group_norm", input, weight, bias)
    out = Meta(
        input.shape,
        input.stride,
        input.dtype,
        input.device,
    )
    stats = plain((N, group), _stat_dtype(input, weight, bias), input.device)
    return out, stats, stats


def _batch_norm_out(input: Meta, as_it_lies: bool = True) -> Meta:
    if input.device.type == "cuda" and as_it_lies:
        strides = like_strides(input.shape, input.stride)
    elif len(input.shape) not in (4, 5) or is_contiguous(input.shape, input.stride):
        strides = contiguous_strides(input.shape)
    elif _is_channels_last(input):
        strides = channels_last_strides(input.shape)
    else:
        strides = format_strides(input.shape, suggested_format(input))
    return Meta(input.shape, strides, input.dtype, input.device)


def _is_channels_last(meta: Meta) -> bool:
    """Whether the elements are in the order of channels last, whatever the strides of dimensions of
    one element."""
    rows = zip(meta.shape, meta.stride, channels_last_strides(meta.shape), strict=True)
    return all(size == 1 or stride == usual for size, stride, usual in rows)


def _writes_stats(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...]:
    """Positions of the running statistics: training writes them, unlike the schema."""
    return tuple(at for at in (3, 4) if args[5] and args[at] is not None)


@rule("normalize", "native_batch_norm", mutates=_writes_stats)
def _batch_norm(
    op: Any,
    input: Meta,
    weight: Meta | None,
    bias: Meta | None,
    running_mean: Meta | None,
    running_var: Meta | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Meta, Meta, Meta]:
    if len(input.shape) < 2:
        raise RuntimeError("batch_norm: too few dimensions")
    channels = input.shape[1]
    given = (weight, bias, running_mean, running_var)
    for parameter in given:
        if parameter is not None and parameter.shape != (channels,):
            raise RuntimeError("batch_norm: a parameter of another size")
    if not training and (running_mean is None or running_var is None):
        raise RuntimeError("batch_norm: no running statistics in evaluation")
    _check_stats("batch_norm", input, *given)
    if numel(input.shape) == 0:
        raise NoRule
    on_gpu = input.device.type == "cuda"  # a GPU has statistics in evaluation, too
    stats = plain(
        (channels if training or on_gpu else 0,), _saved_dtype(input, *given), input.device
    )
    return _batch_norm_out(input), stats, stats


@rule("normalize", "cudnn_batch_norm", mutates=_writes_stats)
def _cudnn_batch_norm(op: Any, input: Meta, weight: Meta, *args: Any) -> tuple[Meta, ...]:
    """Also gives a fourth result, a workspace for the backward; only cuDNN knows its size."""
    if is_symbolic(input.shape):
        raise NoRule
    _batch_norm(op, input, weight, *args)  # raises for invalid operands
    training = args[3]
    stats = plain((input.shape[1] if training else 0,), weight.dtype, input.device)
    reserved = plain((0,), torch.uint8, input.device)
    return _batch_norm_out(input, as_it_lies=False), stats, stats, reserved


@rule("normalize", "_native_batch_norm_legit")
def _legit(op: Any, *args: Any, **kwargs: Any) -> tuple[Meta, Meta, Meta]:
    return _batch_norm(op, *args, **kwargs)


@rule("normalize", "_native_batch_norm_legit.no_stats")
def _legit_no_stats(
    op: Any,
    input: Meta,
    weight: Meta | None,
    bias: Meta | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Meta, Meta, Meta]:
    return _batch_norm(op, input, weight, bias, None, None, training, momentum, eps)


@rule("normalize", "_native_batch_norm_legit_no_training")
def _no_training(
    op: Any,
    input: Meta,
    weight: Meta | None,
    bias: Meta | None,
    running_mean: Meta,
    running_var: Meta,
    momentum: float,
    eps: float,
) -> tuple[Meta, Meta, Meta]:
    return _batch_norm(op, input, weight, bias, running_mean, running_var, False, momentum, eps)


@rule("sort", "topk")
def _topk(
    op: Any, self: Meta, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Meta, Meta]:
    at = wrap_dim(dim, len(self.shape))
    size = self.shape[at] if self.shape else 1
    fits = ACTIVE.facts.require("<=", k, size) if from_data(size) else k <= size
    if k < 0 or not fits:
        raise RuntimeError("topk: k out of range")
    _ordered(self.dtype)
    shape = (*self.shape[:at], k, *self.shape[at + 1 :]) if self.shape else ()
    return plain(shape, self.dtype, self.device), plain(shape, torch.int64, self.device)


def _sorted(self: Meta, dim: int) -> tuple[Meta, Meta]:
    wrap_dim(dim, len(self.shape))
    strides = like_strides(self.shape, self.stride)
    _ordered(self.dtype)
    return (
        Meta(self.shape, strides, self.dtype, self.device),
        Meta(self.shape, strides, torch.int64, self.device),
    )


@rule("sort", "sort")
def _sort(op: Any, self: Meta, dim: int = -1, descending: bool = False) -> tuple[Meta, Meta]:
    return _sorted(self, dim)


@rule("sort", "sort.stable")
def _sort_stable(
    op: Any, self: Meta, *, stable: bool | None, dim: int = -1, descending: bool = False
) -> tuple[Meta, Meta]:
    return _sorted(self, dim)
