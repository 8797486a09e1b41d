"""Rows that start at any address, in loads and stores of 16 bytes.

In: the plan of a kernel whose tiles have rows side by side, and the buffers that start at multiples
of 16 bytes. Out: the plan with a `Shift`, if it makes accesses wide. A tile's columns then begin at
the last multiple of 16 bytes that is not after the row's start. Loads take all groups of 16 bytes
that touch the row (they end in no other page of memory); stores take those that are inside it, and
narrow ones write the elements at its ends (`body.Writer.stores`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from ...ir.dataclass import dataclass
from ...ir.symbolic.expr import is_symbolic
from ..loops import loop_nest, online_reductions
from ..loops.loop_nest import Index
from .arguments import DIVISOR
from .memory import straight

if TYPE_CHECKING:
    from .tiling import Plan

GROUPS = 16  # the fewest groups of a row: stores at the ends of shorter rows cost too much


@dataclass(frozen=True, slots=True)
class Shift:
    """The place of rows in groups of `lanes` elements.

    steps    (dimension, by how many elements a row's start moves along it), modulo `lanes`
    offset   of the first row, modulo `lanes`
    buffers  those that start at multiples of 16 bytes
    """

    lanes: int
    steps: tuple[tuple[str, int], ...]
    offset: int
    buffers: frozenset[int]

    def fits(self, plan: Plan, buffer: int, index: Index) -> bool:
        """Whether groups of the shifted columns are multiples of 16 bytes in this access."""
        if buffer not in self.buffers:
            return False
        lanes = DIVISOR // plan.nest.buffers[buffer].dtype.itemsize
        found = _start(plan, index)
        wanted = [step for _name, step in self.steps] + [self.offset]
        return found is not None and all(
            (one - two) % lanes == 0 for one, two in zip(found, wanted, strict=True)
        )


def shifted(plan: Plan, aligned: Collection[int]) -> Plan:
    """The plan with shifted columns, if its rows are contiguous and not all at multiples of 16
    bytes already. The elements before a row may not take more programs than a row has.
    """
    nest, columns = plan.nest, plan.dims[-1]
    if not _possible(plan):
        return plan
    starts: Counter[tuple[int, ...]] = Counter()
    for at, index in loop_nest.accesses(nest):
        start = _start(plan, index)
        if at in aligned and start is not None and any(index.strides[: len(nest.outer)]):
            starts[start] += 1
    if not starts:
        return plan
    narrowest = min(nest.buffers[at].dtype.itemsize for at, _index in loop_nest.accesses(nest))
    lanes = DIVISOR // narrowest
    start = starts.most_common(1)[0][0]
    steps = [step % lanes for step in start]
    if columns.extent < GROUPS * lanes or not (any(steps) or columns.extent % lanes):
        return plan
    dim = replace(columns, shift=lanes)
    if not dim.looped and dim.reach > dim.block * max(1, dim.team):
        return plan
    named = tuple(zip((dim.name for dim in plan.dims[:-1]), steps[:-1], strict=True))
    shift = Shift(lanes, named, steps[-1], frozenset(aligned))
    return replace(plan, dims=(*plan.dims[:-1], dim), shift=shift)


def _possible(plan: Plan) -> bool:
    nest, columns = plan.nest, plan.dims[-1]
    if columns.name != "c" or columns.block == 1 or is_symbolic(columns.extent) or plan.around:
        return False
    if any(value.op == "scan" for value in nest.values) or nest.scatters or nest.folds_across:
        return False
    # lanes count their elements in blocks (`reductions.paired`)
    pairs = online_reductions.find(nest).values() if columns.looped else ()
    return all(pair.what == "exp" for pair in pairs)


def _start(plan: Plan, index: Index) -> tuple[int, ...] | None:
    """By how many elements a row's start moves along each other dimension, and where the first row
    starts; None if rows are not contiguous, or are anywhere.
    """
    strides = [straight(index, dim, plan.sizes) for dim in plan.dims]
    if strides[-1] != 1 or None in strides or is_symbolic((strides, index.offset)):
        return None
    return (*strides[:-1], index.offset)
