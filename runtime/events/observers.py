"""The observer of a compilation: `lower` receives the objects that the stages made.

In: objects passed to `tell` by capture and code generation. Out: the list that `watch()` yields,
which receives them within its block and in its context. Without an observer no object is made.

The objects: a `codegen.programs.compiled.Divided` for a graph with a backward, a `Seen` for each
graph that became a program, the `Compiled` of the captured graph, and a `Published` for the cache
entry.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from ...ir.dataclass import dataclass

_WATCHER: ContextVar[list[Any] | None] = ContextVar("watcher", default=None)


def is_observed() -> bool:
    """Whether there is an observer."""
    return _WATCHER.get() is not None


def publish(make: Callable[[], Any]) -> None:
    """Publish to the observer, if there is one; only then is `make` called."""
    watcher = _WATCHER.get()
    if watcher is not None:
        watcher.append(make())


@dataclass(frozen=True, slots=True, eq=False)
class Published:
    """A cache entry made from the capture `made` (a `capture.capture.Capture`) of `code`.

    `resumed`: the code is a resume function. `resumes`: for each resume function that the entry's
    code calls, the code that it resumes (None: `code`), the other arguments that identify it
    (`dispatch.resume_functions`), and the callable.
    `seconds`: time by stage."""

    code: types.CodeType
    resumed: bool
    made: Any
    resumes: tuple[tuple[Any, Any, Any], ...]
    seconds: dict[str, float]


def published(state: Any, made: Any, resumes: Any, seconds: dict[str, float]) -> Published:
    return Published(state.code, state.origin is not None, made, tuple(resumes), dict(seconds))


@contextlib.contextmanager
def watch() -> Iterator[list[Any]]:
    """Observe the block. The list receives all published objects in order."""
    seen: list[Any] = []
    token = _WATCHER.set(seen)
    try:
        yield seen
    finally:
        _WATCHER.reset(token)
