"""Items and methods of containers: `a[i] = v`, `del a[i]`, `v in a`, methods of lists and dicts.

In: container Values and arguments. Out: Values, with the changes made. `operators` and `calls` use
it.
"""

from __future__ import annotations

import types
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch

from ..breaks import Break
from ..data_model import attributes, symbolic_math
from ..data_model.iteration import drain, drain_as_list, each, hint, iterate
from ..values.containers import (
    NotConstant,
    append,
    as_constant,
    dict_delete,
    dict_get,
    dict_items,
    dict_set,
    fold,
    has_key,
    is_index,
    moved,
    open_dict,
    place,
    pop_last,
    raises,
    read_key,
    real_index,
    refuse_tuple,
    sequence_items,
    writable,
)
from ..values.value import Const, Dict, DictView, Instance, Iterator, Obj, Sequence, Set, Value
from ..values.wrap import freeze, hashes_by_identity, pin
from . import container_subclasses, sets, sorting

if TYPE_CHECKING:
    from ..interpreter.machine import Machine


def set_item(m: Machine, value: Value, index: Value, item: Value) -> bool:
    if isinstance(value, Dict) and value.cls is not types.MappingProxyType:
        dict_set(m, value, index, item)
        return True
    if isinstance(value, Sequence) and value.cls is list:
        try:
            at = real_index(index)
        except NotConstant:
            raise Break("GB121", "a list indexed by something that is not a constant") from None
        if isinstance(at, int) and -len(value.items) <= at < len(value.items):
            place(m, value, at, item)
            return True
        writable(m, value)
        items: Any = drain_as_list(m, item) if isinstance(at, slice) else item
        try:
            value.items[at] = items
        except (IndexError, ValueError, TypeError) as error:
            raise raises(f"{type(error).__name__}: {error}") from error
        return True
    return False


def delete_item(m: Machine, value: Value, index: Value) -> bool:
    if isinstance(value, Dict) and value.cls is not types.MappingProxyType:
        dict_delete(m, value, index)
        return True
    if isinstance(value, Sequence) and value.cls is list:
        writable(m, value)
        try:
            del value.items[real_index(index)]
        except (IndexError, TypeError, ValueError, NotConstant) as error:
            raise raises(f"{type(error).__name__}: {error}") from error
        return True
    return False


def contains(m: Machine, value: Value, item: Value) -> bool | None:
    """item in value, for modelled containers; None for others."""
    if isinstance(value, Dict):
        return has_key(m, value, item)
    if isinstance(value, Set):
        if value.shut is not None and isinstance(item, Obj) and hashes_by_identity(item.value):
            return _in_shut(m, value, item)
        return freeze(read_key(m, item)) in value.items
    if isinstance(value, Const):
        return _in_constant(m, value, item)
    if isinstance(value, DictView) and value.kind == "keys":
        return contains(m, value.of, item)
    if isinstance(value, DictView) and value.kind == "items":
        return _in_items(m, value.of, item)
    if isinstance(value, (Sequence, Iterator, DictView)):
        return any(m.same_or_equal(one, item) for one in each(m, value))
    return None


def _in_items(m: Machine, value: Dict, item: Value) -> bool:
    """item in dict.items(): looks the key up and compares its item."""
    if isinstance(item, (Obj, Instance)):
        raise Break("GB122", "'in' of the items of a dict and an object")
    if not isinstance(item, Sequence) or not issubclass(item.cls, tuple) or len(item.items) != 2:
        return False
    key, wanted = sequence_items(m, item)
    found = dict_get(m, value, freeze(read_key(m, key)))
    return found is not None and m.same_or_equal(found, wanted)


def _in_shut(m: Machine, value: Set, item: Obj) -> bool:
    """Whether an unread outside set has an object that compares by identity, as classes do."""
    pin(item)
    if freeze(item) in value.unread:
        return True
    held = set.__contains__(value.origin, item.value)
    m.guard("element" if held else "no_element", value.source, item.value)
    return held


