"""Who looks on while something is compiled: `lower` gets what the stages of a compilation made, nobody else pays.

`watch()` gives the list that records are put in, within its block and in its thread; `tell` puts one there. What is told:
a `codegen.programs.compiled.Divided` of a graph with a backward, a `Seen` of each graph that became a program, the `Compiled` of what
was captured, and a `Published` of the entry.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from ...ir.dataclass import dataclass

_WATCHER: ContextVar[list[Any] | None] = ContextVar("watcher", default=None)


def watched() -> bool:
    """Does anybody look on?"""
    return _WATCHER.get() is not None


def tell(make: Callable[[], Any]) -> None:
    """Tell whoever looks on; `make` is called for nobody else."""
    watcher = _WATCHER.get()
    if watcher is not None:
        watcher.append(make())


@dataclass(frozen=True, slots=True, eq=False)
class Published:
    """An entry was made of a capture (a `capture.capture.Capture`) of this code, which is a resume function's if `resumed`.
    `resumes`: the way to each resume function that its own code calls, and what is called; `seconds` by stage."""

    code: types.CodeType
    resumed: bool
    made: Any
    resumes: tuple[tuple[Any, Any], ...]
    seconds: dict[str, float]


def published(state: Any, made: Any, resumes: Any, seconds: dict[str, float]) -> Published:
    return Published(state.code, state.origin is not None, made, tuple(resumes), dict(seconds))


@contextlib.contextmanager
def watch() -> Iterator[list[Any]]:
    """All that is told within the block, in order."""
    told: list[Any] = []
    token = _WATCHER.set(told)
    try:
        yield told
    finally:
        _WATCHER.reset(token)
