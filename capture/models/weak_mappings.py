"""Look-ups in a `weakref.WeakKeyDictionary` of the program's, as `functools.singledispatch` does.

In: the mapping and a key that is equal only to itself. Out: the item, under a guard that the
mapping still has it. A look-up of what is not there is a break until it is there, but for `in`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from ...runtime.guards.sources import Source
from ...runtime.guards.weak_ref import WeakItem
from ...runtime.safe_access import in_classes
from ..breaks import Break
from ..values.registry import Args, Kwargs, models
from ..values.value import Const, Obj, Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine


@models(WeakKeyDictionary.__getitem__, WeakKeyDictionary.get)
def _item(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    lookup = _lookup(m, args, kwargs)
    held = lookup()
    if held is WeakItem.ABSENT:
        stop = Break("GB122", "look-up of a key that a WeakKeyDictionary does not have")
        absent = ("equals", Source("context", None, lookup.has), False)
        m.guard(*absent)
        stop.guards = (*stop.guards, absent)
        raise stop
    m.activity += 1
    return m.wrap(held, Source("context", None, lookup))


@models(WeakKeyDictionary.__contains__)
def _contains(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    has = _lookup(m, args, kwargs).has
    m.guard("equals", Source("context", None, has), has())
    return Const(has())


def _lookup(m: Machine, args: Args, kwargs: Kwargs) -> WeakItem:
    mapping, key = (*args, None, None)[:2]
    plain = isinstance(mapping, Obj) and type(mapping.value) is WeakKeyDictionary
    if kwargs or not plain or not isinstance(key, Obj):
        raise Break("GB122", "look-up in a WeakKeyDictionary")
    kind = type(key.value)
    own = in_classes(kind, "__hash__"), in_classes(kind, "__eq__")
    if own != (object.__hash__, object.__eq__) or not kind.__weakrefoffset__:
        raise Break("GB122", "look-up in a WeakKeyDictionary of what is equal to others")
    m.same_object(mapping)  # type: ignore[arg-type]
    m.same_object(key)
    about = "weak item", id(mapping.value), id(key.value)  # type: ignore[union-attr]
    if about not in m.heap.asked:
        m.heap.asked[about] = WeakItem(mapping.value, key.value)  # type: ignore[union-attr]
    return m.heap.asked[about]  # type: ignore[no-any-return]
