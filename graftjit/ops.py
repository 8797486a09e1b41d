"""`graftjit.ops`: operators with the names and arguments of static-graph systems, on top of torch.

In: tensors. Out: tensors. Where name and arguments agree, the operator is torch's own function.
Where they differ (`axis`, `keep_dims`, a permutation for `transpose`, ...), a short function
translates. Other names are looked up in `torch`, then in `torch.nn.functional`. Gradient functions
are in `graftjit.gradients`.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from .context import current_context
from .gradients import GradOperation, get_grad, grad, stop_gradient, value_and_grad
from .runtime.errors import did_you_mean

__all__ = ["GradOperation", "grad", "value_and_grad", "get_grad", "stop_gradient"]

# -- torch's functions under other names

add = torch.add
sub = torch.sub
mul = torch.mul
div = torch.div
floor_div = torch.floor_divide
floor_mod = torch.remainder
matmul = torch.matmul
bmm = torch.bmm
relu = torch.relu
sigmoid = torch.sigmoid
tanh = torch.tanh
gelu = F.gelu
equal = torch.eq
not_equal = torch.ne
greater = torch.gt
greater_equal = torch.ge
less = torch.lt
less_equal = torch.le
select = where = torch.where
clip_by_value = clamp = torch.clamp
inv = torch.reciprocal

# -- arguments with other names


def _axes(x: Any, axis: Any) -> tuple[int, ...]:
    if axis is None or axis == ():
        return tuple(range(x.dim()))
    return (axis,) if isinstance(axis, int) else tuple(axis)


def reduce_sum(x: Any, axis: Any = None, keep_dims: bool = False) -> Any:
    """Sum over `axis`: None or () for all axes, one, or several."""
    return torch.sum(x, _axes(x, axis), keepdim=keep_dims)


def reduce_mean(x: Any, axis: Any = None, keep_dims: bool = False) -> Any:
    """Mean over `axis`: None or () for all axes, one, or several."""
    return torch.mean(x, _axes(x, axis), keepdim=keep_dims)


def reduce_max(x: Any, axis: Any = None, keep_dims: bool = False) -> Any:
    """Largest values over `axis`: None or () for all axes, one, or several."""
    return torch.amax(x, _axes(x, axis), keepdim=keep_dims)


def reduce_min(x: Any, axis: Any = None, keep_dims: bool = False) -> Any:
    """Smallest values over `axis`: None or () for all axes, one, or several."""
    return torch.amin(x, _axes(x, axis), keepdim=keep_dims)


def reduce_prod(x: Any, axis: Any = None, keep_dims: bool = False) -> Any:
    """Product over `axis`: None or () for all axes, one, or several."""
    axes = sorted((a % x.dim() for a in _axes(x, axis)), reverse=True)
    for a in axes:
        x = torch.prod(x, a, keepdim=keep_dims)
    return x


mean = reduce_mean
amax = reduce_max
amin = reduce_min


def softmax(input: Any, axis: int = -1, *, dtype: torch.dtype | None = None) -> Any:
    """exp(x) / sum(exp(x)) along `axis`, for a floating-point tensor of any shape; in `dtype` if
    given."""
    return torch.softmax(input, axis, dtype=dtype)


def log_softmax(logits: Any, axis: int = -1) -> Any:
    """log(softmax(logits)) along `axis`, for a floating-point tensor of any shape."""
    return torch.log_softmax(logits, axis)


def concat(tensors: Any, axis: int = 0) -> Any:
    """Tensors concatenated along `axis`; their other sizes must be equal, else RuntimeError."""
    return torch.cat(tuple(tensors), axis)


cat = concat


def stack(tensors: Any, axis: int = 0) -> Any:
    """Tensors of equal shapes stacked along a new `axis`. Raises RuntimeError for other shapes."""
    return torch.stack(tuple(tensors), axis)


def unstack(input_x: Any, axis: int = 0) -> Any:
    """A tuple of the slices along `axis`, without that axis."""
    return torch.unbind(input_x, axis)


def split(tensor: Any, split_size_or_sections: Any, axis: int = 0) -> Any:
    """A tuple of views along `axis`: pieces of one size (the last may be smaller), or with the
    sizes in a list. Raises RuntimeError if their sum is wrong."""
    return torch.split(tensor, split_size_or_sections, axis)


def reshape(input: Any, shape: Any) -> Any:
    """The same elements in `shape`, where one size may be -1; a view if possible. Raises
    RuntimeError for another number of elements."""
    return torch.reshape(input, tuple(shape))


def transpose(input: Any, input_perm: Any) -> Any:
    """The axes in the order of `input_perm`, a permutation of all axes."""
    return torch.permute(input, tuple(input_perm))


def swapaxes(input: Any, axis0: int, axis1: int) -> Any:
    """A view with two axes exchanged."""
    return torch.transpose(input, axis0, axis1)


def flatten(input: Any, order: str = "C", *, start_dim: int = 1, end_dim: int = -1) -> Any:
    """[N, a, b, ...] -> [N, a*b*...]; order "C" (the last axis varies fastest) or "F"."""
    if order == "F":
        input = torch.permute(input, (0, *range(input.dim() - 1, 0, -1)))
    elif order != "C":
        raise ValueError(f"order must be 'C' or 'F', not {order!r}")
    return torch.flatten(input, start_dim, end_dim)


def expand_dims(input_x: Any, axis: int) -> Any:
    """A view with a new axis of size 1 before `axis`; negative values count from the end. Raises
    IndexError beyond the range."""
    return torch.unsqueeze(input_x, axis)


def squeeze(input: Any, axis: Any = None) -> Any:
    """A view without the axes of size 1, or only without those in `axis` (one or several)."""
    return torch.squeeze(input) if axis is None else torch.squeeze(input, axis)


def broadcast_to(input: Any, shape: Any) -> Any:
    """A view expanded to `shape`, where -1 keeps a size. Raises RuntimeError for an incompatible
    shape."""
    return torch.broadcast_to(input, tuple(shape))


def tile(input: Any, dims: Any) -> Any:
    """A copy repeated `dims` times along each axis; missing leading values count as 1."""
    return torch.tile(input, tuple(dims))


def cast(input: Any, dtype: torch.dtype) -> Any:
    """The values as `dtype`: of a tensor, or of a number, which becomes a tensor without
    dimensions."""
    return input.to(dtype) if isinstance(input, torch.Tensor) else torch.tensor(input, dtype=dtype)


def gather(input_params: Any, input_indices: Any, axis: int) -> Any:
    """Slices of `input_params` along `axis`:
    result[..., i, j, ...] = params[..., indices[i, j], ...]."""
    axis = axis % input_params.dim()
    picked = torch.index_select(input_params, axis, input_indices.reshape(-1))
    return picked.reshape(
        *input_params.shape[:axis], *input_indices.shape, *input_params.shape[axis + 1 :]
    )


def one_hot(indices: Any, depth: int, on_value: Any = 1, off_value: Any = 0, axis: int = -1) -> Any:
    """`on_value` at the class, `off_value` elsewhere, along a new `axis` of length `depth`."""
    hot = indices.unsqueeze(-1) == torch.arange(depth, device=indices.device)
    values = torch.where(hot, on_value, off_value)
    return values if axis == -1 else torch.movedim(values, -1, axis)


def cumsum(x: Any, axis: int, dtype: torch.dtype | None = None) -> Any:
    """Cumulative sums along `axis`, in `dtype` if given (default for integers: int64)."""
    return torch.cumsum(x, axis, dtype=dtype)


def argmax(input: Any, dim: int | None = None, keepdim: bool = False, *, axis: Any = None) -> Any:
    """Indices (int64) of the largest values along `dim` or `axis`; None: in the flattened
    tensor."""
    return torch.argmax(input, dim if axis is None else axis, keepdim)


def argmin(input: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """Indices (int64) of the smallest values along `axis`; None: in the flattened tensor."""
    return torch.argmin(input, axis, keepdims)


def zeros(size: Any, dtype: torch.dtype | None = None) -> Any:
    """Zeros of a size or sizes on the context's device; the default dtype is torch's."""
    return torch.zeros(size, dtype=dtype, device=_device())


def ones(size: Any, dtype: torch.dtype | None = None) -> Any:
    """Ones of a size or sizes on the context's device; the default dtype is torch's."""
    return torch.ones(size, dtype=dtype, device=_device())


def full(size: Any, fill_value: Any, *, dtype: torch.dtype | None = None) -> Any:
    """`fill_value` in a size or sizes on the context's device; the default dtype is its own."""
    return torch.full(
        (size,) if isinstance(size, int) else size, fill_value, dtype=dtype, device=_device()
    )


def arange(start: Any = 0, end: Any = None, step: Any = 1, *, dtype: Any = None) -> Any:
    """start, start + step, ... before `end`, on the context's device; with one number, from 0 up to
    it. The default dtype for integers is int64."""
    start, end = (0, start) if end is None else (start, end)
    return torch.arange(start, end, step, dtype=dtype, device=_device())


def _device() -> Any:
    return current_context().device


def shape(input_x: Any) -> tuple[int, ...]:
    """The sizes, as a plain tuple."""
    return tuple(input_x.shape)


def rank(input_x: Any) -> int:
    """The number of dimensions."""
    return input_x.dim()


def size(input_x: Any) -> int:
    """The number of elements."""
    return input_x.numel()


def __getattr__(name: str) -> Any:
    found = None
    if not name.startswith("__"):
        found = getattr(torch, name, None) or getattr(F, name, None)
    if not callable(found):
        raise AttributeError(
            f"graftjit.ops has no {name!r}, neither have torch and torch.nn.functional"
            + did_you_mean(name, __dir__())
        )
    return found


def __dir__() -> list[str]:
    ours = [name for name in globals() if not name.startswith("_")]
    return sorted({*ours, *(n for n in (*dir(torch), *dir(F)) if not n.startswith("_"))})
