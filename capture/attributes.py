"""Attributes: `getattr`, `setattr`, `delattr` as the language defines them, over Values.

In: a Value and a name. Out: a Value, with guards on every place that was looked at (instance dict, classes
along the MRO), so that a later store, deletion or shadowing is seen. Descriptors of users are inlined.
"""

from __future__ import annotations

import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ..runtime import _native
from ..runtime.safe import MISSING
from ..runtime.safe import in_classes as mro_lookup
from ..runtime.sources import Source
from . import containers, methods, torchcalls
from .breaks import Break, Thrown
from .kinds import is_kind
from .values import (
    BuiltinMethod,
    Cell,
    Const,
    Context,
    ContextExit,
    Dict,
    DictView,
    Function,
    Instance,
    Iterator,
    Method,
    Obj,
    Partial,
    Sequence,
    Set,
    Super,
    Tensor,
    Value,
)
from .wrapping import freeze

if TYPE_CHECKING:
    from .machine import Machine

_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class whose attributes and bases can change
_MRO: Any = vars(type)["__mro__"].__get__

_MODULE_LOOKUP = vars(types.ModuleType)["__getattribute__"]
_MODULE_DICT: Any = vars(types.ModuleType)["__dict__"].__get__
# C types whose look-up is object's own under another name
_GENERIC_LOOKUPS: tuple[Any, ...] = tuple(
    kind.__getattribute__
    for kind in (object, dict, list, OrderedDict, defaultdict, deque, set, BaseException)
)
MODULE_GETATTR = torch.nn.Module.__getattr__
MODULE_SETATTR = torch.nn.Module.__setattr__
MODULE_DELATTR = torch.nn.Module.__delattr__
MODULE_TABLES = ("_parameters", "_buffers", "_modules")

Missing = Callable[["Machine", Value, str], Value]


class NoAttribute(Thrown):
    """AttributeError: a break like any other, which hasattr and getattr with a default take up."""

    def __init__(self, name: str, owner: str) -> None:
        text = f"{owner!r} object has no attribute {name!r}"
        super().__init__(AttributeError, None, f"AttributeError: {text}")


def no_attribute(error: Thrown) -> bool:
    """Whether this is an AttributeError, of Python or raised by the program's own look-up."""
    return issubclass(error.cls, AttributeError)


def instance_dict(value: Any) -> dict[str, Any] | None:
    """The instance dict without running user code, or None."""
    getter = mro_lookup(type(value), "__dict__")
    if is_kind(getter, types.GetSetDescriptorType):
        found = getter.__get__(value)
        return found if is_kind(found, dict) else None
    return None


# -- class attributes ------------------------------------------------------------------------------------
def real_class(value: Value) -> type | None:
    """The type of the object that a Value stands for."""
    match value:
        case Obj():
            return type(value.value)
        case Instance():
            return value.cls.value  # type: ignore[attr-defined]
        case Tensor():
            return value.cls
        case Const():
            return type(value.value)
        case Sequence() | Dict() | Set():
            return value.cls
        case Function():
            return types.FunctionType
        case Method():
            return types.MethodType
        case Context():
            return value.cls
        case Super():
            return super
        case Cell():
            return types.CellType
    return None


def class_source(value: Value, name: str) -> Source:
    """Where a class attribute of a value's type is found by guards: the type itself is guarded already, so
    that all objects of one class share these guards."""
    return Source("mro_attr", Source("const", None, real_class(value)), name)


def bases(m: Machine, cls: type) -> tuple[type, ...]:
    """cls.__mro__, guarded if `__bases__` can be rebound."""
    found = _MRO(cls)
    if cls.__flags__ & _HEAP_TYPE:
        m.guard("mro", Source("const", None, cls), found)
    return found


