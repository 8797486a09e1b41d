"""Attribute reads: `getattr` as the language defines it, over Values.

In: a Value and a name. Out: a Value, with guards on every place that was read (instance dict,
classes along the MRO), so that a later store, deletion or shadowing is noticed. Descriptors of
users are inlined.
"""

from __future__ import annotations

import functools
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...runtime import _native, safe_access
from ...runtime.guards.sources import Source
from ...runtime.safe_access import MISSING
from ...runtime.safe_access import in_classes as mro_lookup
from ..breaks import Break, Thrown
from ..exact_type import is_kind
from ..values import containers
from ..values.symbolic_numbers import SymbolicNumber
from ..values.value import (
    Array,
    Cell,
    Const,
    Context,
    Dict,
    Function,
    Instance,
    Iterator,
    Method,
    Obj,
    Sequence,
    Set,
    Super,
    Tensor,
    Value,
)
from ..values.wrap import IDENTITY_TYPES, decides_for_itself, freeze
from . import container_iterators, skiplist

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class whose attributes and bases can change
_IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE
_MRO: Any = vars(type)["__mro__"].__get__

# C types whose look-up equals object's own.
GENERIC_LOOKUPS: tuple[Any, ...] = tuple(
    kind.__getattribute__
    for kind in (
        *(object, dict, list, OrderedDict, defaultdict, deque, set, property, BaseException),
        *(tuple, frozenset, str, bytes, bytearray, int, float, complex, range, slice),
        types.SimpleNamespace,
    )
)
_PROTOCOL = ("__get__", "__set__", "__delete__")
MODULE_GETATTR = torch.nn.Module.__getattr__
MODULE_SETATTR = torch.nn.Module.__setattr__
MODULE_DELATTR = torch.nn.Module.__delattr__
MODULE_TABLES = ("_parameters", "_buffers", "_modules")

Missing = Callable[["Machine", Value, str], Value]
# Classes of ours that replace C ones during a walk -> the break if the program needs the real
# class.
STAND_INS: dict[type, tuple[str, str]] = {}
# Stand-ins -> the class that their real object is of. It may be of a class derived from this one,
# which has no other base.
REAL_BASES: dict[type, type] = {}
# Stand-ins whose real object replacement code can make -> its maker, and the attributes that the
# maker takes.
BUILT_BY_CALL: dict[type, tuple[Callable[..., Any], tuple[str, ...]]] = {}


class NoAttribute(Thrown):
    """AttributeError: a break like any other, but hasattr, and getattr with a default, catch it."""

    def __init__(self, name: str, owner: str, exact: bool = False) -> None:
        """`exact`: the text equals Python's message."""
        text = f"{owner!r} object has no attribute {name!r}"
        known = (text,) if exact else None
        super().__init__(AttributeError, known, f"AttributeError: {text}")


def no_attribute(error: Thrown) -> bool:
    """Whether this is an AttributeError, of Python or from the program's own look-up."""
    return issubclass(error.cls, AttributeError)


def instance_dict(value: Any) -> dict[str, Any] | None:
    """The instance dict, read without user code, or None."""
    found = safe_access.instance_dict(value)
    return found if is_kind(found, dict) else None


def in_instance_dict(own: dict[str, Any] | None, name: str) -> Any:
    """The item of an instance dict under a name, or MISSING; runs no code of a key's class."""
    found = _native.look_up(own or {}, name)
    if found is None:
        raise safe_access.Unsure(name)
    return found[0] if found else MISSING


# -- class attributes ------------------------------------------------------------------------------
# The type of a bound C method; other bound methods are MethodType.
_BOUND: dict[type, type] = {
    types.WrapperDescriptorType: types.MethodWrapperType,
    types.MethodDescriptorType: types.BuiltinMethodType,
}


