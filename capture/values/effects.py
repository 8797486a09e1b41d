"""Effects: changes outside the frame, as records that are replayed in order after the graph."""

from __future__ import annotations

from typing import Any

from ...ir.dataclass import dataclass
from .frames import Scope
from .value import Token, Value


@dataclass(frozen=True, slots=True)
class SetAttr:
    """obj.name = value; `raw`: by object.__setattr__, since the user's __setattr__ was inlined."""

    obj: Value
    name: str
    value: Value | None  # None: delete
    raw: bool = False


@dataclass(frozen=True, slots=True)
class SetGlobal:
    scope: Scope
    name: str
    value: Value | None
    module: Value | None = None  # the module of these globals, if the program named it


@dataclass(frozen=True, slots=True)
class Written:
    """A pre-existing container or cell whose final content is written back."""

    target: Value


@dataclass(frozen=True, slots=True)
class Filled:
    """An unread container gets items: step(target, *items).

    The program builds it on its stack across a break, or it is a deque of the caller's.
    """

    target: Value
    step: Any
    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class SetVariable:
    """A context variable is set: token.variable.set(token.value)."""

    token: Token


@dataclass(frozen=True, slots=True)
class Called:
    """A function of graftjit is called: step(*items). Its exception leaves the frame."""

    step: Any
    items: tuple[Value, ...]


Effect = SetAttr | SetGlobal | Written | Filled | SetVariable | Called
