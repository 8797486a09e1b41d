"""Squares in C++: W x W elements are loaded along one axis and transposed in registers, so that the
lanes run along another.

In: a kernel being written (`renderer.Kernel`) and its plan. Out: lines, put to the kernel.

- A nest without reductions has a `tile`: an axis along which some load is contiguous that is not
  contiguous along the lanes, like the transposed operand of a sum. The rows of a square then
  combine with the other operands as any vector; the rest at the edges is loaded lane by lane.
  `axis_for` chooses the axis, if there is one; `write_tiles` writes all loops.
- A nest with reductions has `squares`: its lanes are rows, and some loads or stores are contiguous
  along a row. The vectors of a transposed square are columns of W rows, one per lane. Stores across
  the lanes are collected and transposed back. This reduces short rows without moves between lanes;
  rows that are read in one order of memory and written in another access each line of it once.
  `pays` decides; `write` writes the loop over the columns of a pass.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..loops import loop_nest
from ..loops.extents import estimate, is_symbolic
from ..loops.loop_nest import Index, LoopNest, Store
from .dialect import register

if TYPE_CHECKING:
    from .renderer import Kernel
    from .row_pass import PassWriter

# columns between two rows of squares: cache lines that one row fetched are still in the cache for
# the next
CHUNK = 512
# vectors of a short row; in longer rows the lane-by-lane reduction of the last vector hardly counts
SHORT = 4
WRITTEN_OUT = 160  # operators of a square up to which its loop is unrolled
APART = frozenset(("load_if", "inside", "checked"))
APART_IN_ROWS = APART | {"scan", "index"}


def _crosses(index: Index, along: int, lanes: int) -> bool:
    """Whether the elements are contiguous along one axis and not along that of the lanes."""
    return index.strides[along] == 1 and index.strides[lanes] not in (0, 1, -1)


def has(nest: LoopNest, apart: frozenset[str]) -> bool:
    """Whether the nest has one of these operators or loads at positions from data."""
    return any(value.op in apart or (value.op == "load" and value.args) for value in nest.values)


def _crossed(kernel: Kernel, along: int) -> list[int]:
    """The loads that go by squares."""
    vector = kernel.plan.vector
    assert vector is not None
    return [
        number for number, value in enumerate(kernel.nest.values)
        if value.op == "load" and _crosses(value.attr[1], along, vector)
    ]  # fmt: skip


def _declare(kernel: Kernel, number: int, name: str) -> None:
    kernel.put(f"{register(kernel.nest.values[number].dtype)} {name}[W];")


def _load(kernel: Kernel, number: int, name: str, first: str, row: str, count: str) -> None:
    """Load a square and transpose it. `first`: of its columns, `row`: the text of row k."""
    start = _start(kernel, kernel.nest.values[number].attr, first, row)
    kernel.put(f"for (int k = 0; k < W; ++k) {name}[k] = ld({start}, {count});")
    kernel.put(f"turn_over({name});")


def _start(kernel: Kernel, key: tuple[int, Index], first: str, row: str) -> str:
    """The start of row k of the square."""
    assert kernel.plan.vector is not None
    stride = kernel.n(key[1].strides[kernel.plan.vector])
    return f"{kernel.pointers[key]} + {first} + ({row}) * {stride}"


# --- nests without reductions ---


def axis_for(nest: LoopNest, axes: list[int], lanes: int) -> int | None:
    """The axis along which most loads are contiguous, of those that are not contiguous along the
    last axis.
    """
    sizes, last = nest.outer + nest.inner, axes[-1]
    if lanes < 4 or estimate(sizes[last]) < lanes or has(nest, APART):
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


def write_tiles(kernel: Kernel) -> None:
    """All loops of the kernel."""
    plan, sizes = kernel.plan, kernel.sizes
    assert plan.tile is not None and plan.vector is not None
    chunk = kernel.nest.hints.chunk or CHUNK
    blocks, chunks = -(-sizes[plan.tile] // kernel.lanes), -(-sizes[plan.vector] // chunk)
    items = math.prod(sizes[axis] for axis in plan.rows) * blocks * chunks
    with kernel.each_item("item", items):
        _tile(kernel, plan.tile, plan.vector, blocks, chunks, chunk)


def _tile(kernel: Kernel, tile: int, vector: int, blocks: Any, chunks: Any, chunk: int) -> None:
    """W rows of a chunk of columns."""
    put, n = kernel.put, kernel.n
    rows, columns = (n(kernel.sizes[axis]) for axis in (tile, vector))
    kernel.part(f"item / {n(blocks)} % {n(chunks)} * {chunk}", chunk, columns)
    put(f"const i64_t first = item % {n(blocks)} * W;")
    put(f"const int count = {rows} - first < W ? int({rows} - first) : W;")
    kernel.coordinates(f"item / {n(blocks * chunks)}")
    kernel.move_pointers()
    crossed = _crossed(kernel, tile)
    for number in crossed:
        _declare(kernel, number, f"t{number}")
    of_square = {number: f"t{number}[x{tile} - first]" for number in crossed}
    for name, lanes, registers in (("plain", "auto n", {}), ("square", "const full n", of_square)):
        with kernel.function(name, f"const i64_t x{tile}, const i64_t i, {lanes}"):
            roots = [store.value for store in kernel.nest.stores]
            kernel.declare(loop_nest.needed(kernel.nest, roots), registers)
            for store in kernel.nest.stores:
                kernel.store(store)
    put("i64_t at = from;")
    with kernel.block("if (count == W) for (; at + W <= to; at += W) {", "}"):
        for number in crossed:
            _load(kernel, number, f"t{number}", "first", "at + k", "full{}")
        put("for (int k = 0; k < W; ++k) square(first + k, at, full{});")
    with kernel.block("for (int k = 0; k < count; ++k) {", "}"):
        put("i64_t i = at;")
        put("for (; i + W <= to; i += W) plain(first + k, i, full{});")
        put("if (i < to) plain(first + k, i, int(to - i));")


# --- nests with reductions ---


def pays(nest: LoopNest, lanes: int) -> bool:
    """Whether the nest has rows of known length along one axis, all read and written along rows or
    along columns, that are short or accessed in both ways.
    """
    if not nest.outer or len(nest.inner) != 1 or not 4 <= lanes <= 16:
        return False
    columns, row = nest.inner[0], len(nest.outer) - 1
    if is_symbolic(columns) or columns < lanes or estimate(nest.outer[row]) < lanes:
        return False
    if has(nest, APART_IN_ROWS):
        return False
    met = [index for index in loop_nest.indices(nest) if nest.moves_inner(index)]
    across = [index for index in met if _crosses(index, row + 1, row)]
    along = [index for index in met if index.strides[row] == 1]
    if not across or not all(index in across or index.strides[row] in (0, 1) for index in met):
        return False
    return bool(along) or columns <= SHORT * lanes


def write(writer: PassWriter, last: str, blocked: bool) -> None:
    """The columns from `at` on by squares, if all lanes are rows; the plain loop does the rest."""
    kernel, column = writer.kernel, len(writer.nest.outer)
    assert kernel.plan.vector is not None
    body = writer.one.body
    loads = {n: f"t{n}_" for n in _crossed(kernel, column) if n in body}
    crossed = [s for s in writer.one.stores if _crosses(s.index, column, kernel.plan.vector)]
    stores = {store: f"s{place}_" for place, store in enumerate(crossed)}
    if not loads and not stores:
        return
    with kernel.block("if constexpr (__is_same(decltype(n), full)) {", "}"):
        for number, name in loads.items():
            _declare(kernel, number, name)
        for store, name in stores.items():
            _declare(kernel, store.value, name)
        loaded = {number: f"{name}[k]" for number, name in loads.items()}
        stored = {store: f"{name}[k]" for store, name in stores.items()}
        writer.body("square", ", const int k", f"x{writer.plan.folds[-1]}", loaded, stored)
        with kernel.block(f"for (; at + W <= {last}; at += W) {{", "}"):
            _one_square(writer, loads, stores, blocked)


def _one_square(
    writer: PassWriter, loads: dict[int, str], stores: dict[Store, str], blocked: bool
) -> None:
    """Load and transpose a square, take its columns, transpose back and store."""
    kernel, put = writer.kernel, writer.put
    for number, name in loads.items():
        _load(kernel, number, name, "at", "i + k", "n")
    copies = min(writer.unroll, kernel.lanes)
    if writer.cost * kernel.lanes <= WRITTEN_OUT:
        put(f"#pragma GCC unroll {kernel.lanes}")
    with kernel.block(f"for (int k = 0; k < W; k += {copies}) {{", "}"):
        for copy in range(copies):
            put(f"square(at + k + {copy}, k + {copy}{writer.names(copy, blocked)});")
    for store, name in stores.items():
        put(f"turn_over({name});")
        start = _start(kernel, (store.buffer, store.index), "at", "i + k")
        put(f"for (int k = 0; k < W; ++k) st({start}, {name}[k], n);")
