"""Memory in Triton kernels: the addresses of a tensor's elements, and the text of loads and stores.

In: the kernel being written (`body.Writer`) and a load, a position, a mask or a store of its nest.
Out: text. A pointer moves along the dimensions of the axes in its index and of the values among its
offsets, and takes their masks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...ir.symbolic.expr import Expr, is_symbolic, product
from ..loops.extents import surely
from ..loops.loop_nest import Index, Store, Value
from . import scatter
from .arguments import DIVISOR, INT32, kind_of, most
from .dialect import TYPES, const

if TYPE_CHECKING:
    from .body import Writer
    from .tiling import Dim


def offset(writer: Writer, index: Index, whole: bool = False) -> tuple[str, list[Dim]]:
    """The text of an affine form, and the dimensions along which it moves.

    A term is computed in 64 bits if it may need them. Terms are added to a pointer one after the
    other; `whole`: they are added to each other, and their sum must fit too.
    """
    # stride, variable, whether it has 64 bits, its bound
    steps: list[tuple[Any, str, bool, float]] = []
    for dim in writer.plan.dims:
        stride = straight(index, dim, writer.sizes)
        if stride is None:
            steps += [_along_axis(writer, index, axis) for axis in dim.axes]
        else:
            steps.append((stride, dim.name, dim.wide, furthest(dim)))
    steps = [step for step in steps if step[0]]
    reach = [most(abs(stride)) * far for stride, _name, _wide, far in steps]
    beyond = whole and sum(reach) + most(abs(index.offset)) >= INT32
    terms = []
    for (stride, name, wide, _far), far in zip(steps, reach, strict=True):
        if isinstance(stride, Expr):
            wide = wide or kind_of(stride) == "i64"  # then so is the product
        text = name if wide or (far < INT32 and not beyond) else f"{name}.to(tl.int64)"
        one = not isinstance(stride, Expr) and stride == 1
        terms.append(text if one else f"{writer.numbers.text(stride)} * {text}")
    moved = {writer.dim_of[axis].name for axis, stride in enumerate(index.strides) if stride}
    if index.offset or not terms:
        terms.append(writer.numbers.text(index.offset))
    return " + ".join(terms), [dim for dim in writer.plan.dims if dim.name in moved]


def _along_axis(writer: Writer, index: Index, axis: int) -> tuple[Any, str, bool, float]:
    dim = writer.dim_of[axis]
    if len(dim.axes) == 1:
        return index.strides[axis], dim.name, dim.wide, furthest(dim)
    far = most(writer.sizes[axis])
    if axis == dim.axes[0]:  # in masked elements it may exceed its size
        below = product(writer.sizes[other] for other in dim.axes[1:])
        far += dim.block if is_symbolic(below) else dim.block // max(1, below) + 1
    return index.strides[axis], writer.axis_name.get(axis, ""), dim.wide, far


def furthest(dim: Dim) -> float:
    """A bound of a dimension's variable, masked elements included."""
    return most(dim.reach + dim.block)


def straight(index: Index, dim: Dim, sizes: Sequence[Any]) -> Any:
    """The one stride with which an index walks all axes of a dimension in order; None if there is
    none.
    """
    stride = index.strides[dim.axes[-1]] if dim.axes else 0
    below = stride
    for axis in reversed(dim.axes):
        if index.strides[axis] != below:
            return None
        below *= sizes[axis]
    return stride


def present(writer: Writer, dims: Iterable[str], *conditions: str, columns: str = "mask") -> str:
    """The mask argument that restricts a load or store to existing elements, and to those where
    conditions hold. `columns`: which mask of shifted columns.
    """
    dims = set(dims)
    masks = [
        f"{dim.name}_{columns if dim.shift else 'mask'}"
        for dim in writer.plan.dims
        if dim.masked and dim.name in dims
    ]
    both = " & ".join((*masks, *conditions))
    return f", mask={both}" if both else ""


def position(writer: Writer, value: Value) -> str:
    """The expression of an `index` value."""
    text, dims = offset(writer, value.attr, whole=True)
    kind = TYPES[value.dtype][0]
    if dims:
        return f"({text}).to({kind})"
    return writer.numbers.scalar(value.attr.offset, value.dtype)


def load(writer: Writer, value: Value) -> str:
    """The expression of a `load` or `load_if` value. Memory that is masked out is not accessed."""
    buffer, index = value.attr
    guarded = value.op == "load_if"
    pointer, dims = _pointer(writer, buffer, index, value.args[2:] if guarded else value.args)
    pointer += spread(writer, dims)
    if not guarded:
        columns = "near" if not value.args and in_groups(writer, buffer, index) else "mask"
        return f"tl.load({pointer}{present(writer, dims, columns=columns)})"
    guard, other = value.args[:2]
    tile = [dim.name for dim in writer.plan.dims if dim.constant]
    # one position for all elements; a single pointer cannot take their mask
    if dims.isdisjoint(tile):
        more = writer.along[guard] | writer.along[other]
        pointer += "".join(f" + 0 * {name}" for name in tile if name in more)
    dims |= writer.along[guard]
    return f"tl.load({pointer}{present(writer, dims, f'v{guard}')}, other=v{other})"


