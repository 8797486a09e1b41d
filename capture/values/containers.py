"""Lists, tuples and dicts of the frame: reads and writes of items, and constants made from them.

In: container Values; guards protect each read of a pre-existing one. Out: Values. A write to a
pre-existing container is registered with the machine, which writes its final content back at the
end. `data_model.iteration` iterates, `types.sets` has sets, `types.container_methods` methods and
operators of items.
"""

from __future__ import annotations

import builtins
import inspect
import sys
import types
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...runtime._native import look_up
from ...runtime.guards.sources import Source
from ...runtime.guards.weak_rows import lasts
from ...runtime.safe_access import in_classes
from ..breaks import Break, Thrown
from ..exact_type import is_kind
from .symbolic_numbers import SymbolicNumber, as_sequence
from .value import UNREAD, Array, Const, Dict, DictView, Obj, Sequence, Set, Slice, Tensor, Value
from .wrap import (
    CONST_TYPES,
    compares_by_value,
    freeze,
    item_of,
    own_text,
    same_object,
    sequence_item,
    sequence_items,
)

if TYPE_CHECKING:
    from ..interpreter.machine import Machine


class NotConstant(Break):
    """A value has parts that are not known constants: a break, unless the caller handles it."""

    def __init__(self) -> None:
        super().__init__("GB121", "a value that is not a constant")


def raises(reason: str, text: str | None = None) -> Break:
    """The exception that the captured path raises here, with Python's own message.

    `reason` begins with the class. `text` is the message, if it is certain.
    """
    cls = getattr(builtins, reason.partition(":")[0], None)
    if isinstance(cls, type) and issubclass(cls, BaseException):
        return Thrown(cls, None if text is None else (text,), reason)
    return Break("GB108", reason)


def missing_key(key: Value) -> Thrown:
    """The KeyError of a failed look-up."""
    return Thrown(KeyError, None, "KeyError", held=(key,))


_TEXTS = ("__str__", "__repr__", "__format__")


def as_constant(m: Machine, value: Value, ordered: bool = True) -> Any:
    """The plain Python value of a Value made of constants only; raises NotConstant.

    Sets have their elements in the program's order. Without `ordered` the order is arbitrary, for
    uses that do not show it.
    """
    if isinstance(value, Const):
        return value.value
    if isinstance(value, Sequence):
        items = [as_constant(m, item, ordered) for item in sequence_items(m, value)]
        if value.cls in (list, tuple, torch.Size):
            return value.cls(items)
        if hasattr(value.cls, "_make") and not any(own_text(value.cls, n) for n in _TEXTS):
            return value.cls._make(items)
    if isinstance(value, Set):
        if not ordered or len(value.items) < 2:
            return value.cls(as_constant(m, item) for item in value.items.values())
        return real_set(m, value)
    if isinstance(value, Dict) and value.cls is dict:
        return {
            as_constant(m, k, ordered): as_constant(m, v, ordered) for k, v in dict_items(m, value)
        }
    if isinstance(value, Slice):
        return slice(*(as_constant(m, part) for part in (value.start, value.stop, value.step)))
    if isinstance(value, Obj) and _is_builtin_class(value.value):
        return value.value
    raise NotConstant


_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE


def _is_builtin_class(value: Any) -> bool:
    """Whether this is a builtin class, whose call, repr and metadata run no code of the program's.

    Another class may run any code when a function receives it.
    """
    return type(value) is type and not value.__flags__ & _HEAP_TYPE


def as_constants(
    m: Machine, args: list[Value], kwargs: dict[str, Value]
) -> tuple[list[Any], dict[str, Any]]:
    """The plain arguments of a call; raises NotConstant."""
    return [as_constant(m, a) for a in args], {k: as_constant(m, v) for k, v in kwargs.items()}


def is_exact(value: Set) -> bool:
    """Whether the steps of its history make plain Python's set, in the same order."""
    if not value.history and value.made is None and len(value.items) < 2:
        return True
    parts = [other for _, other in value.history] + list((value.made or ())[1:])
    return (
        value.exact
        and all(is_exact(part) for part in parts if isinstance(part, Set) and part.origin is None)
        and not any(isinstance(part, Set) and part.changed for part in parts)
    )


