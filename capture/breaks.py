"""How capture stops: a graph break, or the whole frame left to Python.

Handlers raise `Break` where they meet something they do not model; `capture.capture` decides what becomes of
it (a resume function, or plain Python) and tells it as an event.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, Self

from ..ir.location import Location

_ALIVE = threading.local()  # .made: what this thread has made since the last `let_go`


class _Stop(Exception):
    """An exception of the walk. One that a local variable of a frame in its traceback names is a cycle, which would
    keep every frame below it, and the program's objects in them, until the collector comes: see `let_go`."""

    def __new__(cls, *args: Any, **named: Any) -> Self:
        stop = super().__new__(cls, *args, **named)
        _ALIVE.__dict__.setdefault("made", []).append(weakref.ref(stop))
        return stop


def let_go() -> None:
    """The walk is over: no exception of it holds a frame any longer."""
    for reference in _ALIVE.__dict__.pop("made", ()):
        if (stop := reference()) is not None:
            stop.__cause__ = stop.__context__ = stop.__traceback__ = None


class Break(_Stop):
    """The instruction at hand has to run in plain Python. `code` is a row of runtime.codes."""

    def __init__(self, code: str, reason: str, where: Location | None = None) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.where = where
        self.inlined: tuple[Location, ...] = ()
        self.looks = False  # an inlined function reads the locals of its callers


class Thrown(Break):
    """The captured path raises an exception of the program. A handler of the frame, or of a function inlined in
    it, takes it up (see `exceptions`); else it is the break at which Python raises it.

    `known` are the exception's arguments if they are certainly those of Python, `held` the same as Values; `value`
    is its Value, once made.
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


class LooksAtFrame(Break):
    """The frame that runs this instruction reads itself: it must be there as it is written."""

    def __init__(self, name: str, code: str = "GB132") -> None:
        super().__init__(code, f"call of {name}()")


class ExceptionLeaves(_Stop):
    """An exception made inside the frame is alive where the frame ends: instruction `index` of the root, which
    made or raised it, must be Python's."""

    code = "GB108"
    reason = "an exception that outlives its handler"
    inlined: tuple[Location, ...] = ()

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


class ArrayShares(_Stop):
    """An array made inside the frame and a tensor over its memory are both seen, or one shows what was written to
    the other: instruction `index` of the root, which made the tensor, must be Python's."""

    code = "GB123"
    reason = "a tensor that shares its memory with an array"

    def __init__(self, index: int, inlined: tuple[Location, ...]) -> None:
        super().__init__(index)
        self.index = index
        self.inlined = inlined


class MustBePython(_Stop):
    """Instruction `index` of the root has an effect that only Python's own objects show: it must be Python's."""

    inlined: tuple[Location, ...] = ()

    def __init__(self, index: int, code: str, reason: str) -> None:
        super().__init__(reason)
        self.index = index
        self.code = code
        self.reason = reason


class PlainFrame(_Stop):
    """The whole frame runs in plain Python."""

    def __init__(self, code: str, reason: str, where: Location | None = None) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.where = where


class GeneratorLeaves(_Stop):
    """A generator made inside the frame is alive where the frame ends: it must be a real one."""


class NeedsPlainSizes(_Stop):
    """Something that torch does with symbolic sizes and numbers fails: capture begins again with plain ones."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name)
        self.name = name
        self.reason = reason.partition("\n")[0]


class Restart(_Stop):
    """Capture begins again, now knowing one more instruction of the root frame that breaks."""