def real_class(value: Value) -> type | None:
    """The type of the object behind a Value."""
    match value:
        case Obj():
            return type(value.value)
        case Instance():
            return value.cls.value  # type: ignore[attr-defined]
        case Tensor():
            return value.cls
        case Const():
            return type(value.real if isinstance(value, SymbolicNumber) else value.value)
        case Sequence() | Dict() | Set():
            return value.cls
        case Function():
            return types.FunctionType
        case Method():
            func = value.func.value if isinstance(value.func, Obj) else None
            return _BOUND.get(type(func), types.MethodType)
        case Context():
            return value.cls
        case Super():
            return super
        case Cell():
            return types.CellType
        case Array():
            return np.ndarray
        case Iterator():
            return container_iterators.type_of(value)
    return None


# Descriptors with a model of their own: class -> (machine, object, name, descriptor, where it is
# found) -> value.
DESCRIPTORS: dict[type, Callable[[Machine, Any, str, Any, Source], Value]] = {}
Reader = Callable[["Machine", Instance, str], Value]
Writer = Callable[["Machine", Instance, str, "Value | None"], bool]
# State that a C class keeps outside of `__dict__`, of instances that the frame makes: how a member
# is read, and how one is stored (False
# if the class has no such member). Filled by the models of these classes.
C_STATE: dict[type, tuple[Reader, Writer]] = {}


def state_of(cls: type | None) -> tuple[Reader, Writer] | None:
    """The row of C_STATE for a class."""
    return next(
        (row for of, row in C_STATE.items() if cls is not None and issubclass(cls, of)), None
    )


def class_source(value: Value, name: str) -> Source:
    """The source of a class attribute of a value's type.

    The type itself is guarded already, so all objects of one class share these guards.
    """
    return Source("mro_attr", Source("const", None, real_class(value)), name)


def bases(m: Machine, cls: type) -> tuple[type, ...]:
    """cls.__mro__, guarded if `__bases__` can be rebound."""
    found = _MRO(cls)
    if cls.__flags__ & HEAP_TYPE:
        m.guard("mro", Source("const", None, cls), found)
    return found


def class_attribute(m: Machine, value: Value, name: str) -> Any:
    """The raw class attribute of value's type, guarded as found or as absent."""
    cls = real_class(value)
    assert cls is not None
    return of_class(m, cls, name)


def of_class(m: Machine, cls: type, name: str) -> Any:
    """The raw attribute of a class whose identity is guarded, guarded as found or as absent."""
    raw = mro_lookup(cls, name)
    if cls.__flags__ & HEAP_TYPE:
        place = Source("const", None, cls)
        if raw is MISSING:
            m.guard("no_mro_attr", place, name)
        else:
            m.wrap(raw, Source("mro_attr", place, name))
    return raw


def hold_class(m: Machine, value: Obj) -> None:
    """Guard the class of an object under an "is" guard, which ignores stores to `__class__`."""
    if value.source is not None:
        m.guard("type", value.source, type(value.value))


def special(m: Machine, value: Value, name: str) -> Value | None:
    """A special method looked up on the type, bound to value; None if the type lacks it."""
    cls = real_class(value)
    if cls is None or mro_lookup(cls, name) is MISSING:
        if isinstance(value, (Obj, Instance)):
            class_attribute(m, value, name)
        return None
    raw = class_attribute(m, value, name)
    if raw is None:
        return None
    return bind_raw(m, value, name, raw)


def call_special(m: Machine, value: Value, name: str, args: list[Value]) -> Value | None:
    """value.name(*args) by the type's special method; None without one, or if it is C code."""
    if not isinstance(value, (Obj, Instance)):
        return None
    method = special(m, value, name)
    if method is None:
        return None
    return m.call(method, args, {})


def _is_function(called: Any) -> bool:
    """Whether a class method around this calls it with the class, without another binding."""
    own = isinstance(mro_lookup(type(called), "__get__"), types.FunctionType)
    return not own and not is_kind(called, (classmethod, staticmethod, property))


def class_method(m: Machine, name: str, raw: classmethod, source: Source, cls: Value) -> Method:
    """A class method bound to the class."""
    if not _is_function(raw.__func__):
        raise Break("GB112", f"classmethod {name!r} around a {type(raw.__func__).__name__}")
    return Method(m.wrap(raw.__func__, Source("member", source, "__func__")), cls)


