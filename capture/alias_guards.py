"""Guards on aliasing: objects of the program that must be distinct; made at the end of a walk.

In: a machine with all that it read and writes. Out: "distinct" and "own_dict" rows. Two names of
one object are one Value, so a capture is correct for its own call. But two objects at capture may
be one object in a later call, and a write through one name would then change the other. This
matters only for objects of one type, and only if something is written or used as a key among
others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .data_model.attributes import instance_dict
from .exact_type import is_kind
from .values.effects import Called, SetAttr, Written
from .values.value import Cell, Dict, Obj, Sequence, Set, Tensor, Value
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
    """The pre-existing objects that the frame writes."""
    found: set[Value] = set()
    for effect in m.journal.effects:
        if isinstance(effect, SetAttr):
            found.add(effect.obj)
        elif isinstance(effect, Written):
            found.add(m.heap.owners.get(effect.target, effect.target))
            found.update(obj for obj, held in m.heap.storages.items() if held is effect.target)
        elif isinstance(effect, Called):
            found.update(effect.writes)
    return found


def _groups(m: Machine) -> dict[int, list[Value]]:
    """The mutable objects that the walk read, by type; the id of a class runs no code."""
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
    if isinstance(value, Tensor):
        return type(value.origin)
    if isinstance(value, (Sequence, Dict, Set)) and value.cls not in (tuple, frozenset):
        return type(value.origin)
    return None


def _distinct(m: Machine, values: Iterable[Value]) -> None:
    """Guard that these are pairwise different objects."""
    sources = tuple(dict.fromkeys(value.source for value in values if value.source is not None))
    if len(sources) > 1:
        m.guard("distinct", None, sources)


def _instance_dicts(m: Machine, written: set[Value], groups: dict[int, list[Value]]) -> None:
    """Guard that no dict in use is an attribute dict in use, if one of them is written."""
    dicts = groups.get(id(dict), ())
    objects = [
        value
        for group in groups.values()
        for value in group
        if isinstance(value, Obj) and instance_dict(value.value) is not None
    ]
    for owner in objects:
        if owner in written:
            _guard_disjoint(
                m, owner, [one for one in dicts if one not in written and not _own(one, owner)]
            )
    for one in dicts:
        if one in written:
            _guard_disjoint(m, one, [owner for owner in objects if not _own(one, owner)])
        if m.heap.globals or one in written:
            for scope in m.guards.scopes.values():
                m.guard("distinct", None, (one.source, scope))


def _guard_disjoint(m: Machine, one: Value, others: Iterable[Value]) -> None:
    sources = tuple(dict.fromkeys(other.source for other in others if other.source is not None))
    if sources:
        m.guard("own_dict", one.source, sources)


def _own(one: Value, owner: Value) -> bool:
    assert isinstance(one, Dict)
    return isinstance(owner, Obj) and instance_dict(owner.value) is one.origin
