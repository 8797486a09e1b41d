"""Iteration: `iter`, `next` and the iterators of builtins, over Values.

In: an iterable Value. Out: an Iterator whose `step` gives the next Value, or None at the end. It
follows later changes of its iterable, as Python's own iterators do; `kind` and `parts` say how to
rebuild it.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from collections.abc import Iterator as PythonIterator
from typing import TYPE_CHECKING, Any

from ...runtime.safe_access import MISSING
from ..breaks import Break, Thrown
from ..values.containers import raises, sequence_items
from ..values.value import (
    Const,
    Dict,
    DictView,
    Instance,
    Iterator,
    Obj,
    Sequence,
    Value,
)
from .attributes import call_special, class_attribute, real_class, special
from .container_iterators import over_constant, over_dict, over_sequence

if TYPE_CHECKING:
    from ..interpreter.machine import Machine


Steps = PythonIterator[Value]

_ITERABLES: Any = ([], (), {}, {}.values(), {}.items(), set(), "", b"", range(0))
_THEMSELVES = frozenset(
    {types.GeneratorType, zip, map, filter, enumerate, reversed}
    | {type(iter(of)) for of in _ITERABLES}
)


def iterates_itself(value: Value) -> bool:
    """Whether this is a real iterator of Python's own, which iter() returns unchanged."""
    return isinstance(value, Obj) and type(value.value) in _THEMSELVES


def iterate(m: Machine, value: Value) -> Iterator:
    """iter(value) for modelled types."""
    over = next((ITERABLES[kind] for kind in type(value).__mro__ if kind in ITERABLES), None)
    if over is not None:
        return over(m, value)
    real = REAL_ITERATORS.get(type(value.value)) if isinstance(value, Obj) else None
    if real is not None and (found := real(m, value)) is not None:
        return found
    if isinstance(value, (Obj, Instance)) and class_attribute(m, value, "__iter__") is None:
        raise raises("TypeError: object is not iterable")
    made = call_special(m, value, "__iter__", [])
    if made is None and special(m, value, "__getitem__") is not None:
        return _item_iterator(m, value)
    if made is None:
        raise Break("GB120", "iteration over an object that is not modelled")
    return made if isinstance(made, Iterator) else _protocol_iterator(m, made)


# Kind of value -> its iterator. Models of other kinds add rows.
ITERABLES: dict[type[Value], Callable[[Machine, Any], Iterator]] = {
    Iterator: lambda m, value: value,
    Sequence: over_sequence,
    Const: lambda m, value: over_constant(value),
    Dict: lambda m, value: over_dict(m, value, "keys"),
    DictView: lambda m, value: over_dict(m, value.of, value.kind),
}

# Type of an iterator that exists before the frame -> its model (see `outside_iterators`).
REAL_ITERATORS: dict[type, Callable[[Machine, Value], Iterator | None]] = {}


def _protocol_iterator(m: Machine, value: Value) -> Iterator:
    """An iterator of a user's class: __next__ until StopIteration."""
    cls = real_class(value)
    if cls is None:
        raise Break("GB120", "iteration over an object that is not modelled")
    if class_attribute(m, value, "__next__") is MISSING:
        text = f"iter() returned non-iterator of type {cls.__name__!r}"
        raise Thrown(TypeError, (text,), f"TypeError: {text}")

    def step(made: Iterator) -> Value | None:
        try:
            item = call_special(m, value, "__next__", [])
        except Thrown as error:
            if issubclass(error.cls, StopIteration):
                return None
            raise
        if item is None:
            raise raises("TypeError: iter() returned an object without __next__")
        return item

    return Iterator("object", [value], step)


def _item_iterator(m: Machine, value: Value) -> Iterator:
    """The old protocol: __getitem__ with 0, 1, ... until IndexError."""

    def step(made: Iterator) -> Value | None:
        try:
            item = call_special(m, value, "__getitem__", [Const(made.parts[1])])
        except Thrown as error:
            if issubclass(error.cls, (IndexError, StopIteration)):
                return None
            raise
        made.parts[1] += 1
        return item

    return Iterator("items of an object", [value, 0], step)


def enumerate_iterator(m: Machine, value: Value, start: int) -> Iterator:
    inner = iterate(m, value)

    def step(made: Iterator) -> Value | None:
        item = take(m, inner)
        if item is None:
            return None
        made.parts[1] += 1
        return Sequence([Const(made.parts[1] - 1), item], tuple)

    return Iterator("enumerate", [inner, start], step)


