"""Sizes and strides of results, as eager computes them.

The algorithms are those of torch's TensorIterator, `empty_like` and `clone`: they decide the order
of dimensions of a new tensor from the tensors that it is made from. The result rules use them. All
numbers count elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, wraps
from typing import Any, TypeVar

import torch

from ..errors import Unsupported
from ..symbolic.expr import ACTIVE, Expr, greatest, is_symbolic
from .nodes import Meta

Sizes = tuple[int, ...]
Function = TypeVar("Function", bound=Callable[..., Any])


def remembered(function: Function) -> Function:
    """functools.cache for plain sizes; symbolic ones are computed anew each time.

    The comparisons on the way belong to the running trace, and symbols of two traces may have one
    name.
    """
    known = cache(function)

    @wraps(function)
    def call(*args: Any) -> Any:
        facts = ACTIVE.facts
        if facts is not None and not facts.symbols:
            # The trace has no symbols.
            return known(*args)
        return function(*args) if is_symbolic(args) else known(*args)

    return call  # type: ignore[return-value]


@remembered
def contiguous_strides(shape: Sizes) -> Sizes:
    """Row-major strides; a size of 0 counts as 1."""
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= _at_least_one(size)
    return tuple(reversed(strides))


def _at_least_one(size: Any) -> Any:
    """max(size, 1).

    A trace decides the comparison and guards it. Without a trace (planning, a backward that is
    built later), and of a size from tensor data, the result is an expression that holds for every
    size.
    """
    if isinstance(size, Expr) and (ACTIVE.facts is None or ACTIVE.facts.from_data(size)):
        return greatest(size, 1)
    return max(size, 1)


def from_data(*sizes: Any) -> bool:
    """Whether one of these sizes is a number that the running trace reads from a tensor."""
    return ACTIVE.facts is not None and ACTIVE.facts.from_data(sizes)


def has_zero(shape: Sizes) -> bool:
    """Whether a size is 0. One from tensor data may be 0: a rule covers both, except for strides of
    an empty tensor."""
    return any(size == 0 for size in shape if not from_data(size))


def channels_last_strides(shape: Sizes) -> Sizes:
    """NHWC order for four sizes, NDHWC for five."""
    order = [0, *range(2, len(shape)), 1]
    inner = contiguous_strides(tuple(shape[d] for d in order))
    strides = [0] * len(shape)
    for position, dim in enumerate(order):
        strides[dim] = inner[position]
    return tuple(strides)


def numel(shape: Sequence[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


@remembered
def is_contiguous(shape: Sizes, stride: Sizes) -> bool:
    if from_data(shape) and _is_row_major(shape, stride):
        return True
    expected = 1
    for size, step in zip(reversed(shape), reversed(stride), strict=True):
        if size != 1:
            if size == 0:
                return True
            if step != expected:
                return 0 in shape
            expected *= size
    return True


def _is_row_major(shape: Sizes, stride: Sizes) -> bool:
    """Whether the strides have the form of a contiguous tensor's."""
    expected: Any = 1
    for size, step in zip(reversed(shape), reversed(stride), strict=True):
        if not _is_one(size):
            if not _alike(step, expected):
                return False
            expected *= _at_least_one(size)
    return True


@remembered
def is_channels_last(shape: Sizes, stride: Sizes) -> bool:
    """torch's is_contiguous(memory_format=channels_last): four sizes, NHWC in memory."""
    if len(shape) not in (4, 5):
        return False
    expected = 1
    for dim in (1, *range(len(shape) - 1, 1, -1), 0):
        if shape[dim] != 1:
            if stride[dim] != expected:
                return False
            expected *= shape[dim]
    return True


@remembered
def is_dense(shape: Sizes, stride: Sizes) -> bool:
    """Non-overlapping and dense: some permutation of the dimensions is contiguous."""
    if is_contiguous(shape, stride):
        return True
    expected = 1
    for step, size in sorted((st, si) for st, si in zip(stride, shape, strict=True) if si != 1):
        if step != expected:
            return False
        expected *= size
    return True


def check_memory(view: Meta, memory: Meta) -> None:
    """Raise where a view would read beyond the end of the known memory.

    A tensor from outside may be part of larger memory; then plain Python makes the view.
    """

    def end(meta: Meta) -> Any:
        reach = sum((size - 1) * step for size, step in zip(meta.shape, meta.stride, strict=True))
        return (meta.offset + reach + 1) * meta.dtype.itemsize

    if has_zero(view.shape):
        return
    if any(size == 0 for size in memory.shape) or not end(view) <= end(memory):
        raise RuntimeError("as_strided: behind the end of the memory")


def gradient_strides(shape: Sizes, stride: Sizes) -> Sizes:
    """Strides of a tensor's gradient: the tensor's own if it is dense, else row-major."""
    return stride if is_dense(shape, stride) else contiguous_strides(shape)


def has_overlap(shape: Sizes, stride: Sizes) -> bool:
    """Whether two elements certainly share memory (expanded): torch refuses to write."""
    return not has_zero(shape) and any(
        st == 0 and si > 1 for st, si in zip(stride, shape, strict=True)
    )