def class_attribute(m: Machine, value: Value, name: str) -> Any:
    """The raw class attribute of value's type, guarded as found or as absent."""
    cls = real_class(value)
    assert cls is not None
    raw = mro_lookup(cls, name)
    if cls.__flags__ & _HEAP_TYPE:
        source = class_source(value, name)
        if raw is MISSING:
            m.guard("no_mro_attr", source.base, name)
        else:
            m.wrap(raw, source)
    return raw


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
    """value.name(*args) by the type's special method; None if there is none or it is C code."""
    if not isinstance(value, (Obj, Instance)):
        return None
    method = special(m, value, name)
    if method is None:
        return None
    return m.call(method, args, {})


def bind_raw(m: Machine, value: Value, name: str, raw: Any) -> Value:
    """`raw.__get__(value)` for the descriptors whose meaning is known."""
    source = class_source(value, name)
    if is_kind(raw, types.FunctionType):
        return Method(m.wrap(raw, source), value)
    if type(raw) is staticmethod:
        return m.wrap(raw.__func__, Source("member", source, "__func__"))
    if type(raw) is classmethod:
        return Method(m.wrap(raw.__func__, Source("member", source, "__func__")), type_of(m, value))
    if type(raw) is property:
        if raw.fget is None:
            raise containers.raises(f"AttributeError: unreadable attribute {name}")
        return m.call(m.wrap(raw.fget, Source("member", source, "fget")), [value], {})
    if (
        type(raw) in (types.MemberDescriptorType, types.GetSetDescriptorType)
        and isinstance(value, Instance)
        and issubclass(raw.__objclass__, BaseException)
    ):
        from .exceptions import field

        return field(m, value, name)
    if is_kind(raw, types.MemberDescriptorType) and isinstance(value, (Obj, Instance)):
        return _slot(m, value, name, raw)
    if is_kind(raw, (types.WrapperDescriptorType, types.MethodDescriptorType)):
        return Method(m.wrap(raw, source), value)
    if is_kind(raw, types.BuiltinFunctionType) or not has_protocol(m, raw, "__get__"):
        return m.wrap(raw, source)
    if is_kind(raw, _native.Callable):
        return Method(m.wrap(raw, source), value)
    if isinstance(mro_lookup(type(raw), "__get__"), types.FunctionType):
        getter = special(m, m.wrap(raw, source), "__get__")
        assert getter is not None
        return m.call(getter, [value, type_of(m, value)], {})
    raise Break("GB112", f"descriptor {type(raw).__name__} of attribute {name!r}")


def _slot(m: Machine, value: Obj | Instance, name: str, raw: Any) -> Value:
    overlay = m.overlay.get(value, {})
    if name in overlay:
        stored = overlay[name]
        if stored is None:
            return _absent(value, name)
        return stored
    if isinstance(value, Instance):
        return _absent(value, name)
    if value.source is None:
        raise Break("GB112", f"slot {name!r} of an object without a place")
    try:
        found = raw.__get__(value.value)
    except AttributeError:  # no guard says that a slot is empty
        raise Break("GB112", f"empty slot {name!r}") from None
    return m.wrap(found, Source("slot", value.source, name))


def type_of(m: Machine, value: Value) -> Value:
    """type(value) as a Value."""
    if isinstance(value, Instance):
        return value.cls
    cls = real_class(value)
    if cls is None:
        raise Break("GB121", "type() of this value")
    if isinstance(value, Obj) and value.source is not None:
        return m.wrap(cls, Source("type", value.source, None))
    return m.wrap(cls, Source("const", None, cls))


def has_protocol(m: Machine, raw: Any, *names: str) -> bool:
    """Whether a raw attribute's type has one of these descriptor methods; guarded where that can change."""
    kind = type(raw)
    if kind.__flags__ & _HEAP_TYPE:
        for name in names:
            if mro_lookup(kind, name) is MISSING:
                m.guard("no_mro_attr", Source("const", None, kind), name)
    return any(mro_lookup(kind, name) is not MISSING for name in names)


