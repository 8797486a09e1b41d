"""How a loop nest is cut into tiles of a Triton kernel.

`plan_of` chooses the tile: a line of elements (pointwise), a square over two axes (transposes), or rows by
columns (reductions). Called by `codegen.triton`; the lines of a program are `codegen.triton_nest`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ..ir.dataclass import dataclass
from ..ir.symbols import is_symbolic, product
from . import loops
from .loops import LoopNest
from .triton_memory import straight
from .triton_numbers import DIVISOR, INT32, blocks, is_multiple, most, weight

LINE = 1024  # elements of a pointwise tile
SQUARE = 32  # side of a tile for transposes
COLUMN_BLOCK = 1024  # of long rows that lie side by side
STRIDED_BLOCK = 64  # of the folded axis where its elements lie apart
FEW_TILES = 64  # a line of fewer is done before wider loads would show
WARP = 32  # threads that load together
SHORT = 16  # a dimension that would hold less than so small a part of a tile takes another axis
TILE = 1024  # elements of a tile of short rows
LANES = 128  # rows side by side that are walked an element at a time


@dataclass(frozen=True, slots=True)
class Dim:
    """A dimension of the tile: variable `name`, over the axes it walks in row-major order.

    block    elements of it in a tile; 1 with an empty `constant`: a plain number a program
    view     how its range is placed among the tile's dimensions
    looped   one program walks all of it, with an empty `constant` one element after the other, around the rest
    full     its tile is known to be inside: nothing is masked

    The extent may be an expression: it is a mask, then, that ends the last tile, and there are as many programs as a
    call needs, none at all where there is no element.
    """

    name: str
    axes: tuple[int, ...]
    extent: Any
    block: int
    constant: str = ""
    view: str = ""
    looped: bool = False
    full: bool = False

    @property
    def masked(self) -> bool:
        if not self.constant or self.full:
            return False
        if is_symbolic(self.extent) and self.single and not self.looped:
            return True  # it may be empty
        return bool(self.extent == 0 or self.extent % self.block != 0)

    @property
    def wide(self) -> bool:
        """Has its variable 64 bits? That of a program needs none: a grid has fewer than 2**31 of them."""
        if not self.constant:
            return self.looped
        return most(self.extent + self.block) >= INT32

    @property
    def programs(self) -> Any:
        whole = self.looped or most(self.extent) <= self.block
        return 1 if whole else blocks(self.extent, self.block)

    @property
    def single(self) -> bool:
        """Is there one program along it, in every call?"""
        return not is_symbolic(self.programs) and self.programs == 1


@dataclass(frozen=True, slots=True)
class Plan:
    """A nest (collapsed) and its tile. `dims`: the slowest first."""

    nest: LoopNest
    dims: tuple[Dim, ...]
    warps: int

    @property
    def wide(self) -> bool:
        """Do positions of elements need 64 bits?"""
        return any(dim.wide for dim in self.dims)

    @property
    def around(self) -> Dim | None:
        """What is walked around the columns."""
        return next((dim for dim in self.dims if dim.looped and not dim.constant), None)

    @property
    def split_by(self) -> Dim | None:
        """The dimension of a line whose last tile alone is masked, in a branch of its own: where the mask of one that is
        no multiple of what a thread loads would make each load one of an element. None: there is one branch."""
        if len(self.dims) != 1 or not self.dims[0].masked or self.nest.has_reduction:
            return None
        (line,) = self.dims
        reached = loops.accesses(self.nest)
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


def plan_of(nest: LoopNest, persistent_limit: int = 1024) -> Plan:
    """One heuristic choice of tile a nest."""
    nest = loops.collapse(nest)
    if nest.has_reduction or nest.outer:
        dims = _rows_by_columns(nest, persistent_limit)
    else:
        dims = _square(nest) or _planes(nest) or (_line(nest),)
    tile = product(dim.block for dim in dims)
    warps = min(8, max(1, _power(tile // 256)))
    return Plan(nest, dims, warps)


def _dim(name: str, nest: LoopNest, axes: Iterable[int], limit: int, view: str = "") -> Dim:
    axes = tuple(axes)
    sizes = nest.outer + nest.inner
    extent = product(sizes[axis] for axis in axes)
    block = min(limit, _power(weight(extent)))
    return Dim(name, axes, extent, block, f"{name.upper()}BLOCK", view)


def _numbers(nest: LoopNest, axes: Sequence[int]) -> tuple[Dim, ...]:
    """A dimension of which each program has one element; none where there are no such axes."""
    sizes = nest.outer + nest.inner
    extent = product(sizes[axis] for axis in axes)
    return (Dim("z", tuple(axes), extent, 1),) if axes else ()


def _line(nest: LoopNest) -> Dim:
    return _dim("x", nest, range(len(nest.inner)), LINE)


def _planes(nest: LoopNest) -> tuple[Dim, ...] | None:
    """A dimension for the last axes, one for those before, and programs for the rest: where a line over all axes
    would have to be divided by sizes that are not known, for each of its elements, or would load what is one value a
    row for each of them."""
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
    """This axis, and of those before it as many as make a dimension large enough: division by their sizes is cheap, for
    they are known and small."""
    axes, sizes, first = [last], nest.outer + nest.inner, len(nest.outer)
    while (
        axes[0] > first
        and not is_symbolic(sizes[axes[0] - 1 : last + 1])
        and product(sizes[axis] for axis in axes) * SHORT <= enough
    ):
        axes.insert(0, axes[0] - 1)
    return tuple(axes)


def _repeats(nest: LoopNest) -> bool:
    """Is there something that is the same all along the last axis, where a tile may have that for its own? It is then a
    load a row. Of tensors whose rows do not begin at 16 bytes a line has the wider loads."""
    last = len(nest.inner) - 1
    size = nest.inner[last] if nest.inner else 1
    if is_symbolic(nest.inner) or size % DIVISOR or size < WARP:
        return False
    block = _fitting(_dim("x", nest, (last,), LINE), LINE)
    if block < WARP or -(-size // block) * block * 8 > size * 9:
        return False
    return any(not i.strides[last] and any(i.strides) for _buffer, i in loops.accesses(nest))


def _fitting(dim: Dim, limit: int) -> int:
    """The largest block of a dimension that leaves no more than an eighth of its tiles empty; if there is none, the
    block that holds it all."""
    if is_symbolic(dim.extent):
        return dim.block
    found = [
        block
        for block in (1 << power for power in range(limit.bit_length()))
        if WARP <= block <= limit and -(-dim.extent // block) * block * 8 <= dim.extent * 9
    ]
    return max(found, default=dim.block)


def _divides(nest: LoopNest, axes: Sequence[int]) -> bool:
    """Would one variable over these axes be divided by a size that is not known, or in 64 bits?"""
    sizes = nest.outer + nest.inner
    line = Dim("", tuple(axes), product(sizes[axis] for axis in axes), 1, "LINE")
    if not line.wide and not is_symbolic(tuple(sizes[axis] for axis in axes[1:])):
        return False
    return any(straight(index, line, sizes) is None for index in loops.indices(nest))


def _rows_by_columns(nest: LoopNest, persistent_limit: int) -> tuple[Dim, ...]:
    n_outer = len(nest.outer)
    side_by_side = _side_by_side(nest)
    in_turn = any(v.op == "scan" and v.attr.endswith("in turn") for v in nest.values)
    limit = persistent_limit if side_by_side else 1 if in_turn else STRIDED_BLOCK
    columns = _dim("c", nest, range(n_outer, n_outer + len(nest.inner)), limit, "[None, :]")
    walked: tuple[Dim, ...] = ()
    if most(columns.extent) > columns.block:
        block = min(COLUMN_BLOCK, limit) if side_by_side else 1 if in_turn else STRIDED_BLOCK
        if _divides(nest, columns.axes):
            columns, walked = _nested(nest, block)
        if is_symbolic(columns.extent):
            block = min(block, columns.block)
        columns = replace(columns, block=block, looped=True)
    limit = LANES if columns.block == 1 and columns.looped else max(1, TILE // columns.block)
    if _divides(nest, range(n_outer)):
        rows = _dim("r", nest, (n_outer - 1,), limit, "[:, None]")
        return (*_numbers(nest, range(n_outer - 1)), rows, *walked, columns)
    return _dim("r", nest, range(n_outer), limit, "[:, None]"), *walked, columns


def _nested(nest: LoopNest, limit: int) -> tuple[Dim, tuple[Dim, ...]]:
    """Columns of the last of the folded axes, and a dimension that is walked one by one around them."""
    first = len(nest.outer)
    axes = _together(nest, first + len(nest.inner) - 1, limit)
    rest = tuple(range(first, axes[0]))
    extent = product((nest.outer + nest.inner)[axis] for axis in rest)
    around = (Dim("k", rest, extent, 1, looped=True),) if rest else ()
    return _dim("c", nest, axes, limit, "[None, :]"), around


def _side_by_side(nest: LoopNest) -> bool:
    """Do the elements of a row lie next to each other in every tensor that is read along it?"""
    if not nest.inner or not nest.outer:
        return True
    steps = [index.strides[-1] for index in loops.indices(nest) if nest.moves_inner(index)]
    return not steps or min(weight(abs(step)) for step in steps) <= 1


def _square(nest: LoopNest) -> tuple[Dim, ...] | None:
    """Dimensions for a nest that reads along one axis and writes along another, else None."""
    last = len(nest.inner) - 1
    for index in loops.indices(nest):
        for axis in range(last):
            apart = index.strides[last] not in (0, 1)
            sides = weight(nest.inner[axis]), weight(nest.inner[last])
            if apart and index.strides[axis] == 1 and min(sides) >= 8:
                batch = _numbers(nest, [other for other in range(last) if other != axis])
                y = _dim("y", nest, (axis,), SQUARE, "[:, None]")
                return (*batch, y, _dim("x", nest, (last,), SQUARE, "[None, :]"))
    return None


def _power(number: int) -> int:
    """The smallest power of two that is not below the number, at least 1."""
    return 1 << max(0, number - 1).bit_length()
