"""Turned rows in C++: short rows are reduced W at a time. Their accumulators are transposed in
registers and added as vectors.

In: a kernel being written (`renderer.Kernel`) whose plan has `turned`. Out: lines, put to the
kernel. In a row of few vectors most of the time goes into the lane-by-lane reduction of the last
one, and into values of one row at a time. Here W rows leave one vector each. Halves of two vectors
are put together and combined: sixteen rows take fifteen combinations, not sixty-four, and the code
after it (a root, a store) has one row per lane. `loop_plan.short_rows` decides.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from ..loops import loop_nest
from .row_pass import PassWriter

if TYPE_CHECKING:
    from .renderer import Kernel

# operators of a row up to which the loop over rows is unrolled, if rows are read several times: the
# row stays in registers
CHEAP = 32


def write(kernel: Kernel) -> None:
    """All loops of the kernel."""
    plan, sizes = kernel.plan, kernel.sizes
    blocks = -(-sizes[plan.rows[-1]] // kernel.lanes)
    items = math.prod(sizes[axis] for axis in plan.rows[:-1]) * blocks
    with kernel.each_item("item", items):
        _item(kernel, blocks)


def _item(kernel: Kernel, blocks: Any) -> None:
    """W rows, or the rest of them."""
    put, axis = kernel.put, kernel.plan.rows[-1]
    rows = kernel.sizes[axis]
    whole = rows % kernel.lanes == 0
    others = math.prod(kernel.sizes[axis] for axis in kernel.plan.rows[:-1])
    first, rest = f"item % {kernel.n(blocks)}", f"item / {kernel.n(blocks)}"
    if _again(kernel, axis):
        first, rest = f"item / {kernel.n(others)}", f"item % {kernel.n(others)}"
    put(f"const i64_t first = {first if len(kernel.plan.rows) > 1 else 'item'} * W;")
    put("const int count = W;" if whole else f"const int count = {_left(kernel.n(rows))};")
    if len(kernel.plan.rows) > 1:
        kernel.coordinates(rest, last=-1)
    writer = PassWriter(kernel, kernel.passes[0], copies=_copies(kernel))
    for number in writer.one.folds:
        put(f"{writer.accumulator(number)[0]} t{number}[W];")
    _one_row(kernel, writer, axis)
    if _again(kernel, axis) and -(-kernel.sizes[-1] // kernel.lanes) * writer.cost <= CHEAP:
        put(f"#pragma GCC unroll {kernel.lanes}")
    put("for (int k = 0; k < count; ++k) row(first + k, k);")
    for number in writer.one.folds:
        kind, start = writer.accumulator(number)
        if not whole:
            put(f"for (int k = count; k < W; ++k) t{number}[k] = {start};")
        put(f"const {kind} v{number} = {writer.folded(number, 'fold_over', f't{number}')};")
    _behind(kernel, axis, whole)


def _again(kernel: Kernel, axis: int) -> bool:
    """Whether the same rows of elements are read for each of the other axes, as for all pairs.

    Such reads then follow each other while the data are in the cache.
    """
    moving = [
        [stride != 0 for stride in index.strides[:axis]]
        for _number, index in loop_nest.accesses(kernel.nest)
        if index.strides[axis] and kernel.nest.moves_inner(index)
    ]
    return axis > 0 and bool(moving) and not any(map(any, moving))


def _left(rows: str) -> str:
    return f"{rows} - first < W ? int({rows} - first) : W"


def _copies(kernel: Kernel) -> int:
    """The number of copies of an accumulator: one, because other rows run at the same time."""
    return kernel.nest.hints.unroll or 1


def _one_row(kernel: Kernel, writer: PassWriter, axis: int) -> None:
    """A lambda that computes the accumulators of one row."""
    with kernel.function("row", f"const i64_t x{axis}, const int k"):
        kernel.move_pointers()
        needed = loop_nest.needed(kernel.nest, kernel.roots(writer.one))
        kernel.declare([number for number in needed if not kernel.level[number]], row=True)
        writer.declare()
        length = kernel.sizes[-1]
        writer.row = "0", kernel.n(length), length
        writer.loops(*writer.row)
        for number in writer.one.folds:
            writer.join(number)
            kernel.put(f"t{number}[k] = a{number}_0;")


def _behind(kernel: Kernel, axis: int, whole: bool) -> None:
    """The row values after the reductions, and the stores, with one row per lane."""
    nest, put, plan = kernel.nest, kernel.put, kernel.plan
    kernel.pointers.clear()
    kernel.plan = plan.rows_in_lanes()
    kernel.along = loop_nest.moving(nest, [axis])
    if whole:
        put("const i64_t i = first;")
        put("constexpr full n{};")
    with nullcontext() if whole else kernel.function("behind", "const i64_t i, auto n"):
        kernel.move_pointers()
        folds = frozenset(kernel.passes[0].folds)
        roots = [store.value for store in nest.stores]
        kernel.declare(loop_nest.needed(nest, roots, folds), row=True)
        for store in nest.stores:
            kernel.store(store, row=True)
    if not whole:
        put("if (count == W) behind(first, full{});")
        put("else behind(first, count);")
    kernel.plan = plan
