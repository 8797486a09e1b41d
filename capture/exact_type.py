"""isinstance() for the program's objects, by their type alone.

`isinstance` reads an object's `__class__`, which runs user code if a class defines it or its own
`__getattribute__`. Capture must run no such code, so it uses this function for any object of the
program.
"""

from __future__ import annotations

from typing import Any, TypeGuard, TypeVar

T = TypeVar("T")


def is_kind(value: Any, kinds: type[T] | tuple[type[T], ...]) -> TypeGuard[T]:
    """Whether type(value) is one of these classes or derives from one; no class overrides it."""
    return issubclass(type(value), kinds)
