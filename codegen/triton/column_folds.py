"""Column folds beside row folds on a GPU: programs that take many rows each, and keep sums of the
columns of their rows.

`split` turns a nest that also reduces over its rows (`Store.across`) into several: the rows, whose
programs store their sums, and one nest per sum that reduces those of all programs. `walk` writes
the loop of a program over its rows. The number of programs is that which a device holds at a time,
so the sums are few, and no atomic operation is needed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...ir.dataclass import dataclass
from ...ir.graph.layout import contiguous_strides
from ...ir.symbolic.expr import is_symbolic
from ..loops import loop_nest
from ..loops.loop_nest import Buffer, Index, LoopNest, Store, Value
from . import memory
from .dialect import TYPES
from .split_reduction import Between, Split
from .tiling import Dim, plan_of, resident, stages

if TYPE_CHECKING:
    from .body import Writer

NEIGHBOURS = 4  # float32 sums that a thread stores at a time


@dataclass(frozen=True, slots=True)
class _Sum:
    """One reduction over the rows: its store in the nest, and the buffer of the programs' sums."""

    store: Store
    between: Between
    place: int


def split(nest: LoopNest, multiprocessors: int) -> tuple[Split, int]:
    """The nests that replace this one, and the number of programs of the first."""
    plan = plan_of(nest, programs=1)
    rows = plan.dims[0]
    programs = resident(plan) * multiprocessors
    if not is_symbolic(rows.extent):  # later calls may have more rows than the first one
        programs = max(1, min(programs, -(-rows.extent // rows.block)))
    across = [store for store in nest.stores if store.across]
    sums = []
    for number, store in enumerate(across):
        between = Between(nest.values[store.value].dtype, programs * nest.columns)
        sums.append(_Sum(store, between, len(nest.buffers) + number))
    made = [_rows(nest, sums), *(_whole(nest, one, programs) for one in sums)]
    places = [_places(nest, sums), *((one.place, one.store.buffer) for one in sums)]
    return Split(tuple(made), tuple(one.between for one in sums), tuple(places)), programs


def _places(nest: LoopNest, sums: list[_Sum]) -> tuple[int, ...]:
    stored = {one.store.buffer for one in sums}
    kept = [number for number in range(len(nest.buffers)) if number not in stored]
    return (*kept, *(one.place for one in sums))


def _rows(nest: LoopNest, sums: list[_Sum]) -> LoopNest:
    """The nest with the sums of programs in place of those of all rows."""
    places = _places(nest, sums)
    buffers = [nest.buffers[place] for place in places[: len(places) - len(sums)]]
    buffers += [_between(one, written=True) for one in sums]
    position = {place: number for number, place in enumerate(places)}
    own = Index((*(0 for _ in nest.outer), *contiguous_strides(nest.inner)))
    partial = {one.store: replace(one.store, buffer=position[one.place], index=own) for one in sums}

    def loaded(value: Value) -> Value:
        if value.op not in loop_nest.LOADS:
            return value
        return replace(value, attr=(position[value.attr[0]], value.attr[1]))

    stores = [
        partial.get(store) or replace(store, buffer=position[store.buffer]) for store in nest.stores
    ]
    values = tuple(map(loaded, nest.values))
    return replace(nest, buffers=tuple(buffers), values=values, stores=tuple(stores))


def _between(one: _Sum, written: bool) -> Buffer:
    return Buffer("between", one.between.dtype, (one.between.size,), (1,), written)


def _whole(nest: LoopNest, one: _Sum, programs: int) -> LoopNest:
    """The sum over all programs."""
    outer, dtype = nest.inner, one.between.dtype
    buffers = (_between(one, written=False), nest.buffers[one.store.buffer])
    values = [
        Value("load", (), dtype, (0, Index((*contiguous_strides(outer), nest.columns)))),
        Value("reduce", (0,), dtype, "sum"),
    ]
    if buffers[1].dtype != dtype:
        values.append(Value("cast", (1,), buffers[1].dtype))
    along = one.store.index.strides[len(nest.outer) :]
    store = Store(1, Index((*along, 0), one.store.index.offset), len(values) - 1)
    name = f"{nest.name}_whole"
    return LoopNest(name, outer, (programs,), buffers, tuple(values), (store,), nest.covers)


# --- the text of the first nest ---


def walk(writer: Writer, rows: Dim) -> None:
    """A loop over the rows of a program. What is the same in all rows is computed before it."""
    nest, body = writer.nest, writer.body
    moves = loop_nest.moving(nest, range(len(nest.outer)))
    for number in range(len(nest.values)):
        if not moves[number]:
            writer.value(number)
    sums = [(f"acc{at}", store) for at, store in enumerate(nest.stores) if store.across]
    for acc, store in sums:
        kind = nest.values[store.value].dtype
        body.put(f"{acc} = tl.full({writer.plan.shape}, 0.0, {TYPES[kind][0]})")
    extent, block = writer.numbers.text(rows.extent), rows.constant
    steps = f"tl.program_id(0) * {block}, {extent}, {rows.shared} * {block}"
    with body.block(f"for start in tl.range({steps}, num_stages={stages(writer.plan)}):"):
        writer.place(rows, "start")
        for number in range(len(nest.values)):
            if moves[number]:
                writer.value(number)
        for store in nest.stores:
            if not store.across:
                body.put(memory.store(writer, store))
        for acc, store in sums:
            tile = f"v{store.value}"
            tile = f"tl.where(r_mask, {tile}, 0.0)" if rows.masked else tile
            body.put(f"{acc} = {acc} + {tile}")
    for acc, store in sums:
        _store(writer, acc, store)


def _store(writer: Writer, acc: str, store: Store) -> None:
    """Store the sums of a program, a row of their buffer."""
    columns = writer.plan.dims[-1]
    total = f"tl.sum({acc}, 0, keep_dims=True)"
    there = memory.present(writer, {"c"})
    place = f"tl.program_id(0) * {writer.numbers.text(columns.extent)} + c"
    writer.body.put(f"tl.store({writer.parameters[store.buffer]} + {place}, {total}{there})")