def real_set(m: Machine, value: Set) -> Any:
    """The program's set, of constants, with the same table and so the same order of elements."""
    if value.origin is not None and not value.changed:
        if value.source is not None and value.source.kind != "const":
            m.guard("keys", value.source, tuple(value.origin))
        return value.origin
    if value.origin is not None or not is_exact(value):
        raise Break("GB120", "the order of a set that was changed or merged in this frame")
    if value.made is not None:
        fn, left, right = value.made
        real = fn(_operand(m, left), _operand(m, right))
    else:
        real = set()
    if value.cls is frozenset and value.made is None:
        parts = [_operand(m, item) for _, item in value.history]
        merged = parts and value.history[0][0] == "update"
        return frozenset(parts[0] if merged else parts)
    for step, item in value.history:
        real.clear() if step == "clear" else getattr(real, step)(_operand(m, item))
    return real


def _operand(m: Machine, value: Value) -> Any:
    """The operand of a merge, of constants: a set or view in equal order, or an iterable."""
    if isinstance(value, DictView):
        held = {as_constant(m, k): as_constant(m, v) for k, v in value.of.items.values()}
        return getattr(held, value.kind)()
    return real_set(m, value) if isinstance(value, Set) else as_constant(m, value)


# Immutable values without identity, which capture may make any number of times.
_FRESH_TYPES = (
    range,
    slice,
    torch.finfo,
    torch.iinfo,
    np.finfo,
    np.iinfo,
    inspect.Signature,
    inspect.Parameter,
)


def from_constant(value: Any) -> Value:
    """The Value of a new Python value: a constant, or a container of constants."""
    kind = type(value)
    if kind in CONST_TYPES or kind in _FRESH_TYPES:
        return Const(value)
    if kind in (list, tuple):
        return Sequence([from_constant(item) for item in value], kind)
    if kind in (dict, types.MappingProxyType):
        made = Dict({}, kind)
        for key, item in value.items():
            wrapped = from_constant(key)
            made.items[freeze(wrapped)] = (wrapped, from_constant(item))
        return made
    if kind in (set, frozenset):
        items: dict[Any, Value] = {freeze(Const(item)): Const(item) for item in value}
        return Set(items, kind, history=[("add", item) for item in items.values()], exact=False)
    if isinstance(value, tuple) and hasattr(kind, "_make"):
        return Sequence([from_constant(item) for item in value], kind)
    if isinstance(value, type):
        return Obj(value)
    if isinstance(value, np.dtype) and value.isbuiltin == 1:
        return Const(value)
    raise Break("GB121", f"a result of type {kind.__name__}")


def joined_sizes(m: Machine, left: Value, right: Value) -> Value | None:
    """left + right of a torch.Size with symbolic sizes and another tuple; else None."""
    if not any(isinstance(v, Sequence) and v.cls is torch.Size for v in (left, right)):
        return None
    one, other = as_sequence(left), as_sequence(right)
    if not isinstance(one, Sequence) or not isinstance(other, Sequence):
        return None
    if not {one.cls, other.cls} <= {tuple, torch.Size}:
        return None
    items = sequence_items(m, one) + sequence_items(m, other)
    return Sequence(items, type(one.cls() + other.cls()))


def is_exact_tuple(value: Sequence) -> bool:
    """Whether this is a tuple itself, and not the content of an object of a subclass."""
    return value.cls is tuple and (value.origin is None or type(value.origin) is tuple)


def writable(m: Machine, value: Any) -> Any:
    """A list or set before a write that moves items: all of it is read first."""
    if isinstance(value, Sequence) and value.origin is not None:
        sequence_items(m, value)
    m.rewritten(value)
    return value


def append(m: Machine, value: Sequence, items: list[Value]) -> None:
    """Append to the list; its content is neither read nor guarded."""
    m.changed(value)
    value.grow(items)


def place(m: Machine, value: Sequence, index: int, item: Value) -> None:
    """value[index] = item, for an index within the list."""
    at = index % len(value.items)
    if value.origin is not None and not value.whole and at < value.kept:
        # Read the old item: its end may be visible.
        sequence_item(m, value, at)
        if at not in value.placed:
            m.unhook(item_of(value.origin, at))
            value.placed.add(at)
    m.changed(value)
    value.items[at] = item


def pop_last(m: Machine, value: Sequence) -> Value:
    """value.pop() of a list that is not empty."""
    last = len(value.items) - 1
    item = sequence_item(m, value, last)
    if value.origin is not None and not value.whole and last < value.kept:
        value.kept = last
        if last in value.placed:
            value.placed.discard(last)
        else:
            m.unhook(item_of(value.origin, last))
    m.changed(value)
    del value.items[last]
    return item


