"""The loop plan: how a nest becomes loops in C++. It chooses the axis of the lanes, what threads
share, and the work of each pass.

In: a LoopNest and the number of lanes. Out: a `Plan`, for `renderer` (the kernel) and `row_pass`
(one pass over a row).
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ...ir.dataclass import dataclass, field
from ..loops import loop_nest
from ..loops.extents import estimate, is_symbolic, surely
from ..loops.loop_nest import LoopNest, Value
from . import squares
from .dialect import WIDTH, register

PARALLEL_WORK = 32768  # light element operations below which one thread is faster
CHUNK = 8192  # elements of a long axis that a thread takes at a time
SPLIT_COLUMNS = 65536  # from this length on threads share a row, if there are too few rows
SPLIT_PARTS = 1024  # the most parts of such a row
SUM_BLOCK = 32  # additions after which a float accumulator is flushed into a second one
# bytes of stack for values that are kept from one pass over a row to the next
ROW_BUFFER_BYTES = 65536
KEPT_ON_STACK = 2048  # elements of a kept value on the stack, if the row's length is unknown
GROUPS = 8  # vectors of rows that go down the columns together
MANY_ROWS = 1024  # from this many vectors of rows on, GROUPS may be doubled
STRIP = 512  # elements at a time of an axis that is not contiguous in memory
CACHE_LINE, CACHE_PERIOD, CACHE_WAYS = 64, 4096, 8  # bytes, bytes, number: of a first-level cache
# Rows up to this length are taken several at a time, if that leaves this many items to share.
SHORT_ROW, MANY_ITEMS = 1024, 64
# The most vectors of a row that is reduced beside other rows; in longer rows the reduction of the
# last vector hardly counts.
SHORT_VECTORS = 16
KEEP_COST = 8  # flops up to which a value is computed again instead of kept

BYTES = frozenset((torch.bool, torch.uint8, torch.int8))
# the operators that math.h has for masks of one byte per lane
_BYTE_OPS = frozenset((
    "load", "const", "number", "cast", "reduce", "and", "or", "xor", "not", "eq", "ne", "lt", "le",
    "gt", "ge", "where", "add", "sub", "mul", "neg", "maximum", "minimum",
))  # fmt: skip


def of_bytes(nest: LoopNest) -> bool:
    """Whether each value of the nest is a byte. Then a bool is a mask of one byte per lane too, not
    of four.
    """
    plain = nest.tiled is None and not nest.scatters
    return plain and all(
        value.op in _BYTE_OPS and value.dtype in BYTES and not (value.op == "load" and value.args)
        for value in nest.values
    )


def lane_count(nest: LoopNest, vector_bytes: int) -> int:
    """The number of lanes: the widest register type of the nest fills one hardware vector.

    There are fewer lanes if there are fewer elements (a product with one row), and for bytes that
    are loaded one by one or transposed.
    """
    if of_bytes(nest):
        lanes = _fewer(nest, vector_bytes)
        plan = make_plan(nest, lanes)
        apart = plan.vector is not None and any(
            index.strides[plan.vector] not in (0, 1) for index in loop_nest.indices(nest)
        )
        return _fewer(nest, vector_bytes // 4) if apart else lanes
    axes = range(len(nest.outer) + len(nest.inner))
    moves = loop_nest.levels(nest) if nest.has_reduction else loop_nest.moving(nest, axes[-1:])
    # values that do not differ along the lanes are computed once per row and may take several
    # vectors
    counted = (
        value for value, along in zip(nest.values, moves, strict=True)
        if (along or value.op == "reduce" or not any(moves)) and value.op != "inside"
    )  # fmt: skip
    widest = max((_width(nest, value) for value in counted), default=4)
    return _fewer(nest, max(vector_bytes // max(widest, 4), 2))


def _fewer(nest: LoopNest, lanes: int) -> int:
    """At most the number of elements in a row, rounded up to a power of two."""
    while not nest.has_reduction and lanes > 4 and surely("<=", nest.columns, lanes // 2):
        lanes //= 2
    return lanes


def _width(nest: LoopNest, value: Value) -> int:
    if value.op == "cast" and value.dtype == torch.uint8:
        return 8 if nest.values[value.args[0]].dtype.is_floating_point else 4
    if value.op == "reduce":  # a position is computed once per row
        return WIDTH[register(nest.values[value.args[0]].dtype)]
    return WIDTH[register(value.dtype)]


@dataclass(slots=True)
class Plan:
    """The kind of loop for each axis. Axis numbers are the nest's.

    rows            looped outside, in parallel; one iteration per combination
    folds           looped inside a row by each pass, one after the other (without reductions:
                    short rows, several per item)
    vector          the axis of the lanes (None: the nest has no axes)
    lanes_are_rows  the vector axis is an outer one: each lane is a row of its own
    split           threads share the columns of one row
    """

    rows: list[int]
    folds: list[int]
    vector: int | None
    lanes_are_rows: bool = False
    split: bool = False
    chunk: int = 0  # elements of the vector axis per item; 0: all of them
    chunk_major: bool = False
    groups: int = 1  # vectors of rows side by side, where lanes are rows
    # the axis along which loads are contiguous whose squares are transposed (`squares`)
    tile: int | None = None
    squares: bool = False  # lanes are rows that follow each other in memory (`squares`)
    turned: bool = False  # as many rows as there are lanes are reduced together (`turn`)

    def rows_in_lanes(self) -> Plan:
        """The plan for the code after such a reduction of rows: each row has a lane."""
        return Plan(self.rows[:-1], [], self.rows[-1], lanes_are_rows=True)

    def side_by_side(self, most: int, sizes: tuple[Any, ...], lanes: int) -> None:
        """Take as many vectors of rows at a time as there are, at most `most` (a power of two)."""
        assert self.vector is not None
        rows = estimate(sizes[self.vector])
        while self.groups < most and lanes * self.groups * 2 <= rows:
            self.groups *= 2
        together = lanes * self.groups
        if self.groups > 1:
            self.chunk = max(together, self.chunk // together * together)


def make_plan(nest: LoopNest, lanes: int) -> Plan:
    outer = list(range(len(nest.outer)))
    inner = list(range(len(nest.outer), len(nest.outer) + len(nest.inner)))
    sizes = nest.outer + nest.inner
    if not nest.has_reduction:
        axes = outer + inner
        if not axes:
            return Plan([], [], None)
        if nest.tiled is not None or nest.scatters:  # in the order of the axes
            return Plan(axes[:-1], [], axes[-1])
        tile = squares.axis_for(nest, axes, lanes)
        if tile is not None:
            return Plan([axis for axis in axes[:-1] if axis != tile], [tile], axes[-1], tile=tile)
        plan = Plan(axes[:-1], [], axes[-1])
        strided = any(
            index.strides[axes[-1]] not in (0, 1, -1) for index in loop_nest.indices(nest)
        )
        if strided and len(axes) > 1:
            plan.chunk, plan.chunk_major = nest.hints.chunk or _strip(nest, axes[-1], lanes), True
        elif is_symbolic(sizes[axes[-1]]) or sizes[axes[-1]] >= 2 * CHUNK:
            plan.chunk = nest.hints.chunk or CHUNK
        elif (
            len(axes) > 2
            and sizes[axes[-1]] <= SHORT_ROW
            and _items(sizes, axes[:-2]) >= MANY_ITEMS
        ):
            plan.folds.append(plan.rows.pop())
        return plan
    turned = short_rows(nest, lanes)
    by_squares = not turned and squares.pays(nest, lanes)
    if outer and (by_squares or _rows_in_lanes(nest, lanes)):
        plan = Plan(outer[:-1], inner, outer[-1], lanes_are_rows=True, squares=by_squares)
        columns = max(estimate(nest.columns), 1)
        plan.chunk = nest.hints.chunk or max(
            lanes * 4, min(CHUNK, PARALLEL_WORK // columns // lanes * lanes)
        )
        return plan
    plan = Plan(outer, inner[:-1], inner[-1] if inner else None)
    long = is_symbolic(nest.columns) or nest.columns >= SPLIT_COLUMNS
    # a scan goes one element after the other
    scans = any(value.op == "scan" for value in nest.values)
    plan.turned = turned
    plan.split = len(inner) == 1 and surely("<", nest.rows, 4) and long and not scans
    return plan


def short_rows(nest: LoopNest, lanes: int) -> bool:
    """Whether the nest is one pass along one reduced axis, with only row values after it, of known
    sizes.
    """
    if len(nest.inner) != 1 or not nest.outer or not 4 <= lanes <= 16:
        return False
    columns = nest.inner[0]
    if is_symbolic((nest.outer, columns)) or not lanes <= columns <= SHORT_VECTORS * lanes:
        return False
    if nest.outer[-1] < lanes or max(loop_nest.phases(nest)) != 1:
        return False
    if any(nest.moves_inner(store.index) for store in nest.stores):
        return False
    places = any(v.op == "reduce" and v.attr in loop_nest.PLACES for v in nest.values)
    return not places and not squares.has(nest, squares.APART_IN_ROWS)


def _items(sizes: tuple[Any, ...], axes: list[int]) -> int:
    return math.prod(estimate(sizes[axis]) for axis in axes)


def _strip(nest: LoopNest, axis: int, lanes: int) -> int:
    """Elements at a time of an axis that is not contiguous in memory.

    Each element is in a cache line of its own, which must stay in the first-level cache for the
    neighbours in the next row. Lines whose distance is a large power of two share few sets of the
    cache.
    """
    found = STRIP
    for number, index in loop_nest.accesses(nest):
        stride = index.strides[axis]
        if is_symbolic(stride) or stride in (0, 1, -1):
            continue
        nbytes = abs(stride) * nest.buffers[number].dtype.itemsize
        sets = min(CACHE_PERIOD // math.gcd(nbytes, CACHE_PERIOD), CACHE_PERIOD // CACHE_LINE)
        found = min(found, sets * CACHE_WAYS)
    return max(found, lanes)


def _rows_in_lanes(nest: LoopNest, lanes: int) -> bool:
    """Whether the last outer axis is better for the lanes than the last inner one."""
    last_outer, last = len(nest.outer) - 1, len(nest.outer) + len(nest.inner) - 1
    rows = estimate(nest.outer[last_outer])
    if nest.inner and estimate(nest.inner[-1]) >= lanes:
        across, along = _scattered(nest, last_outer), _scattered(nest, last)
        return across < along and rows >= lanes
    return rows >= 2 * lanes


def _scattered(nest: LoopNest, axis: int) -> int:
    """The number of accesses per element that go lane by lane if the lanes run along this axis:
    neither contiguous nor all at the same address.
    """
    moves = loop_nest.moving(nest, (axis,))
    loads = [
        (value.attr[1], any(moves[arg] for arg in value.args[2 * (value.op == "load_if") :]))
        for value in nest.values
        if value.op in loop_nest.LOADS
    ]
    reached = loads + [(store.index, False) for store in nest.stores]
    return sum(
        moved or index.strides[axis] not in (0, 1, -1)
        for index, moved in reached
        if nest.moves_inner(index) or moved
    )


@dataclass(slots=True)
class Pass:
    """One pass over the row: the values to compute for an element, to reduce, to store and
    to keep.
    """

    phase: int
    folds: list[int] = field(default_factory=list)  # reduce values
    stores: list[loop_nest.Store] = field(default_factory=list)
    body: list[int] = field(default_factory=list)
    keeps: list[int] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        return not (self.folds or self.stores)
