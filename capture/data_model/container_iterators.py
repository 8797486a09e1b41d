"""Iterators over containers: lists, tuples, dicts, sets and constants, forward and backward.

In: a container Value. Out: an Iterator that follows later changes as CPython's does
(Objects/listobject.c, dictobject.c, setobject.c): over a list by position, over a dict or set until
its size changes, which is an error. Where the order after a change depends on C tables, Python must
run the instruction that made the change. `iteration` calls it; `emit.reconstruct` rebuilds the
iterators from `kind` and `parts`.
"""

from __future__ import annotations

import sys
import types
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from ..breaks import Break, MustBePython
from ..values.containers import compute, dict_get, from_constant, open_dict, raises, sequence_item
from ..values.value import Const, Dict, DictView, Iterator, Sequence, Set, Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine


def over_sequence(m: Machine, value: Sequence) -> Iterator:
    def step(made: Iterator) -> Value | None:
        index = made.parts[1]
        if index >= len(value.items):
            return None
        item = sequence_item(m, value, index)  # at a break here the iterator must not have moved
        made.parts[1] = index + 1
        return item

    return Iterator("sequence", [value, 0], step)


def over_items(items: list[Value], kind: str = "items", of: Value | None = None) -> Iterator:
    """An iterator over constant items: a tuple of these, or the constant `of` that has them."""

    def step(made: Iterator) -> Value | None:
        index = made.parts[1]
        if index >= len(items):
            return None
        made.parts[1] = index + 1
        return items[index]

    return Iterator(kind, [items if of is None else of, 0], step)


def over_constant(value: Const) -> Iterator:
    if not isinstance(value.value, (str, bytes, tuple, range)):
        raise raises(f"TypeError: {type(value.value).__name__!r} object is not iterable")
    held = value.value

    def step(made: Iterator) -> Value | None:  # a range may be long
        index = made.parts[1]
        if isinstance(held, range) and not -1 <= index < sys.maxsize:
            raise Break("GB116", "a very long range")
        item = next(iter(held[index : index + 1]), _NOTHING)
        if item is _NOTHING:
            return None
        found = from_constant(item)
        made.parts[1] = index + 1
        return found

    return Iterator("constant", [value, 0], step)


_NOTHING = object()


def over_dict(m: Machine, of: Dict, kind: str, backward: bool = False) -> Iterator:
    """An iterator over the keys, values or items of a dict, by `kind`."""
    open_dict(m, of)
    keys = list(reversed(list(of.items))) if backward else list(of.items)
    since, ordered = len(of.moves), of.cls is OrderedDict
    changed = False

    def step(made: Iterator) -> Value | None:
        nonlocal changed
        index = made.parts[2]
        # After its last key, an iterator of an OrderedDict reads nothing any more.
        if ordered and index >= len(keys):
            return None
        if not ordered and (changed or len(of.items) != len(keys)):
            changed = True  # it raises from here on, for any state of the dict
            text = "dictionary changed size during iteration"
            raise raises(f"RuntimeError: {text}", text)
        if len(of.moves) != since:
            raise must_be_python(of, since)
        if index >= len(keys):
            return None
        key = of.items[keys[index]][0]
        item = key if kind == "keys" else dict_get(m, of, keys[index])
        assert item is not None
        made.parts[2] = index + 1
        if kind == "keys":
            return key
        return item if kind == "values" else Sequence([key, item], tuple)

    return Iterator("dict", [of, kind, 0, since, backward], step)


def must_be_python(of: Dict | Set, since: int) -> MustBePython:
    """The keys changed after the iterator was made: only real tables know its next item."""
    what = "set" if isinstance(of, Set) else "dict"
    reason = f"a {what} changes while it is iterated over"
    return MustBePython(of.moves[since], "GB120", reason)


def backward(m: Machine, value: Value) -> Iterator:
    """reversed(value)"""
    if isinstance(value, Dict):
        return over_dict(m, value, "keys", backward=True)
    if isinstance(value, DictView):
        return over_dict(m, value.of, value.kind, backward=True)
    if isinstance(value, Const):
        compute(lambda: reversed(value.value))  # may raise
        turned = over_constant(Const(value.value[::-1]))
        return Iterator("reversed constant", [value, 0], _counted(turned))
    assert isinstance(value, Sequence)
    if value.cls is not list:
        items = [sequence_item(m, value, at) for at in reversed(range(len(value.items)))]
        return over_items(items, "reversed constant", value)

    def step(made: Iterator) -> Value | None:
        index = made.parts[1]
        if not 0 <= index < len(value.items):
            return None
        item = sequence_item(m, value, index)
        made.parts[1] = index - 1
        return item

    return Iterator("reversed list", [value, len(value.items) - 1], step)


def _counted(other: Iterator) -> Any:
    """A step function that takes another iterator's steps and counts them."""

    def step(made: Iterator) -> Value | None:
        item = other.step(other)
        made.parts[1] += item is not None
        return item

    return step


def place(value: Value) -> Any:
    """How far an iterator is, with the iterators below it; None for other values and kinds."""
    if not isinstance(value, Iterator) or value.over:
        return None
    if value.kind in ("sequence", "constant", "items"):
        return value.parts[1]
    if value.kind == "dict":
        return value.parts[2]
    if value.kind in ("enumerate", "zip", "outside"):
        of = value.parts[0]
        return tuple(map(place, of if isinstance(of, list) else [of]))
    return None


# Globals of Python functions that stand for iterators of C; `polyfills` adds its own.
POLYFILLS: list[dict[str, Any]] = []


# -- their types ----------------------------------------------------------------------------------
def type_of(value: Iterator) -> type | None:
    """type(iterator), if the kind determines it, else None."""
    of: Any = value.parts[0] if value.parts else None
    if value.kind == "sequence":
        return type(iter([] if of.cls is list else ()))
    if value.kind == "constant":
        return type(iter(of.value))
    if value.kind == "reversed constant":
        return type(reversed(of.value if isinstance(of, Const) else ()))
    if value.kind == "dict":
        held: Any = OrderedDict() if of.cls is OrderedDict else {}
        view = getattr(held, value.parts[1])()
        return type(reversed(view) if value.parts[4] else iter(view))
    if value.kind == "outside":
        return type(value.parts[1])
    if value.kind == "generator":
        # A generator function may stand for an iterator of C's.
        own = any(value.parts[0].scope.names is names for names in POLYFILLS)
        return None if own else types.GeneratorType
    return _TYPES.get(value.kind)


_TYPES: dict[str, type] = {
    "items": type(iter(())),
    "reversed list": type(reversed([])),
    "set": type(iter(set())),
    "enumerate": enumerate,
    "zip": zip,
    "map": map,
    "filter": filter,
    "reversed": reversed,
    "called": type(iter(int, 1)),
}


class _NoItems:
    """An empty object with the old iteration protocol."""

    def __getitem__(self, index: int) -> Any:
        raise IndexError


_TYPES["items of an object"] = type(iter(_NoItems()))


def refuse_half_way(value: Iterator) -> None:
    """Break for an iterator that leaves the walk after a change: see `must_be_python`."""
    if value.kind in ("dict", "set") and not value.over:
        of, since = value.parts[0], value.parts[3 if value.kind == "dict" else 2]
        if len(of.moves) != since:
            raise must_be_python(of, since)
    if value.kind in ("sequence", "reversed list") and not value.over:
        of, index = value.parts
        if index > len(of.items) - (value.kind == "reversed list"):
            raise Break("GB125", "an iterator that is past the end of its list")