def open_dict(m: Machine, value: Dict) -> Dict:
    """Guard all keys of a pre-existing dict, and read them."""
    if value.opened:
        return value
    _refuse_modules(value)
    if is_kind(value.origin, OrderedDict) and not all(
        map(_hashes_by_itself, dict.keys(value.origin))
    ):
        # Its iterator looks each key up, by the hash and equality of the key's class.
        raise Break("GB137", "an OrderedDict with keys whose hash is a matter of their class")
    keys = tuple((OrderedDict if is_kind(value.origin, OrderedDict) else dict).keys(value.origin))
    m.guard("keys", value.source, keys)
    items: dict[Any, tuple[Value, Value]] = {}
    for position, key in enumerate(keys):
        wrapped = _key_value(m, value, key, position)
        frozen = freeze(wrapped)
        # Use the dict's own key: an earlier look-up may have used an equal one.
        items[frozen] = (wrapped, value.items[frozen][1] if frozen in value.items else UNREAD)
    for frozen in value.placed:  # new keys come last, in insertion order
        items.setdefault(frozen, value.items[frozen])
    value.items = items
    value.opened = True
    return value


def _refuse_modules(value: Dict) -> None:
    """Break on a read of all of sys.modules.

    Capture may import modules itself, before and after its guards.
    """
    if value.origin is sys.modules:
        raise Break("GB112", "all names, or the number, of sys.modules")


def _hashes_by_itself(key: Any) -> bool:
    """Whether hash and equality of a key run no code of the program's."""
    kind = type(key)
    if is_kind(key, tuple):
        return kind is tuple and all(map(_hashes_by_itself, key))
    return kind in CONST_TYPES or all(
        type(in_classes(kind, name)) is types.WrapperDescriptorType
        for name in ("__hash__", "__eq__")
    )


def _key_value(m: Machine, value: Dict, key: Any, position: int) -> Value:
    if type(key) in CONST_TYPES:
        return Const(key)
    return read_key(m, m.wrap(key, Source("key", value.source, position)))


def dict_items(m: Machine, value: Dict) -> list[tuple[Value, Value]]:
    """All (key, item) pairs in order, read."""
    open_dict(m, value)
    for frozen in value.items:
        dict_get(m, value, frozen)
    return list(value.items.values())


def dict_get(m: Machine, value: Dict, frozen: Any) -> Value | None:
    """The item under a frozen key, or None; each look-up adds one guard."""
    found = value.items.get(frozen)
    if found is not None and found[1] is not UNREAD:
        return found[1]
    if value.origin is None or (value.opened and found is None):
        return None
    key = _real_key(m, value, frozen)
    if key is UNREAD:
        open_dict(m, value)
        found = value.items.get(frozen)
        if found is None:
            return None
        raise Break("GB122", "look-up of an object key in a dict of the caller")
    looked = look_up(value.origin, key)
    if looked is None:
        raise Break("GB137", "a dict with keys whose equality is a matter of their class")
    if not looked:
        m.guard("no_item", value.source, key)
        return None
    asked = m.heap.known.get(id(key)) if frozen[0] == "object" else None
    if asked is not None and asked.source is not None:
        m.guard("is", asked.source, key)  # the item's source contains the key itself
    item = m.wrap(looked[0], Source("item", value.source, key))
    value.items[frozen] = (found[0] if found else Const(key), item)
    return item


def refuse_tuple(value: Dict, key: Value) -> None:
    """Break before a look-up of a tuple that `dict_get` would break at, with nothing of the tuple
    and no key of the dict read: what a frame has guarded, each further call must repeat."""
    real = key.origin if isinstance(key, Sequence) and key.cls is tuple else None
    if type(real) is not tuple or value.origin is None or value.opened or value.items:
        return
    if not _is_fixed(real) and _hashes_by_itself(real) and look_up(value.origin, real):
        raise Break("GB122", "look-up of an object key in a dict of the caller")


def _is_fixed(key: Any) -> bool:
    """Whether a guard may hold the key: it is made of constants and lasting objects."""
    if is_kind(key, tuple):
        return all(map(_is_fixed, key))
    return type(key) in CONST_TYPES or compares_by_value(key) or lasts(key)


def _real_key(m: Machine, value: Dict, frozen: Any) -> Any:
    if frozen[0] == "const":
        return frozen[1]
    if frozen[0] == "tuple":
        parts = tuple(_real_part(m, value, part) for part in frozen[1])
        return UNREAD if any(part is UNREAD for part in parts) else parts
    if frozen[0] == "object":
        wanted, asked = frozen[1], m.heap.known.get(frozen[1])
        if isinstance(asked, Tensor):  # known by its ghost
            wanted = id(asked.origin)
        return next((key for key in dict.keys(value.origin) if id(key) == wanted), UNREAD)
    return UNREAD


