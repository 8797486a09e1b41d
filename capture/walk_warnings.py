"""What a walk must not let out: a warning, by Python's `warnings`, by numpy or by torch, belongs to the run.

While a frame is walked, on this thread alone, a warning is raised instead of given; whoever runs something at capture
(`containers.compute`, `torchcalls`) makes a break of it, so that Python warns each time. The filters of the program
stay as they are but for entries of ours that match nothing outside of a walk: to change them by `warnings` itself
would have each warning told again that was told before.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .interpreter.machine import Machine


class _Watching(threading.local):
    """Which of our entries match now: "" none, "python" for folded Python, "torch" within a call of torch."""

    over = ""


_WATCHING = _Watching()


class _Matches:
    """The pattern for a module's name in an entry of `warnings.filters`, which asks it with `match`."""

    def __init__(self, over: str, but: str = " ") -> None:
        self.over, self.but = over, but

    def match(self, module: str) -> bool:
        return _WATCHING.over == self.over and not module.startswith(self.but)


# A deprecated function of torch warns in the name of its caller. What torch's own code calls is not for the user to
# mend, and is ignored by default.
_OF_TORCH = {UserWarning: " ", FutureWarning: " ", RuntimeWarning: " "}
_OF_TORCH |= dict.fromkeys((DeprecationWarning, PendingDeprecationWarning), "torch.")
_ENTRIES: list[Any] = [
    ("error", None, Warning, _Matches("python"), 0),
    *[("error", None, kind, _Matches("torch", but), 0) for kind, but in _OF_TORCH.items()],
]


@contextmanager
def walking() -> Iterator[None]:
    """Around a walk: warnings are raised, and numpy raises what it would warn about."""
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


def tell(m: Machine, warning: Warning) -> None:
    """A warning that torch gives once in a process: it is given now, in the name of the user's line."""
    names = m.frames[-1].scope.names
    where = m.where
    with watching(""):
        warnings.warn_explicit(
            warning, None, where.file if where else "?", (where and where.line) or 0,
            names.get("__name__"), names.setdefault("__warningregistry__", {}),
        )  # fmt: skip
