"""Scans in C++: the reduction of a row up to each element.

In: a kernel being written (`renderer.Kernel`). Out: the expression of a scan's register. c{number}
carries the result so far from vector to vector. Each pass that computes the scan starts it anew: a
later pass may compute it again. Where lanes are rows, a step is one operation; otherwise the lanes
of a vector are combined in log2(W) steps, or one after the other where the order matters
(`loop_nest.SCANS`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..loops import loop_nest
from .dialect import SCALAR, identity, register
from .loop_plan import Pass

if TYPE_CHECKING:
    from .renderer import Kernel

COST = 9  # in light operators: a later pass that needs the value reads it back
_STEP = {
    "sum": "{0} + {1}", "prod": "{0} * {1}", "max": "maximum({0}, {1})", "min": "minimum({0}, {1})",
}  # fmt: skip


def of(kernel: Kernel, one: Pass) -> list[int]:
    """The scans that a pass computes."""
    return [number for number in one.body if kernel.nest.values[number].op == "scan"]


def in_turn(kernel: Kernel, number: int) -> bool:
    """Whether it is reduced lane by lane."""
    turns: bool = kernel.nest.values[number].attr.endswith("in turn")
    return turns and not kernel.plan.lanes_are_rows


def begin(kernel: Kernel, number: int) -> None:
    """Declare the carried value of one row, or of the rows in the lanes."""
    value = kernel.nest.values[number]
    start = identity(loop_nest.SCANS[value.attr], value.dtype)
    kind, lane = register(value.dtype), ""
    if in_turn(kernel, number):
        kind, lane = SCALAR[kind], "[0]"
    kernel.put(f"{kind} c{number} = {start}{lane};")


def element(kernel: Kernel, number: int, row: bool) -> str:
    """The text of a scan at the current element."""
    value = kernel.nest.values[number]
    kind = loop_nest.SCANS[value.attr]
    carried, argument = f"c{number}{kernel.group}", f"v{value.args[0]}"
    if kernel.plan.lanes_are_rows:
        return f"{carried} = {_STEP[kind].format(carried, argument)}"
    step = f"[](auto a, auto b) {{ return {_STEP[kind].format('a', 'b')}; }}"
    if in_turn(kernel, number):
        return f"in_turn({argument}, {carried}, {step})"
    return f"scanned({argument}, {carried}, {identity(kind, value.dtype)}, {step})"