def bind_raw(m: Machine, value: Value, name: str, raw: Any) -> Value:
    """`raw.__get__(value)` for descriptors with known behaviour."""
    source = class_source(value, name)
    if is_kind(raw, types.FunctionType):
        return Method(m.wrap(raw, source), value)
    if type(raw) is staticmethod:
        return m.wrap(raw.__func__, Source("member", source, "__func__"))
    if type(raw) is classmethod:
        return class_method(m, name, raw, source, type_of(m, value))
    if is_property(raw):
        if raw.fget is None:
            raise containers.raises(f"AttributeError: unreadable attribute {name}")
        return m.call(property_part(m, raw, source, "fget"), [value], {})
    if (
        type(raw) in (types.MemberDescriptorType, types.GetSetDescriptorType)
        and isinstance(value, Instance)
        and (own := state_of(raw.__objclass__)) is not None
    ):
        return own[0](m, value, name)
    if is_kind(raw, types.MemberDescriptorType) and isinstance(value, (Obj, Instance)):
        return _slot(m, value, name, raw)
    if is_kind(raw, (types.WrapperDescriptorType, types.MethodDescriptorType)):
        return Method(m.wrap(raw, source), value)
    if is_kind(raw, types.BuiltinFunctionType) or not has_protocol(m, raw, "__get__"):
        return m.wrap(raw, source)
    if is_kind(raw, _native.Callable) or type(raw) is functools._lru_cache_wrapper:
        return Method(m.wrap(raw, source), value)
    if type(raw) in DESCRIPTORS and isinstance(value, (Obj, Instance)):
        return DESCRIPTORS[type(raw)](m, value, name, raw, source)
    if isinstance(mro_lookup(type(raw), "__get__"), types.FunctionType):
        getter = special(m, m.wrap(raw, source), "__get__")
        assert getter is not None
        return m.call(getter, [value, type_of(m, value)], {})
    if raw is vars(deque)["maxlen"] and isinstance(value, Instance):
        limit = m.heap.overlay[value]["maxlen"]
        assert limit is not None
        return limit
    code = skiplist.of_descriptor(raw)
    raise Break(code, f"descriptor {type(raw).__name__} of attribute {name!r}")


def is_property(raw: Any) -> bool:
    """Whether this is a property, or of a subclass that inherits the descriptor protocol."""
    kind = type(raw)
    return kind is property or (
        is_kind(raw, property)
        and not decides_for_itself(type(kind))
        and all(mro_lookup(kind, n) is vars(property)[n] for n in _PROTOCOL)
    )


def property_part(m: Machine, raw: Any, source: Source, name: str) -> Value:
    """Its fget, fset or fdel, under guards."""
    found = vars(property)[name].__get__(raw)
    if type(raw) is property:
        return m.wrap(found, Source("member", source, name))
    known_property(m, raw)
    m.guard("is", source, raw)
    return m.wrap(found, Source("const", None, found))


def known_property(m: Machine, raw: Any) -> None:
    """Guard that a property of a subclass still inherits the descriptor protocol."""
    if type(raw) is not property:
        for method in _PROTOCOL:
            of_class(m, type(raw), method)


def _slot(m: Machine, value: Obj | Instance, name: str, raw: Any) -> Value:
    overlay = m.heap.overlay.get(value, {})
    if name in overlay:
        stored = overlay[name]
        if stored is None:
            return _empty(value, name)
        return stored
    if isinstance(value, Instance):
        return _empty(value, name)
    if value.source is None:
        raise Break("GB112", f"slot {name!r} of an object without a source")
    try:
        found = raw.__get__(value.value)
    except TypeError as error:  # a member of another class
        raise Break("GB112", f"slot {name!r}: {error}") from None
    except AttributeError:  # no guard checks that a slot is empty
        raise Break("GB112", f"empty slot {name!r}") from None
    return m.wrap(found, Source("slot", value.source, name))


class _Probe:
    """A class with an empty slot: from Python 3.13 on, the message names the class's module."""

    __slots__ = ("slot",)


def _says_module() -> bool:
    try:
        _Probe().slot  # type: ignore[attr-defined]  # noqa: B018
    except AttributeError as error:
        return _Probe.__module__ in str(error)
    return False


_SAYS_MODULE = _says_module()


