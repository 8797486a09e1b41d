"""Sets of the frame: what they hold, and in which order they give it.

The order of a set is a matter of its history (what was added, removed, merged, in turn), so a Set made or changed
in the frame keeps its history: it is rebuilt by the same steps on a real set. Where the order cannot be known
(a set made by merging two others) a use that shows it is a break.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from .breaks import Break
from .containers import NotConstant, as_constant, missing_key, read_key, writable
from .iteration import drain
from .values import Const, Set, Value
from .wrapping import freeze

if TYPE_CHECKING:
    from .machine import Machine

NONE = Const(None)


def add(m: Machine, value: Set, item: Value) -> None:
    frozen = freeze(read_key(m, item))
    if frozen not in value.items:
        value.items[frozen] = item
        value.history.append(("add", item))


def discard(m: Machine, value: Set, item: Value, missing_ok: bool) -> None:
    found = value.items.pop(freeze(read_key(m, item)), None)
    if found is None and not missing_ok:
        raise missing_key(item)
    if found is not None:
        value.history.append(("discard", found))


def clear(value: Set) -> None:
    value.items.clear()
    value.history.append(("clear", NONE))


def update(m: Machine, value: Set, other: Value) -> None:
    """value.update(other): from another set Python copies the table, in an order of its own."""
    if not isinstance(other, Set):
        for item in drain(m, other):
            add(m, value, item)
        return
    value.items.update({k: v for k, v in other.items.items() if k not in value.items})
    value.history.append(("update", other))
    if other.changed or other.source is None:
        value.exact = False


def make(m: Machine, items: Iterable[Value], cls: type = set) -> Set:
    made = Set({}, cls)
    for item in items:
        add(m, made, item)
    return made


def of_iterable(m: Machine, value: Value, cls: type) -> Set:
    """set(value) or frozenset(value)"""
    if isinstance(value, Set) and value.cls is frozenset is cls:
        return value
    made = Set({}, cls)
    update(m, made, value)
    return made


def is_exact(value: Set) -> bool:
    """Whether the steps of its history make the set that plain Python has, in the same order."""
    if len(value.items) < 2:
        return True
    merged = [other for step, other in value.history if step == "update"]
    return value.exact and not any(isinstance(o, Set) and o.changed for o in merged)


def ordered(m: Machine, value: Set) -> list[Value]:
    """The elements as iteration gives them."""
    items = list(value.items.values())
    if len(items) < 2:
        return items
    try:
        order = _order(m, value)
    except NotConstant:
        raise Break("GB120", "the order of a set of objects") from None
    return [value.items[freeze(Const(item))] for item in order]


def _order(m: Machine, value: Set) -> list[object]:
    if value.origin is not None and not value.changed:
        if value.source is not None and value.source.kind != "const":
            m.guard("keys", value.source, tuple(value.origin))
        return list(value.origin)
    if value.origin is not None or not is_exact(value):
        raise Break("GB120", "the order of a set that was changed or merged in this frame")
    real: set[object] = set()
    for step, item in value.history:
        part = item.origin if isinstance(item, Set) else as_constant(m, item)
        real.clear() if step == "clear" else getattr(real, step)(part)
    if value.cls is frozenset:
        return list(frozenset(as_constant(m, item) for _, item in value.history))
    return list(real)


Method = Callable[["Machine", Set, list[Value], dict[str, Value]], Value]


def _then_none(change: Callable[[Machine, Set, list[Value]], object]) -> Method:
    def method(m: Machine, value: Set, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if kwargs:
            raise Break("GB122", "keywords")
        change(m, writable(m, value), args)
        return NONE

    return method


def _update_all(m: Machine, value: Set, others: list[Value]) -> None:
    for other in others:
        update(m, value, other)


def _take_all(m: Machine, value: Set, others: list[Value]) -> None:
    for other in others:
        if other is value:
            raise Break("GB122", "a set without itself")
        for item in drain(m, other):
            discard(m, value, item, True)


METHODS: dict[str, Method] = {
    "add": _then_none(lambda m, v, a: add(m, v, a[0])),
    "discard": _then_none(lambda m, v, a: discard(m, v, a[0], True)),
    "remove": _then_none(lambda m, v, a: discard(m, v, a[0], False)),
    "clear": _then_none(lambda m, v, a: clear(v)),
    "update": _then_none(_update_all),
    "difference_update": _then_none(_take_all),
    "copy": lambda m, v, a, k: of_iterable(m, v, v.cls),
}
