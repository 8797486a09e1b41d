"""Operators between sets and dict views: `a & b`, `d.keys() - seen`, `s ^= t`, `d.keys() <= names`.

In: operands as Values. Out: the resulting Set, or the truth value of a comparison. The operands
determine the elements of a result, but the tables of the real sets determine their order. So a
result stores its construction (`Set.made`), and Python's own operator makes it again from the
operands' old states. `operators` calls it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..breaks import Break
from ..values.containers import dict_items, moved, sequence_items
from ..values.value import Const, Dict, DictView, Sequence, Set, Value
from ..values.wrap import freeze
from .sets import snapshot, writable_step

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

Items = dict[Any, Value]

# The items of the result, from those of the left and the right operand.
_ALGEBRA: dict[str, tuple[Any, Callable[[Items, Items], Items]]] = {
    "&": (operator.and_, lambda a, b: {k: v for k, v in a.items() if k in b}),
    "|": (operator.or_, lambda a, b: {**b, **a}),
    "-": (operator.sub, lambda a, b: {k: v for k, v in a.items() if k not in b}),
    "^": (operator.xor, lambda a, b: {k: v for k, v in {**a, **b}.items() if (k in a) != (k in b)}),
}
_STEPS = {
    "&=": "intersection_update",
    "|=": "update",
    "-=": "difference_update",
    "^=": "symmetric_difference_update",
}
_METHODS = {"intersection": "&", "union": "|", "difference": "-", "symmetric_difference": "^"}
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def is_set(value: Value) -> bool:
    """Whether this is a set, a frozenset, or a dict view that acts as one."""
    return isinstance(value, Set) or (isinstance(value, DictView) and value.kind != "values")


def _can_be_merged(value: Value) -> bool:
    """Whether set methods and view operators are modelled for this operand."""
    if isinstance(value, (Sequence, Dict)):
        return value.cls in (list, tuple, dict)
    return is_set(value)


def binary(m: Machine, symbol: str, left: Value, right: Value) -> Value | None:
    """left <symbol> right; None if neither is a set, or the other operand is not modelled."""
    if symbol not in _ALGEBRA or not (is_set(left) or is_set(right)):
        return None
    view = isinstance(left, DictView) or isinstance(right, DictView)
    if not all(is_set(side) or (view and _can_be_merged(side)) for side in (left, right)):
        return None
    fn, held = _ALGEBRA[symbol]
    cls = left.cls if isinstance(left, Set) and isinstance(right, Set) else set
    made = Set(held(*_both(m, left, right)), cls)
    made.made = (fn, snapshot(m, left), snapshot(m, right))
    return made


def in_place(m: Machine, symbol: str, left: Value, right: Value) -> Value | None:
    """left <symbol>= right of a set; None if it makes a new object."""
    if not (isinstance(left, Set) and left.cls is set and isinstance(right, Set)):
        return None
    if left is right:
        raise Break("GB122", "a set and itself")
    if symbol not in _STEPS:
        return None
    _, held = _ALGEBRA[symbol[0]]
    items = held(*_both(m, left, right))
    writable_step(m, left, _STEPS[symbol], right)
    moved(m, left)
    left.items.clear()
    left.items.update(items)
    return left


def method(m: Machine, value: Set, name: str, args: list[Value]) -> Value | None:
    """value.union(other) and the like, with one other set or view."""
    symbol = _METHODS.get(name)
    if symbol is None or len(args) != 1 or not _can_be_merged(args[0]):
        return None
    made = Set(_ALGEBRA[symbol][1](*_both(m, value, args[0])), value.cls)
    made.made = (getattr(value.cls, name), snapshot(m, value), snapshot(m, args[0]))
    return made


def compare(m: Machine, symbol: str, left: Value, right: Value) -> Value | None:
    """left <symbol> right; None unless both are sets or views."""
    if not (is_set(left) and is_set(right)):
        return None
    a, b = _both(m, left, right)
    return Const(_COMPARE[symbol](a.keys(), b.keys()))


def disjoint(m: Machine, left: Value, right: Value) -> Value | None:
    """left.isdisjoint(right)"""
    if not (is_set(left) and _can_be_merged(right)):
        return None
    a, b = _both(m, left, right)
    return Const(a.keys().isdisjoint(b.keys()))


def _both(m: Machine, left: Value, right: Value) -> tuple[Items, Items]:
    """Items of two operands; a break for equal keys of two types (1 and True).

    Only the real sets determine which of these remains.
    """
    a, b = _held(m, left), _held(m, right)
    for key in a.keys() & b.keys():
        one, other = a[key], b[key]
        if isinstance(one, Const) and isinstance(other, Const):
            if repr(one.value) != repr(other.value):
                raise Break("GB122", "equal elements of two kinds")
        elif one is not other and not (isinstance(one, Sequence) and isinstance(other, Sequence)):
            raise Break("GB122", "equal elements of two kinds")
    return a, b


def _held(m: Machine, value: Value) -> Items:
    if isinstance(value, Set):
        return value.items
    if isinstance(value, Sequence):
        return {freeze(item): item for item in reversed(sequence_items(m, value))}
    if isinstance(value, Dict):
        value = DictView(value, "keys")
    assert isinstance(value, DictView)
    pairs = dict_items(m, value.of)
    if value.kind == "keys":
        return {freeze(key): key for key, _ in pairs}
    tuples = [Sequence([key, item], tuple) for key, item in pairs]
    return {freeze(pair): pair for pair in tuples}
