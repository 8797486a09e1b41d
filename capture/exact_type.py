"""isinstance() for the program's own objects, by their type alone.

`isinstance` asks an object for `__class__`, which is code of the user's where a class defines it or its own
`__getattribute__`. Capture runs no such code, so it asks here wherever the object may be anybody's.
"""

from __future__ import annotations

from typing import Any, TypeGuard, TypeVar

T = TypeVar("T")


def is_kind(value: Any, kinds: type[T] | tuple[type[T], ...]) -> TypeGuard[T]:
    """Whether type(value) is one of these classes or derives from one; none of them may decide for itself."""
    return issubclass(type(value), kinds)
