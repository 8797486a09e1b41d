"""Attributes of functions, read and set: made in the frame, pre-existing, and C functions.

In: a Value of a callable and a name. Out: a Value. `functools.wraps` and the like read a function's
name, module, annotations and `__dict__`, and write them to another. Registers readers in
`attributes`; `attribute_stores` calls `store`.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...runtime.guards.sources import Source
from ...runtime.safe_access import MISSING
from ...runtime.safe_access import in_classes as mro_lookup
from ..breaks import Break
from ..values import containers
from ..values.value import Const, Dict, Function, Method, Obj, Sequence, Value
from ..values.wrap import freeze
from . import attributes, iteration
from .attributes import NoAttribute, class_attribute, type_of

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

_NAMES = ("__name__", "__qualname__", "__module__", "__doc__")
_FIELDS = (
    *_NAMES,
    "__code__",
    "__defaults__",
    "__kwdefaults__",
    "__closure__",
    "__globals__",
    "__annotations__",
    "__type_params__",
    "__dict__",
)


# -- functions made in the frame -------------------------------------------------------------------
def _namespace(m: Machine, fn: Function) -> Dict:
    """`fn.__dict__`"""
    if fn.namespace is None:
        fn.namespace = Dict({})
        m.heap.namespaces[fn.namespace] = fn
    return fn.namespace


def _name(m: Machine, fn: Function) -> Value:
    return Const(fn.name)


def _qualname(m: Machine, fn: Function) -> Value:
    return Const(fn.qualname)


def _module(m: Machine, fn: Function) -> Value:
    """The `__name__` of its globals at the time when the function was made."""
    if "__name__" not in fn.globals.names:
        return Const(None)
    return m.load_global(fn.globals, "__name__")


def _doc(m: Machine, fn: Function) -> Value:
    return Const(types.FunctionType(fn.code, {}, closure=_empty_cells(fn)).__doc__)


def _empty_cells(fn: Function) -> tuple[types.CellType, ...]:
    return tuple(types.CellType() for _ in fn.code.co_freevars)


def _annotations(m: Machine, fn: Function) -> Value:
    held = fn.annotations
    if not isinstance(held, Dict):
        made = Dict({})
        pairs = iteration.drain(m, held) if held is not None else []
        for key, item in zip(pairs[::2], pairs[1::2], strict=True):
            containers.dict_set(m, made, key, item)
        fn.annotations = held = made
    return held


def _defaults(m: Machine, fn: Function) -> Value:
    if not fn.defaults:
        return Const(None)
    return fn.fields.setdefault("__defaults__", Sequence(list(fn.defaults), tuple))


def _closure(m: Machine, fn: Function) -> Value:
    if not fn.closure:
        return Const(None)
    return fn.fields.setdefault("__closure__", Sequence(list(fn.closure), tuple))


_MADE: dict[str, Callable[[Machine, Function], Value]] = {
    "__name__": _name,
    "__qualname__": _qualname,
    "__module__": _module,
    "__doc__": _doc,
    "__annotations__": _annotations,
    "__defaults__": _defaults,
    "__closure__": _closure,
    "__dict__": _namespace,
    "__type_params__": lambda m, fn: Sequence([], tuple),
    "__code__": lambda m, fn: Obj(fn.code),
    "__class__": type_of,
}


def made_attr(m: Machine, fn: Function, name: str) -> Value:
    """fn.name of a function made in the frame."""
    if name in fn.fields:
        return fn.fields[name]
    known = name in _MADE and mro_lookup(types.FunctionType, name) is not MISSING
    if known or name == "__class__":
        return _MADE[name](m, fn)
    if fn.namespace is not None:
        stored = containers.dict_get(m, fn.namespace, freeze(Const(name)))
        if stored is not None:
            return stored
    if mro_lookup(types.FunctionType, name) is MISSING:
        raise NoAttribute(name, "function")
    raise Break("GB112", f"attribute {name!r} of a function made in this frame")


def store(m: Machine, fn: Function, name: str, item: Value | None) -> None:
    """fn.name = item for a function made in the frame; None deletes."""
    text = isinstance(item, Const) and type(item.value) is str
    if name in ("__name__", "__qualname__"):
        if not text:
            raise containers.raises(f"TypeError: {name} must be set to a string object")
        setattr(fn, name.strip("_"), item.value)  # type: ignore[union-attr]
    elif name in ("__module__", "__doc__", "__type_params__") and item is not None:
        fn.fields[name] = item
    elif name == "__annotations__" and isinstance(item, Dict):
        fn.annotations = item
    elif mro_lookup(types.FunctionType, name) is not MISSING:
        raise Break("GB115", f"attribute {name!r} of a function made in this frame is set")
    elif item is not None:
        containers.dict_set(m, _namespace(m, fn), Const(name), item)
    elif fn.namespace is None or containers.dict_get(m, fn.namespace, freeze(Const(name))) is None:
        raise NoAttribute(name, "function")
    else:
        containers.dict_delete(m, fn.namespace, Const(name))


# -- pre-existing functions
# ----------------------------------------------------------------------------------
def real_attr(m: Machine, value: Obj, name: str) -> Value:
    """An attribute of a pre-existing Python function."""
    if value.source is None:
        value = _constant(m, value)
    source = value.source
    assert source is not None
    if name in _FIELDS and mro_lookup(types.FunctionType, name) is not MISSING:
        return m.wrap(getattr(value.value, name), Source("member", source, name))
    if name == "__class__":
        return type_of(m, value)
    stored = m.heap.overlay.get(value, {}).get(name, MISSING)
    if stored is not MISSING and stored is not None:
        return stored
    if name in value.value.__dict__:
        return m.wrap(value.value.__dict__[name], Source("attr", source, name))
    raw = mro_lookup(types.FunctionType, name)
    if raw is MISSING:
        m.guard("no_attr", source, name)
        raise NoAttribute(name, "function")
    if name == "__call__":
        return value
    if name == "__get__":
        return Method(Obj(raw), value)
    raise Break("GB112", f"attribute {name!r} of a function")


def _constant(m: Machine, value: Obj) -> Obj:
    found = m.wrap(value.value, Source("const", None, value.value))
    assert isinstance(found, Obj)
    return found


_C_NAMES = (*_NAMES, "__text_signature__", "__self__", "__objclass__")


def c_attr(m: Machine, value: Obj, name: str) -> Value:
    """An attribute of a function or method written in C."""
    if name == "__class__":
        return type_of(m, value)
    raw = class_attribute(m, value, name)
    if raw is MISSING:
        raise NoAttribute(name, type(value.value).__name__)
    if name not in _C_NAMES:
        raise Break("GB112", f"attribute {name!r} of a C function")
    real, source = value.value, value.source
    found = getattr(real, name)
    if source is not None and source.kind != "const":
        # Each look-up makes such an object, and no guard knows it by identity.
        if type(real) is types.MethodWrapperType:
            raise Break("GB112", f"attribute {name!r} of a method of a C type")
        if name == "__self__" and type(real) is types.BuiltinFunctionType:
            return m.wrap(found, Source("member", source, name))
    return m.wrap(found, Source("const", None, found))


_C_TYPES = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.MethodWrapperType,
)
attributes.READERS[Function] = made_attr
attributes.OBJECT_READERS[types.FunctionType] = real_attr
for _kind in _C_TYPES:
    attributes.OBJECT_READERS[_kind] = c_attr
