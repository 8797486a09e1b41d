"""Warnings during a walk: those of Python, numpy or torch must come at run time, not at capture.

While a frame is walked, warnings on this thread are raised as exceptions, and those of torch calls
are noted. Code that runs something at capture (`containers.compute`, `over_ghosts`) turns them into
a break, so that Python warns each time. The program's filters stay in place; we add entries that
match nothing outside a walk. A change through `warnings` itself would make old warnings appear
again.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..ir.errors import CannotTrace
from ..ir.ops import meta_kernels
from .breaks import Warns

if TYPE_CHECKING:
    from .interpreter.machine import Machine


class Given(NamedTuple):
    """A warning of a torch call over ghosts."""

    text: str
    kind: type[Warning]


class _Watching(threading.local):
    """The entries that match now: "" none, "python" for folded Python, "torch" in a torch call.

    `text`, `module`: of the warning that an entry looks at; `given`: what was noted.
    """

    over = ""
    text = ""
    module = ""

    def __init__(self) -> None:
        self.given: list[Given] = []


_WATCHING = _Watching()


class _Text:
    """The pattern of an entry's message."""

    def match(self, text: str) -> bool:
        _WATCHING.text = text
        return True


class _Matches:
    """The module pattern of an entry in `warnings.filters`, which calls its `match`."""

    over_a_walk = True  # `runtime.guards.shown_output` reads this mark

    def __init__(self, over: str, but: str = " ") -> None:
        self.over, self.but = over, but

    def match(self, module: str) -> bool:
        _WATCHING.module = module
        return _WATCHING.over == self.over and not module.startswith(self.but)


def _noted(kinds: tuple[type[Warning], ...], matches: _Matches) -> Any:
    """An entry that notes warnings of these kinds; Python asks for the category last.

    An exception would not do: where torch warns and then raises, its C++ prints the traceback of
    the warning, and drops it.
    """

    class Noted(type):
        def __subclasscheck__(cls, category: Any) -> bool:
            if not issubclass(category, kinds) or not matches.match(_WATCHING.module):
                return False
            _WATCHING.given.append(Given(_WATCHING.text, category))
            return True

    return "ignore", _Text(), Noted("Noted", (Warning,), {}), matches, 0


# A deprecated torch function warns with the module of its caller. Calls from torch's own code are
# not for the user to fix, and are ignored by default.
_DEPRECATED = (DeprecationWarning, PendingDeprecationWarning)
_SHOWN = (UserWarning, FutureWarning, RuntimeWarning)
_ENTRIES: list[Any] = [
    ("error", None, Warning, _Matches("python"), 0),
    _noted(_SHOWN, _Matches("torch")),
    _noted(_DEPRECATED, _Matches("torch", "torch.")),
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
def watching(over: str) -> Iterator[list[Given]]:
    """A context in which other entries match; the warnings that are noted meanwhile."""
    before, _WATCHING.over = _WATCHING.over, over
    outer, _WATCHING.given = _WATCHING.given, []
    try:
        yield _WATCHING.given
    finally:
        if _WATCHING.given:
            meta_kernels.forget()
        _WATCHING.over, _WATCHING.given = before, outer


def over_ghosts(m: Machine, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A torch call over ghosts. What torch warns about once per process, it warns about now; what
    it warns about each time, when Python makes the call.
    """
    once: list[Given] = []
    while True:
        with watching("torch") as given:
            try:
                result = m.tracer.run(fn, args, kwargs, m.users_line, given)
                break
            except CannotTrace as error:
                if given and once:
                    raise Warns(given[0].text, given[0].kind) from error
                if not given:
                    _warn_now(m, once)
                    raise
            once = given
    _warn_now(m, once)
    return result


def _warn_now(m: Machine, once: list[Given]) -> None:
    """Give warnings at the user's line."""
    names = m.frames[-1].scope.names
    where = m.where
    with watching(""), ExitStack() as stack:
        if once and m.journal.filters:
            stack.enter_context(warnings.catch_warnings())
        for step, given in m.journal.filters if once else ():
            step(**given)
        for one in once:
            try:
                warnings.warn_explicit(
                    one.text,
                    one.kind,
                    where.file if where else "?",
                    (where and where.line) or 0,
                    names.get("__name__"),
                    names.setdefault("__warningregistry__", {}),
                )
            except Warning:  # a filter of the program's raises it
                raise Warns(*one) from None