def is_data(m: Machine, raw: Any) -> bool:
    return has_protocol(m, raw, "__set__", "__delete__")


# -- reading ---------------------------------------------------------------------------------------------
def load_attr(m: Machine, value: Value, name: str) -> Value:
    """value.name"""
    reader = READERS.get(type(value))
    if reader is None:
        raise Break("GB122", f"attribute {name!r} of this value")
    return reader(m, value, name)


def _object(m: Machine, value: Any, name: str) -> Value:
    real = value.value if isinstance(value, Obj) else None
    if is_kind(real, types.ModuleType):
        return _module(m, value, name)
    if is_kind(real, type):
        return _class(m, value, name)
    if is_kind(real, types.FunctionType):
        return _function(m, value, name)
    cls = real_class(value)
    assert cls is not None
    if is_kind(real, torch.Tensor):
        raise Break("GB113", f"attribute {name!r} of tensor subclass {cls.__name__}")
    own = class_attribute(m, value, "__getattribute__")
    if own not in _GENERIC_LOOKUPS:
        if is_kind(own, types.FunctionType):
            return m.call(bind_raw(m, value, "__getattribute__", own), [Const(name)], {})
        raise Break("GB112", f"attribute {name!r} of {cls.__name__}, which looks up its own way")
    return generic_attr(m, value, name, cls)


def generic_attr(m: Machine, value: Any, name: str, cls: type, hook: bool = True) -> Value:
    """object.__getattribute__, then __getattr__ if `hook`."""
    if name == "__class__":
        return type_of(m, value)
    if name == "__dict__":
        return _dict_of(m, value)
    raw = class_attribute(m, value, name)
    if raw is not MISSING and is_data(m, raw):
        return _bound_or_missing(m, value, name, raw, cls, hook)
    stored = m.overlay.get(value, {}).get(name, MISSING)
    if stored is not MISSING and stored is not None:
        return stored
    own = instance_dict(value.value) if isinstance(value, Obj) else None
    written = m.known.get(id(own))
    if isinstance(written, Dict) and written.changed:
        in_dict = containers.dict_get(m, written, freeze(Const(name)))
        if in_dict is not None:
            return in_dict
    elif stored is MISSING and isinstance(value, Obj):
        found = (own or {}).get(name, MISSING)
        if value.source is None:
            if found is not MISSING:
                raise Break("GB112", f"attribute {name!r} of an object without a place")
        elif found is not MISSING:
            return m.wrap(found, Source("attr", value.source, name))
        else:
            m.guard("no_attr", value.source, name)
    if raw is not MISSING:
        return _bound_or_missing(m, value, name, raw, cls, hook)
    return _missing(m, value, name, cls) if hook else _absent(value, name)


def _bound_or_missing(m: Machine, value: Any, name: str, raw: Any, cls: type, hook: bool) -> Value:
    """A descriptor that raises AttributeError leaves the name to `__getattr__`."""
    try:
        return bind_raw(m, value, name, raw)
    except Thrown as error:
        if not no_attribute(error) or not hook or mro_lookup(cls, "__getattr__") is MISSING:
            raise
        return _missing(m, value, name, cls)


def _absent(value: Value, name: str) -> Value:
    cls = real_class(value)
    raise NoAttribute(name, cls.__name__ if cls else "?")


def _missing(m: Machine, value: Any, name: str, cls: type) -> Value:
    """`__getattr__`, when nothing else has the name."""
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
    if isinstance(value, Obj) and value.source is not None and not m.overlay.get(value):
        real = instance_dict(value.value)
        if real is not None:
            return m.wrap(real, Source("dict", value.source, None))
    raise Break("GB112", "__dict__ of an object changed or made in this frame")