def _real_part(m: Machine, value: Dict, frozen: Any) -> Any:
    """An item of a tuple that is a key."""
    if frozen[0] != "object":
        return _real_key(m, value, frozen)
    items = (item for key in dict.keys(value.origin) if type(key) is tuple for item in key)
    found = next((item for item in items if id(item) == frozen[1]), UNREAD)
    return found if _is_fixed(found) else UNREAD


def dict_set(m: Machine, value: Dict, key: Value, item: Value) -> None:
    frozen = freeze(read_key(m, key))
    if isinstance(item, Tensor) and dict_get(m, value, frozen) is item:
        return  # the object that is there: an optimizer stores its state back
    if value.origin is not None and not value.whole and frozen not in value.placed:
        # Read the old item: its end may be visible.
        if dict_get(m, value, frozen) is not None:
            m.unhook(look_up(value.origin, _real_key(m, value, frozen))[0])
        value.placed[frozen] = None
    m.changed(value)
    old = value.items.get(frozen)
    if old is None and dict_get(m, value, frozen) is None:
        moved(m, value)
    value.items[frozen] = (old[0] if old else key, item)


def dict_delete(m: Machine, value: Dict, key: Value) -> Value:
    open_dict(m, value)
    dict_items(m, value)
    frozen = freeze(read_key(m, key))
    if frozen not in value.items:
        raise missing_key(key)
    m.rewritten(value)
    moved(m, value)
    return value.items.pop(frozen)[1]


def moved(m: Machine, value: Dict | Set) -> None:
    """Note a key added or removed: iterators may detect it (see `container_iterators`)."""
    value.moves.append(m.root_index)


def read_key(m: Machine, key: Value) -> Value:
    if isinstance(key, Sequence):
        if key.cls is list:
            raise raises("TypeError: unhashable type: 'list'")
        for item in sequence_items(m, key):
            read_key(m, item)
    elif isinstance(key, Obj) and compares_by_value(key.value):
        if key.source is not None and not _is_of_a_key(key.source):
            same_object(m, key)
    elif isinstance(key, (Obj, Tensor)) and key.source is not None and key not in m.journal.keys:
        if isinstance(key, Tensor) and any(
            isinstance(k, Tensor) and share(k, key) for k in m.journal.keys
        ):
            raise Break("GB137", "tensors that share memory as keys")
        m.journal.keys.append(key)
        if isinstance(key, Obj):
            for name in ("__hash__", "__eq__"):
                m.class_attribute(key, name)
    return key


def _is_of_a_key(source: Source) -> bool:
    """Whether this is a key of a dict of the caller, or an item of one: "keys" guards it."""
    while source.kind == "item" and source.base is not None:
        source = source.base
    return source.kind == "key"


def share(left: Tensor, right: Tensor) -> bool:
    """Whether a "distinct" guard would fail: it also compares memory."""
    return left.origin.untyped_storage().data_ptr() == right.origin.untyped_storage().data_ptr()


def named(m: Machine, items: dict[str, Value]) -> Dict:
    """A dict with names as keys."""
    made = Dict({})
    for name, item in items.items():
        dict_set(m, made, Const(name), item)
    return made


def length(m: Machine, value: Value) -> int | None:
    """len(value) for modelled types, else None."""
    if isinstance(value, Sequence):
        return len(value.items)
    if isinstance(value, Set):
        return len(value.items)
    if isinstance(value, DictView):
        return len(value.of.items)
    if isinstance(value, Dict):
        if not value.opened and value.placed:
            open_dict(m, value)
        if not value.opened:
            _refuse_modules(value)
            m.guard("len", value.source, dict.__len__(value.origin))
            return dict.__len__(value.origin)
        return len(value.items)
    if isinstance(value, Const) and hasattr(value.value, "__len__"):
        return int(compute(lambda: len(value.value)))  # raises for a long range
    if isinstance(value, Array):
        return int(compute(lambda: len(value.form)))
    if isinstance(value, Tensor):
        if not value.ghost.dim():
            raise raises("TypeError: len() of a 0-d tensor")
        return int(value.ghost.shape[0])
    return None


