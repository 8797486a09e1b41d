"""Result rules of views: same memory, other sizes, strides and offset."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import NoRule
from ..graph.layout import Sizes, from_data, has_zero, numel, wrap_dim
from ..graph.nodes import Meta
from ..graph.opdef import rule
from ..symbolic.expr import ACTIVE, Expr


def _as(base: Meta, shape: Any, stride: Any, offset: int | None = None) -> Meta:
    where = base.offset if offset is None else offset
    return Meta(tuple(shape), tuple(stride), base.dtype, base.device, where)


def infer_size(size: Sizes, count: int) -> Sizes:
    """A shape with -1 filled in; RuntimeError if it does not fit `count` elements."""
    unknown = [i for i, extent in enumerate(size) if extent == -1]
    known = numel([extent for extent in size if extent != -1])
    if len(unknown) > 1 or any(extent < -1 for extent in size):
        raise RuntimeError(f"shape {list(size)} is invalid")
    if unknown:
        if known == 0 or count % known:
            raise RuntimeError(f"shape {list(size)} is invalid for {count} elements")
        filled = list(size)
        filled[unknown[0]] = count // known
        return tuple(filled)
    if known != count:
        raise RuntimeError(f"shape {list(size)} is invalid for {count} elements")
    return tuple(size)


def _joined(size: Any, stride: Any, inner: Any) -> bool:
    """Whether a dimension is one with those inside of it, which span `inner`."""
    # A length that tensor data decide is not compared with 1 where the strides are enough.
    if isinstance(size, Expr):
        return bool(stride == inner or size == 1)
    return bool(size == 1 or stride == inner)


def _is_less(elements: Any, all_of_them: Any) -> bool:
    if from_data(elements, all_of_them):  # neither is 0, see `has_zero`
        return ACTIVE.facts.known("==", elements, all_of_them) is not True
    return bool(elements < all_of_them)


def view_strides(shape: Sizes, stride: Sizes, size: Sizes) -> Sizes | None:
    """Strides of x.view(size), or None if the memory does not allow it (torch's computeStride)."""
    if not shape:
        return (1,) * len(size)
    if has_zero(shape):
        if shape == size:
            return stride
        strides = [0] * len(size)
        for i in range(len(size) - 1, -1, -1):
            last = i == len(size) - 1
            strides[i] = 1 if last else max(size[i + 1], 1) * strides[i + 1]
        return tuple(strides)
    result = [0] * len(size)
    at = len(size) - 1
    base = stride[-1]
    chunk = seen = 1
    for dim in range(len(shape) - 1, -1, -1):
        chunk *= shape[dim]
        if dim > 0 and _joined(shape[dim - 1], stride[dim - 1], chunk * base):
            continue
        while at >= 0 and (_is_less(seen, chunk) or (not from_data(size[at]) and size[at] == 1)):
            result[at] = seen * base
            seen *= size[at]
            at -= 1
        if seen != chunk:
            return None
        if dim > 0:
            base = stride[dim - 1]
            chunk = seen = 1
    return tuple(result) if at == -1 else None


@rule("view", "view _unsafe_view")
def _view(op: Any, self: Meta, size: Sizes) -> Meta:
    shape = infer_size(size, numel(self.shape))
    strides = view_strides(self.shape, self.stride, shape)
    if strides is None:
        raise RuntimeError("view size is not compatible with the input's size and strides")
    return _as(self, shape, strides)


@rule("view", "_reshape_alias")
def _reshape_alias(op: Any, self: Meta, size: Sizes, stride: Sizes) -> Meta:
    return _as(self, size, stride)


@rule("view", "as_strided")
def _as_strided(
    op: Any, self: Meta, size: Sizes, stride: Sizes, storage_offset: int | None = None
) -> Meta:
    if len(size) != len(stride) or any(s < 0 for s in (*size, *stride)):
        raise RuntimeError("as_strided: bad sizes or strides")
    return _as(self, size, stride, storage_offset)


@rule("view", "detach alias")
def _same(op: Any, self: Meta) -> Meta:
    return self


@rule("view", "view.dtype")
def _view_dtype(op: Any, self: Meta, dtype: torch.dtype) -> Meta:
    if dtype.itemsize != self.dtype.itemsize:
        raise NoRule
    return Meta(self.shape, self.stride, dtype, self.device, self.offset)


@rule("view", "expand")
def _expand(op: Any, self: Meta, size: Sizes, *, implicit: bool = False) -> Meta:
    lead = len(size) - len(self.shape)
    if lead < 0:
        raise RuntimeError("expand to fewer dimensions")
    if not self.shape:
        if any(extent < 0 for extent in size):
            raise RuntimeError("expand: -1 for a dimension that does not exist")
        return _as(self, size, (0,) * len(size))
    shape, stride = list(size), [0] * len(size)
    for i in range(len(size) - 1, -1, -1):
        extent = self.shape[i - lead] if i >= lead else 1
        step = (
            self.stride[i - lead]
            if i >= lead
            else (shape[i + 1] * stride[i + 1] if i + 1 < len(size) else 1)
        )
        wanted = size[i]
        if wanted == -1:
            if i < lead:
                raise RuntimeError("expand: -1 for a dimension that does not exist")
            wanted = extent
        grows = type(extent) is int and extent == 1 and from_data(wanted)
        if grows or wanted != extent:
            if extent != 1:
                raise RuntimeError(f"expand: {extent} to {wanted}")
            step = 0
        shape[i], stride[i] = wanted, step
    return _as(self, shape, stride)


@rule("view", "permute")
def _permute(op: Any, self: Meta, dims: Sizes) -> Meta:
    rank = len(self.shape)
    order = [wrap_dim(dim, rank) for dim in dims]
    if sorted(order) != list(range(rank)):
        raise RuntimeError("permute: dims are no permutation")
    return _as(self, [self.shape[d] for d in order], [self.stride[d] for d in order])


@rule("view", "t")
def _t(op: Any, self: Meta) -> Meta:
    if len(self.shape) > 2:
        raise RuntimeError("t: more than two dimensions")
    return _as(self, self.shape[::-1], self.stride[::-1])


@rule("view", "transpose.int")
def _transpose(op: Any, self: Meta, dim0: int, dim1: int) -> Meta:
    rank = len(self.shape)
    a, b = wrap_dim(dim0, rank), wrap_dim(dim1, rank)
    shape, stride = list(self.shape), list(self.stride)
    if rank:
        shape[a], shape[b] = shape[b], shape[a]
        stride[a], stride[b] = stride[b], stride[a]
    return _as(self, shape, stride)


def select_meta(self: Meta, dim: int, index: int) -> Meta:
    """x.select(dim, index)."""
    rank = len(self.shape)
    if rank == 0:
        raise IndexError("select on a zero-dimensional tensor")
    dim = wrap_dim(dim, rank)
    size = self.shape[dim]
    if not -size <= index < size:
        raise IndexError(f"index {index} is out of range for dimension {dim} of size {size}")
    at = index + size if index < 0 else index
    offset = self.offset + at * self.stride[dim]
    return _as(
        self,
        self.shape[:dim] + self.shape[dim + 1 :],
        self.stride[:dim] + self.stride[dim + 1 :],
        offset,
    )


@rule("view", "select.int")
def _select(op: Any, self: Meta, dim: int, index: int) -> Meta:
    return select_meta(self, dim, index)


def slice_meta(self: Meta, dim: int, start: int | None, end: int | None, step: int = 1) -> Meta:
    """x[start:end:step] along dim."""
    rank = len(self.shape)
    if rank == 0:
        raise IndexError("slice of a zero-dimensional tensor")
    dim = wrap_dim(dim, rank)
    if step <= 0:
        raise RuntimeError("slice step must be positive")
    size = self.shape[dim]
    first = 0 if start is None else start
    last = size if end is None else end
    first = min(max(first + size if first < 0 else first, 0), size)
    last = min(max(last + size if last < 0 else last, first), size)
    shape, stride = list(self.shape), list(self.stride)
    shape[dim] = (last - first + step - 1) // step
    stride[dim] *= step
    return _as(self, shape, stride, self.offset + first * self.stride[dim])


@rule("view", "slice.Tensor")
def _slice(
    op: Any,
    self: Meta,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Meta:
    return slice_meta(self, dim, start, end, step)


@rule("view", "squeeze")
def _squeeze(op: Any, self: Meta) -> Meta:
    kept = [i for i, size in enumerate(self.shape) if size != 1]
    return _as(self, [self.shape[i] for i in kept], [self.stride[i] for i in kept])


def _squeeze_dims(self: Meta, dims: set[int]) -> Meta:
    kept = [i for i, size in enumerate(self.shape) if i not in dims or size != 1]
    return _as(self, [self.shape[i] for i in kept], [self.stride[i] for i in kept])


@rule("view", "squeeze.dim")
def _squeeze_dim(op: Any, self: Meta, dim: int) -> Meta:
    return _squeeze_dims(self, {wrap_dim(dim, len(self.shape))})


@rule("view", "squeeze.dims")
def _squeeze_many(op: Any, self: Meta, dim: Sizes) -> Meta:
    return _squeeze_dims(self, {wrap_dim(d, len(self.shape)) for d in dim})


@rule("view", "unsqueeze")
def _unsqueeze(op: Any, self: Meta, dim: int) -> Meta:
    rank = len(self.shape)
    dim = wrap_dim(dim, rank + 1)
    step = 1 if dim >= rank else self.shape[dim] * self.stride[dim]
    return _as(
        self,
        (*self.shape[:dim], 1, *self.shape[dim:]),
        (*self.stride[:dim], step, *self.stride[dim:]),
    )


@rule("view", "unbind.int")
def _unbind(op: Any, self: Meta, dim: int = 0) -> tuple[Meta, ...]:
    dim = wrap_dim(dim, len(self.shape))
    if not self.shape:
        raise IndexError("unbind of a zero-dimensional tensor")
    return tuple(select_meta(self, dim, index) for index in range(self.shape[dim]))


@rule("view", "split.Tensor unsafe_split.Tensor")
def _split(op: Any, self: Meta, split_size: int, dim: int = 0) -> tuple[Meta, ...]:
    if not self.shape:
        raise RuntimeError("split of a zero-dimensional tensor")
    dim = wrap_dim(dim, len(self.shape))
    size = self.shape[dim]
    if split_size < 0 or (split_size == 0 and size != 0):
        raise RuntimeError("split: bad split_size")
    if split_size == 0:
        return (self,)
    count = max((size + split_size - 1) // split_size, 1)
    return tuple(
        slice_meta(self, dim, i * split_size, min((i + 1) * split_size, size)) for i in range(count)
    )


@rule("view", "split_with_sizes unsafe_split_with_sizes")
def _split_with_sizes(op: Any, self: Meta, split_sizes: Sizes, dim: int = 0) -> tuple[Meta, ...]:
    if not self.shape:
        raise RuntimeError("split of a zero-dimensional tensor")
    dim = wrap_dim(dim, len(self.shape))
    if sum(split_sizes) != self.shape[dim] or any(size < 0 for size in split_sizes):
        raise RuntimeError("split_with_sizes: sizes do not add up")
    parts, start = [], 0
    for size in split_sizes:
        parts.append(slice_meta(self, dim, start, start + size))
        start += size
    return tuple(parts)


@rule("view", "diagonal")
def _diagonal(op: Any, self: Meta, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Meta:
    rank = len(self.shape)
    a, b = wrap_dim(dim1, rank), wrap_dim(dim2, rank)
    if a == b:
        raise RuntimeError("diagonal: the same dimension twice")
    rows, columns = self.shape[a], self.shape[b]
    length = min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns)
    start = self.offset
    if length > 0:
        start += offset * self.stride[b] if offset >= 0 else -offset * self.stride[a]
    kept = [i for i in range(rank) if i not in (a, b)]
    return _as(
        self,
        [*(self.shape[i] for i in kept), max(length, 0)],
        [*(self.stride[i] for i in kept), self.stride[a] + self.stride[b]],
        start,
    )


@rule("view", "unfold")
def _unfold(op: Any, self: Meta, dimension: int, size: int, step: int) -> Meta:
    rank = len(self.shape)
    dim = wrap_dim(dimension, rank)
    extent = self.shape[dim] if rank else 1
    if not 0 <= size <= extent or step <= 0:
        raise RuntimeError("unfold: bad size or step")
    shape, stride = list(self.shape), list(self.stride)
    last = stride[dim] if rank else 1
    if rank:
        shape[dim] = (extent - size) // step + 1
        stride[dim] *= step
    return _as(self, [*shape, size], [*stride, last])
