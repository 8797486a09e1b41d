"""Result rules of gathers, scatters and joins."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from ..errors import DataDependent, NoRule
from ..graph.layout import (
    broadcast,
    contiguous_strides,
    format_strides,
    from_data,
    has_zero,
    is_contiguous,
    like_strides,
    suggested_format,
    wrap_dim,
)
from ..graph.nodes import Meta
from ..graph.opdef import rule
from .reduction import plain
from .views import view_strides

INDEX_DTYPES = (torch.int64, torch.int32)


def _need_index(index: Meta) -> None:
    if has_zero(index.shape):
        # Without an index torch does not check the dtype.
        raise NoRule
    if index.dtype not in INDEX_DTYPES:
        raise RuntimeError("an index of type int64 or int32 is needed")


def _need_places(self: Meta, dim: int, index: Meta) -> None:
    """Raise, as torch does, if a dimension has no elements, so that any index is out of range."""
    if self.shape and has_zero(self.shape[dim : dim + 1]) and not any(map(from_data, index.shape)):
        raise IndexError("index out of range")


@rule("index", "embedding")
def _embedding(
    op: Any,
    weight: Meta,
    indices: Meta,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Meta:
    if len(weight.shape) != 2:
        raise RuntimeError("embedding: weight needs two dimensions")
    _need_index(indices)
    _need_places(weight, 0, indices)
    return plain((*indices.shape, weight.shape[1]), weight.dtype, weight.device)


@rule("index", "one_hot")
def _one_hot(op: Any, self: Meta, num_classes: int = -1) -> Meta:
    return plain((*self.shape, num_classes), torch.int64, self.device)


@rule("index", "index_select")
def _index_select(op: Any, self: Meta, dim: int, index: Meta) -> Meta:
    at = wrap_dim(dim, len(self.shape))
    if len(index.shape) > 1:
        raise IndexError("index_select: index needs one dimension")
    _need_index(index)
    _need_places(self, at, index)
    if not self.shape:
        return plain((), self.dtype, self.device)
    count = index.shape[0] if index.shape else 1
    return plain((*self.shape[:at], count, *self.shape[at + 1 :]), self.dtype, self.device)


@rule("index", "gather")
def _gather(op: Any, self: Meta, dim: int, index: Meta, *, sparse_grad: bool = False) -> Meta:
    at = wrap_dim(dim, len(self.shape))
    _need_index(index)
    _check_scatter(self, at, index, None)
    _need_places(self, at, index)
    return plain(index.shape, self.dtype, self.device)


def _check_scatter(self: Meta, dim: int, index: Meta, src: Meta | None) -> None:
    """Raise if index is larger than self outside dim, or than src in any dimension."""
    if max(len(self.shape), 1) != max(len(index.shape), 1):
        raise RuntimeError("index and self differ in their number of dimensions")
    for i, size in enumerate(index.shape):
        if i != dim and i < len(self.shape) and size > self.shape[i] and 0 not in index.shape:
            raise RuntimeError("index is larger than self")
        if src is not None and src.shape and size > src.shape[i] and 0 not in index.shape:
            raise RuntimeError("index is larger than src")


@rule("index", "scatter.src scatter_add")
def _scatter(op: Any, self: Meta, dim: int, index: Meta, src: Meta) -> Meta:
    _check_scatter(self, wrap_dim(dim, len(self.shape)), index, src)
    _need_index(index)
    if src.dtype is not self.dtype:
        raise RuntimeError("scatter: src of another dtype")
    return plain(self.shape, self.dtype, self.device)


@rule("index", "scatter.value")
def _scatter_value(op: Any, self: Meta, dim: int, index: Meta, value: Any) -> Meta:
    _check_scatter(self, wrap_dim(dim, len(self.shape)), index, None)
    _need_index(index)
    return plain(self.shape, self.dtype, self.device)


@rule("index", "scatter.reduce scatter_reduce.two")
def _scatter_reduce(
    op: Any, self: Meta, dim: int, index: Meta, src: Meta, reduce: str, **options: Any
) -> Meta:
    return _scatter(op, self, dim, index, src)


@rule("index", "index_add index_copy")
def _index_add(op: Any, self: Meta, dim: int, index: Meta, source: Meta, *, alpha: Any = 1) -> Meta:
    at = wrap_dim(dim, len(self.shape))
    if not self.shape or len(index.shape) != 1 or not is_contiguous(self.shape, self.stride):
        raise NoRule
    _need_index(index)
    if source.dtype is not self.dtype:
        raise RuntimeError("index_add: source of another dtype")
    if source.shape != (*self.shape[:at], index.shape[0], *self.shape[at + 1 :]):
        raise RuntimeError("index_add: source of other sizes")
    return plain(self.shape, self.dtype, self.device)


@rule("index", "index_fill.int_Scalar")
def _index_fill(op: Any, self: Meta, dim: int, index: Meta, value: Any) -> Meta:
    wrap_dim(dim, len(self.shape))
    if index.dtype is not torch.int64 or len(index.shape) > 1 or self.dtype.is_complex:
        raise NoRule
    if isinstance(value, complex):
        raise RuntimeError("index_fill: a complex value")
    return Meta(self.shape, like_strides(self.shape, self.stride), self.dtype, self.device)


def _is_row_major(self: Meta) -> bool:
    """Whether the strides are those of a new tensor. Torch's iterator also orders dimensions of one
    element by theirs."""
    usual = contiguous_strides(self.shape)
    single = (at for at, size in enumerate(self.shape) if type(size) is int and size == 1)
    return is_contiguous(self.shape, self.stride) and all(
        self.stride[at] == usual[at] for at in single
    )


def _in_order(self: Meta, indices: tuple[Meta | None, ...]) -> bool:
    """Whether torch's iterator leaves the dimensions that are not indexed where they are."""
    taken = {i for i, index in enumerate(indices) if index is not None}
    kept = [stride for i, stride in enumerate(self.stride) if i not in taken]
    whole = all(type(stride) is int for stride in kept)
    return whole and all(a > b for a, b in itertools.pairwise(kept))


