"""`Weak`: a weak reference that stands for its object where a guard row or a source names a fixed one.

`runtime.guards.weak_rows` puts them there; whoever reads a row or a source asks `given` for the object. `Living`: those of
some objects that are still there.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from ..weak_callbacks import until_exit

T = TypeVar("T")


class Weak(weakref.ref):
    """A weak reference that stands for what it refers to; an expected `weakref.ref` is meant as such."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(self())


class Gone:
    """What a dead `Weak` gives: no object of a program is this class."""


def given(expected: Any) -> Any:
    """The object that is meant, or the class `Gone`."""
    if type(expected) is not Weak:
        return expected
    found = expected()
    return Gone if found is None else found


class Living(Generic[T]):
    """A set of objects held weakly, by identity, in the order of adding. Any thread may add to it and go over it at
    any time: each is one operation on a dict."""

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
