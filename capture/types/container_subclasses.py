"""Objects with the content of a builtin container: subclasses, OrderedDict, defaultdict.

Also subclasses of tuple from outside. In: an Obj or Instance. Out: its storage, a Sequence or Dict
Value with the builtin content, and the effects of C methods of list and dict on it. Attributes and
users' methods belong to the object: `attributes` finds the C method along the class like any other,
and `calls` passes it here.
"""

from __future__ import annotations

import types
from collections import OrderedDict, defaultdict, deque
from typing import TYPE_CHECKING, Any

from ..breaks import Break
from ..data_model import attributes, dunders
from ..data_model.binding import fitted
from ..data_model.iteration import drain
from ..exact_type import is_kind
from ..values import containers, registry
from ..values.containers import raises
from ..values.registry import NONE
from ..values.value import UNREAD, Dict, Instance, Obj, Sequence, Value, is_none
from ..values.wrap import freeze, shut_list
from . import container_methods, deques

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

Args = list[Value]
Kwargs = dict[str, Value]

# The builtin base of a class, most derived first.
BASES: tuple[type, ...] = (OrderedDict, defaultdict, dict, list)


def base_of(cls: type) -> type | None:
    """The builtin container that the class derives from, or None."""
    chain = cls.__mro__
    return next((base for base in BASES if base in chain), None)


def is_buildable(cls: type) -> bool:
    """Whether instances are a builtin container and attributes, with no other C state."""
    base = base_of(cls)
    if base is None:
        return False
    known = (object, dict, list, base)
    return all(one in known or one.__flags__ & (1 << 9) for one in cls.__mro__)


def make(m: Machine, cls: Obj) -> Instance:
    """A new, empty instance of a buildable class."""
    base = base_of(cls.value)
    kind = OrderedDict if base is OrderedDict else dict
    held: Value = Sequence([], list) if base is list else Dict({}, kind)
    made = Instance(cls, held)
    m.heap.owners[held] = made
    m.heap.overlay[made] = {"default_factory": NONE} if defaultdict in cls.value.__mro__ else {}
    return made


def storage(m: Machine, value: Value) -> Any:
    """The Sequence or Dict content of an object, or None if it is no container."""
    if isinstance(value, Instance):
        return value.storage
    if not isinstance(value, Obj) or is_kind(value.value, type) or value.source is None:
        return None
    if value in m.heap.storages:
        return m.heap.storages[value]
    kind = type(value.value)
    base = base_of(kind) or (tuple if issubclass(kind, tuple) else None)
    if base is None:
        return None
    made: Value
    if base is tuple:
        m.guard("len", value.source, tuple.__len__(value.value))
        items: list[Any] = [UNREAD] * tuple.__len__(value.value)
        made = Sequence(items, tuple, value.value, source=value.source)
    elif base is list:
        made = shut_list(m, value.value, value.source)
    else:
        held = OrderedDict if base is OrderedDict else dict
        made = Dict({}, held, value.value, opened=False, source=value.source)
    m.heap.storages[value] = made
    return made


_READ_BY_C = ("__iter__", "__len__", "__getitem__", "keys")


def as_container(m: Machine, value: Value, names: tuple[str, ...] = _READ_BY_C) -> Value:
    """The value as C code reads it: its storage, if no user's method replaces one of `names`."""
    if not isinstance(value, (Obj, Instance)):
        return value
    held = storage(m, value)
    if held is None:
        return value
    cls = attributes.real_class(value)
    assert cls is not None
    for name in names:
        raw = attributes.class_attribute(m, value, name)
        if is_kind(raw, types.FunctionType):
            return value
    return held


def call_method(m: Machine, value: Value, real: Any, args: Args, kwargs: Kwargs) -> Value | None:
    """Call a container class's C method with an object as self; None if it is not modelled."""
    if real.__objclass__ is deque and deques.is_made(value):
        return deques.call(m, value, real.__name__, args, kwargs)  # type: ignore[arg-type]
    if real.__objclass__ is deque and isinstance(value, Obj):
        return deques.grow(m, value, real.__name__, args, kwargs)
    if real.__objclass__ not in (*BASES, tuple):
        return None
    cls = attributes.real_class(value)
    ordered = cls is not None and issubclass(cls, OrderedDict)
    if ordered and real.__objclass__ is dict and real.__name__ in vars(OrderedDict):
        # It keeps an order that dict's own method does not update.
        raise Break("GB122", f"dict.{real.__name__} of an OrderedDict")
    if ordered and real.__name__ in _ASKS_ITSELF:
        for name in _ITEMS:
            if is_kind(attributes.class_attribute(m, value, name), types.FunctionType):
                raise Break("GB122", f"{real.__name__}() of an OrderedDict with its own {name}")
    held = storage(m, value)
    if held is None:
        return None
    args, kwargs = fitted(real, args, kwargs)
    own = _METHODS.get((type(held), real.__name__))
    if own is not None:
        return own(m, value, held, args, kwargs)
    method = container_methods.find_method(held, real.__name__)
    if method is not None:
        return method(m, held, args, kwargs)
    operation = registry.DUNDERS.get(real.__name__)
    beneath = _beneath(m, args)
    # The operators of a defaultdict make a defaultdict.
    known = operation is not None and real.__objclass__ is not defaultdict
    if not known or not dunders.answers(held, real.__name__, beneath):
        raise Break("GB122", f"method {real.__name__!r} of a {real.__objclass__.__name__}")
    # The other object's class is not consulted.
    if real.__name__ in _OF_BOTH:
        args = beneath
    found: Value = registry.BUILTINS[operation](m, [held, *args], kwargs)
    return value if found is held else found