@rule("index", "index.Tensor _unsafe_index.Tensor")
def _index(op: Any, self: Meta, indices: tuple[Meta | None, ...]) -> Meta:
    """Advanced indexing with integer tensors of a tensor whose other dimensions are in order."""
    given = [index for index in indices if index is not None]
    if any(index.dtype in (torch.bool, torch.uint8) for index in given):
        raise DataDependent(str(op), "a mask decides the size of the result", shape=True)
    if len(indices) > len(self.shape):
        raise IndexError("too many indices")
    for index in given:
        _need_index(index)
    if not given or has_zero(self.shape):
        raise NoRule
    if not _is_row_major(self) and not _in_order(self, indices):
        raise NoRule
    if any(index.dtype is not given[0].dtype for index in given):
        raise NoRule
    picked = broadcast(*(index.shape for index in given))
    places = [i for i, index in enumerate(indices) if index is not None]
    adjacent = places == list(range(places[0], places[-1] + 1))
    kept = [size for i, size in enumerate(self.shape) if i not in places]
    lead = places[0] if adjacent else 0
    shape = (*kept[:lead], *picked, *kept[lead:])
    if any(index.shape != picked or not is_contiguous(picked, index.stride) for index in given):
        raise NoRule
    return plain(shape, self.dtype, self.device)


@rule("index", "index_put _unsafe_index_put")
def _index_put(
    op: Any, self: Meta, indices: tuple[Meta | None, ...], values: Meta, accumulate: bool = False
) -> Meta:
    if values.dtype is not self.dtype:
        raise RuntimeError("index_put: values of another dtype")
    if any(index is not None and index.dtype is torch.uint8 for index in indices):
        raise NoRule  # torch warns of such a mask
    return Meta(self.shape, like_strides(self.shape, self.stride), self.dtype, self.device)


def _is_nothing(meta: Meta) -> bool:
    """Whether cat leaves a tensor out, whatever the sizes of the others."""
    return len(meta.shape) == 1 and has_zero(meta.shape)


@rule("join", "cat")
def _cat(op: Any, tensors: tuple[Meta, ...], dim: int = 0) -> Meta:
    if not tensors:
        raise RuntimeError("cat of no tensors")
    if any(not meta.shape for meta in tensors):
        raise RuntimeError("cat of zero-dimensional tensors")
    real = [meta for meta in tensors if not _is_nothing(meta)] or list(tensors[:1])
    first = real[0]
    at = wrap_dim(dim, len(first.shape))
    total = 0
    for meta in real:
        if len(meta.shape) != len(first.shape) or any(
            a != b for i, (a, b) in enumerate(zip(meta.shape, first.shape, strict=True)) if i != at
        ):
            raise RuntimeError("cat: sizes do not fit")
        total += meta.shape[at]
    shape = (*first.shape[:at], total, *first.shape[at + 1 :])
    dtype = joint_dtype(tensors)
    formats = {suggested_format(meta) for meta in tensors}
    layout = formats.pop() if len(formats) == 1 else torch.contiguous_format
    return Meta(shape, format_strides(shape, layout), dtype, first.device)


def joint_dtype(metas: tuple[Meta, ...]) -> torch.dtype:
    """The promoted dtype; `NoRule` with zero-dimensional tensors, which torch ranks lower."""
    dtypes = {meta.dtype for meta in metas}
    if len(dtypes) == 1:
        return metas[0].dtype
    dtype = None
    for meta in metas:
        if not meta.shape:
            raise NoRule
        dtype = meta.dtype if dtype is None else torch.promote_types(dtype, meta.dtype)
    assert dtype is not None
    return dtype


@rule("join", "stack")
def _stack(op: Any, tensors: tuple[Meta, ...], dim: int = 0) -> Meta:
    if not tensors:
        raise RuntimeError("stack of no tensors")
    first = tensors[0]
    if any(meta.shape != first.shape for meta in tensors):
        raise RuntimeError("stack: sizes do not fit")
    at = wrap_dim(dim, len(first.shape) + 1)
    shape = (*first.shape[:at], len(tensors), *first.shape[at:])
    if at == len(first.shape) or 0 in first.shape:
        return plain(shape, joint_dtype(tensors), first.device)
    # The result is a view of this tensor, in its memory format.
    joined = _cat(op, tensors, at)
    stride = view_strides(joined.shape, joined.stride, shape)
    assert stride is not None  # splits one dimension
    return Meta(shape, stride, joined.dtype, first.device)
