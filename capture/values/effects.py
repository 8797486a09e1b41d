"""Effects: what a frame changes outside of itself, as records that are replayed in order after the graph."""

from __future__ import annotations

from typing import Any

from ...ir.dataclass import dataclass
from .frames import Scope
from .value import Token, Value


@dataclass(frozen=True, slots=True)
class SetAttr:
    """obj.name = value; `raw` goes by object.__setattr__ (the user's own __setattr__ was inlined)."""

    obj: Value
    name: str
    value: Value | None  # None deletes
    raw: bool = False


@dataclass(frozen=True, slots=True)
class SetGlobal:
    scope: Scope
    name: str
    value: Value | None
    module: Value | None = None  # whose globals these are, where the program named it


@dataclass(frozen=True, slots=True)
class Written:
    """A pre-existing container or cell whose final content is written back."""

    target: Value


@dataclass(frozen=True, slots=True)
class Filled:
    """A container that nobody looks into gets more, one that the program builds on its stack across a break, or a deque
    of the caller's: step(target, *items)."""

    target: Value
    step: Any
    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class SetVariable:
    """A context variable is set: token.variable.set(token.value)."""

    token: Token


Effect = SetAttr | SetGlobal | Written | Filled | SetVariable
