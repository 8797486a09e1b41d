"""Attributes of modules, classes, functions, `super`, records, containers and constants.

In: a Value and a name. Out: a Value, under guards on what was read. Fills the tables of
`attributes.load_attr`.
"""

from __future__ import annotations

import types
import warnings
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...runtime import _native
from ...runtime.guards.sources import Source
from ...runtime.guards.value_guards import GeneratorDevice, ValueCheck
from ...runtime.safe_access import MISSING, mro_of
from ...runtime.safe_access import in_classes as mro_lookup
from ..breaks import Break
from ..data_model import attributes
from ..data_model.attributes import (
    HEAP_TYPE,
    NoAttribute,
    bases,
    bind_raw,
    class_attribute,
    has_protocol,
    hold_class,
    is_data,
    is_property,
    known_property,
    load_attr,
    of_class,
    real_class,
    special,
    type_of,
)
from ..data_model.instance_dicts import InstanceDict
from ..exact_type import is_kind
from ..torch_models import calls, numpy_arrays
from ..torch_models.numpy_functions import ATTRIBUTES, METHODS
from ..types import container_methods
from ..values import containers, texts
from ..values.registry import group_attribute, model_of
from ..values.value import (
    Array,
    BuiltinMethod,
    Cell,
    Const,
    Context,
    ContextExit,
    Dict,
    DictView,
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

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

_MODULE_LOOKUP = vars(types.ModuleType)["__getattribute__"]
_MODULE_DICT: Any = vars(types.ModuleType)["__dict__"].__get__


def _module(m: Machine, value: Obj, name: str) -> Value:
    if (
        mro_lookup(type(value.value), "__getattribute__") is not _MODULE_LOOKUP
        or value.source is None
    ):
        raise Break("GB112", f"attribute {name!r} of a {type(value.value).__name__}")
    hold_class(m, value)
    if value.value is warnings and name == "filters":
        raise Break("GB103", "the filters of warnings, to which a walk adds its own")
    names = _MODULE_DICT(value.value)
    m.heap.read.add((id(names), name))
    stored = m.heap.globals.get((id(names), name), MISSING)
    if stored is not MISSING and stored is not None:
        return stored
    if class_attribute(m, value, name) is not MISSING:
        raise Break("GB112", f"attribute {name!r} of a module")
    if stored is MISSING:
        if name in names:
            return m.wrap(names[name], Source("attr", value.source, name))
        m.guard("no_attr", value.source, name)
    getter = class_attribute(m, value, "__getattr__")
    # The method of a module class comes before module.__getattr__.
    if isinstance(getter, types.FunctionType):
        return m.call(bind_raw(m, value, "__getattr__", getter), [Const(name)], {})
    held = "__getattr__" in names or (id(names), "__getattr__") in m.heap.globals
    if held or getter is not MISSING:
        raise Break("GB112", f"attribute {name!r} of a module with __getattr__")
    m.guard("no_attr", value.source, "__getattr__")
    raise NoAttribute(name, "module")


def _is_of_pybind(own: Any) -> bool:
    """Whether a look-up is that of pybind11's metaclass, which looks attributes up as `type` does,
    but for methods of C++ (`pybind11_meta_getattro`), which `_class` does not read."""
    if type(own) is not types.WrapperDescriptorType:
        return False
    meta = own.__objclass__
    return meta.__module__ == "pybind11_builtins" and meta.__name__ == "pybind11_type"


def _class(m: Machine, value: Obj, name: str) -> Value:
    cls = value.value
    meta = type(cls)
    if cls.__flags__ & HEAP_TYPE:
        hold_class(m, value)
    own = class_attribute(m, value, "__getattribute__")
    if own is not vars(type)["__getattribute__"] and not _is_of_pybind(own):
        raise Break(
            "GB112", f"attribute {name!r} of a class, which looks attributes up by its own code"
        )
    raw_meta = class_attribute(m, value, name)
    if name == "__class__" or value.source is None:
        if name == "__class__":
            return m.wrap(meta, Source("const", None, meta))
        return m.wrap(cls, Source("const", None, cls)) and _class(
            m, Obj(cls, source=Source("const", None, cls)), name
        )
    if name in ("__name__", "__qualname__", "__module__", "__doc__"):
        return _class_name(m, value, name, raw_meta)
    if name in ("__mro__", "__bases__", "__dict__"):
        raise Break("GB112", f"attribute {name!r} of a class")
    if raw_meta is not MISSING and is_data(m, raw_meta):
        return _of_metaclass(m, value, name, raw_meta)
    source = Source("mro_attr", value.source, name)
    raw = mro_lookup(cls, name)
    if raw is MISSING:
        m.guard("no_mro_attr", value.source, name)
        return _of_metaclass(m, value, name, raw_meta)
    if type(raw) is staticmethod:
        return m.wrap(raw.__func__, Source("member", source, "__func__"))
    if type(raw) is classmethod:
        m.wrap(raw, source)
        return attributes.class_method(m, name, raw, source, value)
    if is_kind(raw, types.ClassMethodDescriptorType):
        if cls.__flags__ & HEAP_TYPE:
            m.wrap(raw, source)
        bound = raw.__get__(None, cls)  # a new object at each look-up
        return Obj(bound, source=Source("const", None, bound))
    if is_property(raw):
        known_property(m, raw)
        return m.wrap(raw, source)
    if (
        type(raw) is types.FunctionType
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
    if isinstance(mro_lookup(type(raw), "__get__"), types.FunctionType):
        getter = special(m, m.wrap(raw, source), "__get__")
        assert getter is not None
        return m.call(getter, [Const(None), value], {})
    raise Break("GB112", f"descriptor {type(raw).__name__} read from a class")


def _of_metaclass(m: Machine, value: Obj, name: str, raw: Any) -> Value:
    """class.name, if the class and its bases lack it, or the metaclass has a data descriptor."""
    if raw is MISSING:
        getter = class_attribute(m, value, "__getattr__")
        if is_kind(getter, types.FunctionType):
            return m.call(bind_raw(m, value, "__getattr__", getter), [Const(name)], {})
        raise NoAttribute(name, "type")
    if is_property(raw):
        return bind_raw(m, value, name, raw)
    if isinstance(raw, types.FunctionType):
        assert value.source is not None
        return Method(m.wrap(raw, Source("class_attr", value.source, name)), value)
    if isinstance(raw, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        return Method(Obj(raw), value)
    raise Break("GB112", f"attribute {name!r} of a metaclass")


def _class_name(m: Machine, value: Obj, name: str, raw_meta: Any) -> Value:
    """A class's own name, as `type` returns it."""
    cls = value.value
    own = raw_meta is vars(type).get(name, MISSING)
    if not own and (name in ("__name__", "__qualname__") or is_data(m, raw_meta)):
        raise Break("GB112", f"attribute {name!r} of a metaclass")
    if not cls.__flags__ & HEAP_TYPE:
        return containers.from_constant(getattr(cls, name))
    if name in ("__name__", "__qualname__"):
        return m.wrap(getattr(cls, name), Source("member", value.source, name))
    found = vars(cls).get(name)
    if type(found) not in (str, type(None)) or name not in vars(cls):
        raise Break("GB112", f"attribute {name!r} of a class")
    return m.wrap(found, Source("attr", value.source, name))


def _bound(m: Machine, value: Method, name: str) -> Value:
    if name == "__func__":
        return value.func
    if name == "__self__":
        return value.receiver
    if name in _OWN_OF_METHODS:
        raise Break("GB112", f"attribute {name!r} of a bound method")
    return load_attr(m, value.func, name)


# Attributes that a bound method does not forward (in some versions of Python including `__get__`).
_OWN_OF_METHODS = vars(types.MethodType).keys() - {"__doc__"}


def _container(m: Machine, value: Any, name: str) -> Value:
    if name == "__class__":
        return type_of(m, value)
    if isinstance(value, Sequence) and value.cls not in (list, tuple):
        return _record(m, value, name)
    if value.cls is OrderedDict:
        found = _of_ordered_dict(m, value, name)
        if found is not None:
            return found
    raw = mro_lookup(value.cls, name)
    if raw is None or type(raw) is str:  # an unhashable class has None
        return Const(raw)
    if container_methods.find_method(value, name) is not None or raw is not MISSING:
        return BuiltinMethod(value, name)
    raise NoAttribute(name, value.cls.__name__)


def _of_ordered_dict(m: Machine, value: Dict, name: str) -> Value | None:
    """What is in its `__dict__`: it can have attributes, as the `_metadata` of a state dict."""
    if name == "__dict__":
        if value.origin is None or value.source is None:
            raise Break("GB112", "__dict__ of an OrderedDict made in this frame")
        own = attributes.instance_dict(value.origin)
        return m.wrap(own, Source("dict", value.source, None))
    if value.origin is None:
        return None
    return attributes.own_attribute(m, value, value.origin, name)


def _record(m: Machine, value: Sequence, name: str) -> Value:
    """Fields, properties and methods of a named tuple (or torch.return_types)."""
    cls = value.cls
    if cls is torch.Size and name == "numel":
        return BuiltinMethod(value, name)
    if cls is torch.Size and name not in container_methods.TUPLE_METHODS:
        return _const(m, Const(containers.as_constant(m, value)), name)
    raw = of_class(m, cls, name)
    if raw is MISSING:
        raise NoAttribute(name, cls.__name__)
    fields = getattr(cls, "_fields", None)
    if fields is None:
        fields = _struct_fields(cls)
    if name in fields and not is_kind(raw, (types.FunctionType, property)):
        return containers.sequence_item(m, value, fields.index(name))
    if name == "_fields":
        return Const(fields)
    if is_kind(raw, (types.FunctionType, property, classmethod, staticmethod)):
        return bind_raw(m, value, name, raw)
    if name in container_methods.TUPLE_METHODS:
        return BuiltinMethod(value, name)
    raise Break("GB122", f"attribute {name!r} of {cls.__name__}")


def _struct_fields(cls: type) -> tuple[str, ...]:
    """Field names of a C struct sequence, in order."""
    if not hasattr(cls, "n_fields"):
        raise Break("GB122", f"the fields of a {cls.__name__}")
    probe: Any = cls(range(cls.n_fields))  # type: ignore[attr-defined, call-arg]
    names = {
        getattr(probe, n): n
        for n in cls.__dict__
        if isinstance(cls.__dict__[n], types.MemberDescriptorType)
    }
    return tuple(names.get(i, "?") for i in range(cls.n_fields))  # type: ignore[attr-defined]


def _const(m: Machine, value: Const, name: str) -> Value:
    if is_kind(value.value, np.generic):
        allowed = name in ATTRIBUTES or name in METHODS or name.startswith("__")
        if hasattr(value.value, name) and not allowed:
            raise Break("GB123", f"attribute {name!r} of a number of numpy's")
    found = containers.compute(lambda: getattr(value.value, name, MISSING))
    if found is MISSING:
        raise NoAttribute(name, type(value.value).__name__)
    if callable(found) and not is_kind(found, type):
        return BuiltinMethod(value, name)
    return containers.from_constant(found)


def _text(m: Machine, value: texts.Text, name: str) -> Value:
    """A method of a text, which needs no plain text by itself."""
    if name in texts.METHODS | {"join", "format"} and not value.looked:
        return BuiltinMethod(value, name)
    return _const(m, value, name)


def _super(m: Machine, value: Super, name: str) -> Value:
    receiver = value.receiver
    cls = receiver.value if _of_class(value) else real_class(receiver)  # type: ignore[attr-defined]
    assert cls is not None
    chain = bases(m, cls)
    if value.cls not in chain:
        raise containers.raises("TypeError: super(type, obj): obj must be an instance of type")
    for base in chain[chain.index(value.cls) + 1 :]:
        raw = base.__dict__.get(name, MISSING)
        place = Source("const", None, base)
        if raw is MISSING:
            if base.__flags__ & HEAP_TYPE:
                m.guard("no_attr", place, name)
            continue
        if base.__flags__ & HEAP_TYPE:
            m.wrap(raw, Source("attr", place, name))
        return _super_bound(m, value, name, raw, Source("attr", place, name))
    raise NoAttribute(name, "super")


def _of_class(value: Super) -> bool:
    """Whether this is `super()` in a method of a class, and not in one of a metaclass."""
    receiver = value.receiver
    if not isinstance(receiver, Obj) or not is_kind(receiver.value, type):
        return False
    return any(base is value.cls for base in mro_of(receiver.value))


def _super_bound(m: Machine, value: Super, name: str, raw: Any, source: Source) -> Value:
    """The value of `super().name` for the raw attribute found."""
    receiver = value.receiver
    is_class = _of_class(value)
    if raw is object.__dict__.get(name, MISSING):
        return BuiltinMethod(value, name)
    if is_kind(raw, types.FunctionType):
        made = m.wrap(raw, source)
        return made if is_class else Method(made, receiver)
    if type(raw) is staticmethod:
        return m.wrap(raw.__func__, Source("member", source, "__func__"))
    if type(raw) is classmethod:
        owner = receiver if is_class else type_of(m, receiver)
        return attributes.class_method(m, name, raw, source, owner)
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
    if name == "func":
        return value.func
    if name in ("args", "keywords"):
        if value.held is None:
            value.held = Sequence(list(value.args), tuple), containers.named(m, value.kwargs)
        return value.held[name == "keywords"]
    raise Break("GB112", f"attribute {name!r} of a partial")


def _method_of(m: Machine, value: Any, name: str) -> Value:
    return BuiltinMethod(value, name)


_KINDS_OF_METHOD = (types.MethodDescriptorType, types.WrapperDescriptorType)


def _method_of_type(m: Machine, value: Iterator | DictView, name: str) -> Value:
    """A C method of an iterator or a view; other attributes are breaks."""
    if isinstance(value, DictView):
        cls: type | None = (
            type(getattr(value.of.cls(), value.kind)())
            if value.of.cls in (dict, OrderedDict)
            else None
        )
    else:
        cls = real_class(value)
    if cls is None:
        raise Break("GB112", f"attribute {name!r} of this value")
    if name == "__class__":
        return m.wrap(cls, Source("const", None, cls))
    raw = mro_lookup(cls, name)
    if raw is MISSING:
        raise NoAttribute(name, cls.__name__, exact=True)
    if not is_kind(raw, _KINDS_OF_METHOD):
        raise Break("GB112", f"attribute {name!r} of a {cls.__name__}")
    return BuiltinMethod(value, name)


# Immutable attributes of a code object: numbers, names and tuples of names.
_OF_CODE = frozenset(
    name
    for name, raw in vars(types.CodeType).items()
    if name.startswith("co_")
    and is_kind(raw, (types.MemberDescriptorType, types.GetSetDescriptorType))
) - {"co_consts", "co_code", "co_lnotab", "co_linetable", "co_exceptiontable"}


def _code(m: Machine, value: Obj, name: str) -> Value:
    if name in _OF_CODE:
        return containers.from_constant(getattr(value.value, name))
    raise Break("GB112", f"attribute {name!r} of a code object")


def _generator(m: Machine, value: Obj, name: str) -> Value:
    """generator.device; other attributes are those of any object."""
    if name != "device":
        return attributes.generic_attr(m, value, name, torch.Generator)
    device = value.value.device
    if value.source is not None:
        program = GeneratorDevice(device)
        m.guard("value", None, ValueCheck(program, (value.source,), True, True))
    return Const(device)


def _group(m: Machine, value: Obj, name: str) -> Value:
    model = model_of(group_attribute)
    assert model is not None
    return model(m, [value, Const(name)], {})


def _cell(m: Machine, value: Cell, name: str) -> Value:
    if name == "cell_contents":
        return m.load_cell(value)
    raise NoAttribute(name, "cell")


attributes.READERS.update(
    {
        Obj: attributes.object_attr,
        Instance: attributes.object_attr,
        Tensor: calls.tensor_attr,
        Const: _const,
        texts.Text: _text,
        Array: numpy_arrays.attr,
        Sequence: _container,
        Dict: _container,
        InstanceDict: _container,
        Set: _container,
        DictView: _method_of_type,
        Iterator: _method_of_type,
        Method: _bound,
        Super: _super,
        Partial: _partial,
        Cell: _cell,
        Context: _method_of,
        ContextExit: _method_of,
    }
)
attributes.OBJECT_READERS.update(
    {
        types.ModuleType: _module,
        types.CodeType: _code,
        type: _class,
        np.ufunc: numpy_arrays.ufunc_attr,
        torch.Generator: _generator,
        **({torch.distributed.ProcessGroup: _group} if torch.distributed.is_available() else {}),
    }
)