def _in_constant(m: Machine, value: Const, item: Value) -> bool:
    try:
        at = as_constant(m, item, ordered=False)
    except NotConstant:
        if isinstance(value.value, (str, bytes, frozenset)):
            raise Break("GB121", "'in' of a constant and a value that is not a constant") from None
        return any(m.same_or_equal(one, item) for one in each(m, value))
    result = fold(lambda: at in value.value)
    assert isinstance(result, Const)
    return bool(result.value)


Method = Callable[["Machine", Any, list[Value], dict[str, Value]], Value]


NONE = Const(None)


def _constant_int(m: Machine, value: Value) -> int:
    if isinstance(value, Const) and isinstance(value.value, int) and is_index(value.value):
        return value.value
    raise Break("GB121", "an index that is not a constant, or is not one of a list")


def _pop(m: Machine, value: Sequence, args: list[Value], kwargs: dict[str, Value]) -> Value:
    at = _constant_int(m, args[0]) if args else -1
    if not -len(value.items) <= at < len(value.items):
        raise raises("IndexError: pop index out of range")
    if at in (-1, len(value.items) - 1):
        return pop_last(m, value)
    return writable(m, value).items.pop(at)  # type: ignore[no-any-return]


def _index(m: Machine, value: Sequence, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) != 1:
        raise Break("GB122", "index with bounds")
    for position, item in enumerate(sequence_items(m, value)):
        if m.same_or_equal(item, args[0]):  # type: ignore[attr-defined]
            return Const(position)
    raise raises("ValueError: not in list")


