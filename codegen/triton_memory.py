"""Memory in Triton kernels: where a tensor's elements are, and the lines that load and store them.

In: the kernel being written (`triton_nest.Writer`) and a load, an index or a store of its nest. Out: text. A
pointer moves along the dimensions of the axes in its index, and takes their masks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..ir.symbols import Expr, is_symbolic, product
from .loops import Index, Store, Value
from .triton_dialect import TYPES
from .triton_numbers import INT32, kind_of, most

if TYPE_CHECKING:
    from .triton_nest import Writer
    from .triton_tiles import Dim


def offset(writer: Writer, index: Index, whole: bool = False) -> tuple[str, list[Dim]]:
    """The text of an affine form, and the dimensions along which it moves.

    A term is computed in 64 bits where it may need them. Terms are added to a pointer one after the other; `whole`:
    they are added to each other, and their sum must be right as well.
    """
    steps: list[tuple[Any, str, bool, float]] = []  # stride, variable, is it wide, how far it goes
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
            wide = wide or kind_of(stride) == "i64"  # and so is the product
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
    if axis == dim.axes[0]:  # it may run past its size in masked elements
        below = product(writer.sizes[other] for other in dim.axes[1:])
        far += dim.block if is_symbolic(below) else dim.block // max(1, below) + 1
    return index.strides[axis], writer.axis_name.get(axis, ""), dim.wide, far


def furthest(dim: Dim) -> float:
    """What a dimension's variable stays below, masked elements included."""
    return most(dim.extent + dim.block)


def straight(index: Index, dim: Dim, sizes: Sequence[Any]) -> Any:
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
    text, dims = offset(writer, value.attr, whole=True)
    kind = TYPES[value.dtype][0]
    if dims:
        return f"({text}).to({kind})"
    return writer.numbers.scalar(value.attr.offset, value.dtype)


def load(writer: Writer, value: Value) -> str:
    """The expression of a `load` value."""
    buffer, index = value.attr
    text, dims = offset(writer, index)
    pointer = writer.parameters[buffer] + ("" if text == "0" else f" + {text}")
    return f"tl.load({pointer}{spread(writer, dims)}{mask(dims)})"


def spread(writer: Writer, dims: Sequence[Dim]) -> str:
    """What gives a pointer along the last dimension the shape of the whole tile. Its elements would be spread over the
    threads otherwise than the tile's, and go through shared memory to be what each row needs."""
    last = writer.plan.dims[-1]
    missing = [dim for dim in writer.plan.dims[:-1] if dim.block > 1 and dim not in dims]
    if not writer.spreads or last not in dims:
        return ""
    return "".join(f" + 0 * {dim.name}" for dim in missing)


def store(writer: Writer, one: Store) -> str:
    """The statement of a store."""
    text, dims = offset(writer, one.index)
    # A pointer has the shape of what it stores, also along dimensions of one element.
    element = writer.level[one.value]
    wanted = [dim for dim in writer.plan.dims if dim.constant and (element or dim.name != "c")]
    still = [dim for dim in wanted if dim not in dims]
    moved = [dim for dim in writer.plan.dims if dim in dims or dim in still]
    pointer = " + ".join([writer.parameters[one.buffer], *(f"0 * {dim.name}" for dim in still)])
    pointer += "" if text == "0" and still else f" + {text}"
    return f"tl.store({pointer}, v{one.value}{mask(moved)})"