def zip_iterator(m: Machine, values: list[Value], strict: bool) -> Iterator:
    inner = [iterate(m, value) for value in values]

    def step(made: Iterator) -> Value | None:
        items = []
        for position, one in enumerate(inner):
            item = take(m, one)
            if item is None:
                if strict and (position or any(take(m, other) for other in inner[1:])):
                    raise raises("ValueError: zip() arguments have different lengths")
                return None
            items.append(item)
        return Sequence(items, tuple) if items else None

    return Iterator("zip", [inner, strict], step)


def map_iterator(m: Machine, func: Value, values: list[Value]) -> Iterator:
    inner = [iterate(m, value) for value in values]

    def step(made: Iterator) -> Value | None:
        items = []
        for one in inner:
            item = take(m, one)
            if item is None:
                return None
            items.append(item)
        return m.call(func, items, {})

    return Iterator("map", [func, inner], step)


def filter_iterator(m: Machine, func: Value, value: Value) -> Iterator:
    inner = iterate(m, value)

    def step(made: Iterator) -> Value | None:
        while (item := take(m, inner)) is not None:
            keep = item if isinstance(func, Const) else m.call(func, [item], {})
            if m.truth(keep):
                return item
        return None

    return Iterator("filter", [func, inner], step)


def called_iterator(m: Machine, func: Value, sentinel: Value) -> Iterator:
    """iter(func, sentinel): StopIteration ends it, any other exception does not."""

    def step(made: Iterator) -> Value | None:
        try:
            item = m.call(func, [], {})
        except Thrown as error:
            if issubclass(error.cls, StopIteration):
                return None
            raise
        return None if m.same_or_equal(sentinel, item) else item

    return Iterator("called", [func, sentinel], step)


# Kinds that drop their iterable at its end: later additions to it give no more items.
_LET_GO = frozenset(
    {
        "sequence",
        "items",
        "constant",
        "reversed constant",
        "reversed list",
        "dict",
        "set",
        "items of an object",
        "reversed",
        "called",
        "outside",
    }
)


def take(m: Machine, iterator: Iterator) -> Value | None:
    """The next item, or None at the end. It counts as activity: no break repeats a step."""
    if iterator.over:
        return None
    item = iterator.step(iterator)
    if item is not None:
        m.activity += 1
    elif iterator.kind in _LET_GO:
        iterator.over = True
        m.activity += 1
    return item


def each(m: Machine, value: Value) -> Steps:
    """The items of an iterable, each taken on demand."""
    iterator = iterate(m, value)
    while (item := take(m, iterator)) is not None:
        yield item


def hint(m: Machine, value: Value) -> None:
    """What a list asks an object for before it takes the first item (PyObject_LengthHint): that it
    is asked can be seen, its answer cannot."""
    names: tuple[str, ...] = ("__len__", "__length_hint__")
    if isinstance(value, Iterator) and value.kind in _ASKS_LENGTH and not value.over:
        names = ("__len__",)
        value = value.parts[0]
    elif isinstance(value, Iterator) and value.kind == "object":
        value = value.parts[0]
    if not isinstance(value, (Obj, Instance)):
        return
    for name in names:
        raw = class_attribute(m, value, name)
        if raw is MISSING or raw is None:
            continue
        if type(raw) in _IN_C:
            return
        try:
            hint = call_special(m, value, name, [])
        except Thrown as error:
            if issubclass(error.cls, TypeError):
                continue
            raise
        length = hint.value if isinstance(hint, Const) else None
        if name == "__length_hint__" and length is NotImplemented:
            return
        if type(length) is not int or not 0 <= length <= sys.maxsize:
            raise Break("GB112", f"{name} of an object does not give a length")
        return


# C iterators that compute their length hint from the length of the underlying object.
_ASKS_LENGTH = ("items of an object", "reversed")
_IN_C = (types.WrapperDescriptorType, types.MethodDescriptorType)


def drain_as_list(m: Machine, value: Value) -> list[Value]:
    """All items, as C code takes them to make a list (PySequence_Fast).

    It queries the length hint of the iterator, and calls iter() on it once more.
    """
    if isinstance(value, Sequence):
        return drain(m, value)
    iterator = iterate(m, value)
    return drain(m, iterator.parts[0] if iterator.kind == "object" else iterator)


def drain(m: Machine, value: Value) -> list[Value]:
    """All items of an iterable, as list() or tuple() takes them."""
    if isinstance(value, Sequence):
        return list(sequence_items(m, value))
    iterator = iterate(m, value)
    hint(m, value)
    items: list[Value] = []
    while (item := take(m, iterator)) is not None:
        items.append(item)
        if len(items) > 100_000:
            raise Break("GB116", "an iteration over 100,000 items")
    return items
