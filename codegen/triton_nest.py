"""The body of a Triton kernel: how a loop nest is cut into tiles, and the lines that compute one tile.

`plan_of` chooses the tile: a line of elements (pointwise), a square over two axes (transposes), or rows by
columns (reductions). `body_of` writes the lines. Every axis of the nest gets an index variable from its
dimension of the tile, so strides, broadcasts and masks fall out of one rule: a pointer moves along the
dimensions of the axes in its index, and takes their masks. Called by `codegen.triton`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch

from ..ir.dataclass import dataclass, field
from . import expr, loops, triton_memory
from .loops import LoopNest
from .triton_dialect import DIALECT, TYPES, fold_of, identity

LINE = 1024  # elements of a pointwise tile
SQUARE = 32  # side of a tile for transposes
COLUMN_BLOCK = 1024  # of long rows that lie side by side
STRIDED_BLOCK = 64  # of the folded axis where its elements lie apart
TILE = 1024  # elements of a tile of short rows


@dataclass(frozen=True, slots=True)
class Dim:
    """A dimension of the tile: variable `name`, over the axes it walks in row-major order.

    block    elements of it in a tile; 1 with an empty `constant`: a plain number a program
    view     how its range is placed among the tile's dimensions
    looped   one program walks all of it
    """

    name: str
    axes: tuple[int, ...]
    extent: int
    block: int
    constant: str = ""
    view: str = ""
    looped: bool = False

    @property
    def masked(self) -> bool:
        return bool(self.constant) and (self.extent == 0 or self.extent % self.block != 0)

    @property
    def programs(self) -> int:
        return 1 if self.looped else max(1, -(-self.extent // self.block))


@dataclass(frozen=True, slots=True)
class Plan:
    """A nest (collapsed) and its tile. `dims`: the slowest first; `wide`: offsets need 64 bits."""

    nest: LoopNest
    dims: tuple[Dim, ...]
    warps: int
    wide: bool

    @property
    def constants(self) -> dict[str, int]:
        return {dim.constant: dim.block for dim in self.dims if dim.constant}

    @property
    def programs(self) -> int:
        return math.prod(dim.programs for dim in self.dims)

    @property
    def shape(self) -> str:
        return "(" + ", ".join(dim.constant for dim in self.dims if dim.constant) + ")"


@dataclass(slots=True)
class Body:
    """Lines of text, not yet indented below the function's head."""

    lines: list[str] = field(default_factory=list)
    depth: int = 0

    def add(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)


