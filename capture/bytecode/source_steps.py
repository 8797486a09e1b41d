"""Functions that replacement code calls to read a source again, and checks on constants.

`capture.bytecode.assembler` puts these functions into the code as constants, for the steps of a
Source that no single instruction performs. No step runs code of the user's classes.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ...runtime import _native
from ..exact_type import is_kind

_NAME = re.compile(r"[A-Za-z0-9_]*\Z", re.ASCII)
_mro_of = type.__dict__["__mro__"].__get__  # type: ignore[attr-defined]
_qualname_of = type.__dict__["__qualname__"].__get__  # type: ignore[attr-defined]
_dict_of = type.__dict__["__dict__"].__get__  # type: ignore[attr-defined]


def survives_interning(value: Any) -> bool:
    """Whether a code object keeps this constant unchanged.

    CPython replaces each name-like string by the interned one, also inside exact tuples (in place)
    and frozensets.
    """
    if type(value) is str:
        return not _NAME.match(value) or sys.intern(value) is value
    if type(value) in (tuple, frozenset):
        return all(survives_interning(item) for item in value)
    return True


def may_end(value: Any) -> bool:
    """Whether this is a class made by a function, which running code must not keep alive.

    Guards check that the class still exists when the code begins.
    """
    return is_kind(value, type) and "<locals>" in _qualname_of(value)


def item(base: Any, key: Any) -> Any:
    """base[key] by the builtin container's own method."""
    for builtin in (dict, list, tuple):
        if builtin in _mro_of(type(base)):
            return builtin.__getitem__(base, key)
    return base[key]


def mro_attribute(cls: type, name: str) -> Any:
    """The first raw attribute along a class's mro."""
    for base in _mro_of(cls):
        found = _dict_of(base)
        if name in found:
            return found[name]
    raise AttributeError(name)


def own_attribute(cls: type, name: str) -> Any:
    """A class's own attribute, unbound."""
    return _dict_of(cls)[name]


def class_attribute(base: Any, name: str) -> Any:
    """The first raw attribute along the mro of an object's type."""
    return mro_attribute(type(base), name)


def nth_key(base: Any, index: int) -> Any:
    """The index-th key of a dict in order."""
    keys = OrderedDict.__iter__(base) if isinstance(base, OrderedDict) else dict.__iter__(base)
    return next(itertools.islice(keys, index, None))


def referent(base: Any) -> Any:
    """The object that a weak reference refers to."""
    return base()


def iterated(base: Any, number: int) -> Any:
    """The object that an iterator goes over, which a guard has found there."""
    return _native.iterated(base, number)[0]


STEPS: dict[str, tuple[Callable[..., Any], bool]] = {
    "type": (type, False),
    "referent": (referent, False),
    "iterated": (iterated, True),
    "class_attr": (class_attribute, True),
    "mro_attr": (mro_attribute, True),
    "item": (item, True),
    "key": (nth_key, True),
}
"""Source kind -> (function, whether it takes the source's key)."""