def shares_places(shape: Sizes, stride: Sizes) -> bool:
    """Whether two elements may share memory, as those of overlapping windows do.

    torch writes there in the order of its own loops.
    """
    if has_zero(shape) or is_dense(shape, stride):
        return False
    # Distance from the first element of the dimensions so far to their last one.
    reach = 0
    for step, size in sorted((st, si) for st, si in zip(stride, shape, strict=True) if si != 1):
        if step <= reach:
            return True
        reach += (size - 1) * step
    return False


def check_places(meta: Meta) -> None:
    """Raise if two elements of a tensor to be written share memory."""
    if has_overlap(meta.shape, meta.stride):
        raise RuntimeError("a write to a tensor with several elements in one place")
    if shares_places(meta.shape, meta.stride):
        raise Unsupported("overlap", "a write to windows of a tensor that overlap")


def overlap(one: Meta, other: Meta) -> str:
    """How two tensors in the same memory overlap.

    "full": the same elements; "none"; "partial": torch refuses to write one from the other;
    "unclear": torch does not check.
    """
    if one == other:
        return "full"
    if has_zero(one.shape) or has_zero(other.shape):
        return "none"
    if not is_dense(one.shape, one.stride) or not is_dense(other.shape, other.stride):
        return "none" if are_apart(one, other) else "unclear"
    size, its = one.dtype.itemsize, other.dtype.itemsize
    begin, start = one.offset * size, other.offset * its
    end, stop = begin + numel(one.shape) * size, start + numel(other.shape) * its
    if (begin, end) == (start, stop):
        return "full" if one.stride == other.stride else "partial"
    return "partial" if begin < stop and start < end else "none"


