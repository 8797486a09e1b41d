"""Sets of the frame: their elements and their order.

The order of a set depends on its history (all additions, removals and merges), so a Set made or
changed in the frame keeps its history; the same steps on a real set rebuild it. Where the order
cannot be known (a set merged from two others), a use that shows it is a break.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ..breaks import Break
from ..data_model import attributes
from ..data_model.container_iterators import must_be_python
from ..data_model.iteration import ITERABLES, drain, each
from ..values.containers import (
    NotConstant,
    dict_items,
    from_constant,
    is_exact,
    missing_key,
    moved,
    raises,
    read_key,
    real_set,
    sequence_items,
    writable,
)
from ..values.value import Const, Dict, DictView, Iterator, Sequence, Set, Value
from ..values.wrap import freeze

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

NONE = Const(None)


def add(m: Machine, value: Set, item: Value) -> None:
    frozen = freeze(read_key(m, item))
    held = value.items if value.shut is None else value._items
    if frozen not in held:
        held[frozen] = item
        moved(m, value)
        value.history.append(("add", item))


def _add(m: Machine, value: Set, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """set.add, without reading the set."""
    if kwargs:
        raise Break("GB122", "keywords")
    m.changed(value)
    add(m, value, args[0])
    return NONE


def discard(m: Machine, value: Set, item: Value, missing_ok: bool) -> None:
    found = value.items.pop(freeze(read_key(m, item)), None)
    if found is None and not missing_ok:
        raise missing_key(item)
    if found is not None:
        moved(m, value)
        value.history.append(("discard", found))


def clear(m: Machine, value: Set) -> None:
    moved(m, value)
    value.items.clear()
    value.history.append(("clear", NONE))


def update(m: Machine, value: Set, other: Value) -> None:
    """value.update(other): from another set, Python copies the table, in its own order."""
    if isinstance(other, Dict) and other.cls is dict:
        held = {freeze(key): key for key, _ in dict_items(m, other)}
        _take_in(m, value, held)
        value.history.append(("update", snapshot(m, other)))
        return
    if not isinstance(other, Set):
        _reads_table(other)
        for item in each(m, other):
            add(m, value, item)
        return
    _take_in(m, value, other.items)
    value.history.append(("update", snapshot(m, other)))


def _reads_table(value: Value) -> None:
    """Break if this is of a class derived of a set: C reads its table, not its `__iter__`."""
    if issubclass(attributes.real_class(value) or object, (set, frozenset)):
        raise Break("GB122", "the items of a set of a derived class")


def _take_in(m: Machine, value: Set, held: dict[Any, Value]) -> None:
    new = {key: item for key, item in held.items() if key not in value.items}
    if new:
        moved(m, value)
        value.items.update(new)


def snapshot(m: Machine, value: Value) -> Value:
    """A copy of a set, view, or other iterable in its present state, for a merge."""
    if isinstance(value, DictView):
        pairs = {freeze(key): (key, item) for key, item in dict_items(m, value.of)}
        return DictView(Dict(pairs), value.kind)
    if isinstance(value, Dict):
        return Dict({freeze(key): (key, NONE) for key, _ in dict_items(m, value)})
    if isinstance(value, Sequence):
        return Sequence(list(sequence_items(m, value)), value.cls)
    if not isinstance(value, Set) or (value.origin is not None and not value.changed):
        return value
    exact = is_exact(value) and value.origin is None
    return Set(dict(value.items), value.cls, None, False, list(value.history), exact, value.made)


def writable_step(m: Machine, value: Set, step: str, other: Value) -> None:
    """Note that the set's method `step` is about to write to it."""
    part = snapshot(m, other)
    writable(m, value).history.append((step, part))


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


def ordered(m: Machine, value: Set) -> list[Value]:
    """The elements in iteration order."""
    items = list(value.items.values())
    if len(items) < 2:
        return items
    try:
        order = list(real_set(m, value))
    except NotConstant:
        raise Break("GB120", "the order of a set of objects") from None
    return [value.items[freeze(from_constant(item))] for item in order]


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
        if not isinstance(other, (Set, Sequence, Dict, DictView)):
            _reads_table(other)
            for item in each(m, other):
                discard(m, value, item, True)
            continue
        if isinstance(other, Set):
            gone = list(other.items)
        else:
            other = Sequence(drain(m, other), tuple)
            gone = [freeze(read_key(m, item)) for item in other.items]
        if any(key in value.items for key in gone):
            moved(m, value)
        for key in gone:
            value.items.pop(key, None)
        value.history.append(("difference_update", snapshot(m, other)))


METHODS: dict[str, Method] = {
    "add": _add,
    "discard": _then_none(lambda m, v, a: discard(m, v, a[0], True)),
    "remove": _then_none(lambda m, v, a: discard(m, v, a[0], False)),
    "clear": _then_none(lambda m, v, a: clear(m, v)),
    "update": _then_none(_update_all),
    "difference_update": _then_none(_take_all),
    "copy": lambda m, v, a, k: of_iterable(m, v, v.cls),
}


def over_set(m: Machine, of: Set) -> Iterator:
    items, since = ordered(m, of), len(of.moves)
    changed = False

    def step(made: Iterator) -> Value | None:
        nonlocal changed
        if changed or len(of.items) != len(items):
            changed = True
            text = "Set changed size during iteration"
            raise raises(f"RuntimeError: {text}", text)
        if len(of.moves) != since:
            raise must_be_python(of, since)
        index = made.parts[1]
        if index >= len(items):
            return None
        made.parts[1] = index + 1
        return items[index]

    return Iterator("set", [of, 0, since], step)


ITERABLES[Set] = over_set
