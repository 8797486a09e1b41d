"""How a walk stops: a graph break, or the whole frame runs in plain Python.

Handlers raise `Break` for what they do not model; `capture.capture` turns it into a resume
function, or into plain Python, and reports it as an event.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, Self

from ..ir.location import Location

# `.made`: this thread's exceptions since the last `let_go`.
_ALIVE = threading.local()


class _Stop(Exception):
    """An exception of the walk.

    If a local of a frame in its traceback refers to it, it is in a cycle, which would keep all
    frames below it and the program's objects in them until a collection: see `let_go`.
    """

    def __new__(cls, *args: Any, **named: Any) -> Self:
        stop = super().__new__(cls, *args, **named)
        _ALIVE.__dict__.setdefault("made", []).append(weakref.ref(stop))
        return stop


def let_go() -> None:
    """Clear the exceptions of a finished walk, so that none holds a frame any longer."""
    for reference in _ALIVE.__dict__.pop("made", ()):
        if (stop := reference()) is not None:
            stop.__cause__ = stop.__context__ = stop.__traceback__ = None


class Break(_Stop):
    """The current instruction must run in plain Python. `code` is a row of runtime.codes."""

    def __init__(self, code: str, reason: str, where: Location | None = None) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.where = where
        self.inlined: tuple[Location, ...] = ()
        self.looks = False  # an inlined function reads the locals of its callers
        # Python reads what autograd has made of the graph (see `ReadsHistory`)
        self.reads_history = False
        self.frames: tuple[Any, ...] = ()  # of the walk, where an inlined function breaks
        # Guards (kind, source, expected) without which there is no break here.
        self.guards: tuple[tuple[str, Any, Any], ...] = ()


class ReadsHistory(Break):
    """Python reads nodes of autograd's graph: those of eager mode have to be there, one for each
    operator, so the recorded calls run under autograd."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(code, reason)
        self.reads_history = True


class Thrown(Break):
    """The captured path raises an exception of the program.

    A handler of the frame or of an inlined function catches it (see `types.exceptions`); else
    Python raises it at a break. `known` are the exception's arguments if they are certainly
    Python's, `held` the same as Values; `value` is its Value, once made.
    """

    def __init__(
        self,
        cls: type[BaseException],
        known: tuple[Any, ...] | None,
        reason: str,
        value: Any = None,
        held: tuple[Any, ...] | None = None,
    ) -> None:
        super().__init__("GB108", reason)
        self.held = held
        self.cls = cls
        self.known = known
        self.value = value


class Warns(Break):
    """A call warns each time, so Python makes it; or the walk of its own Python code."""

    def __init__(self, text: str, kind: type[Warning]) -> None:
        super().__init__("GB103", f"a warning: {text}")
        self.text = text
        self.kind = kind


class LooksAtFrame(Break):
    """The frame of this instruction reads itself, so it must exist as written."""

    def __init__(self, name: str, code: str = "GB132") -> None:
        super().__init__(code, f"call of {name}()")


class ExceptionLeaves(_Stop):
    """An exception made inside the frame is alive at the frame's end.

    Python must run instruction `index` of the root, which made or raised it.
    """

    code = "GB108"
    reason = "an exception that outlives its handler"
    inlined: tuple[Location, ...] = ()

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


class ArrayShares(_Stop):
    """An array made inside the frame and a tensor over its memory are both visible.

    Or one shows a write to the other. Python must run instruction `index` of the root, which made
    the tensor.
    """

    code = "GB123"
    reason = "a tensor that shares its memory with an array"

    def __init__(self, index: int, inlined: tuple[Location, ...]) -> None:
        super().__init__(index)
        self.index = index
        self.inlined = inlined


class MustBePython(_Stop):
    """Python must run instruction `index` of the root: only its own objects show the effect.

    `begun`: where the walk was in an inlined function, whose instruction may break in its place.
    """

    inlined: tuple[Location, ...] = ()
    begun: int | None = None

    def __init__(self, index: int, code: str, reason: str) -> None:
        super().__init__(reason)
        self.index = index
        self.code = code
        self.reason = reason


class BreaksInside(_Stop):
    """An inlined function is left before its next instruction, which is known to break.

    `frames` are those of the walk, the root first.
    """

    def __init__(self, stop: Break, frames: tuple[Any, ...]) -> None:
        super().__init__(stop.reason)
        self.stop = stop
        self.frames = frames


class PlainFrame(_Stop):
    """The whole frame runs in plain Python."""

    def __init__(self, code: str, reason: str, where: Location | None = None) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.where = where


class GeneratorLeaves(_Stop):
    """A generator made inside the frame is alive at the frame's end: it must be a real one."""


class NeedsPlainSizes(_Stop):
    """torch fails on symbolic sizes or numbers: capture begins again with plain ones."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name)
        self.name = name
        self.reason = reason.partition("\n")[0]


class Restart(_Stop):
    """Capture begins again with one more instruction of the root frame known to break."""
