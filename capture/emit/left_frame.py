"""A frame as a break leaves it: what its resume functions get of its stack and locals.

In: a frame of the walk, the index of the instruction that breaks, and the stack before it. Out: the
Values that are restored, and the specification of each resume function. `capture.capture` uses it
for the root, `continuations` for the inlined frames.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.location import Location
from ..breaks import PlainFrame
from ..bytecode.decoder import stack_effect
from ..bytecode.liveness import live_locals
from ..data_model import frame_inspection
from ..data_model.container_iterators import place
from ..interpreter.machine import Machine
from ..values.frames import Frame
from ..values.symbolic_numbers import is_number
from ..values.value import Value
from .break_state import bound_after, kind_of, missed_locals, shape_after
from .resume import SPARE, CannotResume, Path, ResumeSpec, needs_spare

# (code, target, stack shape, bound names, places of iterators) -> the resume callable. For inlined
# functions two more: their globals, and the break of the first instruction.
ResumeFactory = Callable[..., Any]


class LeftFrame:
    """A frame at a break.

    `raising`: the instruction raises, and a debugger may look at the frame where it ended.
    `inner`: for a call whose callee breaks, the values that the callee continues with; `stack` is
    without its callable and arguments.
    """

    def __init__(
        self,
        m: Machine,
        frame: Frame,
        index: int,
        stack: list[Value],
        raising: bool = False,
        inner: Sequence[Value] | None = None,
    ) -> None:
        self.frame, self.code = frame, frame.code
        self.stack = stack
        popped = stack_effect(frame.decoded.instrs[index])[0] if inner is not None else 0
        self.shape = (*map(kind_of, stack), *("value",) * popped)
        # How far the loops are.
        self.places = tuple(at for value in stack if (at := place(value)) is not None)
        self.raising = raising
        live = live_locals(frame.decoded, index)
        self.missed = missed_locals(m, frame, [*stack, *(inner or ())])
        self.restored = {
            name: value
            for name, value in dict.items(frame.locals)
            if name in live or name in self.missed or (raising and frame_inspection.is_shown(value))
        }
        # A symbol without a value at capture differs at each call.
        self.varying = frozenset(
            name
            for name, value in self.restored.items()
            if is_number(value) and m.facts.from_data(value.expr)  # type: ignore[attr-defined]
        )

    def resume_at(
        self, make: ResumeFactory, reason: str, where: Location | None, target: int, path: Path
    ) -> ResumeSpec:
        """How the frame continues at `target`, after the instructions of `path`."""
        ahead = live_locals(self.frame.decoded, target)
        kept = {name for name in self.restored if self.raising or name in self.missed}
        left = shape_after(path, self.shape)
        names = kept | (self.restored.keys() & ahead)
        bound = bound_after(self.code, path, names, self.shape)
        if needs_spare(self.code, left, bound):
            left = (SPARE, *left)
        try:
            varying = self.varying.intersection(bound)
            more: dict[str, Any] = {"varying": varying} if varying else {}
            made = make(self.code, target, left, bound, self.places, **more)
            return ResumeSpec(made, left, bound)
        except CannotResume as error:
            raise PlainFrame("PL203", f"{reason}; {error}", where) from None
