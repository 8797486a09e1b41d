"""`Weak`: a weak reference that stands for its object where a guard row or a source names a fixed one.

`runtime.held` puts them there; whoever reads a row or a source asks `given` for the object.
"""

from __future__ import annotations

import weakref
from typing import Any


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
