"""The arguments of the frame that is captured, as its locals.

In: their names and real objects. Out: a dict of Values that wraps and guards an argument when it is
first read; `capture.capture` makes it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ...runtime.guards.sources import Source
from .value import Unread, Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine


class Arguments(dict[str, Value]):
    """The root's locals: an argument is wrapped (and guarded) when it is first read."""

    def __init__(self, m: Machine, names: tuple[str, ...], values: tuple[Any, ...]) -> None:
        super().__init__()
        self._m = m
        for name, value in zip(names, values, strict=True):
            at = Source("local", None, name)
            super().__setitem__(name, Unread(partial(self._wrapped, name, value, at), source=at))

    def _wrapped(self, name: str, real: Any, at: Source) -> Value:
        """The Value of an argument; it also replaces the unread one under its name."""
        value = self._m.wrap(real, at)
        held = super().get(name)
        if isinstance(held, Unread) and held.source is at:
            super().__setitem__(name, value)
        return value

    def _read(self, name: str, value: Value) -> Value:
        return value.read() if isinstance(value, Unread) else value

    def __getitem__(self, name: str) -> Value:
        return self._read(name, super().__getitem__(name))

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401 (dict.get does not read)

    def pop(self, name: str, default: Any = None) -> Any:
        if name not in self:
            return default
        value = self[name]
        del self[name]
        return value
