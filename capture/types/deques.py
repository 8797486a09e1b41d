"""Deques made in the frame: a list Value, and the methods of `collections.deque` as Python over it.

In: `deque(...)`, and C methods of deque with such an object as self, which `container_subclasses`
passes here. Out: Values. A deque that leaves the frame is made by Python with its items at that
time. Methods of older deques are breaks; an append to one is an effect.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from ...runtime.guards.sources import Source
from ..breaks import Break
from ..data_model.iteration import each
from ..values import containers
from ..values.containers import raises
from ..values.effects import Filled
from ..values.registry import NONE, Args, Kwargs
from ..values.value import Const, Instance, Obj, Sequence, Value
from ..values.value import Iterator as IteratorValue

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

# -- the methods: `items` is the list, `limit` is maxlen or None
# ---------------------------------------------


def append(items: Any, limit: Any, x: Any, /) -> None:
    items.append(x)
    if limit is not None and len(items) > limit:
        del items[0]


def appendleft(items: Any, limit: Any, x: Any, /) -> None:
    items.insert(0, x)
    if limit is not None and len(items) > limit:
        del items[-1]


def extend(items: Any, limit: Any, iterable: Any, /) -> None:
    for x in iterable:
        append(items, limit, x)


def extendleft(items: Any, limit: Any, iterable: Any, /) -> None:
    for x in iterable:
        appendleft(items, limit, x)


def pop(items: Any, limit: Any, /) -> Any:
    if not items:
        raise IndexError("pop from an empty deque")
    return items.pop()


def popleft(items: Any, limit: Any, /) -> Any:
    if not items:
        raise IndexError("pop from an empty deque")
    return items.pop(0)


def rotate(items: Any, limit: Any, n: Any = 1, /) -> None:
    if items:
        n = n % len(items)
        if n:
            moved = items[-n:]
            del items[-n:]
            items[:0] = moved


def clear(items: Any, limit: Any, /) -> None:
    items.clear()


def count(items: Any, limit: Any, x: Any, /) -> int:
    size, found = len(items), 0
    for item in list(items):
        found += x in (item,)
        if len(items) != size:
            raise RuntimeError("deque mutated during iteration")
    return found


def reverse(items: Any, limit: Any, /) -> None:
    items.reverse()


def length(items: Any, limit: Any, /) -> int:
    return len(items)


def contains(items: Any, limit: Any, x: Any, /) -> bool:
    size = len(items)
    for item in list(items):
        if x in (item,):
            return True
        if len(items) != size:
            raise RuntimeError("deque mutated during iteration")
    return False


def get(items: Any, limit: Any, index: Any, /) -> Any:
    if not -len(items) <= index < len(items):
        raise IndexError("deque index out of range")
    return items[index]


def put(items: Any, limit: Any, index: Any, x: Any, /) -> None:
    if not -len(items) <= index < len(items):
        raise IndexError("deque index out of range")
    items[index] = x


def delete(items: Any, limit: Any, index: Any, /) -> None:
    if not -len(items) <= index < len(items):
        raise IndexError("deque index out of range")
    del items[index]


METHODS: dict[str, Any] = {
    "append": append,
    "appendleft": appendleft,
    "extend": extend,
    "extendleft": extendleft,
    "pop": pop,
    "popleft": popleft,
    "rotate": rotate,
    "clear": clear,
    "count": count,
    "reverse": reverse,
    "__len__": length,
    "__contains__": contains,
    "__getitem__": get,
    "__setitem__": put,
    "__delitem__": delete,
    "__iter__": None,
    "__reversed__": None,
}


# -- over Values -----------------------------------------------------------------------------------
def make(m: Machine, cls: Obj) -> Instance:
    """A new, empty deque."""
    held = Sequence([], list)
    made = Instance(cls, held)
    m.heap.owners[held] = made
    m.heap.overlay[made] = {"maxlen": NONE}
    return made


def limit_of(m: Machine, value: Instance) -> Value:
    """`value.maxlen`"""
    found = m.heap.overlay[value]["maxlen"]
    assert found is not None
    return found


def call(m: Machine, value: Instance, name: str, args: Args, kwargs: Kwargs) -> Value:
    """A C method of deque with a deque of the frame as self."""
    if name == "__init__":
        named = {"iterable", "maxlen"} - set(("iterable", "maxlen")[: len(args)])
        if len(args) > 2 or not kwargs.keys() <= named:
            raise Break("GB121", "deque() with these arguments")
        assert value.storage is not None
        value.storage.moves += 1
        return _init(m, value, *args, **kwargs)
    method = METHODS.get(name)
    if name not in METHODS or kwargs:
        raise Break("GB122", f"method {name!r} of a deque")
    if name in _BY_PLACE and args and not _is_place(args[0]):
        raise Break("GB122", f"{name}() of a deque with an argument that is not a plain number")
    assert value.storage is not None
    if any(one is value for one in args):
        raise Break("GB122", "a deque and itself")
    held = value.storage
    if name in ("__iter__", "__reversed__") and not args:
        return _walk(m, held, name == "__reversed__")
    if (
        name in _MOVES
        or (name == "rotate" and len(held.items) > 1)
        or (name == "clear" and held.items)
    ):
        held.moves += 1
    return m.call(Obj(method), [held, limit_of(m, value), *args], {})


_BY_PLACE = ("rotate", "__getitem__", "__setitem__", "__delitem__")


def _is_place(value: Value) -> bool:
    return (
        isinstance(value, Const)
        and isinstance(value.value, int)
        and containers.is_index(value.value)
    )


# Methods that invalidate iterators (`deque->state` in CPython's Modules/_collectionsmodule.c).
_MOVES = frozenset(
    {"append", "appendleft", "extend", "extendleft", "pop", "popleft", "__delitem__"}
)


def _walk(m: Machine, held: Sequence, backward: bool) -> IteratorValue:
    """iter() or reversed() of a deque with this list."""
    if not m.walks_generators:
        raise Break("GB120", "an iterator of a deque that outlives a break")
    since, left = held.moves, len(held.items)

    def step(made: IteratorValue) -> Value | None:
        nonlocal left
        if held.moves != since:
            left = 0
            text = "deque mutated during iteration"
            raise raises(f"RuntimeError: {text}", text)
        if not left:
            return None
        left -= 1
        return held.items[left if backward else len(held.items) - 1 - left]

    return IteratorValue("deque", [], step)


def grow(m: Machine, value: Obj, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """A C method that adds to a caller's deque without reading it; None for other methods.

    A deque with a limit drops items for that: any of those that it had, at the effect's place.
    """
    real = value.value
    if name not in _GROWING or type(real) is not deque or value.source is None:
        return None
    if kwargs or len(args) != 1:
        return None
    limit = m.wrap(real.maxlen, Source("member", value.source, "maxlen"))
    if not isinstance(limit, Const):
        return None
    if limit.value is not None:
        for item in deque.__iter__(real):
            m.unhook(item)
    given = args[0] if _GROWING[name] else Sequence(list(each(m, args[0])), tuple)
    m.journal.effects.append(Filled(value, getattr(deque, name), (given,)))
    m.activity += 1
    return NONE


# Method -> whether it adds one item.
_GROWING = {"append": True, "appendleft": True, "extend": False, "extendleft": False}


def _init(
    m: Machine, value: Instance, iterable: Value | None = None, maxlen: Value = NONE
) -> Value:
    if not isinstance(maxlen, Const) or not (
        maxlen.value is None or (type(maxlen.value) is int and maxlen.value >= 0)
    ):
        raise Break("GB122", "a deque of this length")
    assert value.storage is not None
    value.storage.items.clear()
    m.heap.overlay[value]["maxlen"] = maxlen
    if iterable is not None:
        m.call(Obj(extend), [value.storage, maxlen, iterable], {})
    return NONE


def is_made(value: Value) -> bool:
    return isinstance(value, Instance) and value.cls.value is deque  # type: ignore[attr-defined]
