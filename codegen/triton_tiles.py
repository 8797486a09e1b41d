"""How a loop nest is cut into tiles of a Triton kernel.

`plan_of` chooses the tile: a line of elements (pointwise), a square over two axes (transposes), or rows by
columns (reductions). Called by `codegen.triton`; the lines of a program are `codegen.triton_nest`'s.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from ..ir.dataclass import dataclass
from . import loops
from .loops import LoopNest
from .triton_memory import reach

LINE = 1024  # elements of a pointwise tile
SQUARE = 32  # side of a tile for transposes
COLUMN_BLOCK = 1024  # of long rows that lie side by side
STRIDED_BLOCK = 64  # of the folded axis where its elements lie apart
TILE = 1024  # elements of a tile of short rows
LANES = 128  # rows side by side that are walked an element at a time


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


def plan_of(nest: LoopNest, persistent_limit: int) -> Plan:
    """One heuristic choice of tile a nest."""
    nest = loops.collapse(nest)
    if nest.has_reduction or nest.outer:
        dims = _rows_by_columns(nest, persistent_limit)
    else:
        dims = _square(nest) or (_dim("x", nest, range(len(nest.inner)), LINE),)
    tile = math.prod(dim.block for dim in dims)
    warps = min(8, max(1, _power(tile // 256)))
    return Plan(nest, dims, warps, reach(nest, dims) >= 2**31)


def _dim(name: str, nest: LoopNest, axes: Iterable[int], limit: int, view: str = "") -> Dim:
    axes = tuple(axes)
    sizes = nest.outer + nest.inner
    extent = math.prod(sizes[axis] for axis in axes)
    return Dim(name, axes, extent, min(limit, _power(extent)), f"{name.upper()}BLOCK", view)


def _rows_by_columns(nest: LoopNest, persistent_limit: int) -> tuple[Dim, ...]:
    n_outer = len(nest.outer)
    side_by_side = _side_by_side(nest)
    in_turn = any(v.op == "scan" and v.attr.endswith("in turn") for v in nest.values)
    limit = persistent_limit if side_by_side else 1 if in_turn else STRIDED_BLOCK
    columns = _dim("c", nest, range(n_outer, n_outer + len(nest.inner)), limit, "[None, :]")
    if columns.extent > columns.block:
        block = COLUMN_BLOCK if side_by_side else 1 if in_turn else STRIDED_BLOCK
        columns = Dim("c", columns.axes, columns.extent, block, "CBLOCK", "[None, :]", looped=True)
    limit = LANES if columns.block == 1 and columns.looped else max(1, TILE // columns.block)
    rows = _dim("r", nest, range(n_outer), limit, "[:, None]")
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
