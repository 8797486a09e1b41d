"""Calls of functions that `functools.lru_cache` or `functools.cache` made.

In: the function and arguments that are constants, or objects and tensors from outside that are
equal only to themselves. Out: the result. What the cache holds at the frame's start is read under a
guard: the cache still holds it. Where it holds nothing, a guard says so, and the function beneath
is walked for its result, which must be a constant. Either way an effect calls the cached function
at its place, so that it counts, keeps, evicts, logs and warns as in plain Python. A break is what
plain Python must do: a result that is an object and not kept yet, arguments of the frame's own, a
full cache.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

from ...runtime.guards import cached_calls
from ...runtime.guards.sources import Source
from ...runtime.guards.weak_ref import Referent
from ...runtime.safe_access import in_classes
from ..breaks import Break
from ..values.containers import NotConstant, as_constant
from ..values.effects import Called
from ..values.symbolic_numbers import is_number
from ..values.value import Const, Obj, Sequence, Tensor, Value
from ..values.wrap import CONST_TYPES, has_nan

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

Args = list[Value]
Kwargs = dict[str, Value]


def call(m: Machine, fn: Obj, args: Args, kwargs: Kwargs) -> Value:
    """fn(*args, **kwargs)"""
    real = fn.value
    known = cached_calls.parameters(real)
    if known is None:
        raise _left(real, "whose parameters are not known")
    m.same_object(fn)
    parts = tuple(_part(m, real, value) for value in args)
    named = {name: _part(m, real, value) for name, value in kwargs.items()}
    first = sum(walked for (of, _), (_, walked) in m.heap.cached.items() if of == id(real))
    lookup = cached_calls.Lookup(real, parts, named, first + 1)
    key = (id(real), lookup.key(None, lambda part: part))
    found = m.heap.cached.get(key)
    if found is None:
        held = _looked_up(real, lookup)
        if held is cached_calls.ABSENT:
            found = _first(m, fn, args, kwargs, lookup), True
        else:
            found = m.wrap(held, Source("context", None, lookup)), False
        m.heap.cached[key] = found
        m.heap.keep.append(real)
    m.activity += 1
    m.journal.effects.append(Called(operator.call, (fn, *args), tuple(kwargs.items())))
    return found[0]


def _left(real: Any, why: str) -> Break:
    return Break("GB102", f"call of the cached function {real.__qualname__} {why}")


# -- arguments -------------------------------------------------------------------------------------
def _part(m: Machine, real: Any, value: Value) -> Any:
    """An argument as `Lookup` takes it, under guards."""
    # A number that varies would have an entry for each value.
    if is_number(value) and value.may_vary():  # type: ignore[attr-defined]
        raise _left(real, "with a number that varies")
    if isinstance(value, Const) or (
        isinstance(value, Sequence) and value.cls in (tuple, torch.Size)
    ):
        try:
            plain = as_constant(m, value)
        except NotConstant:
            raise _left(real, "with a tuple of objects") from None
        if _is_plain(plain):
            return plain
    if isinstance(value, Obj):
        kind = type(value.value)
        own = in_classes(kind, "__hash__"), in_classes(kind, "__eq__")
        if own == (object.__hash__, object.__eq__):
            m.same_object(value)
            return _Part(value.value)
    if isinstance(value, Tensor) and _lasts(value) and not m.modes:
        # Its hash is its identity, and a key is compared by identity first.
        m.same_object(Obj(value.origin, source=value.source))
        return _Part(value.origin)
    raise _left(real, "with what has another equality than constants and objects")


def _lasts(value: Tensor) -> bool:
    """Whether this is a tensor that the next call will find again, as a module's buffer."""
    source = value.source
    while source is not None and source.kind == "item" and source.base is not None:
        source = source.base
    plain = type(value.origin) in (torch.Tensor, torch.nn.Parameter)
    return plain and source is not None and source.kind not in ("local", "cell")


class _Part(Referent):
    """An object that is equal only to itself; parts of one object are equal."""

    __slots__ = ("_id",)

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self._id = id(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Part) and other._id == self._id

    def __hash__(self) -> int:
        return hash(self._id)


def _is_plain(value: Any) -> bool:
    if type(value) in (tuple, torch.Size):
        return all(map(_is_plain, value))
    return type(value) in CONST_TYPES and not has_nan(value)


# -- results ---------------------------------------------------------------------------------------
def _looked_up(real: Any, lookup: cached_calls.Lookup) -> Any:
    """What the cache holds at the frame's start."""
    held = lookup()
    if held is cached_calls.UNKNOWN:
        raise _left(real, "whose cache is full")
    return held


def _first(m: Machine, fn: Obj, args: Args, kwargs: Kwargs, lookup: cached_calls.Lookup) -> Value:
    """The result of a call that the cache does not hold; a break lasts until it does.

    A number or None may be kept later: then this walk is right as well.
    """
    absent = ("equals", Source("context", None, cached_calls.IsAbsent(lookup)), True)
    try:
        result = _walked(m, fn, args, kwargs)
    except Break as stop:
        m.guard(*absent)
        stop.guards = (*stop.guards, absent)
        raise
    if isinstance(result, Const) and _is_number_or_none(result.value):
        either = cached_calls.IsOrWouldBe(lookup, result.value)
        m.guard("equals", Source("context", None, either), True)
    else:
        m.guard(*absent)
    return result


def _is_number_or_none(value: Any) -> bool:
    """Of a number, only the identity differs between a new result and a kept one."""
    return value is None or (type(value) in (bool, int, float) and not has_nan(value))


def _walked(m: Machine, fn: Obj, args: Args, kwargs: Kwargs) -> Value:
    """The result of the function beneath, which the effect will call for the first time."""
    real = fn.value
    if m.inner or m.modes:
        raise _left(real, "for the first time in a transform or under a mode")
    if not all(isinstance(effect, Called) for effect in m.journal.effects):
        # It might see what was stored in its final form.
        raise _left(real, "for the first time, after stores to what outlives this function")
    effects, nodes, contexts = len(m.journal.effects), m.tracer.recorded, len(m.contexts)
    before = m.repeated
    m.repeated = before or len(m.frames)
    try:
        result = m.call(Obj(cached_calls.wrapped(real)), args, kwargs)
    finally:
        m.repeated = before
    try:
        plain = as_constant(m, result)
    except NotConstant:
        plain = NotConstant
    if (m.tracer.recorded, len(m.contexts)) != (nodes, contexts) or not _is_plain(plain):
        raise _left(real, "for the first time, which makes an object")
    if not all(isinstance(effect, Called) for effect in m.journal.effects[effects:]):
        raise _left(real, "for the first time, which stores something")
    # The effect does them.
    del m.journal.effects[effects:]
    return result