def _module(m: Machine, value: Obj, name: str) -> Value:
    if (
        mro_lookup(type(value.value), "__getattribute__") is not _MODULE_LOOKUP
        or value.source is None
    ):
        raise Break("GB112", f"attribute {name!r} of a {type(value.value).__name__}")
    names = _MODULE_DICT(value.value)
    stored = m.globals.get((id(names), name), MISSING)
    if stored is None:
        raise NoAttribute(name, "module")
    if stored is not MISSING:
        return stored
    if class_attribute(m, value, name) is not MISSING:
        raise Break("GB112", f"attribute {name!r} of a module")
    if name in names:
        return m.wrap(names[name], Source("attr", value.source, name))
    m.guard("no_attr", value.source, name)
    getter = class_attribute(m, value, "__getattr__")
    if isinstance(
        getter, types.FunctionType
    ):  # a class of modules: its method comes before module.__getattr__
        return m.call(bind_raw(m, value, "__getattr__", getter), [Const(name)], {})
    if "__getattr__" in names or getter is not MISSING:
        raise Break("GB112", f"attribute {name!r} of a module with __getattr__")
    m.guard("no_attr", value.source, "__getattr__")
    raise NoAttribute(name, "module")


def _class(m: Machine, value: Obj, name: str) -> Value:
    cls = value.value
    meta = type(cls)
    if class_attribute(m, value, "__getattribute__") is not vars(type)["__getattribute__"]:
        raise Break("GB112", f"attribute {name!r} of a class, which looks up its own way")
    raw_meta = class_attribute(m, value, name)
    if name == "__class__" or value.source is None:
        if name == "__class__":
            return m.wrap(meta, Source("const", None, meta))
        return m.wrap(cls, Source("const", None, cls)) and _class(
            m, Obj(cls, source=Source("const", None, cls)), name
        )
    if name in ("__name__", "__qualname__", "__module__", "__doc__"):
        return _class_name(m, value, name, raw_meta)
    if name in ("__mro__", "__bases__", "__dict__") or (
        raw_meta is not MISSING and is_data(m, raw_meta)
    ):
        raise Break("GB112", f"attribute {name!r} of a class")
    source = Source("mro_attr", value.source, name)
    raw = mro_lookup(cls, name)
    if raw is MISSING:
        m.guard("no_mro_attr", value.source, name)
        if raw_meta is MISSING:
            getter = class_attribute(m, value, "__getattr__")
            if is_kind(getter, types.FunctionType):
                return m.call(bind_raw(m, value, "__getattr__", getter), [Const(name)], {})
            raise NoAttribute(name, "type")
        if isinstance(raw_meta, types.FunctionType):
            return Method(m.wrap(raw_meta, Source("class_attr", value.source, name)), value)
        if isinstance(raw_meta, (types.MethodDescriptorType, types.WrapperDescriptorType)):
            return Method(Obj(raw_meta), value)
        raise Break("GB112", f"attribute {name!r} of a metaclass")
    if type(raw) is staticmethod:
        return m.wrap(raw.__func__, Source("member", source, "__func__"))
    if type(raw) is classmethod:
        m.wrap(raw, source)
        return Method(m.wrap(raw.__func__, Source("member", source, "__func__")), value)
    if is_kind(raw, types.ClassMethodDescriptorType):
        return m.wrap(getattr(cls, name), Source("const", None, getattr(cls, name)))
    if (
        type(raw) in (types.FunctionType, property)
        or not has_protocol(m, raw, "__get__")
        or isinstance(
            raw,
            (
                types.BuiltinFunctionType, types.WrapperDescriptorType, type,
                types.MethodDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType,
            ),
        )
    ):  # fmt: skip
        return m.wrap(raw, source)
    if is_kind(raw, _native.Callable):
        return m.wrap(raw, source)
    raise Break("GB112", f"descriptor {type(raw).__name__} read from a class")