def _pointer(
    writer: Writer, buffer: int, index: Index, offsets: Sequence[int]
) -> tuple[str, set[str]]:
    """The text of the pointers to elements at an index and further offsets, and the names of the
    dimensions along which they differ.

    Each offset is added to the pointer by itself: a sum of 32-bit offsets may not fit in 32 bits.
    """
    if not offsets and in_groups(writer, buffer, index):
        text, dims = _of_groups(writer, buffer, index)
    else:
        text, dims = offset(writer, index)
    parts = [writer.parameters[buffer], *([text] if text != "0" else [])]
    moved = {dim.name for dim in dims}.union(*(writer.along[each] for each in offsets))
    return " + ".join((*parts, *(f"v{each}" for each in offsets))), moved


def in_groups(writer: Writer, buffer: int, index: Index) -> bool:
    """Whether an access takes groups of 16 bytes of shifted columns (`alignment`)."""
    shift = writer.plan.shift
    return shift is not None and shift.fits(writer.plan, buffer, index)


def _of_groups(writer: Writer, buffer: int, index: Index) -> tuple[str, list[Dim]]:
    """As `offset`, for such an access, in a form from which Triton sees that groups are aligned."""
    columns = writer.plan.dims[-1]
    still = tuple(
        0 if axis in columns.axes else stride for axis, stride in enumerate(index.strides)
    )
    text, dims = offset(writer, Index(still, index.offset), whole=True)
    lanes = DIVISOR // writer.nest.buffers[buffer].dtype.itemsize
    first = f"({text} - {columns.name}_shift) // {lanes} * {lanes}"
    return f"{first} + {columns.name}_at", [*dims, columns]


def spread(writer: Writer, dims: set[str]) -> str:
    """Text that gives a pointer along the last dimension the shape of the whole tile.

    Otherwise its elements would be distributed over the threads in another way than the tile's, and
    would go through shared memory to each row.
    """
    last = writer.plan.dims[-1]
    missing = [dim for dim in writer.plan.dims[:-1] if dim.block > 1 and dim.name not in dims]
    if not writer.spreads or last.name not in dims:
        return ""
    return "".join(f" + 0 * {dim.name}" for dim in missing)


def inside(writer: Writer, value: Value) -> str:
    """The expression of an `inside` value."""
    asked = comparisons(writer, value)
    if asked is None:
        return const(False, torch.bool)
    parts = []
    for form, sign, bound in asked:
        place = offset(writer, form, whole=True)[0]
        parts.append(f"({place} {sign} {writer.numbers.text(bound)})")
    return " & ".join((*parts, *(f"v{arg}" for arg in value.args))) or const(True, torch.bool)


def comparisons(writer: Writer, value: Value) -> list[tuple[Index, str, Any]] | None:
    """The comparisons of an `inside` value, without those that the sizes alone prove. None: it
    never holds.
    """
    asked: list[tuple[Index, str, Any]] = []
    for form, low, high in value.attr:
        least, greatest = _ends(writer, form)
        if surely("<", greatest, low) or surely(">=", least, high):
            return None
        if not surely(">=", least, low):
            asked.append((form, ">=", low))
        if not surely("<", greatest, high):
            asked.append((form, "<", high))
    return asked


def _ends(writer: Writer, form: Index) -> tuple[Any, Any]:
    """The least and the greatest value of a form if all sizes are at least 1."""
    least = greatest = form.offset
    for size, stride in zip(writer.sizes, form.strides, strict=True):
        if surely(">=", stride, 0):
            greatest = greatest + stride * (size - 1)
        elif surely("<", stride, 0):
            least = least + stride * (size - 1)
        else:
            return -math.inf, math.inf
    return least, greatest


def checked(writer: Writer, number: int) -> str:
    """The statement that asserts a `checked` value's range, as eager's kernels do on a GPU."""
    value = writer.nest.values[number]
    (arg,), (low, high) = value.args, value.attr
    low, high = writer.numbers.text(low), writer.numbers.text(high)
    fine = f"(v{arg} >= {low}) & (v{arg} < {high})"
    there = present(writer, writer.along[number])
    return f'tl.device_assert({fine}, "index out of bounds"{there})'


def store(writer: Writer, one: Store, columns: str = "whole") -> str:
    """The statement of a store. A pointer has the shape of the stored value, also along dimensions
    of one element. `columns`: the mask of a store of groups of 16 bytes.
    """
    offsets = () if one.scatter is None else (one.scatter.offset,)
    pointer, moved = _pointer(writer, one.buffer, one.index, offsets)
    element = writer.level[one.value]
    wanted = [dim for dim in writer.plan.dims if dim.constant and (element or dim.name != "c")]
    still = [f" + 0 * {dim.name}" for dim in wanted if dim.name not in moved]
    moved = moved.union(dim.name for dim in wanted)
    team = writer.plan.team
    once = () if team is None or team.name in moved else ("(member == 0)",)
    grouped = not offsets and in_groups(writer, one.buffer, one.index)
    there = present(writer, moved, *once, columns=columns if grouped else "mask")
    form = "tl.store({0}, {1}{2})"
    if one.scatter is not None:
        form = scatter.form(one.scatter, writer.nest.values[one.value].dtype)
    name = writer.parameters[one.buffer]
    pointer = name + "".join(still) + pointer.removeprefix(name)
    return form.format(pointer, f"v{one.value}", there)