def are_apart(one: Meta, other: Meta) -> bool:
    """Whether two strided tensors in the same memory certainly share no element.

    A shared element is a solution of sum(i * stride) - sum(j * stride') == distance with i and j in
    range. The search uses interval arithmetic, largest stride first, and gives up after 400 tries.
    """
    if one.dtype.itemsize != other.dtype.itemsize:
        return False
    if is_symbolic([m.shape + m.stride + (m.offset,) for m in (one, other)]):
        return False
    terms = [(st, si - 1, 0) for si, st in zip(one.shape, one.stride, strict=True)]
    terms += [(st, 0, si - 1) for si, st in zip(other.shape, other.stride, strict=True)]
    terms = sorted((t for t in terms if t[0] and (t[1] or t[2])), reverse=True)
    merged: list[tuple[int, int, int]] = []
    for stride, up, down in terms:  # equal strides of both sides are one unknown
        if merged and merged[-1][0] == stride:
            _, other_up, other_down = merged.pop()
            up, down = up + other_up, down + other_down
        merged.append((stride, up, down))
    tries = [400]

    def meets(rest: int, at: int) -> bool:
        tries[0] -= 1
        if tries[0] < 0 or at == len(merged):
            return rest == 0 or tries[0] < 0
        stride, up, down = merged[at]
        high = sum(s * u for s, u, _ in merged[at + 1 :])
        low = -sum(s * d for s, _, d in merged[at + 1 :])
        first = max(-down, -((high - rest) // stride))
        last = min(up, (rest - low) // stride)
        return any(meets(rest - k * stride, at + 1) for k in range(first, last + 1))

    return not meets(other.offset - one.offset, 0)


def broadcast(*shapes: Sizes) -> Sizes:
    """The common shape; raises RuntimeError where there is none."""
    result: Sizes = shapes[0] if shapes else ()
    open_sizes = from_data(*shapes)
    for shape in shapes[1:]:
        if not open_sizes and shape == result:
            continue
        if len(shape) > len(result):
            shape, result = result, shape
        lead = len(result) - len(shape)
        sizes = list(result)
        for i, size in enumerate(shape):
            other = sizes[lead + i]
            if open_sizes and (_is_one(size) or _alike(size, other)):
                continue
            if _is_one(other) if open_sizes else other == 1:
                sizes[lead + i] = size
            elif size not in (1, other):
                raise RuntimeError(f"sizes {list(result)} and {list(shape)} do not broadcast")
        result = tuple(sizes)
    return result


def _is_one(size: Any) -> bool:
    return type(size) is int and size == 1


def _alike(size: Any, other: Any) -> bool:
    """Whether two sizes are equal by their form."""
    both = isinstance(size, Expr) and isinstance(other, Expr)
    return size.key == other.key if both else type(size) is type(other) is int and size == other


def _is_less(one: Any, other: Any) -> bool:
    """One from tensor data counts as a size of several elements: of one element, a dimension has
    any stride."""
    if from_data(one, other):
        return bool(ACTIVE.facts.usually("<", one, other))
    return bool(one < other)


def _sort_dims(shape: Sizes, operands: Sequence[Sizes]) -> list[int]:
    """Dimensions, innermost first: TensorIterator's insertion sort, ambiguous comparisons."""

    def order(dim0: int, dim1: int) -> int:
        for stride in operands:
            step0, step1 = stride[dim0], stride[dim1]
            if step0 == 0 or step1 == 0:
                continue
            if _is_less(step0, step1):
                return -1
            if _is_less(step1, step0) or _is_less(shape[dim1], shape[dim0]):
                return 1
        return 0

    perm = list(reversed(range(len(shape))))
    for i in range(1, len(perm)):
        here = i
        for before in range(i - 1, -1, -1):
            verdict = order(perm[before], perm[here])
            if verdict > 0:
                perm[before], perm[here] = perm[here], perm[before]
                here = before
            elif verdict < 0:
                break
    return perm


def _strides_in_order(shape: Sizes, perm: Sequence[int], clamp: bool) -> Sizes:
    strides = [0] * len(shape)
    step = 1
    for dim in perm:
        strides[dim] = step
        step *= _at_least_one(shape[dim]) if clamp else shape[dim]
    return tuple(strides)


def _spread(shape: Sizes, operand: Sizes, stride: Sizes) -> Sizes:
    """Strides of an operand within the broadcast shape."""
    lead = len(shape) - len(operand)
    return (0,) * lead + tuple(
        0 if size == 1 and shape[lead + i] != 1 else step
        for i, (size, step) in enumerate(zip(operand, stride, strict=True))
    )


@remembered
def pointwise_strides(shape: Sizes, operands: tuple[tuple[Sizes, Sizes], ...]) -> Sizes:
    """Strides of TensorIterator's new result; the operands are given as (shape, stride)."""
    if from_data(shape, operands):
        return _open_strides(shape, operands)
    if all(operand == shape for operand, _ in operands):
        if all(is_contiguous(*operand) for operand in operands):
            return contiguous_strides(shape)
        if len(shape) == 4 and all(is_channels_last(*operand) for operand in operands):
            return channels_last_strides(shape)
        first = operands[0][1]
        if all(stride == first and is_dense(size, stride) for size, stride in operands):
            return first
    perm = [0]
    if len(shape) != 1:
        perm = _sort_dims(shape, [_spread(shape, *operand) for operand in operands])
    if perm == list(reversed(range(len(shape)))):
        return contiguous_strides(shape)
    return _strides_in_order(shape, perm, clamp=False)


def _open_strides(shape: Sizes, operands: tuple[tuple[Sizes, Sizes], ...]) -> Sizes:
    """As `pointwise_strides`, with sizes that the running trace reads from tensors: whether they
    are 1 matters only for the strides of dimensions of one element."""
    usual = contiguous_strides(shape)
    if all(_same(size, shape) and _is_row_major(size, stride) for size, stride in operands):
        return usual
    spread = []
    for operand, stride in operands:
        lead = len(shape) - len(operand)
        grown = [_is_one(size) and not _is_one(shape[lead + i]) for i, size in enumerate(operand)]
        steps = [0 if one else step for one, step in zip(grown, stride, strict=True)]
        spread.append((0,) * lead + tuple(steps))
    perm = _sort_dims(shape, spread) if len(shape) > 1 else [0]
    if perm == list(reversed(range(len(shape)))):
        return usual
    return _strides_in_order(shape, perm, clamp=False)


def _same(one: Sizes, other: Sizes) -> bool:
    return len(one) == len(other) and all(map(_alike, one, other))


@remembered
def like_strides(shape: Sizes, stride: Sizes) -> Sizes:
    """Strides of `empty_like(x)` and `x.clone()` with torch.preserve_format."""
    if is_dense(shape, stride):
        return stride
    if len(shape) <= 1:
        return (1,) * len(shape)
    return _strides_in_order(shape, _sort_dims(shape, [stride]), clamp=True)


def suggested_format(meta: Meta) -> torch.memory_format:
    """torch's suggest_memory_format: channels_last where the strides show it clearly."""
    shape, stride = meta.shape, meta.stride
    if len(shape) not in (4, 5):
        return torch.contiguous_format
    least = 0
    if stride[1] == 0:
        return torch.contiguous_format
    for dim in (1, *range(len(shape) - 1, 1, -1), 0):
        if shape[dim] == 0 or stride[dim] < least:
            return torch.contiguous_format
        if dim == 0 and least == stride[1]:
            return torch.contiguous_format
        least = stride[dim]
        if shape[dim] > 1:
            least *= shape[dim]
    return torch.channels_last if len(shape) == 4 else torch.channels_last_3d


def format_strides(shape: Sizes, memory_format: torch.memory_format | None) -> Sizes:
    """Strides for an explicit memory format."""
    if memory_format is None or memory_format is torch.contiguous_format:
        return contiguous_strides(shape)
    if memory_format is torch.channels_last or memory_format is torch.channels_last_3d:
        return channels_last_strides(shape)
    raise ValueError(f"{memory_format} gives no strides by itself")


def wrap_dim(dim: int, rank: int) -> int:
    """A dimension from the front; IndexError if out of range. Rank 0 allows 0 and -1."""
    reach = max(rank, 1)
    if not -reach <= dim < reach:
        raise IndexError(f"dimension {dim} is out of range for {rank} dimensions")
    return dim % reach
