"""Scatters in C++: stores at data-dependent positions. This file writes the initial content of the
buffer, the order of the elements and the store.

In: a kernel being written (`renderer.Kernel`) whose nest scatters. Elements go in the order of the
axes. Threads may share an axis if a result's position moves along it independently of the data: two
elements with different coordinates on it never have the same position. These are the leading axes,
or else the axis of the lanes. Otherwise one thread does all, as in eager.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ...ir.symbolic.expr import Expr, is_symbolic, product
from ..loops.loop_nest import Scatter, Store
from . import loads
from .loop_plan import PARALLEL_WORK

if TYPE_CHECKING:
    from .renderer import Kernel


def write(kernel: Kernel) -> None:
    """The initial content, and the loops."""
    for store in kernel.nest.stores:
        if store.scatter is not None:
            _begin(kernel, store, store.scatter)
    plan, sizes = kernel.plan, kernel.sizes
    rows = math.prod(sizes[axis] for axis in plan.rows)
    length = 1 if plan.vector is None else sizes[plan.vector]
    if kernel.parallel() is False:
        _in_order(kernel, "0", kernel.n(rows), rows, ("0", kernel.n(length)), length)
        return
    shared = 0
    while shared < len(plan.rows) and _is_disjoint(kernel, plan.rows[shared]):
        shared += 1
    if shared:
        parts = math.prod(sizes[axis] for axis in plan.rows[:shared])
        each = kernel.n(math.prod(sizes[axis] for axis in plan.rows[shared:]))
        ends = ("0", kernel.n(length))
        with kernel.each_item("part", parts):
            _in_order(kernel, f"part * {each}", f"(part + 1) * {each}", rows, ends, length)
    elif plan.vector is not None and _is_disjoint(kernel, plan.vector):
        _columns(kernel, rows, length)
    else:
        _in_order(kernel, "0", kernel.n(rows), rows, ("0", kernel.n(length)), length)


def _is_disjoint(kernel: Kernel, axis: int) -> bool:
    """Whether two elements with different coordinates on this axis never have the same position."""
    # an index moves only along an axis of its own dimension
    moves = (s.index.strides[axis] != 0 for s in kernel.nest.stores if s.scatter is not None)
    return all(moves)


def _columns(kernel: Kernel, rows: Any, length: Any) -> None:
    """Each thread takes its part of the axis of the lanes, down all rows."""
    work, lanes = kernel.work(), kernel.lanes
    enough = (
        f"threads > 1 && {kernel.n(work)} >= {PARALLEL_WORK}"
        if is_symbolic(work)
        else "threads > 1"
    )
    kernel.put(f"const i64_t parts = {enough} ? threads : 1;")
    step = f"({kernel.n(length)} + parts * {lanes} - 1) / (parts * {lanes}) * {lanes}"
    kernel.put(f"const i64_t step = {step};")
    kernel.put("#pragma omp parallel for num_threads(threads) schedule(static) if (parts > 1)")
    end = kernel.n(length)
    with kernel.loop("part", "parts"):
        kernel.part(f"part * step < {end} ? part * step : {end}", "step", end)
        _in_order(kernel, "0", kernel.n(rows), rows, ("from", "to"), length)


def _in_order(
    kernel: Kernel, first: str, last: str, rows: Any, ends: tuple[str, str], length: Any
) -> None:
    """Rows one after the other; of each row the elements between these ends."""
    if rows == 1:
        kernel.move_pointers()
        kernel.one_row(*ends, length)
        return
    with kernel.loop("item", last, first):
        kernel.coordinates("item")
        kernel.move_pointers()
        kernel.one_row(*ends, length)


def _begin(kernel: Kernel, store: Store, scatter: Scatter) -> None:
    """Write the initial content of the whole buffer: a constant, or a copy of a tensor with the
    same layout.
    """
    buffer, name = kernel.nest.buffers[store.buffer], f"b{store.buffer}"
    count = product(buffer.shape)
    if scatter.copied is not None:
        number, offset = scatter.copied
        at = f" + {kernel.n(offset)}" if offset else ""
        size = kernel.n(count * buffer.dtype.itemsize)
        kernel.put(f"copied({name}, b{number}{at}, {size}, threads);")
        return
    assert scatter.filled is not None
    value = kernel.nest.values[scatter.filled]
    if value.op == "const" and value.attr == 0 and math.copysign(1, value.attr) > 0:
        kernel.put(f"__builtin_memset({name}, 0, {kernel.n(count * buffer.dtype.itemsize)});")
        return
    with kernel.block("{", "}"):
        kernel.put(kernel.statement(scatter.filled, row=True))
        kernel.put(f"filled({name}, v{scatter.filled}, {kernel.n(count)});")


_MERGES = {
    "set": "replaced", "sum": "added", "prod": "multiplied", "max": "greatest", "min": "least",
}  # fmt: skip


def store(kernel: Kernel, one: Store, pointer: str, stride: Any) -> str:
    """The statement that stores a vector of elements. Lanes that may have the same position go one
    after the other.
    """
    assert one.scatter is not None
    place, value = one.scatter.offset, f"v{one.value}"
    merge = _MERGES[one.scatter.how]
    if stride == 1 and not kernel.along[place]:
        return f"merge<{merge}>({pointer} + {loads.one(kernel, place)}, {value}, n);"
    spread = f"splat<i64>(v{place})" if place in kernel.scalars else f"v{place}"
    if isinstance(stride, Expr) or stride:
        spread += f" + lanes<i64>(0) * {kernel.n(stride)}"
    return f"scatter<{merge}>({pointer}, {spread}, {value}, n);"
