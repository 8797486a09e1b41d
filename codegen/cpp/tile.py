"""Tiles in C++: loads across the lanes by squares of W x W elements that are transposed in
registers.

In: a kernel being written (`renderer.Kernel`) whose plan has a `tile`: some load is contiguous
along that axis and not along the lanes, like the transposed operand of a sum. Out: lines, put to
the kernel. A square is loaded by vectors along the tile's axis and transposed; its rows then
combine with the other operands as any vector. The rest at the edges is loaded lane by lane.
`axis_for` chooses the axis, if there is one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..loops import loop_nest
from ..loops.extents import estimate
from ..loops.loop_nest import LoopNest
from .dialect import register

if TYPE_CHECKING:
    from .renderer import Kernel

# columns between two rows of squares: cache lines that one row fetched are still in the cache for
# the next
CHUNK = 512
PLAIN = frozenset(("load_if", "inside", "checked"))


def axis_for(nest: LoopNest, axes: list[int], lanes: int) -> int | None:
    """The axis along which most loads are contiguous, of those that are not contiguous along the
    last axis.
    """
    sizes, last = nest.outer + nest.inner, axes[-1]
    if lanes < 4 or estimate(sizes[last]) < lanes:
        return None
    if any(value.op in PLAIN or (value.op == "load" and value.args) for value in nest.values):
        return None
    found = [
        axis
        for axis in axes[:-1]
        for value in nest.values
        if value.op == "load"
        and _crosses(value.attr[1], axis, last)
        and estimate(sizes[axis]) >= lanes
    ]
    return max(found, key=found.count, default=None)


def _crosses(index: loop_nest.Index, axis: int, last: int) -> bool:
    return index.strides[axis] == 1 and index.strides[last] not in (0, 1, -1)


def write(kernel: Kernel) -> None:
    """All loops of the kernel."""
    plan, sizes = kernel.plan, kernel.sizes
    assert plan.tile is not None and plan.vector is not None
    chunk = kernel.nest.hints.chunk or CHUNK
    blocks, chunks = -(-sizes[plan.tile] // kernel.lanes), -(-sizes[plan.vector] // chunk)
    items = math.prod(sizes[axis] for axis in plan.rows) * blocks * chunks
    kernel.each_item("item", items, lambda: _item(kernel, blocks, chunks, chunk))


def _item(kernel: Kernel, blocks: Any, chunks: Any, chunk: int) -> None:
    """W rows of a chunk of columns."""
    plan, put, n = kernel.plan, kernel.put, kernel.n
    rows, columns = (n(kernel.sizes[axis]) for axis in (plan.tile, plan.vector))  # type: ignore[index]
    put(f"const i64_t from = item / {n(blocks)} % {n(chunks)} * {chunk};")
    put(f"const i64_t to = from + {chunk} < {columns} ? from + {chunk} : {columns};")
    put(f"const i64_t first = item % {n(blocks)} * W;")
    put(f"const int count = {rows} - first < W ? int({rows} - first) : W;")
    kernel._coordinates(f"item / {n(blocks * chunks)}")
    kernel._pointers()
    crossed = [
        number
        for number, value in enumerate(kernel.nest.values)
        if value.op == "load" and _crosses(value.attr[1], plan.tile, plan.vector)  # type: ignore[arg-type]
    ]
    for number in crossed:
        put(f"{register(kernel.nest.values[number].dtype)} t{number}[W];")
    _body(kernel, f"plain = [&](const i64_t x{plan.tile}, const i64_t i, auto n)", [])
    _body(kernel, f"square = [&](const i64_t x{plan.tile}, const i64_t i, const full n)", crossed)
    put("i64_t at = from;")
    put("if (count == W) for (; at + W <= to; at += W) {")
    for number in crossed:
        key = kernel.nest.values[number].attr
        stride = n(key[1].strides[plan.vector])
        start = f"{kernel.pointers[key]} + first + (at + k) * {stride}"
        put(f"  for (int k = 0; k < W; ++k) t{number}[k] = ld({start}, full{{}});")
        put(f"  turn_over(t{number});")
    put("  for (int k = 0; k < W; ++k) square(first + k, at, full{});")
    put("}")
    put("for (int k = 0; k < count; ++k) {")
    put("  i64_t i = at;")
    put("  for (; i + W <= to; i += W) plain(first + k, i, full{});")
    put("  if (i < to) plain(first + k, i, int(to - i));")
    put("}")


def _body(kernel: Kernel, head: str, turned: list[int]) -> None:
    """A lambda for one vector of one row; `turned`: loads that are rows of a square."""
    put = kernel.put
    put(f"auto {head} __attribute__((always_inline)) {{")
    kernel.depth += 1
    for number in loop_nest.needed(kernel.nest, [store.value for store in kernel.nest.stores]):
        if number in turned:
            kind = register(kernel.nest.values[number].dtype)
            put(f"const {kind} v{number} = t{number}[x{kernel.plan.tile} - first];")
        else:
            put(kernel._statement(number))
    for store in kernel.nest.stores:
        kernel._store(store)
    kernel.depth -= 1
    put("};")
