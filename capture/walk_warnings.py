"""Warnings during a walk: those of Python, numpy or torch must come at run time, not at capture.

While a frame is walked, warnings on this thread are raised as exceptions. Code that runs something
at capture (`containers.compute`, `torch_models.calls`) turns them into a break, so that Python
warns each time. The program's filters stay in place; we add entries that match nothing outside a
walk. A change through `warnings` itself would make old warnings appear again.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .interpreter.machine import Machine


class _Watching(threading.local):
    """The entries that match now: "" none, "python" for folded Python, "torch" in a torch call."""

    over = ""


_WATCHING = _Watching()


class _Matches:
    """The module pattern of an entry in `warnings.filters`, which calls its `match`."""

    over_a_walk = True  # `runtime.guards.shown_output` reads this mark

    def __init__(self, over: str, but: str = " ") -> None:
        self.over, self.but = over, but

    def match(self, module: str) -> bool:
        return _WATCHING.over == self.over and not module.startswith(self.but)


# A deprecated torch function warns with the module of its caller. Calls from torch's own code are
# not for the user to fix, and are ignored by default.
_OF_TORCH = {UserWarning: " ", FutureWarning: " ", RuntimeWarning: " "}
_OF_TORCH |= dict.fromkeys((DeprecationWarning, PendingDeprecationWarning), "torch.")
_ENTRIES: list[Any] = [
    ("error", None, Warning, _Matches("python"), 0),
    *[("error", None, kind, _Matches("torch", but), 0) for kind, but in _OF_TORCH.items()],
]


@contextmanager
def walking() -> Iterator[None]:
    """A context for a walk: warnings and numpy's floating-point errors are raised."""
    filters: list[Any] = warnings.filters  # type: ignore[assignment]
    filters[:0] = _ENTRIES
    _WATCHING.over = "python"
    try:
        with np.errstate(all="raise"):
            yield
    finally:
        _WATCHING.over = ""
        filters[:] = [entry for entry in filters if not any(entry is ours for ours in _ENTRIES)]


@contextmanager
def watching(over: str) -> Iterator[None]:
    before, _WATCHING.over = _WATCHING.over, over
    try:
        yield
    finally:
        _WATCHING.over = before


def warn_now(m: Machine, warning: Warning) -> None:
    """Give a warning that torch gives once per process now, at the user's line."""
    names = m.frames[-1].scope.names
    where = m.where
    with watching(""), ExitStack() as stack:
        if m.journal.filters:
            stack.enter_context(warnings.catch_warnings())
        for step, given in m.journal.filters:
            step(**given)
        warnings.warn_explicit(
            warning,
            None,
            where.file if where else "?",
            (where and where.line) or 0,
            names.get("__name__"),
            names.setdefault("__warningregistry__", {}),
        )
