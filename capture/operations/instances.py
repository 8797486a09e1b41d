"""Instance creation: what a call of a class does.

In: a class and arguments as Values. Out: the Value of the new object: an Instance with its
attributes in the machine, a record, a context, an exception; or a break if only C code or a
metaclass can make it. `calls` uses it.
"""

from __future__ import annotations

import types
from abc import ABCMeta
from collections import deque, namedtuple
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from ...runtime import safe_access
from ...runtime.guards.sources import Source
from ..breaks import Break, Thrown
from ..data_model import attributes
from ..data_model.binding import bind
from ..exact_type import is_kind
from ..torch_models import context_managers
from ..types import container_subclasses, deques, enums, exceptions
from ..values.containers import raises
from ..values.value import Const, Instance, Obj, Sequence, Value
from ..values.wrap import is_record

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

Args = list[Value]
Kwargs = dict[str, Value]


def make(m: Machine, fn: Obj, args: Args, kwargs: Kwargs) -> Value:
    cls = fn.value
    made = context_managers.make(m, cls, args, kwargs)
    if made is not None:
        return made
    if is_record(cls) and _is_made_by_namedtuple(cls):
        for name in ("__new__", "__init__"):
            raw = attributes.of_class(m, cls, name)
        if raw is not object.__init__:
            raise Break("GB126", f"{cls.__name__} has an __init__ of its own")
        bound = bind(m, cls.__new__.__code__, _named_defaults(m, cls), {}, [fn, *args], kwargs)
        return Sequence([bound[name] for name in cls._fields], cls)
    if issubclass(cls, torch.nn.Module):
        return _module(m, fn, args, kwargs)
    if issubclass(cls, torch.Tensor) or issubclass(cls, torch.autograd.Function):
        raise Break("GB126", f"{cls.__name__} is built")
    if issubclass(cls, BaseException):
        return exceptions.make(m, fn, args, kwargs)
    return _instantiate(m, fn, args, kwargs)


def _is_made_by_namedtuple(cls: Any) -> bool:
    """Whether its `__new__` is the one that `collections.namedtuple` generates."""
    new, fields = cls.__new__, cls._fields
    if not is_kind(new, types.FunctionType) or type(fields) is not tuple:
        return False
    makes = new.__globals__.get("_tuple_new")
    usual = namedtuple("_Usual", [f"field{n}" for n in range(len(fields))]).__new__.__code__  # type: ignore[misc]
    code = new.__code__
    return (
        makes == tuple.__new__
        and (code.co_code, code.co_names) == (usual.co_code, usual.co_names)
        and code.co_varnames[1:] == fields
    )


def _module(m: Machine, fn: Obj, args: Args, kwargs: Kwargs) -> Value:
    """A module built inside the frame, if all of it can be walked; else Python builds it."""
    before = len(m.heap.leaves)
    try:
        made = _instantiate(m, fn, args, kwargs)
    except Thrown:
        raise
    except Break as stop:
        reason = f"a module {fn.value.__name__} is built: {stop.reason}"
        raise Break("GB126", reason) from None
    # If one of its parameters outlives the graph, Python builds the whole module.
    for leaf in list(m.heap.leaves)[before:]:
        reason = f"a module {fn.value.__name__} is built, which outlives the graph"
        m.heap.leaves[leaf] = m.must_be_python("GB126", reason)
    return made


def _named_defaults(m: Machine, cls: Any) -> tuple[Value, ...]:
    defaults = cls.__new__.__defaults__ or ()
    return tuple(m.wrap(value, Source("const", None, value)) for value in defaults)


def _instantiate(m: Machine, fn: Obj, args: Args, kwargs: Kwargs) -> Value:
    """An instance of a user's class with Python's own `type.__call__`."""
    cls = fn.value
    if cls.__flags__ & attributes.HEAP_TYPE:
        attributes.hold_class(m, fn)
    if enums.is_enum(cls):
        return enums.member(m, fn, args, kwargs)
    if attributes.of_class(m, type(cls), "__call__") is not vars(type)["__call__"]:
        raise Break("GB126", f"{cls.__name__} has a metaclass with its own __call__")
    made = allocate(m, fn, args, kwargs)
    new, cls = attributes.of_class(m, cls, "__new__"), made.cls.value  # type: ignore[attr-defined]
    if cls is not fn.value and fn.value not in attributes.bases(m, cls):
        return made  # an object of another class is not initialised here
    init = attributes.of_class(m, cls, "__init__")
    if init is SimpleNamespace.__init__ and not args:
        m.heap.overlay[made].update(kwargs)
        return made
    if init is object.__dict__["__init__"]:
        if (args or kwargs) and new is object.__dict__["__new__"]:
            raise raises(f"TypeError: {cls.__name__}() takes no arguments")
        return made
    if not is_kind(init, types.FunctionType) and made.storage is None:
        raise Break("GB126", f"{cls.__name__}.__init__ is not a plain function")
    result = m.call(attributes.bind_raw(m, made, "__init__", init), args, kwargs)
    if not isinstance(result, Const) or result.value is not None:
        raise raises("TypeError: __init__() should return None")
    return made


def allocate(m: Machine, fn: Obj, args: Args, kwargs: Kwargs) -> Instance:
    """`cls.__new__(cls, *args, **kwargs)`"""
    cls = fn.value
    new = attributes.of_class(m, cls, "__new__")
    layout = (
        cls.__basicsize__ - (8 if cls.__dictoffset__ else 0) - (8 if cls.__weakrefoffset__ else 0)
    )
    if is_kind(new, staticmethod) and is_kind(new.__func__, types.FunctionType):
        made = m.call(Obj(new.__func__), [fn, *args], kwargs)
        if not isinstance(made, Instance):
            raise Break("GB126", f"{cls.__name__}.__new__ gives another object")
        cls = made.cls.value  # type: ignore[attr-defined]
        if fn.value not in attributes.bases(m, cls):
            return made
    elif (
        new is object.__dict__["__new__"]
        and (cls.__flags__ & (1 << 9) or cls is object)
        and (cls.__itemsize__ == 0 and _object_layout(cls, layout))
        # A heap type whose instances have only attributes.
    ):
        if (args or kwargs) and safe_access.new_slot(cls) != safe_access.new_slot(object):
            raise Break("GB126", f"{cls.__name__} had a __new__ of its own, which leaves its mark")
        made = Instance(fn)
    elif container_subclasses.is_buildable(cls) and is_kind(new, types.BuiltinFunctionType):
        made = container_subclasses.make(m, fn)
    elif cls is deque:
        made = deques.make(m, fn)
    elif new is SimpleNamespace.__dict__["__new__"]:
        made = Instance(fn)
    else:
        raise Break("GB126", f"{cls.__name__} is built by C code")
    if issubclass(type(cls), ABCMeta):
        attributes.of_class(m, cls, "__abstractmethods__")
    if cls.__flags__ & _IS_ABSTRACT:
        raise raises(f"TypeError: abstract class {cls.__name__}")
    if attributes.class_attribute(m, made, "__del__") is not attributes.MISSING:
        raise Break("GB126", f"{cls.__name__} has a finalizer")
    m.heap.overlay.setdefault(made, {})
    return made


_IS_ABSTRACT = 1 << 20  # Py_TPFLAGS_IS_ABSTRACT


def _object_layout(cls: type, layout: int) -> bool:
    """Whether all bases except object are Python classes."""
    return all(base is object or base.__flags__ & (1 << 9) for base in cls.__mro__)