_OF_BOTH = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__add__")
_ASKS_ITSELF = ("setdefault", "pop", "popitem")
_ITEMS = ("__contains__", "__getitem__", "__setitem__", "__delitem__", "__missing__")


def _beneath(m: Machine, args: Args) -> Args:
    """Operands for a C method of an operator: an object with container content becomes it."""
    return [arg if (held := storage(m, arg)) is None else held for arg in args]


def _stores_itself(m: Machine, value: Value) -> bool:
    """Whether OrderedDict fills itself through a user's own __setitem__."""
    raw = attributes.class_attribute(m, value, "__setitem__")
    return is_kind(raw, types.FunctionType)


def _update(m: Machine, value: Value, held: Dict, args: Args, kwargs: Kwargs) -> Value:
    if held.cls is not OrderedDict or not _stores_itself(m, value):
        return container_methods.DICT_METHODS["update"](m, held, args, kwargs)
    fresh = Dict({})
    container_methods.DICT_METHODS["update"](m, fresh, args, kwargs)
    method = attributes.special(m, value, "__setitem__")
    assert method is not None
    for key, item in containers.dict_items(m, fresh):
        m.call(method, [key, item], {})
    return NONE


def _init_dict(m: Machine, value: Value, held: Dict, args: Args, kwargs: Kwargs) -> Value:
    cls = attributes.real_class(value)
    assert cls is not None
    if defaultdict in cls.__mro__ and isinstance(value, Instance):
        factory = args[0] if args else NONE
        if not is_none(factory) and not m.truth(registry.BUILTINS[callable](m, [factory], {})):
            raise Break("GB121", "defaultdict() with a factory that cannot be called")
        m.heap.overlay.setdefault(value, {})["default_factory"] = factory
        args = args[1:]
    if len(args) > 1:
        raise raises(f"TypeError: {cls.__name__} expected at most 1 argument, got {len(args)}")
    return _update(m, value, held, args, kwargs)


def _init_list(m: Machine, value: Value, held: Sequence, args: Args, kwargs: Kwargs) -> Value:
    if kwargs or len(args) > 1:
        raise Break("GB121", "list() with these arguments")
    items = drain(m, args[0]) if args else []
    containers.writable(m, held).items[:] = items
    return NONE


def _get_item(m: Machine, value: Value, held: Dict, args: Args, kwargs: Kwargs) -> Value:
    found = containers.dict_get(m, held, freeze(containers.read_key(m, args[0])))
    if found is not None:
        return found
    method = attributes.special(m, value, "__missing__")
    if method is None:
        if attributes.class_attribute(m, value, "__missing__") is None:
            raise Break("GB112", "__missing__ of an object is None")
        raise containers.missing_key(args[0])
    return m.call(method, [args[0]], {})


def _missing(m: Machine, value: Value, held: Dict, args: Args, kwargs: Kwargs) -> Value:
    """defaultdict.__missing__"""
    factory = attributes.load_attr(m, value, "default_factory")
    if is_none(factory):
        raise containers.missing_key(args[0])
    made = m.call(factory, [], {})
    containers.dict_set(m, held, args[0], made)
    return made


def _no_copy(m: Machine, value: Value, held: Dict, args: Args, kwargs: Kwargs) -> Value:
    cls = attributes.real_class(value)
    if cls is None or OrderedDict in cls.__mro__ or defaultdict in cls.__mro__:
        raise Break("GB122", "copy() of an object that is a dict")
    if attributes.class_attribute(m, value, "__iter__") is not vars(dict)["__iter__"]:
        raise Break("GB122", "copy() of a dict that iterates in its own way")
    made = container_methods.copy_dict(m, held)
    made.cls = dict
    return made


def _add_in_place(m: Machine, value: Value, held: Sequence, args: Args, kwargs: Kwargs) -> Value:
    container_methods.extend(m, held, args[0])
    return value


_METHODS: dict[tuple[type, str], Any] = {
    (Dict, "__init__"): _init_dict,
    (Dict, "update"): _update,
    (Dict, "__getitem__"): _get_item,
    (Dict, "__missing__"): _missing,
    (Dict, "copy"): _no_copy,
    (Sequence, "__init__"): _init_list,
    (Sequence, "__iadd__"): _add_in_place,
}