def _class_name(m: Machine, value: Obj, name: str, raw_meta: Any) -> Value:
    """What a class is called, as `type` answers."""
    cls = value.value
    own = raw_meta is vars(type).get(name, MISSING)
    if not own and (name in ("__name__", "__qualname__") or is_data(m, raw_meta)):
        raise Break("GB112", f"attribute {name!r} of a metaclass")
    if not cls.__flags__ & _HEAP_TYPE:
        return containers.from_constant(getattr(cls, name))
    if name in ("__name__", "__qualname__"):
        return m.wrap(getattr(cls, name), Source("member", value.source, name))
    found = vars(cls).get(name)
    if type(found) not in (str, type(None)) or name not in vars(cls):
        raise Break("GB112", f"attribute {name!r} of a class")
    return m.wrap(found, Source("attr", value.source, name))


_FUNCTION_FIELDS = ("__name__", "__qualname__", "__module__", "__doc__")


def _function(m: Machine, value: Obj, name: str) -> Value:
    if name in _FUNCTION_FIELDS or name in (
        "__code__",
        "__defaults__",
        "__kwdefaults__",
        "__closure__",
        "__globals__",
    ):
        if value.source is not None:
            return m.wrap(getattr(value.value, name), Source("member", value.source, name))
    elif value.source is not None:
        stored = m.overlay.get(value, {}).get(name, MISSING)
        if stored is not MISSING and stored is not None:
            return stored
        if name in value.value.__dict__:
            return m.wrap(value.value.__dict__[name], Source("attr", value.source, name))
        if mro_lookup(types.FunctionType, name) is MISSING:
            m.guard("no_attr", value.source, name)
            raise NoAttribute(name, "function")
        if name == "__call__":
            return value
    raise Break("GB112", f"attribute {name!r} of a function")


def _made_function(m: Machine, value: Function, name: str) -> Value:
    if name in value.attributes:
        return value.attributes[name]
    if name in ("__name__", "__qualname__"):
        return Const(getattr(value, name.strip("_")))
    raise Break("GB112", f"attribute {name!r} of a function made in this frame")


def _bound(m: Machine, value: Method, name: str) -> Value:
    if name == "__func__":
        return value.func
    if name == "__self__":
        return value.receiver
    return load_attr(m, value.func, name)


def _container(m: Machine, value: Any, name: str) -> Value:
    if name == "__class__":
        return type_of(m, value)
    if isinstance(value, Sequence) and value.cls not in (list, tuple):
        return _record(m, value, name)
    if methods.find_method(value, name) is not None or mro_lookup(value.cls, name) is not MISSING:
        return BuiltinMethod(value, name)
    raise NoAttribute(name, value.cls.__name__)


def _record(m: Machine, value: Sequence, name: str) -> Value:
    """Fields, properties and methods of a named tuple (or torch.return_types)."""
    cls = value.cls
    raw = mro_lookup(cls, name)
    if raw is MISSING:
        raise NoAttribute(name, cls.__name__)
    fields = getattr(cls, "_fields", None) or _struct_fields(cls)
    if name in fields and not is_kind(raw, (types.FunctionType, property)):
        return containers.sequence_item(m, value, fields.index(name))
    if name == "_fields":
        return Const(fields)
    if is_kind(raw, (types.FunctionType, property, classmethod, staticmethod)):
        return bind_raw(m, value, name, raw)
    if name in methods.TUPLE_METHODS:
        return BuiltinMethod(value, name)
    raise Break("GB122", f"attribute {name!r} of {cls.__name__}")


def _struct_fields(cls: type) -> tuple[str, ...]:
    """Field names of a C struct sequence in order."""
    probe: Any = cls(range(cls.n_fields))  # type: ignore[attr-defined, call-arg]
    names = {getattr(probe, n): n for n in cls.__dict__ if isinstance(
        cls.__dict__[n], types.MemberDescriptorType)}  # fmt: skip
    return tuple(names.get(i, "?") for i in range(cls.n_fields))  # type: ignore[attr-defined]


