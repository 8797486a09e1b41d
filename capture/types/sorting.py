"""Sorting: `sorted()` and `list.sort()` over Values.

In: items as Values, a key function and a direction. Out: the items in order. Constant keys are
compared directly. For others, Python's own sort runs over objects whose `<` is the program's, so
that comparisons are walked in Python's order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..breaks import Break, Thrown
from ..values.containers import NotConstant, as_constant, raises, sequence_items, writable
from ..values.value import Const, Sequence, Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

NONE = Const(None)


class _Keyed:
    """An item with its key, which list.sort compares."""

    __slots__ = ("item", "key", "m")

    def __init__(self, m: Machine, item: Value, key: Value) -> None:
        self.m, self.item, self.key = m, item, key

    def __lt__(self, other: _Keyed) -> bool:
        return self.m.truth(self.m.compare("<", self.key, other.key))


def _keyed(m: Machine, items: Iterable[Value], kwargs: dict[str, Value]) -> list[_Keyed]:
    key = kwargs.get("key", NONE)
    if isinstance(key, Const) and key.value is not None:
        raise Break("GB121", "a sort with a key that cannot be called")
    if isinstance(key, Const):
        return [_Keyed(m, item, item) for item in items]
    return [_Keyed(m, item, m.call(key, [item], {})) for item in items]


def _is_reversed(m: Machine, kwargs: dict[str, Value]) -> bool:
    given = kwargs.get("reverse", Const(False))
    if not isinstance(given, Const) or not isinstance(given.value, int):
        raise Break("GB121", "a sort with a direction that is not a whole number")
    return m.truth(given)


def _sort(m: Machine, keyed: list[_Keyed], reverse: bool) -> None:
    """Sort in place; if a comparison raises, the list has the same state as in Python."""
    try:
        plain = [(as_constant(m, one.key), one) for one in keyed]
    except NotConstant:
        keyed.sort(reverse=reverse)
        return
    try:
        plain.sort(key=lambda pair: pair[0], reverse=reverse)
    except TypeError as error:
        raise raises(f"TypeError: {error}") from error
    keyed[:] = [one for _, one in plain]


def sort_items(m: Machine, items: Iterable[Value], kwargs: dict[str, Value]) -> list[Value]:
    """sorted(items, **kwargs)"""
    reverse = _is_reversed(m, kwargs)
    keyed = _keyed(m, items, kwargs)
    _sort(m, keyed, reverse)
    return [one.item for one in keyed]


def sort_list(m: Machine, value: Sequence, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """list.sort(); the list is empty meanwhile, as in Python."""
    reverse = _is_reversed(m, kwargs)
    held = writable(m, value).items
    items: list[Any] = list(sequence_items(m, value))
    keyed: list[_Keyed] = []
    value._items = _Shown()
    try:
        keyed = _keyed(m, items, kwargs)
        items = keyed
        _sort(m, keyed, reverse)
    except Thrown:
        held[:] = [getattr(one, "item", one) for one in items]
        raise
    finally:
        value._items = held
    held[:] = [one.item for one in keyed]
    return NONE


def _refuse(*_: Any) -> Any:
    raise Break("GB121", "a list that is changed while it is sorted")


class _Shown(list[Any]):
    """The empty content of a list while it is sorted; Python raises if the program writes to it."""

    append = extend = insert = pop = remove = clear = reverse = sort = _refuse  # type: ignore[assignment]
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse  # type: ignore[assignment]
