"""Effects: changes outside the frame, as records that are replayed in order after the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...ir.dataclass import dataclass
from ...runtime.guards.sources import Source
from .frames import Scope
from .value import Const, Dict, Token, Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine


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
    """A function is called: step(*items, **named). Its exception leaves the frame.

    writes   objects from outside that it changes
    result   the Value of what it returns, if that is used
    early    it is called before the frame's program
    state    the generator of random numbers whose state it changes
    calm     a library's output: no code of the program runs, and nothing that other effects read
             changes
    """

    step: Any
    items: tuple[Value, ...]
    named: tuple[tuple[str, Value], ...] = ()
    writes: tuple[Value, ...] = ()
    result: Value | None = None
    early: bool = False
    state: Value | None = None
    calm: bool = False


def can_be_made(m: Machine) -> bool:
    """Whether replacement code can make a call of the walk: it happens once, and at its place."""
    inside = m.inner or m.modes or m.tracer.regions is not None or m.differentiating
    return not (inside or m.varied.plain or m.repeated)


Effect = SetAttr | SetGlobal | Written | Filled | SetVariable | Called


def is_undone(effect: Effect) -> bool:
    """Whether a write to items of a dict leaves what the dict had, each under its own key: so
    `torch.func.functional_call` puts a module's parameters back."""
    if not isinstance(effect, Written) or not isinstance(effect.target, Dict):
        return False
    target = effect.target
    if target.whole or target.moves or type(target.origin) is not dict or not target.placed:
        return False
    for frozen in target.placed:
        key, value = target.items.get(frozen, (None, None))
        if not isinstance(key, Const) or value is None:
            return False
        if value.source != Source("item", target.source, key.value):
            return False
        if getattr(value, "origin", None) is not target.origin.get(key.value, effect):
            return False
    return True
