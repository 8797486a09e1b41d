"""Tiling: how a loop nest is cut into the tiles of a Triton kernel.

`plan_of` chooses the tile: a line of elements (pointwise), a square over two axes (transposes), or
rows by columns (reductions). `codegen.triton.body` writes the lines of a program.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ...ir.dataclass import dataclass
from ...ir.symbolic.expr import is_symbolic, product
from ..loops import loop_nest
from ..loops.loop_nest import Index, LoopNest
from .alignment import Shift, shifted
from .arguments import DIVISOR, INT32, blocks, is_multiple, most, weight
from .memory import straight

LINE = 1024  # elements of a pointwise tile
SQUARE = 32  # side of a tile for transposes; twice that where elements have at most 16 bits
COLUMN_BLOCK = 2048  # columns per block of long contiguous rows
REGISTERS = 32768  # 32-bit registers, of all threads of a program, that a row may fill
ACROSS = 32  # rows of a tile whose elements are not contiguous
BESIDE = 256  # bytes of such rows side by side that a tile reads of each element, if it reads once
FOLDED_TILE = 4096  # elements of a tile of such rows that are read once
LEAST = 128  # the fewest bytes of such rows side by side: one line of a cache
PER_THREAD = 16  # elements of a tile with reductions per thread
REGISTERS_OF_ALL = 65536  # of a multiprocessor
THREADS = 2048  # that a multiprocessor holds at a time
MOST_REGISTERS = 255  # of a thread
# The fewest threads of a multiprocessor for teams that take rows in turn: with fewer, on an H100, a
# team for each row was faster (softmax of float32, 131,072 columns: 77 % of a copy's bandwidth
# against 69 %; of bfloat16, 62 % against 66 %).
THREADS_OF_TEAMS = 640
ROWS_OF_TEAM = 2  # the fewest rows that a team which takes them in turn has
AHEAD = 98304  # bytes of shared memory that a program may fill with rows that it needs next
MOST_WARPS = 16
MOST_COLUMNS = 16384  # columns of a row that is held as a whole
OWN = 16  # registers of a thread for everything but the elements
PROGRAMS = 264  # programs that keep a device busy
STRIDED_BLOCK = 64  # elements per block of a reduced axis that is not contiguous
FEW_TILES = 64  # a line of fewer tiles ends before wider loads would matter
WARP = 32  # threads that load together
SHORT = 16  # a dimension that holds less than 1 / SHORT of a tile takes another axis
TILE = 2048  # elements of a tile of short rows
PIECES = (4096, 8192)  # the fewest and the most elements of a row that a program of a team holds
LANES = 128  # rows side by side that are walked one element at a time


@dataclass(frozen=True, slots=True)
class Dim:
    """A dimension of the tile: variable `name`, over the axes that it walks in row-major order.

        block   elements of it in a tile; 1 with an empty `constant`: a plain number per program
        view    the position of its range among the tile's dimensions
        looped  one program walks all of it; with an empty `constant` one element at a time, around
                the other dimensions
        full    its tile is known to be inside: no masks
        shared  so many programs walk it, each every `shared`-th block
        team    at most so many programs hold a row together (`teams`)
        shift   rows start anywhere in groups of so many elements, and tiles start with a group
                (`alignment`); 0: tiles start with the row

    The extent may be an expression. Then a mask ends the last tile, and a call has as many programs
    as it needs, and none if there is no element.
    """

    name: str
    axes: tuple[int, ...]
    extent: Any
    block: int
    constant: str = ""
    view: str = ""
    looped: bool = False
    full: bool = False
    shared: int = 0
    team: int = 0
    shift: int = 0

    @property
    def masked(self) -> bool:
        if not self.constant or self.full:
            return False
        if self.shift:
            return True
        if is_symbolic(self.extent) and self.single and not self.looped:
            return True  # it may be empty
        return bool(self.extent == 0 or self.extent % self.block != 0)

    @property
    def wide(self) -> bool:
        """Whether its variable has 64 bits. A program number needs none: a grid has fewer than
        2**31 programs.
        """
        if not self.constant:
            return self.looped
        return most(self.reach + self.block) >= INT32

    @property
    def reach(self) -> Any:
        """The elements that its tiles hold together, with those before the start of the row."""
        return self.extent + max(0, self.shift - 1)

    @property
    def programs(self) -> Any:
        if self.shared:
            return self.shared
        whole = self.looped or most(self.reach) <= self.block
        return 1 if whole else blocks(self.reach, self.block)

    @property
    def single(self) -> bool:
        """Whether it has exactly one program in every call."""
        return not is_symbolic(self.programs) and self.programs == 1


@dataclass(frozen=True, slots=True)
class Plan:
    """A nest (collapsed) and its tile. `dims`: the slowest first. `registers`: the most of a
    thread; 0: the compiler decides.
    """

    nest: LoopNest
    dims: tuple[Dim, ...]
    warps: int
    shift: Shift | None = None
    registers: int = 0

    @property
    def wide(self) -> bool:
        """Whether positions of elements need 64 bits."""
        return any(dim.wide for dim in self.dims)

    @property
    def across(self) -> bool:
        """Whether it reduces rows whose elements are not contiguous, several of them at a time."""
        return self.nest.has_reduction and not _side_by_side(self.nest)

    @property
    def shared(self) -> Dim | None:
        """The rows, if programs walk them that keep sums over them."""
        return next((dim for dim in self.dims if dim.shared and self.team is None), None)

    @property
    def around(self) -> Dim | None:
        """The dimension that is walked around the columns."""
        return next((dim for dim in self.dims if dim.looped and not dim.constant), None)

    @property
    def team(self) -> Dim | None:
        """The dimension of the programs that hold a row together."""
        return next((dim for dim in self.dims if dim.team), None)

    @property
    def split_by(self) -> Dim | None:
        """The dimension of a line whose last tile alone is masked, in a branch of its own; None:
        one branch.

        If its extent is not a multiple of a thread's load, the mask would turn each load into loads
        of single elements.
        """
        if len(self.dims) != 1 or not self.dims[0].masked or self.nest.has_reduction:
            return None
        (line,) = self.dims
        reached = loop_nest.accesses(self.nest)
        beside = [at for at, index in reached if straight(index, line, self.sizes) == 1]
        wide = DIVISOR // min((self.nest.buffers[at].dtype.itemsize for at in beside), default=16)
        few = not is_symbolic(line.extent) and line.extent < FEW_TILES * line.block
        return None if few or line.single or is_multiple(line.extent, wide) else line

    @property
    def sizes(self) -> tuple[Any, ...]:
        return self.nest.outer + self.nest.inner

    @property
    def constants(self) -> dict[str, int]:
        return {dim.constant: dim.block for dim in self.dims if dim.constant}

    @property
    def programs(self) -> Any:
        return product(dim.programs for dim in self.dims)

    @property
    def shape(self) -> str:
        return "(" + ", ".join(dim.constant for dim in self.dims if dim.constant) + ")"


@dataclass(frozen=True, slots=True)
class Tiling:
    """A tile that differs from the rules' choice; 0: the rules decide. Measurement compares some
    (`choices`).

        rows, columns  of a tile of a nest with reductions; rows of at most `columns` elements are
                       held as a whole
        warps          of a program
        team           so many programs hold a row together, `columns` elements each (`teams`)
        teams          so many take the rows in turn; 0: a team for each row
        registers      the most of a thread; 0: the compiler decides
    """

    rows: int = 0
    columns: int = 0
    warps: int = 0
    team: int = 0
    teams: int = 0
    registers: int = 0


def plan_of(nest: LoopNest, tiling: Tiling = Tiling(), programs: int = 0) -> Plan:  # noqa: B008
    """The tile that the rules choose, with the overrides of `tiling`. `programs`: of a nest that
    also reduces over its rows.
    """
    nest = loop_nest.collapse(nest)
    if nest.folds_across:
        dims = _shared_rows(nest, tiling, programs)
    elif nest.has_reduction or nest.outer:
        dims = _rows_by_columns(nest, tiling)
    else:
        dims = _square(nest) or _planes(nest) or (_line(nest),)
    tile = product(dim.block for dim in dims)
    warps = min(MOST_WARPS, max(1, _power(tile // (_each(nest, dims, tile) * WARP))))
    return Plan(nest, dims, tiling.warps or warps, registers=tiling.registers)


def _each(nest: LoopNest, dims: Sequence[Dim], tile: int) -> int:
    """Elements of a tile per thread.

    The elements of a row that is held as a whole are all loaded at once, so few threads keep many
    loads under way. If a program of 16 warps would fill a multiprocessor alone, one of 8 leaves it
    space for a second program.
    """
    if not (nest.has_reduction or nest.outer):
        return 8 if tile <= SQUARE * SQUARE else PER_THREAD
    if nest.folds_across:
        return PER_THREAD // 2  # the sums are registers too, and two programs are to fit
    if any(dim.team for dim in dims):
        return 2 * PER_THREAD
    if any(dim.looped for dim in dims):
        return 8 if _side_by_side(nest) and _narrowest(nest) >= 4 else PER_THREAD
    crowded = OWN + PER_THREAD * _words(nest) > 64 and tile >= PER_THREAD * WARP * MOST_WARPS
    return 2 * PER_THREAD if crowded else PER_THREAD


def resident(plan: Plan) -> int:
    """About how many programs of a nest that also reduces over its rows a multiprocessor holds at
    a time.
    """
    threads = plan.warps * WARP
    each = product(dim.block for dim in plan.dims) // threads
    sums = sum(store.across for store in plan.nest.stores)
    registers = int(OWN + each * (_words(plan.nest) + sums))
    return max(1, REGISTERS_OF_ALL // (threads * -(-registers // 8) * 8))


def taking_turns(nest: LoopNest, tiling: Tiling, multiprocessors: int) -> Tiling:
    """The tiling of teams that stay on the device and take rows in turn, as many as it holds at a
    time; the given one, of a team for each row, if these are few or rows are.

    A thread has registers for its elements and for those of the next row as they are in memory.
    What is the same in each row is loaded a few elements at a time, if registers are few.
    """
    plan = plan_of(nest, tiling)
    columns, threads = plan.dims[-1], plan.warps * WARP
    each = columns.block // threads * _words(nest, late=False)
    wanted = (3 if columns.masked else 2) * OWN + each
    held = max(1, min(THREADS // threads, int(REGISTERS_OF_ALL // (threads * wanted))))
    teams = multiprocessors * held // tiling.team
    few = held * threads < THREADS_OF_TEAMS or nest.rows < ROWS_OF_TEAM * teams
    if not teams or few:
        return tiling
    most_each = REGISTERS_OF_ALL // (threads * held) // 8 * 8
    return replace(tiling, teams=teams, registers=min(MOST_REGISTERS, most_each))


def stages(plan: Plan) -> int:
    """How many rows of such a nest are on their way at a time: the current one, and those that are
    loaded into shared memory meanwhile.
    """
    nest, tile = plan.nest, product(dim.block for dim in plan.dims)
    n_outer = len(nest.outer)
    found = {
        value.attr: nest.buffers[value.attr[0]].dtype.itemsize
        for value in nest.values
        if value.op in loop_nest.LOADS
        and nest.moves_inner(value.attr[1])
        and any(value.attr[1].strides[:n_outer])
    }
    return min(3, 1 + AHEAD // max(1, tile * sum(found.values())))


def choices(nest: LoopNest) -> list[Tiling]:
    """Tilings worth measuring, the rules' first."""
    plan = plan_of(nest)
    found = [Tiling()]
    found += [
        Tiling(warps=warps)
        for warps in (plan.warps // 2, plan.warps * 2)
        if 1 <= warps <= MOST_WARPS
    ]
    columns = plan.dims[-1]
    in_turn = columns.looped and columns.block == 1
    if not plan.nest.has_reduction or in_turn:
        return found
    if columns.looped:
        found += [Tiling(columns=columns.block // 2), Tiling(columns=columns.block * 2)]
    elif columns.block > COLUMN_BLOCK:  # a walk instead of a row held as a whole
        found.append(Tiling(columns=COLUMN_BLOCK))
    rows = next((dim.block for dim in plan.dims if dim.name == "r"), 1)
    found += [Tiling(rows=rows * 2)] + ([Tiling(rows=rows // 2)] if rows > 1 else [])
    return found


def _dim(name: str, nest: LoopNest, axes: Iterable[int], limit: int, view: str = "") -> Dim:
    axes = tuple(axes)
    sizes = nest.outer + nest.inner
    extent = product(sizes[axis] for axis in axes)
    block = min(limit, _power(weight(extent)))
    return Dim(name, axes, extent, block, f"{name.upper()}BLOCK", view)


def _numbers(nest: LoopNest, axes: Sequence[int]) -> tuple[Dim, ...]:
    """A dimension of which each program has one element; empty if there are no such axes."""
    sizes = nest.outer + nest.inner
    extent = product(sizes[axis] for axis in axes)
    return (Dim("z", tuple(axes), extent, 1),) if axes else ()


def _line(nest: LoopNest) -> Dim:
    return _dim("x", nest, range(len(nest.inner)), LINE)


def _planes(nest: LoopNest) -> tuple[Dim, ...] | None:
    """A dimension for the last axes, one for the axes before them, and programs for the rest.

    Used if a line over all axes would divide each element's position by unknown sizes, or would
    load a row value for each element.
    """
    if not _divides(nest, range(len(nest.inner))) and not _repeats(nest):
        return None
    last = len(nest.inner) - 1
    x = _together(nest, last, LINE)
    first = x[0]
    across = _dim("x", nest, x, LINE, "[None, :]")
    across = replace(across, block=_fitting(across, LINE))
    y = _together(nest, first - 1, LINE // across.block) if first else ()
    rest = range(y[0] if y else 0)
    down = (_dim("y", nest, y, max(1, LINE // across.block), "[:, None]"),) if y else ()
    return (*_numbers(nest, rest), *down, across)


def _together(nest: LoopNest, last: int, enough: int) -> tuple[int, ...]:
    """This axis and enough of the axes before it for a large dimension: division by their sizes is
    cheap, because these are known and small.
    """
    axes, sizes, first = [last], nest.outer + nest.inner, len(nest.outer)
    while (
        axes[0] > first
        and not is_symbolic(sizes[axes[0] - 1 : last + 1])
        and product(sizes[axis] for axis in axes) * SHORT <= enough
    ):
        axes.insert(0, axes[0] - 1)
    return tuple(axes)


def _repeats(nest: LoopNest) -> bool:
    """Whether some tensor is constant along the last axis and a tile can have that axis for itself.

    Then the tensor takes one load per row. If rows do not begin at multiples of 16 bytes, a line
    has wider loads.
    """
    last = len(nest.inner) - 1
    size = nest.inner[last] if nest.inner else 1
    if is_symbolic(nest.inner) or size % DIVISOR or size < WARP:
        return False
    block = _fitting(_dim("x", nest, (last,), LINE), LINE)
    if block < WARP or -(-size // block) * block * 8 > size * 9:
        return False
    return any(not i.strides[last] and any(i.strides) for _buffer, i in loop_nest.accesses(nest))


def _fitting(dim: Dim, limit: int) -> int:
    """The largest block of a dimension that leaves at most an eighth of its tiles empty; if there
    is none, the block that holds it all.
    """
    if is_symbolic(dim.extent):
        return dim.block
    found = [
        block
        for block in (1 << power for power in range(limit.bit_length()))
        if WARP <= block <= limit and -(-dim.reach // block) * block * 8 <= dim.reach * 9
    ]
    return max(found, default=dim.block)


def _divides(nest: LoopNest, axes: Sequence[int]) -> bool:
    """Whether one variable over these axes would be divided by an unknown size, or in 64 bits."""
    sizes = nest.outer + nest.inner
    line = Dim("", tuple(axes), product(sizes[axis] for axis in axes), 1, "LINE")
    if not line.wide and not is_symbolic(tuple(sizes[axis] for axis in axes[1:])):
        return False
    return any(straight(index, line, sizes) is None for index in loop_nest.indices(nest))


def _rows_by_columns(nest: LoopNest, tiling: Tiling) -> tuple[Dim, ...]:
    """Rows by columns: contiguous rows as a whole if registers hold them; several short ones at a
    time; of rows that are not contiguous as many as make wide loads. Otherwise blocks of columns,
    one after the other.
    """
    n_outer = len(nest.outer)
    if tiling.team:
        columns = _dim("c", nest, range(n_outer, n_outer + len(nest.inner)), tiling.columns)
        rows = _dim("r", nest, range(n_outer), 1, "[:, None]")
        rows = replace(rows, shared=tiling.teams)
        return rows, replace(columns, view="[None, :]", team=tiling.team)
    side_by_side = _side_by_side(nest)
    held, block = _limits(nest, side_by_side)
    if tiling.columns and held > 1:
        held = block = tiling.columns
    columns = _dim("c", nest, range(n_outer, n_outer + len(nest.inner)), held, "[None, :]")
    walked: tuple[Dim, ...] = ()
    if most(columns.extent) > columns.block:
        if _divides(nest, columns.axes):
            columns, walked = _nested(nest, block)
        if is_symbolic(columns.extent):
            block = min(block, columns.block)
        columns = replace(columns, block=block, looped=True)
    limit = max(1, TILE // columns.block) if side_by_side else _across(nest)
    if columns.block == 1 and columns.looped:
        limit = LANES
    least = 1 if side_by_side else min(limit, LEAST // _narrowest(nest))
    limit = tiling.rows or _shared_out(product(nest.outer), limit, least)
    if _divides(nest, range(n_outer)):
        rows = _dim("r", nest, (n_outer - 1,), limit, "[:, None]")
        return (*_numbers(nest, range(n_outer - 1)), rows, *walked, columns)
    return _dim("r", nest, range(n_outer), limit, "[:, None]"), *walked, columns


def _shared_rows(nest: LoopNest, tiling: Tiling, programs: int) -> tuple[Dim, ...]:
    """Rows that several programs share, each row held as a whole."""
    n_outer = len(nest.outer)
    columns = _dim("c", nest, range(n_outer, n_outer + len(nest.inner)), MOST_COLUMNS, "[None, :]")
    limit = tiling.rows or max(1, TILE // columns.block)
    rows = _dim("r", nest, range(n_outer), limit, "[:, None]")
    return replace(rows, shared=programs), columns


def _limits(nest: LoopNest, side_by_side: bool) -> tuple[int, int]:
    """(columns that a tile holds as a whole, columns of a block of longer rows)."""
    words = _words(nest)
    across = 1 if side_by_side else ACROSS
    held = min(MOST_COLUMNS, _power(int(REGISTERS / (words * across)) + 1) // 2)
    block = COLUMN_BLOCK * 4 // max(2, _narrowest(nest))
    if any(v.op == "scan" and v.attr.endswith("in turn") for v in nest.values):
        return (held, block) if side_by_side else (1, 1)
    if side_by_side:
        return held, block
    if not _reads_once(nest):
        return held, STRIDED_BLOCK
    block = min(STRIDED_BLOCK, FOLDED_TILE // _across(nest))
    return min(held, block), block


def _reads_once(nest: LoopNest) -> bool:
    """Whether one pass over the rows is enough, and leaves one value per row."""
    return max(loop_nest.phases(nest)) <= 1 and not any(
        nest.moves_inner(store.index) for store in nest.stores
    )


def _across(nest: LoopNest) -> int:
    """Rows of a tile whose elements are not contiguous."""
    return max(ACROSS, BESIDE // _narrowest(nest)) if _reads_once(nest) else ACROSS


def team_of(nest: LoopNest) -> Tiling | None:
    """How the programs of a team hold a long row in registers, wherever it starts. None: rows are
    short, or a team cannot hold them.
    """
    plan = plan_of(nest)
    columns = plan.dims[-1]
    together = _side_by_side(plan.nest) and columns.looped and columns.block > 1
    if not together or [dim.name for dim in plan.dims] != ["r", "c"]:
        return None
    most_held = _power(int(REGISTERS / _words(plan.nest, late=False)) + 1) // 2
    least, limit = (min(one, most_held) for one in PIECES)
    pieces = plan_of(nest, Tiling(columns=least, team=blocks(columns.extent, least) + 1))
    columns = shifted(pieces, range(len(nest.buffers))).dims[-1]
    columns = replace(columns, block=max(least, _fitting(columns, limit)))
    return Tiling(columns=columns.block, team=columns.programs)


def _words(nest: LoopNest, late: bool = True) -> float:
    """The registers per element of a row: for its loads and for one computed value. `late`: also
    for loads that are the same in each row.
    """
    level = loop_nest.levels(nest)
    wide = max((v.dtype.itemsize for n, v in enumerate(nest.values) if level[n]), default=4)
    return max(1, wide // 4) + sum(width / 4 for width in _loaded(nest, late))


def _loaded(nest: LoopNest, late: bool = True) -> list[int]:
    """Bytes per element of each load along the rows."""
    found = {
        value.attr: nest.buffers[value.attr[0]].dtype.itemsize
        for value in nest.values
        if value.op in loop_nest.LOADS and nest.moves_inner(value.attr[1])
        if late or any(value.attr[1].strides[: len(nest.outer)])
    }
    return list(found.values())


def _narrowest(nest: LoopNest) -> int:
    return min(_loaded(nest), default=4)


def _shared_out(rows: Any, limit: int, least: int) -> int:
    """Fewer rows per program if there would be fewer than `PROGRAMS` programs."""
    while limit > least and weight(rows) < limit * PROGRAMS:
        limit //= 2
    return limit


def _nested(nest: LoopNest, limit: int) -> tuple[Dim, tuple[Dim, ...]]:
    """Columns of the last reduced axes, and a dimension that is walked one by one around them."""
    first = len(nest.outer)
    axes = _together(nest, first + len(nest.inner) - 1, limit)
    rest = tuple(range(first, axes[0]))
    extent = product((nest.outer + nest.inner)[axis] for axis in rest)
    around = (Dim("k", rest, extent, 1, looped=True),) if rest else ()
    return _dim("c", nest, axes, limit, "[None, :]"), around


def _side_by_side(nest: LoopNest) -> bool:
    """Whether the elements of a row are contiguous in some tensor; True without rows or columns.

    Only tensors that are as large as others count: a column beside a matrix is contiguous along the
    columns of that matrix.
    """
    if not nest.inner or not nest.outer:
        return True
    found = [
        (weight(_reach(nest, index)), weight(abs(index.strides[-1])))
        for _buffer, index in loop_nest.accesses(nest)
        if nest.moves_inner(index)
    ]
    most_of_all = max((reach for reach, _step in found), default=0)
    return min((step for reach, step in found if reach * SHORT > most_of_all), default=0) <= 1


def _reach(nest: LoopNest, index: Index) -> Any:
    """The number of elements that an index reaches."""
    sizes = nest.outer + nest.inner
    pairs = zip(sizes, index.strides, strict=True)
    return product(size for size, step in pairs if is_symbolic(step) or step != 0)


def _square(nest: LoopNest) -> tuple[Dim, ...] | None:
    """Dimensions for a nest that reads along one axis and writes along another, else None."""
    last = len(nest.inner) - 1
    for index in loop_nest.indices(nest):
        for axis in range(last):
            apart = index.strides[last] not in (0, 1)
            sides = weight(nest.inner[axis]), weight(nest.inner[last])
            if apart and index.strides[axis] == 1 and min(sides) >= 8:
                batch = _numbers(nest, [other for other in range(last) if other != axis])
                side = _side(nest, sides)
                y = _dim("y", nest, (axis,), side, "[:, None]")
                return (*batch, y, _dim("x", nest, (last,), side, "[None, :]"))
    return None


def _side(nest: LoopNest, sides: tuple[int, int]) -> int:
    """The side of a square tile: 128 bytes of the narrowest elements, for both ways through memory,
    if there are tiles enough for all multiprocessors.
    """
    narrowest = min(nest.buffers[at].dtype.itemsize for at, _index in loop_nest.accesses(nest))
    wide, tiles = 2 * SQUARE, product(map(weight, nest.inner)) // (2 * SQUARE) ** 2
    return wide if narrowest <= 2 and min(sides) >= wide and tiles >= PROGRAMS else SQUARE


def _power(number: int) -> int:
    """The smallest power of two that is not below the number, at least 1."""
    return 1 << max(0, number - 1).bit_length()