def plan_of(nest: LoopNest, persistent_limit: int) -> Plan:
    """One heuristic choice of tile a nest."""
    nest = loops.collapse(nest)
    if nest.has_reduction or nest.outer:
        dims = _rows_by_columns(nest, persistent_limit)
    else:
        dims = _square(nest) or (_dim("x", nest, range(len(nest.inner)), LINE),)
    tile = math.prod(dim.block for dim in dims)
    warps = min(8, max(1, _power(tile // 256)))
    return Plan(nest, dims, warps, triton_memory.reach(nest, dims) >= 2**31)


def _dim(name: str, nest: LoopNest, axes: Iterable[int], limit: int, view: str = "") -> Dim:
    axes = tuple(axes)
    sizes = nest.outer + nest.inner
    extent = math.prod(sizes[axis] for axis in axes)
    return Dim(name, axes, extent, min(limit, _power(extent)), f"{name.upper()}BLOCK", view)


def _rows_by_columns(nest: LoopNest, persistent_limit: int) -> tuple[Dim, ...]:
    n_outer = len(nest.outer)
    side_by_side = _side_by_side(nest)
    limit = persistent_limit if side_by_side else STRIDED_BLOCK
    columns = _dim("c", nest, range(n_outer, n_outer + len(nest.inner)), limit, "[None, :]")
    if columns.extent > columns.block:
        block = COLUMN_BLOCK if side_by_side else STRIDED_BLOCK
        columns = Dim("c", columns.axes, columns.extent, block, "CBLOCK", "[None, :]", looped=True)
    rows = _dim("r", nest, range(n_outer), max(1, TILE // columns.block), "[:, None]")
    return rows, columns


def _side_by_side(nest: LoopNest) -> bool:
    """Do the elements of a row lie next to each other in every tensor that is read along it?"""
    if not nest.inner or not nest.outer:
        return True
    steps = [index.strides[-1] for index in loops.indices(nest) if nest.moves_inner(index)]
    return not steps or min(abs(step) for step in steps) <= 1


def _square(nest: LoopNest) -> tuple[Dim, ...] | None:
    """Dimensions for a nest that reads along one axis and writes along another, else None."""
    last = len(nest.inner) - 1
    for index in loops.indices(nest):
        for axis in range(last):
            apart = index.strides[last] not in (0, 1)
            if apart and index.strides[axis] == 1 and min(nest.inner[axis], nest.inner[last]) >= 8:
                rest = tuple(other for other in range(last) if other != axis)
                extent = math.prod(nest.inner[other] for other in rest)
                batch = (Dim("z", rest, extent, 1),) if rest else ()
                y = _dim("y", nest, (axis,), SQUARE, "[:, None]")
                return (*batch, y, _dim("x", nest, (last,), SQUARE, "[None, :]"))
    return None


def _power(number: int) -> int:
    """The smallest power of two that is not below the number, at least 1."""
    return 1 << max(0, number - 1).bit_length()


def body_of(plan: Plan, parameters: Sequence[str]) -> Body:
    """The lines of one program."""
    return Writer(plan, parameters).write()


class Writer:
    def __init__(self, plan: Plan, parameters: Sequence[str]) -> None:
        self.plan = plan
        self.nest = plan.nest
        self.parameters = parameters
        self.body = Body()
        self.level = loops.levels(self.nest)
        self.phase = loops.phases(self.nest)
        self.sizes = self.nest.outer + self.nest.inner
        self.dim_of = {axis: dim for dim in plan.dims for axis in dim.axes}
        self.split = {
            axis
            for index in loops.indices(self.nest)
            for dim in plan.dims
            if triton_memory.straight(index, dim, self.sizes) is None
            for axis in dim.axes
            if index.strides[axis]
        }
        self.axis_name: dict[int, str] = {}
        self.along = self._along()

    def write(self) -> Body:
        self._places()
        looped = next((dim for dim in self.plan.dims if dim.looped), None)
        if looped is None:
            for number in range(len(self.nest.values)):
                self._value(number)
            for store in self.nest.stores:
                self.body.add(triton_memory.store(self, store))
        else:
            for step in range(max(self.phase, default=0) + 1):
                self._pass(looped, step)
        return self.body

    # -- places: which element of each dimension, of each axis --------------------------------------

    def _places(self) -> None:
        """Variables of all dimensions that the program's number decides."""
        spread = [dim for dim in self.plan.dims if not dim.looped]
        number = "tl.program_id(0)" + (".to(tl.int64)" if self.plan.wide else "")
        several = [dim for dim in spread if dim.programs > 1]
        if len(several) > 1:
            self.body.add(f"pid = {number}")
            number = "pid"
        for dim in reversed(spread):
            part = "0"
            if dim.programs > 1:
                part = number
                if dim is not several[0]:
                    count = f"tl.cdiv({dim.extent}, {dim.constant})"
                    self.body.add(f"{dim.name}_pid = {number} % {count}")
                    part = f"{dim.name}_pid"
                    rest = f"{number} // {count}"
                    if dim is several[1]:
                        number = rest
                    else:
                        self.body.add(f"pid = {rest}")
            self._place(dim, part)

    def _place(self, dim: Dim, part: str) -> None:
        if not dim.constant:
            self.body.add(f"{dim.name} = {part}")
        else:
            part = f"({part})" if "//" in part else part
            base = "" if part == "0" else f"{part} * {dim.constant} + "
            base = f"{part} + " if dim.looped else base
            line = f"{base}tl.arange(0, {dim.constant}){dim.view}"
            wide = ".to(tl.int64)" if self.plan.wide and (dim.looped or part == "0") else ""
            self.body.add(f"{dim.name} = ({line}){wide}" if wide else f"{dim.name} = {line}")
        if dim.masked:
            self.body.add(f"{dim.name}_mask = {dim.name} < {dim.extent}")
        self._axes(dim)

    def _axes(self, dim: Dim) -> None:
        """Split a dimension's number into those of its axes."""
        if len(dim.axes) == 1:
            self.axis_name[dim.axes[0]] = dim.name
            return
        below = 1
        for position, axis in reversed(list(enumerate(dim.axes))):
            text = dim.name if below == 1 else f"{dim.name} // {below}"
            if position:
                text += f" % {self.sizes[axis]}"
            if axis in self.split:
                self.axis_name[axis] = f"i{axis}"
                self.body.add(f"i{axis} = {text}")
            below *= self.sizes[axis]

    # -- values ------------------------------------------------------------------------------------

    def _along(self) -> list[frozenset[str]]:
        """For each value: the dimensions along which its tile really extends."""
        found: list[frozenset[str]] = []
        for value in self.nest.values:
            if value.op in ("load", "index"):
                index = value.attr[1] if value.op == "load" else value.attr
                moved = frozenset(self.dim_of[a].name for a, s in enumerate(index.strides) if s)
            else:
                moved = frozenset().union(*(found[arg] for arg in value.args))
            found.append(moved - {"c"} if value.op == "reduce" else moved)
        return found

    def _value(self, number: int) -> None:
        value = self.nest.values[number]
        name = f"v{number}"
        if value.op == "load":
            self.body.add(f"{name} = {triton_memory.load(self, value)}")
        elif value.op == "index":
            self.body.add(f"{name} = {triton_memory.position(self, value)}")
        elif value.op == "reduce":
            tile = f"v{value.args[0]}"
            full = {"r", "c"} if value.attr in ("argmax", "argmin") else {"c"}
            if not full <= self.along[value.args[0]]:
                tile = f"tl.broadcast_to({tile}, {self.plan.shape})"
            self._finish(number, self._masked(number, tile), self._column_numbers())
        else:
            args = tuple(f"v{arg}" for arg in value.args)
            dtypes = tuple(self.nest.values[arg].dtype for arg in value.args)
            self.body.add(expr.statement(DIALECT, name, value, args, dtypes))

    def _masked(self, number: int, tile: str) -> str:
        """A reduction's argument with the identity where the row has ended."""
        value = self.nest.values[number]
        if not self.plan.dims[-1].masked:
            return tile
        if value.attr == "any":
            return f"({tile} & c_mask)"
        if value.attr == "all":
            return f"({tile} | ~c_mask)"
        neutral = identity(value.attr, self.nest.values[value.args[0]].dtype)
        return f"tl.where(c_mask, {tile}, {neutral})"

    def _column_numbers(self) -> str:
        kind = ".to(tl.int64)" if self.plan.wide else ""
        return f"tl.broadcast_to(c{kind}, {self.plan.shape})"

    def _finish(self, number: int, tile: str, position: str) -> None:
        """Fold a tile into one value a row."""
        value = self.nest.values[number]
        fold = fold_of(value.attr, self.nest.values[value.args[0]].dtype)
        kind = TYPES[value.dtype][0]
        if value.attr in ("argmax", "argmin"):
            pair = fold.finish.format(x=f"({tile}, {position})")
            self.body.add(f"w{number}, v{number} = {pair}")
            self.body.add(f"v{number} = v{number}.to({kind})")
            return
        text = fold.finish.format(x=tile)
        narrow = value.dtype in (torch.int8, torch.int16, torch.uint8)  # tl.sum, tl.max widen these
        self.body.add(f"v{number} = ({text}).to({kind})" if narrow else f"v{number} = {text}")

    # -- long rows: a loop over blocks of columns for each phase -----------------------------------

    def _pass(self, columns: Dim, step: int) -> None:
        """Row values of this phase, then one walk over the row: folds of the next phase, and stores."""
        values = self.nest.values
        rows = frozenset(n for n in range(len(values)) if not self.level[n])
        for number in sorted(rows):
            if self.phase[number] == step and values[number].op != "reduce":
                self._value(number)
        folds = [n for n in rows if values[n].op == "reduce" and self.phase[n] == step + 1]
        stores = [s for s in self.nest.stores if self.phase[s.value] == step]
        along = [s for s in stores if self.level[s.value] or self.nest.moves_inner(s.index)]
        for store in stores:
            if store not in along:
                self.body.add(triton_memory.store(self, store))
        if not folds and not along:
            return
        folds.sort()
        for number in folds:
            self._accumulator(number)
        self.body.add(f"for start in range(0, {columns.extent}, {columns.constant}):")
        self.body.depth += 1
        self._place(columns, "start")
        roots = [values[n].args[0] for n in folds] + [store.value for store in along]
        for number in loops.needed(self.nest, roots, rows):
            self._value(number)
        for number in folds:
            self._fold_in(number)
        for store in along:
            self.body.add(triton_memory.store(self, store))
        self.body.depth -= 1
        for number in folds:
            self._finish(number, f"acc{number}", f"at{number}")

    def _accumulator(self, number: int) -> None:
        value = self.nest.values[number]
        start = identity(value.attr, self.nest.values[value.args[0]].dtype)
        kind = TYPES[self.nest.values[value.args[0]].dtype][0]
        self.body.add(f"acc{number} = tl.full({self.plan.shape}, {start}, {kind})")
        if value.attr in ("argmax", "argmin"):  # beyond all: an equal value in the row comes first
            whole, beyond = ("int64", 2**63 - 1) if self.plan.wide else ("int32", 2**31 - 1)
            self.body.add(f"at{number} = tl.full({self.plan.shape}, {beyond}, tl.{whole})")

    def _fold_in(self, number: int) -> None:
        value = self.nest.values[number]
        argument = value.args[0]
        tile = self._masked(number, f"v{argument}")
        fold = fold_of(value.attr, self.nest.values[argument].dtype)
        acc, at = f"acc{number}", f"at{number}"
        step = fold.step.format(acc=acc, position=at, x=tile, c=self._column_numbers())
        target = f"{acc}, {at}" if value.attr in ("argmax", "argmin") else acc
        self.body.add(f"{target} = {step}")
