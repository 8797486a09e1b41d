"""Which objects of the program must not be one: guards on aliasing, made when a walk has ended.

In: a machine with all it met and all it writes. Out: "distinct" and "apart" rows. Two names of one object are one
Value, so at capture nothing is stale; but what was two objects then may be one in a later call, and a write
through one name is then a change under the other. Only objects of one type can be one, and only where something
is written, or used as a key beside others, does it matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .data_model.attributes import instance_dict
from .exact_type import is_kind
from .values.effects import SetAttr, Written
from .values.value import Cell, Dict, Obj, Sequence, Set, Value
from .values.wrap import IDENTITY_TYPES, held_by_content

if TYPE_CHECKING:
    from .interpreter.machine import Machine


def guard(m: Machine) -> None:
    """Add the rows."""
    written = _written(m)
    groups = _groups(m) if written else {}
    for group in groups.values():
        changed = [value for value in group if value in written]
        if changed and len(group) > 1:
            _distinct(m, group)
    _instance_dicts(m, written, groups)
    _distinct(m, m.journal.keys)


def _written(m: Machine) -> set[Value]:
    """What existed before the frame and is written by it."""
    found: set[Value] = set()
    for effect in m.journal.effects:
        if isinstance(effect, SetAttr):
            found.add(effect.obj)
        elif isinstance(effect, Written):
            found.add(m.heap.owners.get(effect.target, effect.target))
            found.update(obj for obj, held in m.heap.storages.items() if held is effect.target)
    return found


def _groups(m: Machine) -> dict[int, list[Value]]:
    """The mutable objects that the walk met, by type; classes are told apart by address, which runs no code."""
    groups: dict[int, list[Value]] = {}
    for value in m.heap.known.values():
        kind = _mutable_type(value)
        if kind is not None:
            groups.setdefault(id(kind), []).append(value)
    return groups


def _mutable_type(value: Value) -> type | None:
    if value.source is None or value.source.kind == "const":
        return None
    if isinstance(value, Obj):
        if held_by_content(value):
            return type(value.value)
        return None if is_kind(value.value, IDENTITY_TYPES) else type(value.value)
    if isinstance(value, Cell):
        return Cell
    if isinstance(value, (Sequence, Dict, Set)) and value.cls not in (tuple, frozenset):
        return type(value.origin)
    return None


def _distinct(m: Machine, values: Iterable[Value]) -> None:
    """These are pairwise different objects."""
    sources = tuple(dict.fromkeys(value.source for value in values if value.source is not None))
    if len(sources) > 1:
        m.guard("distinct", None, sources)


def _instance_dicts(m: Machine, written: set[Value], groups: dict[int, list[Value]]) -> None:
    """No dict that is read or written is where an object, written or read, keeps its attributes."""
    dicts = groups.get(id(dict), ())
    objects = [
        value
        for group in groups.values()
        for value in group
        if isinstance(value, Obj) and instance_dict(value.value) is not None
    ]
    for owner in objects:
        if owner in written:
            _apart(m, owner, [one for one in dicts if one not in written and not _own(one, owner)])
    for one in dicts:
        if one in written:
            _apart(m, one, [owner for owner in objects if not _own(one, owner)])
        if m.heap.globals or one in written:
            for scope in m.guards.scopes.values():
                m.guard("distinct", None, (one.source, scope))


def _apart(m: Machine, one: Value, others: Iterable[Value]) -> None:
    sources = tuple(dict.fromkeys(other.source for other in others if other.source is not None))
    if sources:
        m.guard("apart", one.source, sources)


def _own(one: Value, owner: Value) -> bool:
    assert isinstance(one, Dict)
    return isinstance(owner, Obj) and instance_dict(owner.value) is one.origin
