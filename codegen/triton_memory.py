"""Memory in Triton kernels: where a tensor's elements are, and the lines that load and store them.

In: the kernel being written (`triton_nest.Writer`) and a load, an index or a store of its nest. Out: text. A
pointer moves along the dimensions of the axes in its index, and takes their masks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from . import loops
from .loops import Index, LoopNest, Store, Value

if TYPE_CHECKING:
    from .triton_nest import Writer
    from .triton_tiles import Dim


def reach(nest: LoopNest, dims: Sequence[Dim]) -> int:
    """The largest number that occurs when an offset is computed, masked elements included."""
    sizes = dict(enumerate(nest.outer + nest.inner))
    flat = max((dim.extent + dim.block for dim in dims), default=0)
    # The first axis of a dimension may run past its size in masked elements.
    for dim in dims:
        if dim.axes:
            below = math.prod(sizes[axis] for axis in dim.axes[1:])
            sizes[dim.axes[0]] = -(-(dim.extent + dim.block) // max(1, below))
    offsets = [
        abs(index.offset) + sum(abs(s) * sizes[axis] for axis, s in enumerate(index.strides))
        for index in loops.indices(nest)
    ]
    return max([flat, *offsets])


def offset(writer: Writer, index: Index) -> tuple[str, list[Dim]]:
    """The text of an affine form, and the dimensions along which it moves."""
    steps: list[tuple[int, str]] = []
    for dim in writer.plan.dims:
        stride = straight(index, dim, writer.sizes)
        if stride is None:
            steps += [(index.strides[axis], writer.axis_name.get(axis, "")) for axis in dim.axes]
        else:
            steps.append((stride, dim.name))
    terms = [name if stride == 1 else f"{stride} * {name}" for stride, name in steps if stride]
    moved = {writer.dim_of[axis].name for axis, stride in enumerate(index.strides) if stride}
    if index.offset or not terms:
        terms.append(str(index.offset))
    return " + ".join(terms), [dim for dim in writer.plan.dims if dim.name in moved]


def straight(index: Index, dim: Dim, sizes: Sequence[int]) -> int | None:
    """The one stride with which an index walks all axes of a dimension in order, if it does."""
    stride = index.strides[dim.axes[-1]] if dim.axes else 0
    below = stride
    for axis in reversed(dim.axes):
        if index.strides[axis] != below:
            return None
        below *= sizes[axis]
    return stride


def mask(dims: Iterable[Dim]) -> str:
    """The argument that keeps a load or store to elements that are there."""
    masks = [f"{dim.name}_mask" for dim in dims if dim.masked]
    return ", mask=" + " & ".join(masks) if masks else ""


def position(writer: Writer, value: Value) -> str:
    """The expression of an `index` value."""
    text, dims = offset(writer, value.attr)
    return f"({text}).to(tl.int64)" if dims else f"tl.full((), {text}, tl.int64)"


def load(writer: Writer, value: Value) -> str:
    """The expression of a `load` value."""
    buffer, index = value.attr
    text, dims = offset(writer, index)
    pointer = writer.parameters[buffer] + ("" if text == "0" else f" + {text}")
    return f"tl.load({pointer}{mask(dims)})"


def store(writer: Writer, one: Store) -> str:
    """The statement of a store."""
    text, dims = offset(writer, one.index)
    # A pointer has the shape of what it stores, also along dimensions of one element.
    element = not writer.nest.has_reduction or writer.level[one.value]
    wanted = [dim for dim in writer.plan.dims if dim.constant and (element or dim.name != "c")]
    still = [dim for dim in wanted if dim not in dims]
    moved = [dim for dim in writer.plan.dims if dim in dims or dim in still]
    pointer = " + ".join([writer.parameters[one.buffer], *(f"0 * {dim.name}" for dim in still)])
    pointer += "" if text == "0" and still else f" + {text}"
    return f"tl.store({pointer}, v{one.value}{mask(moved)})"
