"""Iteration: `iter`, `next` and the iterators of builtins, over Values.

In: an iterable Value. Out: an Iterator whose `step` gives the next Value, or None at the end; it follows later
changes of what it walks over, as Python's own iterators do, and says by `kind` and `parts` how to rebuild it.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from ..runtime.safe import MISSING
from .breaks import Break, Thrown
from .containers import (
    dict_get,
    from_constant,
    open_dict,
    raises,
    sequence_item,
    sequence_items,
)
from .values import Array, Const, Dict, DictView, Iterator, Obj, Sequence, Set, Tensor, Value

if TYPE_CHECKING:
    from .machine import Machine


_ITERABLES: Any = ([], (), {}, {}.values(), {}.items(), set(), "", b"", range(0))
_THEMSELVES = frozenset(
    {types.GeneratorType, zip, map, filter, enumerate, reversed}
    | {type(iter(of)) for of in _ITERABLES}
)


def iterates_itself(value: Value) -> bool:
    """Whether it is a real iterator of Python's own: iter() gives it back."""
    return isinstance(value, Obj) and type(value.value) in _THEMSELVES


def iterate(m: Machine, value: Value) -> Iterator:
    """iter(value) for modelled types."""
    if isinstance(value, Iterator):
        return value
    if isinstance(value, Sequence):
        return _index_iterator(m, value)
    if isinstance(value, Const):
        if isinstance(value.value, (str, bytes, tuple, range)):
            return list_iterator([from_constant(item) for item in value.value])
        raise raises(f"TypeError: {type(value.value).__name__!r} object is not iterable")
    if isinstance(value, Dict):
        return _dict_iterator(m, open_dict(m, value), "keys")
    if isinstance(value, DictView):
        return _dict_iterator(m, value.of, value.kind)
    if isinstance(value, Set):
        from .sets import ordered

        return list_iterator(ordered(m, value))
    if isinstance(value, Array):
        from .arrays import iterate as iterate_array

        return iterate_array(m, value)
    if isinstance(value, Tensor):
        from .torchcalls import call_torch

        if not value.ghost.dim():
            raise raises("TypeError: iteration over a 0-d tensor")
        parts = call_torch(m, _unbind, [value], {})
        assert isinstance(parts, Sequence)
        return list_iterator(list(parts.items))
    from .attributes import call_special, special

    made = call_special(m, value, "__iter__", [])
    if made is None and special(m, value, "__getitem__") is not None:
        return _item_iterator(m, value)
    if made is None:
        raise Break("GB120", "iteration over an object that is not modelled")
    return made if isinstance(made, Iterator) else _protocol_iterator(m, made)


def _unbind(tensor: Any) -> Any:
    return tensor.unbind(0)


def _protocol_iterator(m: Machine, value: Value) -> Iterator:
    """An iterator of a user's class: __next__ until StopIteration."""
    from .attributes import class_attribute, real_class

    cls = real_class(value)
    if cls is None:
        raise Break("GB120", "iteration over an object that is not modelled")
    if class_attribute(m, value, "__next__") is MISSING:
        text = f"iter() returned non-iterator of type {cls.__name__!r}"
        raise Thrown(TypeError, (text,), f"TypeError: {text}")
    made = Iterator("object", [value], lambda: None)

    def step() -> Value | None:
        from .attributes import call_special

        try:
            item = call_special(m, value, "__next__", [])
        except Thrown as error:
            if issubclass(error.cls, StopIteration):
                return None
            raise
        if item is None:
            raise raises("TypeError: iter() returned an object without __next__")
        return item

    made.step = step
    return made


def _item_iterator(m: Machine, value: Value) -> Iterator:
    """The old protocol: __getitem__ with 0, 1, ... until IndexError."""
    made = Iterator("items of an object", [value, 0], lambda: None)

    def step() -> Value | None:
        from .attributes import call_special

        made.parts[1] += 1
        try:
            return call_special(m, value, "__getitem__", [Const(made.parts[1] - 1)])
        except Thrown as error:
            if issubclass(error.cls, (IndexError, StopIteration)):
                return None
            raise

    made.step = step
    return made


