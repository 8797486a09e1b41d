"""Signed zeros in C++: of zeros of both signs a reduction keeps the first one of the row, as
eager's max and min along a dimension do.

In: a pass over a row being written (`row_pass.PassWriter`), after its loops. Out: lines, put to the
kernel. An accumulator keeps the first zero that it meets. If the accumulators of one row, or their
lanes, hold zeros of both signs (rare), the row is walked once more for the position and the sign of
the first zero, and all of them take that sign.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..loops import loop_nest
from ..loops.extents import is_symbolic
from .loop_plan import Pass

if TYPE_CHECKING:
    from .row_pass import PassWriter

FIRST = ("first max", "first min")


def settle(writer: PassWriter, number: int) -> None:
    """Give the zeros in the accumulators of one reduction the same sign."""
    lanes, copies = not writer.plan.lanes_are_rows, range(writer.unroll)
    if writer.nest.values[number].attr not in FIRST or not (lanes or writer.unroll > 1):
        return
    put, kernel = writer.put, writer.kernel
    names = [f"a{number}_{copy}" for copy in copies]
    with kernel.block(f"if (both_zeros({', '.join(names)})) {{", "}"):
        again = _again(writer, number)
        kind, start = again.accumulator(number)
        put(f"{kind} zero = {start};")
        again.loops(*writer.row)
        if lanes:
            put(f"zero = fold(zero, []({kind} a, {kind} b) {{ return a < b ? a : b; }});")
        for name in names:
            put(f"{name} = with_zero({name}, zero);")


def _again(writer: PassWriter, number: int) -> PassWriter:
    """A pass over the same row only for the position of its first zero."""
    nest, one = writer.nest, writer.one
    wanted = set(loop_nest.needed(nest, nest.values[number].args))
    body = [one for one in one.body if one in wanted]

    class Again(type(writer)):  # type: ignore[misc]
        def accumulator(self, number: int) -> tuple[str, str]:
            return self.place, self.nowhere

        def names(self, copy: int, blocked: bool) -> str:
            return ", zero"

        def _take(self, number: int) -> None:
            element = self.nest.values[number].args[0]
            count = "full{}" if self.plan.lanes_are_rows else "n"
            self.put(f"first_zero(a{number}_0, v{element}, {self._position()}, {count});")

    found: PassWriter = Again(writer.kernel, Pass(one.phase, [number], [], body), copies=1)
    columns = nest.columns  # a position also holds the sign
    found.place = "i64" if is_symbolic(columns) or columns >= 2**30 else "i32"
    return found
