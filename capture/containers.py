"""Lists, tuples, dicts, sets and iterators of the frame: reading, writing, iterating, and their methods.

In: container Values, pre-existing ones read lazily under guards. Out: Values; a write to a pre-existing
container is told to the machine, which writes its final content back at the end. Called by handlers and calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ..runtime.sources import Source
from .breaks import Break
from .values import (
    UNREAD,
    Const,
    Dict,
    DictView,
    Iterator,
    Obj,
    Sequence,
    Set,
    Slice,
    Tensor,
    Value,
)
from .wrapping import CONST_TYPES, freeze

if TYPE_CHECKING:
    from .machine import Machine


class NotConstant(Exception):
    """A value has parts that are not known Python constants."""


def raises(reason: str) -> Break:
    """The captured path raises here: Python does it, with its own message."""
    return Break("GB108", reason)


# -- values as Python constants --------------------------------------------------------------------------
def as_constant(m: Machine, value: Value) -> Any:
    """The plain Python value of a Value made of constants only; raises NotConstant."""
    if isinstance(value, Const):
        return value.value
    if isinstance(value, Sequence):
        items = [as_constant(m, item) for item in sequence_items(m, value)]
        if value.cls in (list, tuple):
            return value.cls(items)
        if hasattr(value.cls, "_make"):
            return value.cls._make(items)
    if isinstance(value, Set):
        return value.cls(as_constant(m, item) for item in value.items.values())
    if isinstance(value, Dict) and value.cls is dict:
        return {as_constant(m, k): as_constant(m, v) for k, v in dict_items(m, value)}
    if isinstance(value, Slice):
        return slice(*(as_constant(m, part) for part in (value.start, value.stop, value.step)))
    if isinstance(value, Obj) and isinstance(value.value, type):
        return value.value
    raise NotConstant


def from_constant(value: Any) -> Value:
    """A Value of a fresh Python value: constants, and containers of them."""
    kind = type(value)
    if kind in CONST_TYPES or kind in (range, slice):
        return Const(value)
    if kind in (list, tuple):
        return Sequence([from_constant(item) for item in value], kind)
    if kind is dict:
        made = Dict({})
        for key, item in value.items():
            wrapped = from_constant(key)
            made.items[freeze(wrapped)] = (wrapped, from_constant(item))
        return made
    if kind in (set, frozenset):
        return Set({freeze(Const(item)): Const(item) for item in value}, kind)
    if isinstance(value, tuple) and hasattr(kind, "_make"):
        return Sequence([from_constant(item) for item in value], kind)
    if isinstance(value, type):
        return Obj(value)
    raise Break("GB121", f"a result of type {kind.__name__}")


# -- sequences -------------------------------------------------------------------------------------------
def sequence_items(m: Machine, value: Sequence) -> list[Value]:
    """All items, read."""
    for index in range(len(value.items)):
        sequence_item(m, value, index)
    return value.items


def sequence_item(m: Machine, value: Sequence, index: int) -> Value:
    item = value.items[index]
    if item is UNREAD:
        # A changed list has its items read before (see `writable`): index is the original position here.
        item = m.wrap(value.origin[index], Source("item", value.source, index))
        value.items[index] = item
    return item


def writable(m: Machine, value: Any) -> Any:
    """A list or set about to be written: everything in it is read first, so positions may move."""
    if isinstance(value, Sequence):
        sequence_items(m, value)
    m.changed(value)
    return value


# -- dicts -----------------------------------------------------------------------------------------------
def open_dict(m: Machine, value: Dict) -> Dict:
    """Guard all keys of a pre-existing dict and know them all."""
    if value.opened:
        return value
    keys = tuple(dict.keys(value.origin))
    if value.cls is not dict and len(keys) > 1:
        raise Break("GB120", "the order of an OrderedDict, which its dict does not show")
    m.guard("keys", value.source, keys)
    read, value.items = value.items, {}
    for position, key in enumerate(keys):
        wrapped = _key_value(m, value, key, position)
        frozen = freeze(wrapped)
        value.items[frozen] = read.get(frozen, (wrapped, UNREAD))
    value.opened = True
    return value


def _key_value(m: Machine, value: Dict, key: Any, position: int) -> Value:
    if type(key) in CONST_TYPES:
        return Const(key)
    return m.wrap(key, Source("key", value.source, position))


def dict_items(m: Machine, value: Dict) -> list[tuple[Value, Value]]:
    """All (key, item) pairs in order, read."""
    open_dict(m, value)
    for frozen in value.items:
        dict_get(m, value, frozen)
    return list(value.items.values())


def dict_get(m: Machine, value: Dict, frozen: Any) -> Value | None:
    """The item under a frozen key, or None; one look-up is one guard."""
    found = value.items.get(frozen)
    if found is not None and found[1] is not UNREAD:
        return found[1]
    if value.origin is None or (value.opened and found is None):
        return None
    key = _real_key(value, frozen)
    if key is UNREAD:
        open_dict(m, value)
        found = value.items.get(frozen)
        if found is None:
            return None
        raise Break("GB122", "look-up of an object key in a dict of the caller")
    if not dict.__contains__(value.origin, key):
        if not isinstance(key, str):
            open_dict(m, value)
        else:
            m.guard("no_item", value.source, key)
        return None
    item = m.wrap(dict.__getitem__(value.origin, key), Source("item", value.source, key))
    value.items[frozen] = (found[0] if found else Const(key), item)
    return item


def _real_key(value: Dict, frozen: Any) -> Any:
    if frozen[0] == "const":
        return frozen[1]
    if frozen[0] == "object":
        return next((key for key in value.origin if id(key) == frozen[1]), UNREAD)
    return UNREAD


def dict_set(m: Machine, value: Dict, key: Value, item: Value) -> None:
    open_dict(m, value)
    dict_items(m, value)
    m.changed(value)
    frozen = freeze(read_key(m, key))
    old = value.items.get(frozen)
    value.items[frozen] = (old[0] if old else key, item)


def dict_delete(m: Machine, value: Dict, key: Value) -> Value:
    open_dict(m, value)
    dict_items(m, value)
    frozen = freeze(read_key(m, key))
    if frozen not in value.items:
        raise raises("KeyError")
    m.changed(value)
    return value.items.pop(frozen)[1]


def read_key(m: Machine, key: Value) -> Value:
    if isinstance(key, Sequence):
        if key.cls is list:
            raise raises("TypeError: unhashable type: 'list'")
        sequence_items(m, key)
    return key


# -- iteration -------------------------------------------------------------------------------------------
def iterate(m: Machine, value: Value) -> Iterator:
    """iter(value) for modelled types."""
    if isinstance(value, Iterator):
        return value
    if isinstance(value, Sequence):
        return _index_iterator(m, value)
    if isinstance(value, Const):
        if isinstance(value.value, (str, bytes, tuple, range)):
            return _list_iterator([from_constant(item) for item in value.value])
        raise raises(f"TypeError: {type(value.value).__name__!r} object is not iterable")
    if isinstance(value, Dict):
        open_dict(m, value)
        return _list_iterator([key for key, _ in value.items.values()])
    if isinstance(value, DictView):
        return _list_iterator(view_items(m, value))
    if isinstance(value, Set):
        real = value.origin if value.origin is not None and not value.changed else None
        if real is None and len(value.items) > 1:
            real = value.cls(as_constant(m, item) for item in value.items.values())
        items = list(value.items.values()) if real is None else [Const(item) for item in real]
        return _list_iterator(items)
    if isinstance(value, Tensor):
        from .torchcalls import call_torch

        if not value.ghost.dim():
            raise raises("TypeError: iteration over a 0-d tensor")
        parts = call_torch(m, _unbind, [value], {})
        assert isinstance(parts, Sequence)
        return _list_iterator(list(parts.items))
    from .attributes import call_special

    made = call_special(m, value, "__iter__", [])
    if made is None:
        raise Break("GB120", "iteration over an object that is not modelled")
    return iterate(m, made) if isinstance(made, Iterator) else _protocol_iterator(m, made)


def _unbind(tensor: Any) -> Any:
    return tensor.unbind(0)


def _protocol_iterator(m: Machine, value: Value) -> Iterator:
    raise Break("GB120", "an iterator of a user's class")


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


def _list_iterator(items: list[Value]) -> Iterator:
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
        item = inner.step()
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
            item = one.step()
            if item is None:
                if strict and (position or any(other.step() for other in inner[1:])):
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
            item = one.step()
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
        while (item := inner.step()) is not None:
            keep = item if isinstance(func, Const) else m.call(func, [item], {})  # type: ignore[attr-defined]
            if m.truth(keep):  # type: ignore[attr-defined]
                return item
        return None

    made.step = step
    return made


def drain(m: Machine, value: Value) -> list[Value]:
    """All items of an iterable."""
    if isinstance(value, Sequence):
        return list(sequence_items(m, value))
    iterator = iterate(m, value)
    items: list[Value] = []
    while (item := iterator.step()) is not None:
        items.append(item)
        if len(items) > 100_000:
            raise Break("GB116", "an iteration over 100,000 items")
    return items


# -- length, containment, indexing -----------------------------------------------------------------------
def length(m: Machine, value: Value) -> int | None:
    """len(value) for modelled types, else None."""
    if isinstance(value, Sequence):
        return len(value.items)
    if isinstance(value, Set):
        return len(value.items)
    if isinstance(value, DictView):
        return len(value.of.items)
    if isinstance(value, Dict):
        if not value.opened:
            m.guard("len", value.source, dict.__len__(value.origin))
            return dict.__len__(value.origin)
        return len(value.items)
    if isinstance(value, Const) and hasattr(value.value, "__len__"):
        return len(value.value)
    if isinstance(value, Tensor):
        if not value.ghost.dim():
            raise raises("TypeError: len() of a 0-d tensor")
        return int(value.ghost.shape[0])
    return None


def real_index(value: Value) -> Any:
    """A constant index or slice as Python has it; NotConstant otherwise."""
    if isinstance(value, Const):
        return value.value
    if isinstance(value, Slice):
        return slice(*(real_index(part) for part in (value.start, value.stop, value.step)))
    raise NotConstant


def get_item(m: Machine, value: Value, index: Value) -> Value | None:
    """value[index] for modelled containers; None if value is not one."""
    if isinstance(value, Sequence) and value.cls.__getitem__ in (
        list.__getitem__,
        tuple.__getitem__,
    ):
        try:
            at = real_index(index)
        except NotConstant:
            raise Break("GB121", "a list indexed by something that is not a constant") from None
        if isinstance(at, slice):
            picked = range(len(value.items))[at]
            return Sequence(
                [sequence_item(m, value, i) for i in picked], list if value.cls is list else tuple
            )
        if not isinstance(at, int):
            raise raises("TypeError: indices must be integers or slices")
        if not -len(value.items) <= at < len(value.items):
            raise raises("IndexError: index out of range")
        return sequence_item(m, value, at % len(value.items))
    if isinstance(value, Dict):
        found = dict_get(m, value, freeze(read_key(m, index)))
        if found is None:
            raise raises("KeyError")
        return found
    if isinstance(value, Const):
        try:
            at = real_index(index)
        except NotConstant:
            raise Break("GB121", "a constant indexed by something that is not one") from None
        return fold(lambda: value.value[at])
    return None


def fold(compute: Callable[[], Any]) -> Value:
    """Run a pure computation on constants now; if it raises, Python raises it in its place."""
    try:
        result = compute()
    except Exception as error:  # the user's own exception: plain Python raises it again
        raise raises(f"{type(error).__name__}: {error}") from error
    return from_constant(result)


def set_item(m: Machine, value: Value, index: Value, item: Value) -> bool:
    if isinstance(value, Dict) and value.cls is dict:
        dict_set(m, value, index, item)
        return True
    if isinstance(value, Sequence) and value.cls is list:
        try:
            at = real_index(index)
        except NotConstant:
            raise Break("GB121", "a list indexed by something that is not a constant") from None
        writable(m, value)
        items: Any = drain(m, item) if isinstance(at, slice) else item
        try:
            value.items[at] = items
        except (IndexError, ValueError, TypeError) as error:
            raise raises(f"{type(error).__name__}: {error}") from error
        return True
    return False


def delete_item(m: Machine, value: Value, index: Value) -> bool:
    if isinstance(value, Dict) and value.cls is dict:
        dict_delete(m, value, index)
        return True
    if isinstance(value, Sequence) and value.cls is list:
        writable(m, value)
        try:
            del value.items[real_index(index)]
        except (IndexError, TypeError, NotConstant) as error:
            raise raises(f"{type(error).__name__}: {error}") from error
        return True
    return False


def contains(m: Machine, value: Value, item: Value) -> bool | None:
    """item in value, for modelled containers."""
    if isinstance(value, Dict):
        frozen = freeze(read_key(m, item))
        if not value.opened and frozen[0] == "const" and frozen not in value.items:
            key = frozen[1]
            if isinstance(key, str) and not dict.__contains__(value.origin, key):
                m.guard("no_item", value.source, key)
                return False
        return dict_get(m, value, frozen) is not None
    if isinstance(value, Set):
        return freeze(read_key(m, item)) in value.items
    if isinstance(value, Const):
        try:
            at = as_constant(m, item)
        except NotConstant:
            if isinstance(value.value, str):
                raise Break("GB121", "'in' of a string and a non-constant") from None
            return False
        result = fold(lambda: at in value.value)
        assert isinstance(result, Const)
        return bool(result.value)
    if isinstance(value, DictView) and value.kind == "keys":
        return contains(m, value.of, item)
    if isinstance(value, (Sequence, Iterator, DictView)):
        return any(m.same_or_equal(one, item) for one in drain(m, value))  # type: ignore[attr-defined]
    return None


# -- methods ---------------------------------------------------------------------------------------------
Method = Callable[["Machine", Any, list[Value], dict[str, Value]], Value]
NONE = Const(None)


def _constant_int(m: Machine, value: Value) -> int:
    if isinstance(value, Const) and isinstance(value.value, int):
        return value.value
    raise Break("GB121", "an index that is not a constant")


def _pop(m: Machine, value: Sequence, args: list[Value], kwargs: dict[str, Value]) -> Value:
    writable(m, value)
    at = _constant_int(m, args[0]) if args else -1
    if not -len(value.items) <= at < len(value.items):
        raise raises("IndexError: pop index out of range")
    return value.items.pop(at)


def _index(m: Machine, value: Sequence, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) != 1:
        raise Break("GB122", "index with bounds")
    for position, item in enumerate(sequence_items(m, value)):
        if m.same_or_equal(item, args[0]):  # type: ignore[attr-defined]
            return Const(position)
    raise raises("ValueError: not in list")


def _count(m: Machine, value: Sequence, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return Const(sum(m.same_or_equal(i, args[0]) for i in sequence_items(m, value)))  # type: ignore[attr-defined]


def _remove(m: Machine, value: Sequence, args: list[Value], kwargs: dict[str, Value]) -> Value:
    at = _index(m, value, args, kwargs)
    assert isinstance(at, Const)
    del writable(m, value).items[at.value]
    return NONE


def sort_items(m: Machine, items: Iterable[Value], kwargs: dict[str, Value]) -> list[Value]:
    """sorted(): by constant keys only (a tensor's order is data)."""
    pairs = []
    key = kwargs.get("key", NONE)
    for item in items:
        by = item if isinstance(key, Const) else m.call(key, [item], {})  # type: ignore[attr-defined]
        try:
            pairs.append((as_constant(m, by), item))
        except NotConstant:
            raise Break("GB121", "sorted() by keys that are not constants") from None
    reverse = kwargs.get("reverse", Const(False))
    flag = m.truth(reverse)  # type: ignore[attr-defined]
    try:
        pairs.sort(key=lambda pair: pair[0], reverse=flag)
    except TypeError as error:
        raise raises(f"TypeError: {error}") from error
    return [item for _, item in pairs]


def _sort(m: Machine, value: Sequence, args: list[Value], kwargs: dict[str, Value]) -> Value:
    items = sort_items(m, sequence_items(m, value), kwargs)
    writable(m, value).items[:] = items
    return NONE


def _then_none(change: Callable[[Any, Any, list[Value]], Any]) -> Method:
    def method(m: Machine, value: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if kwargs:
            raise Break("GB122", "keywords")
        change(m, writable(m, value), args)
        return NONE

    return method


LIST_METHODS: dict[str, Method] = {
    "append": _then_none(lambda m, v, a: v.items.append(a[0])),
    "extend": _then_none(lambda m, v, a: v.items.extend(drain(m, a[0]))),
    "insert": _then_none(lambda m, v, a: v.items.insert(_constant_int(m, a[0]), a[1])),
    "clear": _then_none(lambda m, v, a: v.items.clear()),
    "reverse": _then_none(lambda m, v, a: v.items.reverse()),
    "pop": _pop,
    "remove": _remove,
    "sort": _sort,
    "index": _index,
    "count": _count,
    "copy": lambda m, v, a, k: Sequence(list(sequence_items(m, v)), list),
}
TUPLE_METHODS: dict[str, Method] = {"index": _index, "count": _count}


def _dict_get(m: Machine, value: Dict, args: list[Value], kwargs: dict[str, Value]) -> Value:
    found = dict_get(m, value, freeze(read_key(m, args[0])))
    if found is not None:
        return found
    return args[1] if len(args) > 1 else kwargs.get("default", NONE)


def _dict_pop(m: Machine, value: Dict, args: list[Value], kwargs: dict[str, Value]) -> Value:
    open_dict(m, value)
    if freeze(read_key(m, args[0])) not in value.items and len(args) > 1:
        return args[1]
    return dict_delete(m, value, args[0])


def _setdefault(m: Machine, value: Dict, args: list[Value], kwargs: dict[str, Value]) -> Value:
    found = dict_get(m, value, freeze(read_key(m, args[0])))
    if found is None:
        found = args[1] if len(args) > 1 else NONE
        dict_set(m, value, args[0], found)
    return found


def _popitem(m: Machine, value: Dict, args: list[Value], kwargs: dict[str, Value]) -> Value:
    pairs = dict_items(m, value)
    if not pairs:
        raise raises("KeyError: popitem(): dictionary is empty")
    m.changed(value)
    value.items.popitem()
    return Sequence(list(pairs[-1]), tuple)


def update_dict(m: Machine, value: Dict, other: Value) -> None:
    if isinstance(other, Dict):
        pairs = dict_items(m, other)
    else:
        pairs = []
        for entry in drain(m, other):
            both = drain(m, entry)
            if len(both) != 2:
                raise raises("ValueError: dictionary update sequence element")
            pairs.append((both[0], both[1]))
    for key, item in pairs:
        dict_set(m, value, key, item)


def _update(m: Machine, value: Dict, args: list[Value], kwargs: dict[str, Value]) -> Value:
    for other in args:
        update_dict(m, value, other)
    for name, item in kwargs.items():
        dict_set(m, value, Const(name), item)
    return NONE


def _dict_clear(m: Machine, value: Dict, args: list[Value], kwargs: dict[str, Value]) -> Value:
    open_dict(m, value)
    m.changed(value)
    value.items.clear()
    return NONE


def copy_dict(m: Machine, value: Dict) -> Dict:
    dict_items(m, value)
    return Dict(dict(value.items), value.cls)


DICT_METHODS: dict[str, Method] = {
    "get": _dict_get,
    "pop": _dict_pop,
    "setdefault": _setdefault,
    "popitem": _popitem,
    "update": _update,
    "clear": _dict_clear,
    "copy": lambda m, v, a, k: copy_dict(m, v),
    "keys": lambda m, v, a, k: DictView(open_dict(m, v), "keys"),
    "values": lambda m, v, a, k: DictView(open_dict(m, v), "values"),
    "items": lambda m, v, a, k: DictView(open_dict(m, v), "items"),
}


DICT_READERS = frozenset({"get", "keys", "values", "items"})


def view_items(m: Machine, view: DictView) -> list[Value]:
    """What a dict view shows at this moment."""
    pairs = dict_items(m, view.of) if view.kind != "keys" else open_dict(m, view.of).items.values()
    if view.kind == "items":
        return [Sequence([key, item], tuple) for key, item in pairs]
    return [pair[view.kind == "values"] for pair in pairs]


def _set_add(m: Machine, value: Set, item: Value) -> None:
    if not isinstance(item, Const):
        raise Break("GB122", "a set of values that are not constants")
    value.items.setdefault(freeze(item), item)


def _discard(m: Machine, value: Set, item: Value, missing_ok: bool) -> None:
    if value.items.pop(freeze(read_key(m, item)), None) is None and not missing_ok:
        raise raises("KeyError")


SET_METHODS: dict[str, Method] = {
    "add": _then_none(lambda m, v, a: _set_add(m, v, a[0])),
    "discard": _then_none(lambda m, v, a: _discard(m, v, a[0], True)),
    "remove": _then_none(lambda m, v, a: _discard(m, v, a[0], False)),
    "clear": _then_none(lambda m, v, a: v.items.clear()),
    "update": _then_none(lambda m, v, a: [_set_add(m, v, i) for o in a for i in drain(m, o)]),
    "copy": lambda m, v, a, k: Set(dict(v.items), v.cls),
}


def make_set(m: Machine, items: Iterable[Value], cls: type = set) -> Set:
    made = Set({}, cls)
    for item in items:
        _set_add(m, made, item)
    return made


def find_method(value: Value, name: str) -> Method | None:
    """The model of a method of a container Value."""
    if isinstance(value, Sequence):
        return (LIST_METHODS if value.cls is list else TUPLE_METHODS).get(name)
    if isinstance(value, Dict):
        if value.cls is dict or name in DICT_READERS:
            return DICT_METHODS.get(name)
        return None
    if isinstance(value, Set):
        method = SET_METHODS.get(name)
        return None if value.cls is frozenset and name != "copy" else method
    return None