def _index_iterator(m: Machine, value: Sequence) -> Iterator:
    made = Iterator("sequence", [value, 0], lambda: None)

    def step() -> Value | None:
        index = made.parts[1]
        if index >= len(value.items):
            return None
        made.parts[1] = index + 1
        return sequence_item(m, value, index)

    made.step = step
    return made


def list_iterator(items: list[Value]) -> Iterator:
    made = Iterator("items", [items, 0], lambda: None)

    def step() -> Value | None:
        index = made.parts[1]
        if index >= len(items):
            return None
        made.parts[1] = index + 1
        return items[index]

    made.step = step
    return made


def enumerate_iterator(m: Machine, value: Value, start: int) -> Iterator:
    inner = iterate(m, value)
    made = Iterator("enumerate", [inner, start], lambda: None)

    def step() -> Value | None:
        item = take(m, inner)
        if item is None:
            return None
        made.parts[1] += 1
        return Sequence([Const(made.parts[1] - 1), item], tuple)

    made.step = step
    return made


def zip_iterator(m: Machine, values: list[Value], strict: bool) -> Iterator:
    inner = [iterate(m, value) for value in values]
    made = Iterator("zip", [inner, strict], lambda: None)

    def step() -> Value | None:
        items = []
        for position, one in enumerate(inner):
            item = take(m, one)
            if item is None:
                if strict and (position or any(take(m, other) for other in inner[1:])):
                    raise raises("ValueError: zip() arguments have different lengths")
                return None
            items.append(item)
        return Sequence(items, tuple) if items else None

    made.step = step
    return made


def map_iterator(m: Machine, func: Value, values: list[Value]) -> Iterator:
    inner = [iterate(m, value) for value in values]
    made = Iterator("map", [func, inner], lambda: None)

    def step() -> Value | None:
        items = []
        for one in inner:
            item = take(m, one)
            if item is None:
                return None
            items.append(item)
        return m.call(func, items, {})  # type: ignore[attr-defined]

    made.step = step
    return made


def filter_iterator(m: Machine, func: Value, value: Value) -> Iterator:
    inner = iterate(m, value)
    made = Iterator("filter", [func, inner], lambda: None)

    def step() -> Value | None:
        while (item := take(m, inner)) is not None:
            keep = item if isinstance(func, Const) else m.call(func, [item], {})  # type: ignore[attr-defined]
            if m.truth(keep):  # type: ignore[attr-defined]
                return item
        return None

    made.step = step
    return made


def take(m: Machine, iterator: Iterator) -> Value | None:
    """The next item, or None at the end. Others may hold the iterator: a step is not taken twice (see `Frame`)."""
    item = iterator.step()
    if item is not None:
        m.activity += 1
    return item


def drain(m: Machine, value: Value) -> list[Value]:
    """All items of an iterable."""
    if isinstance(value, Sequence):
        return list(sequence_items(m, value))
    iterator = iterate(m, value)
    items: list[Value] = []
    while (item := take(m, iterator)) is not None:
        items.append(item)
        if len(items) > 100_000:
            raise Break("GB116", "an iteration over 100,000 items")
    return items


def _dict_iterator(m: Machine, of: Dict, kind: str) -> Iterator:
    keys = list(of.items)
    made = Iterator("dict", [of, kind, 0, len(keys)], lambda: None)

    def step() -> Value | None:
        index = made.parts[2]
        if len(of.items) != len(keys):
            raise raises("RuntimeError: dictionary changed size during iteration")
        if index >= len(keys):
            return None
        if keys[index] not in of.items:
            raise Break("GB120", "a dict whose keys change while it is iterated over")
        made.parts[2] = index + 1
        key = of.items[keys[index]][0]
        if kind == "keys":
            return key
        item = dict_get(m, of, keys[index])
        assert item is not None
        return item if kind == "values" else Sequence([key, item], tuple)

    made.step = step
    return made