def _const(m: Machine, value: Const, name: str) -> Value:
    try:
        found = getattr(value.value, name)
    except AttributeError:
        raise NoAttribute(name, type(value.value).__name__) from None
    if callable(found) and not is_kind(found, type):
        return BuiltinMethod(value, name)
    return containers.from_constant(found)


def _super(m: Machine, value: Super, name: str) -> Value:
    receiver = value.receiver
    of_class = isinstance(receiver, Obj) and is_kind(receiver.value, type)
    cls = receiver.value if isinstance(receiver, Obj) and of_class else real_class(receiver)
    assert cls is not None
    chain = bases(m, cls)
    if value.cls not in chain:
        raise containers.raises("TypeError: super(type, obj): obj must be an instance of type")
    for base in chain[chain.index(value.cls) + 1 :]:
        raw = base.__dict__.get(name, MISSING)
        place = Source("const", None, base)
        if raw is MISSING:
            if base.__flags__ & _HEAP_TYPE:
                m.guard("no_attr", place, name)
            continue
        if base.__flags__ & _HEAP_TYPE:
            m.wrap(raw, Source("attr", place, name))
        return _super_bound(m, value, name, raw, Source("attr", place, name))
    raise NoAttribute(name, "super")


def _super_bound(m: Machine, value: Super, name: str, raw: Any, source: Source) -> Value:
    """What `super().name` gives for the raw attribute that was found."""
    receiver = value.receiver
    is_class = isinstance(receiver, Obj) and is_kind(receiver.value, type)
    if raw is object.__dict__.get(name, MISSING):
        return BuiltinMethod(value, name)
    if is_kind(raw, types.FunctionType):
        made = m.wrap(raw, source)
        return made if is_class else Method(made, receiver)
    if type(raw) is staticmethod:
        return m.wrap(raw.__func__, Source("member", source, "__func__"))
    if type(raw) is classmethod:
        owner = receiver if is_class else type_of(m, receiver)
        return Method(m.wrap(raw.__func__, Source("member", source, "__func__")), owner)
    if type(raw) is property and not is_class and raw.fget is not None:
        return m.call(m.wrap(raw.fget, Source("member", source, "fget")), [receiver], {})
    if isinstance(receiver, (Sequence, Dict)):
        return BuiltinMethod(receiver, name)
    if is_kind(raw, (types.WrapperDescriptorType, types.MethodDescriptorType)) and not is_class:
        return Method(m.wrap(raw, source), receiver)
    if name == "__new__" and is_kind(raw, types.BuiltinFunctionType):
        return m.wrap(raw, source)
    raise Break("GB112", f"super().{name}")


def _partial(m: Machine, value: Partial, name: str) -> Value:
    fields: dict[str, Callable[[], Value]] = {
        "func": lambda: value.func,
        "args": lambda: Sequence(list(value.args), tuple),
    }
    if name in fields:
        return fields[name]()
    raise Break("GB112", f"attribute {name!r} of a partial")


def _method_of(m: Machine, value: Any, name: str) -> Value:
    return BuiltinMethod(value, name)


def _cell(m: Machine, value: Cell, name: str) -> Value:
    if name == "cell_contents":
        return m.load_cell(value)
    raise NoAttribute(name, "cell")


READERS: dict[type, Callable[[Any, Any, str], Value]] = {
    Obj: _object,
    Instance: _object,
    Tensor: torchcalls.tensor_attr,
    Const: _const,
    Sequence: _container,
    Dict: _container,
    Set: _container,
    DictView: _method_of,
    Iterator: _method_of,
    Function: _made_function,
    Method: _bound,
    Super: _super,
    Partial: _partial,
    Cell: _cell,
    Context: _method_of,
    ContextExit: _method_of,
}


def has_attr(m: Machine, value: Value, name: str) -> bool:
    try:
        load_attr(m, value, name)
    except Thrown as error:
        if not no_attribute(error):
            raise
        return False
    return True