def _empty(value: Value, name: str) -> Value:
    """The AttributeError of an empty slot."""
    cls = real_class(value)
    assert cls is not None
    if not _SAYS_MODULE:
        return _absent(value, name)
    raise NoAttribute(name, safe_access.name_of(cls).removeprefix("__main__."), exact=True)


def refuse_stand_in(value: Value) -> None:
    """Break if the class of a stand-in would be seen."""
    if isinstance(value, Instance) and value.cls.value in STAND_INS:  # type: ignore[attr-defined]
        raise Break(*STAND_INS[value.cls.value])  # type: ignore[attr-defined]


def asked_as(value: Value, targets: Iterable[type]) -> type | None:
    """The class by which a stand-in answers whether it is an instance of these; None for other
    values."""
    made: Any = value.cls if isinstance(value, Instance) else None
    cls = getattr(made, "value", None)
    if cls not in STAND_INS:
        return None
    base = REAL_BASES.get(cls)
    if base is None or any(base in safe_access.mro_of(one)[1:] for one in targets):
        refuse_stand_in(value)
    return base


def type_of(m: Machine, value: Value) -> Value:
    """type(value) as a Value."""
    refuse_stand_in(value)
    if isinstance(value, Instance):
        return value.cls
    cls = real_class(value)
    if cls is None:
        raise Break("GB121", "type() of this value")
    if isinstance(value, Obj) and value.source is not None:
        return m.wrap(cls, Source("type", value.source, None))
    return m.wrap(cls, Source("const", None, cls))


def has_protocol(m: Machine, raw: Any, *names: str) -> bool:
    """Whether a raw attribute's type has one of these descriptor methods; guarded if mutable."""
    kind = type(raw)
    found = [of_class(m, kind, name) is not MISSING for name in names]
    return any(found)


def is_data(m: Machine, raw: Any) -> bool:
    return has_protocol(m, raw, "__set__", "__delete__")


# `attribute_readers` fills them: readers by class of Value, and by type of a real object.
READERS: dict[type, Callable[[Any, Any, str], Value]] = {}
OBJECT_READERS: dict[type, Callable[[Any, Any, str], Value]] = {}


# -- reading ---------------------------------------------------------------------------------------
def load_attr(m: Machine, value: Value, name: str) -> Value:
    """value.name"""
    reader = READERS.get(type(value))
    if reader is None:
        if name == "__class__":  # of a class of builtins, which does not define it
            return type_of(m, value)
        raise Break("GB122", f"attribute {name!r} of this value")
    found = reader(m, value, name)
    if isinstance(value, Obj):
        m.later.attribute(value.value, name, found)
    return found


def object_attr(m: Machine, value: Any, name: str) -> Value:
    real = value.value if isinstance(value, Obj) else None
    for kind, reader in OBJECT_READERS.items():
        if is_kind(real, kind):
            return reader(m, value, name)
    cls = real_class(value)
    assert cls is not None
    if is_kind(real, torch.Tensor):
        raise Break("GB113", f"attribute {name!r} of tensor subclass {cls.__name__}")
    if isinstance(value, Obj) and is_kind(real, IDENTITY_TYPES):
        hold_class(m, value)
    own = class_attribute(m, value, "__getattribute__")
    if own not in GENERIC_LOOKUPS:
        if is_kind(own, types.FunctionType):
            try:
                return m.call(bind_raw(m, value, "__getattribute__", own), [Const(name)], {})
            except Thrown as error:
                if not no_attribute(error) or mro_lookup(cls, "__getattr__") is MISSING:
                    raise
            return _missing(m, value, name, cls)
        raise Break(
            "GB112",
            f"attribute {name!r} of {cls.__name__}, which looks attributes up by its own code",
        )
    return generic_attr(m, value, name, cls)