def _count(m: Machine, value: Sequence, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return Const(
        sum(
            m.same_or_equal(i, args[0])  # type: ignore[attr-defined]
            for i in sequence_items(m, value)
        )
    )


def _remove(m: Machine, value: Sequence, args: list[Value], kwargs: dict[str, Value]) -> Value:
    at = _index(m, value, args, kwargs)
    assert isinstance(at, Const)
    del writable(m, value).items[at.value]
    return NONE


def _no_keywords(kwargs: dict[str, Value]) -> None:
    if kwargs:
        raise Break("GB122", "keywords")


def _then_none(change: Callable[[Any, Any, list[Value]], Any]) -> Method:
    def method(m: Machine, value: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        _no_keywords(kwargs)
        change(m, writable(m, value), args)
        return NONE

    return method


def _append(m: Machine, value: Sequence, args: list[Value], kwargs: dict[str, Value]) -> Value:
    _no_keywords(kwargs)
    append(m, value, [args[0]])
    return NONE


def _extend(m: Machine, value: Sequence, args: list[Value], kwargs: dict[str, Value]) -> Value:
    _no_keywords(kwargs)
    extend(m, value, args[0])
    return NONE


def extend(m: Machine, value: Sequence, other: Value) -> None:
    """value.extend(other): each item is appended before the iterator is asked for the next one."""
    if isinstance(other, (Sequence, Const, Dict, DictView, Set)):
        append(m, value, drain(m, other))
        return
    iterator = iterate(m, other)
    hint(m, other)
    if iterator is not other and iterator.parts and iterator.parts[0] is value:
        append(
            m, value, drain(m, iterator)
        )  # an object that is this list: C makes a list of it first
        return
    for item in each(m, iterator):
        append(m, value, [item])


LIST_METHODS: dict[str, Method] = {
    "append": _append,
    "extend": _extend,
    "insert": _then_none(lambda m, v, a: v.items.insert(_constant_int(m, a[0]), a[1])),
    "clear": _then_none(lambda m, v, a: v.items.clear()),
    "reverse": _then_none(lambda m, v, a: v.items.reverse()),
    "pop": _pop,
    "remove": _remove,
    "sort": sorting.sort_list,
    "index": _index,
    "count": _count,
    "copy": lambda m, v, a, k: Sequence(list(sequence_items(m, v)), list),
}


TUPLE_METHODS: dict[str, Method] = {"index": _index, "count": _count}


def _dict_get(m: Machine, value: Dict, args: list[Value], kwargs: dict[str, Value]) -> Value:
    refuse_tuple(value, args[0])
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
    m.rewritten(value)
    moved(m, value)
    value.items.popitem()
    return Sequence(list(pairs[-1]), tuple)


def mapping_pairs(m: Machine, other: Value) -> Iterable[tuple[Value, Value]] | None:
    """(key, item) pairs of a mapping as dict.update and `**` read it: all keys at once, an item
    when it is asked for. None if it is no mapping."""
    # The C code of a merge reads a dict's entries directly, unless it overrides iteration, as
    # OrderedDict does.
    base = container_subclasses.base_of(attributes.real_class(other) or object)
    plain = ("__iter__",) if base is not OrderedDict else ("__iter__", "__getitem__", "keys")
    held = container_subclasses.as_container(m, other, plain)
    if isinstance(held, Dict):
        return dict_items(m, held)
    if not isinstance(other, (Obj, Instance)) or not attributes.has_attr(m, other, "keys"):
        return None
    keys = drain(m, iterate(m, m.call(attributes.load_attr(m, other, "keys"), [], {})))
    return ((key, m.get_item(other, key)) for key in keys)


def update_dict(m: Machine, value: Dict, other: Value) -> None:
    pairs = mapping_pairs(m, other)
    if pairs is None:
        for entry in each(m, other):
            both = drain_as_list(m, entry)
            if len(both) != 2:
                raise raises("ValueError: dictionary update sequence element")
            dict_set(m, value, both[0], both[1])
        return
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
    m.rewritten(value)
    moved(m, value)
    value.items.clear()
    return NONE


def copy_dict(m: Machine, value: Dict) -> Dict:
    dict_items(m, value)
    return Dict(dict(value.items), OrderedDict if value.cls is OrderedDict else dict)


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


def _move_to_end(m: Machine, value: Dict, args: list[Value], kwargs: dict[str, Value]) -> Value:
    frozen = freeze(read_key(m, args[0]))
    dict_items(m, value)
    if frozen not in value.items:
        raise raises("KeyError")
    m.rewritten(value)
    moved(m, value)
    pair = {frozen: value.items.pop(frozen)}
    last = m.truth(args[1] if len(args) > 1 else kwargs.get("last", Const(True)))
    value.items = {**value.items, **pair} if last else {**pair, **value.items}
    return NONE


def _pop_end(m: Machine, value: Dict, args: list[Value], kwargs: dict[str, Value]) -> Value:
    pairs = dict_items(m, value)
    if not pairs:
        raise raises("KeyError: dictionary is empty")
    last = m.truth(args[0] if args else kwargs.get("last", Const(True)))
    m.rewritten(value)
    moved(m, value)
    del value.items[list(value.items)[-1 if last else 0]]
    return Sequence(list(pairs[-1 if last else 0]), tuple)


READERS = frozenset({"get", "keys", "values", "items", "copy"})
ORDERED_METHODS: dict[str, Method] = {"move_to_end": _move_to_end, "popitem": _pop_end}


def find_method(value: Value, name: str) -> Method | None:
    """The model of a method of a container Value, or None."""
    if isinstance(value, Sequence):
        if value.cls is torch.Size and name == "numel":
            return lambda m, v, a, k: symbolic_math.product(m, sequence_items(m, v))
        return (LIST_METHODS if value.cls is list else TUPLE_METHODS).get(name)
    if isinstance(value, Dict):
        if value.cls is types.MappingProxyType and name not in READERS:
            return None
        own = ORDERED_METHODS.get(name) if value.cls is OrderedDict else None
        return own or DICT_METHODS.get(name)
    if isinstance(value, Set):
        method = sets.METHODS.get(name)
        return None if value.cls is frozenset and name != "copy" else method
    return None