def is_index(number: int) -> bool:
    """Whether Python accepts a number as an index; for others it raises."""
    return -sys.maxsize - 1 <= number <= sys.maxsize


def real_index(value: Value) -> Any:
    """A constant index or slice as a Python value; raises NotConstant otherwise."""
    if isinstance(value, Const):
        return int(value.value) if isinstance(value.value, np.integer) else value.value
    if isinstance(value, Slice):
        return slice(*(real_index(part) for part in (value.start, value.stop, value.step)))
    raise NotConstant


def get_item(m: Machine, value: Value, index: Value) -> Value | None:
    """value[index] for modelled containers; None for other values."""
    if isinstance(value, Sequence) and (
        value.cls is torch.Size
        or getattr(value.cls, "__getitem__", None) in (list.__getitem__, tuple.__getitem__)
    ):
        try:
            at = real_index(m.position(index) or index)
        except NotConstant:
            raise Break("GB121", "a list indexed by something that is not a constant") from None
        if isinstance(at, slice):
            if at.step == 0:
                raise raises("ValueError: slice step cannot be zero")
            try:
                picked = range(len(value.items))[at]
            except TypeError as error:
                raise raises(f"TypeError: {error}") from None
            if picked == range(len(value.items)) and is_exact_tuple(value):
                return value
            return Sequence(
                [sequence_item(m, value, i) for i in picked],
                value.cls if value.cls in (list, torch.Size) else tuple,
            )
        if not isinstance(at, int):
            raise raises("TypeError: indices must be integers or slices")
        if not is_index(at):
            raise raises("IndexError: cannot fit 'int' into an index-sized integer")
        if not -len(value.items) <= at < len(value.items):
            kind = "list" if issubclass(value.cls, list) else "tuple"
            message = f"{kind} index out of range"
            raise Thrown(IndexError, (message,), f"IndexError: {message}")
        return sequence_item(m, value, at % len(value.items))
    if isinstance(value, Dict):
        refuse_tuple(value, index)
        found = dict_get(m, value, freeze(read_key(m, index)))
        if found is None:
            raise missing_key(index)
        return found
    if isinstance(value, Const):
        try:
            at = real_index(index)
        except NotConstant:
            raise Break("GB121", "a constant indexed by something that is not one") from None
        return fold(lambda: value.value[at])
    return None


def compute(work: Callable[[], Any]) -> Any:
    """Run a pure computation on constants now.

    An exception becomes a Break or Thrown: Python raises it, or warns, at its own place (see
    `walk_warnings`).
    """
    handled = sys.exception()
    try:
        return work()
    except Break:
        raise
    except (Warning, FloatingPointError) as error:
        raise Break("GB103", f"a warning: {error}") from error
    except (RecursionError, MemoryError):
        # They may come from the walk rather than from the program.
        raise
    except Exception as error:
        # The user's own exception: plain Python raises it again.
        if error.__context__ is not handled or error.__cause__ is not None or vars(error):
            # The library's Python raised it in a handler, or with attributes.
            raise Break("GB108", f"{type(error).__name__}: {error}") from error
        known = error.args if all(type(arg) in CONST_TYPES for arg in error.args) else None
        if known and "() takes " in str(known[0]):
            known = None  # it names the function, and the program may have found that elsewhere
        raise Thrown(type(error), known, f"{type(error).__name__}: {error}") from error


def by_other_form(form: Callable[..., Value], m: Machine, symbol: str, *operands: Value) -> Value:
    """`left <symbol> right` in place, by the form that makes a new value: what that refuses has the
    name of this one."""
    try:
        return form(m, symbol[:-1], *operands)
    except Thrown as error:
        text = error.known[0] if error.known else None
        start, of, rest = text.partition(" type(s) for ") if type(text) is str else ("", "", "")
        if not (of and rest.startswith(symbol[:-1])):
            raise
        text = f"{start}{of}{symbol}:{rest.partition(':')[2]}"
        raise Thrown(error.cls, (text,), f"{error.cls.__name__}: {text}") from error


def fold(work: Callable[[], Any]) -> Value:
    """The Value of a pure computation on constants."""
    return from_constant(compute(work))


def has_key(m: Machine, value: Dict, key: Value) -> bool:
    """key in value"""
    if isinstance(key, SymbolicNumber) and key.may_vary():
        found = key.is_among([one for one, _ in open_dict(m, value).items.values()])
        if found is not None:
            return found
    refuse_tuple(value, key)
    frozen = freeze(read_key(m, key))
    return dict_get(m, value, frozen) is not None
