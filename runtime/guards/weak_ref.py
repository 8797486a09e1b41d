"""Weak references in guard rows and sources.

`runtime.guards.weak_rows` replaces the fixed objects of rows and sources by `Weak`. Readers of a
row or a source call `given` for the object. `Living` is a set of weakly held objects.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from ..weak_callbacks import until_exit

T = TypeVar("T")


class Weak(weakref.ref):
    """A weak reference in place of its referent. A plain `weakref.ref` in a row means the reference
    itself."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(self())


class Gone:
    """The value of a dead `Weak`. No object of a program is this class."""


def given(expected: Any) -> Any:
    """The object itself, the referent of a `Weak`, or the class `Gone`."""
    if type(expected) is not Weak:
        return expected
    found = expected()
    return Gone if found is None else found


class Living(Generic[T]):
    """A set of weakly held objects, compared by identity, in insertion order.

    Any thread may add to it or iterate over it at any time: each is one operation on a dict.
    """

    def __init__(self) -> None:
        self._found: dict[int, weakref.ref[T]] = {}

    def add(self, value: T) -> None:
        key = id(value)

        def drop(reference: weakref.ref[T]) -> None:
            if self._found.get(key) is reference:
                del self._found[key]

        self._found[key] = weakref.ref(value, until_exit(drop))

    def __iter__(self) -> Iterator[T]:
        found = (reference() for reference in list(self._found.values()))
        return iter([value for value in found if value is not None])

    def __len__(self) -> int:
        return len(self._found)


class Referent:
    """The object that a weak reference refers to, or None: a callable for a "context" source."""

    __slots__ = ("__name__", "_of")

    def __init__(self, value: Any) -> None:
        """Raises TypeError if nothing can refer weakly to the value."""
        self._of = weakref.ref(value)
        self.__name__ = f"same_{type(value).__name__}"

    def __call__(self) -> Any:
        return self._of()


class WeakItem:
    """An item of a WeakKeyDictionary, or ABSENT: a callable for a "context" source.

    `has`: the same for whether it has the key.
    """

    __slots__ = ("__name__", "_key", "_mapping", "has")

    ABSENT = object()

    def __init__(self, mapping: weakref.WeakKeyDictionary[Any, Any], key: Any) -> None:
        self._mapping, self._key = weakref.ref(mapping), weakref.ref(key)
        self.__name__ = "item_of_a_weak_mapping"
        self.has = HasKey(self)

    def __call__(self) -> Any:
        mapping, key = self._mapping(), self._key()
        if mapping is None or key is None:
            return WeakItem.ABSENT
        return mapping.data.get(self._key, WeakItem.ABSENT)  # type: ignore[attr-defined]


class HasKey:
    """Whether a WeakKeyDictionary has a key."""

    __slots__ = ("__name__", "_item")

    def __init__(self, item: WeakItem) -> None:
        self._item, self.__name__ = item, "key_of_a_weak_mapping"

    def __call__(self) -> bool:
        return self._item() is not WeakItem.ABSENT