def generic_attr(m: Machine, value: Any, name: str, cls: type, hook: bool = True) -> Value:
    """object.__getattribute__, then __getattr__ if `hook`."""
    raw = class_attribute(m, value, name)
    if name == "__class__" and raw is vars(object)["__class__"]:
        return type_of(m, value)
    if name == "__dict__":
        return _dict_of(m, value)
    if raw is not MISSING and has_protocol(m, raw, "__get__") and is_data(m, raw):
        return _bound_or_missing(m, value, name, raw, cls, hook)
    stored = m.heap.overlay.get(value, {}).get(name, MISSING)
    if stored is not MISSING and stored is not None:
        return stored
    if isinstance(value, Obj):
        found = own_attribute(m, value, value.value, name, stored is MISSING)
        if found is not None:
            return found
    if raw is not MISSING:
        return _bound_or_missing(m, value, name, raw, cls, hook)
    return _missing(m, value, name, cls) if hook else _absent(value, name)


def own_attribute(
    m: Machine, value: Obj | Dict, real: Any, name: str, kept: bool = True
) -> Value | None:
    """The attribute in the `__dict__` of an object from outside, or None under a guard.

    If not `kept`, the frame has deleted what the object had under this name."""
    own = instance_dict(real)
    written = m.heap.known.get(id(own))
    if isinstance(written, Dict) and written.changed:
        assert value.source is not None
        m.guard("same", Source("dict", value.source, None), written.source)
        return containers.dict_get(m, written, freeze(Const(name)))
    if not kept:
        return None
    found = in_instance_dict(own, name)
    if value.source is None:
        if found is not MISSING:
            raise Break("GB112", f"attribute {name!r} of an object without a source")
        return None
    if found is not MISSING:
        return m.wrap(found, Source("attr", value.source, name))
    m.guard("no_attr", value.source, name)
    return None


def _bound_or_missing(m: Machine, value: Any, name: str, raw: Any, cls: type, hook: bool) -> Value:
    """Bind a descriptor; if it raises AttributeError, `__getattr__` is called."""
    try:
        return bind_raw(m, value, name, raw)
    except Thrown as error:
        if not no_attribute(error) or not hook or mro_lookup(cls, "__getattr__") is MISSING:
            raise
        return _missing(m, value, name, cls)


def _in_messages(cls: type | None) -> str:
    """The name of a class in Python's messages, which has the module where the class is C code."""
    if cls is None:
        return "?"
    in_c = not cls.__flags__ & HEAP_TYPE or cls.__flags__ & _IMMUTABLE
    return f"{cls.__module__}.{cls.__name__}".removeprefix("builtins.") if in_c else cls.__name__


def _absent(value: Value, name: str) -> Value:
    cls = real_class(value)
    raise NoAttribute(name, _in_messages(cls), exact=isinstance(value, (Obj, Instance)))


def _missing(m: Machine, value: Any, name: str, cls: type) -> Value:
    """`__getattr__`, if nothing else has the name."""
    getter = mro_lookup(cls, "__getattr__")
    if getter is MISSING:
        class_attribute(m, value, "__getattr__")
        return _absent(value, name)
    class_attribute(m, value, "__getattr__")
    if getter is MODULE_GETATTR:
        return _module_table_attr(m, value, name)
    return m.call(bind_raw(m, value, "__getattr__", getter), [Const(name)], {})


def _module_table_attr(m: Machine, value: Any, name: str) -> Value:
    """torch.nn.Module.__getattr__: parameters, buffers, submodules."""
    for table in MODULE_TABLES:
        try:
            tables = generic_attr(m, value, table, real_class(value), hook=False)  # type: ignore[arg-type]
        except NoAttribute:
            continue
        if not isinstance(tables, Dict):
            raise Break("GB112", f"{table} is not a dict")
        found = containers.dict_get(m, tables, freeze(Const(name)))
        if found is not None:
            return found
    return _absent(value, name)


def _dict_of(m: Machine, value: Any) -> Value:
    if isinstance(value, Obj) and value.source is not None and not m.heap.overlay.get(value):
        real = instance_dict(value.value)
        if real is not None:
            return m.wrap(real, Source("dict", value.source, None))
    if isinstance(value, Instance):
        # `instance_dicts` imports this file
        from .instance_dicts import dict_of

        return dict_of(m, value)
    raise Break("GB112", "__dict__ of an object changed in this frame")


def has_attr(m: Machine, value: Value, name: str) -> bool:
    try:
        load_attr(m, value, name)
    except Thrown as error:
        if not no_attribute(error):
            raise
        return False
    return True
