"""What the cache of an lru_cached function holds, asked without a call of the function.

In: a function that `functools.lru_cache` or `functools.cache` made, and the arguments of a call.
Out: a `Lookup`, a callable for a "context" source: the kept result, or `ABSENT`. It counts no hit,
moves no entry, and keeps neither the function nor its arguments or results alive. `IsAbsent` and
`IsOrWouldBe` ask for one outcome.

The cache is a field of a C object that Python has no name for. `gc.get_referents` gives the fields
in the order in which C visits them (`lru_cache_tp_traverse` in CPython's
Modules/_functoolsmodule.c): the type, of a cache with a limit each link's key, result and type, and
then the six of `_FIELDS`.
"""

from __future__ import annotations

import functools
import gc
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch

from ..safe_access import same_constant
from .weak_ref import Referent

# cache, function, mark before keywords, type of links, type of cache_info's result, __dict__
_FIELDS = 6
_CACHE, _FUNCTION, _MARK, _LINK_TYPE = range(-_FIELDS, 4 - _FIELDS)
_LINK = 3
_fields = gc.get_referents
_PLAIN = frozenset(
    {type(None), bool, int, float, str, bytes, torch.dtype, torch.device, torch.layout}
)
_LIBRARY = functools.lru_cache.__code__.co_filename


class _Answer:
    """What a look-up without a result says."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


ABSENT = _Answer("not in the cache")  # and there is room for it
UNKNOWN = _Answer("unknown")


def parameters(function: Any) -> tuple[int | None, bool] | None:
    """(maxsize, typed) of an lru_cached function; None if they, or its fields, are not known."""
    fields = _fields(function)
    if fields[-1] is not vars(function) or type(fields[_CACHE]) is not dict:
        return None
    told = vars(function).get("cache_parameters")
    if type(told) is not types.FunctionType or told.__code__.co_filename != _LIBRARY:
        return None
    known = told()
    return known["maxsize"], known["typed"]


def wrapped(function: Any) -> Any:
    """The function beneath."""
    return _fields(function)[_FUNCTION]


class Lookup:
    """The result that is kept for a call, now; ABSENT; or UNKNOWN.

    `args` and `kwargs` are constants, tuples of them, and `Referent`s. `room`: how many results
    must fit in beside those that the cache holds, for an ABSENT one.
    """

    __slots__ = (
        *("__name__", "_args", "_fixed", "_function", "_kwargs", "_maxsize", "_room", "_typed"),
    )

    def __init__(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], room: int
    ) -> None:
        known = parameters(function)
        assert known is not None
        self._maxsize, self._typed = known
        self._function = weakref.ref(function)
        self._args, self._kwargs, self._room = args, kwargs, room
        self.__name__ = f"cached_{function.__name__}"
        # The key, unless it has objects: it is made anew then.
        objects = any(isinstance(part, Referent) for part in (*args, *kwargs.values()))
        mark = _fields(function)[_MARK]
        self._fixed = None if objects else (self.key(mark, _now),)

    def __call__(self) -> Any:
        function = self._function()
        if function is None:
            return UNKNOWN
        fields = _fields(function)
        cache = fields[_CACHE]
        if type(cache) is not dict:
            return UNKNOWN
        key = self.key(fields[_MARK], _now) if self._fixed is None else self._fixed[0]
        held = cache.get(key, ABSENT)
        limit = self._maxsize
        if limit is None:
            return held
        if held is ABSENT:
            return ABSENT if len(cache) + self._room <= limit else UNKNOWN
        link = fields[_LINK_TYPE]
        for at in range(1, len(fields) - _FIELDS, _LINK):
            if fields[at + 2] is link and _same_key(fields[at], key):
                return fields[at + 1]
        return UNKNOWN

    def key(self, mark: Any, part: Callable[[Any], Any]) -> Any:
        """The key in the cache (`lru_cache_make_key` in C); `part` is called for each argument."""
        args = tuple(map(part, self._args))
        if not self._typed and not self._kwargs:
            return args[0] if len(args) == 1 and type(args[0]) in (str, int) else args
        values = list(map(part, self._kwargs.values()))
        key = [*args]
        if values:
            key.append(mark)
            for name, value in zip(self._kwargs, values, strict=True):
                key += (name, value)
        if self._typed:
            key += map(type, [*args, *values])
        return tuple(key)


class IsAbsent:
    """Whether the cache has room, and no result yet: a callable for a "context" source."""

    __slots__ = ("__name__", "_lookup")

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self.__name__ = f"not_{lookup.__name__}"

    def __call__(self) -> bool:
        return self._lookup() is ABSENT


class IsOrWouldBe:
    """Whether the cache holds this constant, or has room and no result yet: a callable for a
    "context" source. The walk of the function has found the constant, under its own guards."""

    __slots__ = ("__name__", "_expected", "_lookup")

    def __init__(self, lookup: Lookup, expected: Any) -> None:
        self._lookup, self._expected = lookup, expected
        self.__name__ = f"{lookup.__name__}_or_none"

    def __call__(self) -> bool:
        held = self._lookup()
        return held is ABSENT or same_constant(held, self._expected)


def _now(part: Any) -> Any:
    return part() if isinstance(part, Referent) else part


def _same_key(one: Any, other: Any) -> bool:
    """Whether two keys are equal, found without code of the program's."""
    if one is other:
        return True
    if type(one) in (tuple, torch.Size) and type(other) in (tuple, torch.Size):
        return len(one) == len(other) and all(map(_same_key, one, other))
    return type(one) in _PLAIN and type(other) in _PLAIN and bool(one == other)
