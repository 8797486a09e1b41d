"""Builtins on classes, objects and attributes: `isinstance`, `super`, `getattr` and others.

In: Values. Out: a Value with plain Python's result, under guards on what was read; a type without a
rule is a break. Fills the table of `values.registry`.
"""

from __future__ import annotations

import _abc  # type: ignore[import-not-found]
import _collections_abc
import abc
import builtins
import collections
import contextlib
import dataclasses
import functools
import os
import types
import typing
from typing import TYPE_CHECKING, Any

import torch

from ...runtime.guards.sources import Source
from ...runtime.safe_access import mro_of
from ..breaks import Break, LooksAtFrame, PlainFrame, Thrown
from ..bytecode.unbound_cells import load_cell
from ..data_model import attribute_stores, attributes
from ..exact_type import is_kind
from ..values import containers
from ..values.containers import raises
from ..values.registry import NONE, Args, Kwargs, models
from ..values.value import (
    BuiltinMethod,
    Cell,
    Const,
    ContextExit,
    Function,
    Getter,
    Instance,
    Method,
    Obj,
    Partial,
    Sequence,
    Slice,
    Super,
    Tensor,
    Value,
)
from ..values.wrap import pin

if TYPE_CHECKING:
    from ..interpreter.machine import Machine


@models(isinstance)
def _isinstance(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    targets = _classes(m, args[1])
    cls = attributes.asked_as(args[0], targets) or attributes.real_class(args[0])
    if cls is None:
        cls = _MODELLED_TYPES.get(type(args[0]))
    if cls is None:
        raise Break("GB121", "isinstance() of this value")
    return Const(any(_asked(m, args[0], cls, one, "__instancecheck__") for one in targets))


_MODELLED_TYPES: dict[type, type] = {Super: super, Partial: functools.partial, Slice: slice}


@models(issubclass)
def _issubclass(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if not isinstance(args[0], Obj) or not is_kind(args[0].value, type):
        raise raises("TypeError: issubclass() arg 1 must be a class")
    cls = args[0].value
    return Const(
        any(_asked(m, args[0], cls, target, "__subclasscheck__") for target in _classes(m, args[1]))
    )


def _classes(m: Machine, value: Value, depth: int = 0) -> list[type]:
    if isinstance(value, Sequence) and issubclass(value.cls, tuple) and depth < _DEPTH:
        items = containers.sequence_items(m, value)
        return [cls for item in items for cls in _classes(m, item, depth + 1)]
    if isinstance(value, Obj):
        if is_kind(value.value, type):
            return [value.value]
        parts = typing.get_args(value.value) if is_kind(value.value, types.UnionType) else ()
        if parts and all(is_kind(arg, type) for arg in parts):
            _hold_hint(m, value)
            return list(parts)
        # typing.Callable, typing.List: the class that they name.
        if is_kind(value.value, _ALIASES):
            if value.source is not None:
                m.guard("is", value.source, value.value)
            return [value.value.__origin__]
    raise Break("GB121", "isinstance() with this second argument")


_DEPTH = 16  # depth of nested tuples; Python's own recursion has a limit as well
_ALIASES: Any = type(typing.List)  # noqa: UP006 (the object itself is what is asked about)


def _bases(m: Machine, cls: type) -> tuple[type, ...]:
    """cls.__mro__, guarded where it can change."""
    found = attributes.bases(m, cls)
    if attributes.of_class(m, cls, "__class__") is not object.__dict__["__class__"]:
        raise Break("GB137", f"isinstance() of a {cls.__name__}, which defines __class__")
    return found


def _asked(m: Machine, value: Value, cls: type, target: type, hook: str) -> bool:
    """isinstance() or issubclass() with one class, which its metaclass may override."""
    if hook == "__instancecheck__" and cls is target:
        return True  # no hook runs
    meta = type(target)
    check = attributes.of_class(m, meta, hook)
    if check is vars(type)[hook] or check is _OF_TENSORS.get(hook):
        return any(base is target for base in _bases(m, cls))
    if check is vars(abc.ABCMeta)[hook]:
        return _asked_of_abc(m, cls, target)
    if check is _OF_TYPES and isinstance(value, Tensor):
        found, kind = value.ghost, typing.cast("Any", target)
        wanted = (kind.dtype, kind.layout, "cuda" if kind.is_cuda else "cpu")
        return (found.dtype, found.layout, found.device.type) == wanted
    if not is_kind(check, types.FunctionType) or issubclass(meta, _OF_PROTOCOLS):
        raise Break("GB137", f"isinstance() with {target.__name__}, which decides by its own code")
    place = Source("const", None, target)
    method = m.wrap(check, Source("class_attr", place, hook))
    return m.truth(m.call(method, [m.wrap(target, place), value], {}))


@models(vars(type)["__instancecheck__"])
def _is_instance(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    """type.__instancecheck__(target, value), as hooks of metaclasses call it"""
    target, value = args
    cls = attributes.real_class(value)
    if cls is None or not isinstance(target, Obj) or not is_kind(target.value, type):
        raise Break("GB121", "isinstance() of this value")
    return Const(any(base is target.value for base in _bases(m, cls)))


def _asked_of_abc(m: Machine, cls: type, target: type) -> bool:
    """The answer of an abstract class, from its caches or by code of the library's alone."""
    _bases(m, cls)
    token = abc.get_cache_token()
    _, known, others, version = _abc._get_dump(target)
    if version != token:
        others = set()
    if not any(ref() is cls for ref in (*known, *others)) and not _is_quiet(target, cls, set()):
        raise Break("GB137", f"isinstance() with {target.__name__}, which runs code of its own")
    result = issubclass(cls, target)
    m.guard("abc", None, token)
    return result


# Modules whose hooks only look at the class in question, by the id of their globals.
_LIBRARYS = {id(vars(module)): module for module in (_collections_abc, contextlib, os, typing)}


def _is_quiet(target: Any, cls: type, seen: set[int]) -> bool:
    """Whether `issubclass(cls, target)` runs no code of the program's.

    It runs hooks of the class, and those of all classes that derive from it or are registered with
    it.
    """
    if id(target) in seen:
        return True
    seen.add(id(target))
    meta = type(target)
    if meta is type:
        return True
    if (
        attributes.mro_lookup(meta, "__subclasscheck__")
        is not vars(abc.ABCMeta)["__subclasscheck__"]
    ):
        return attributes.mro_lookup(meta, "__subclasscheck__") is vars(type)["__subclasscheck__"]
    hook: Any = attributes.mro_lookup(target, "__subclasshook__")
    function = getattr(hook, "__func__", None)
    own = hook is vars(object)["__subclasshook__"] or (
        is_kind(function, types.FunctionType) and id(function.__globals__) in _LIBRARYS
    )
    if not own or "__subclasses__" in {name for base in mro_of(target) for name in vars(base)}:
        return False
    registered = [ref() for ref in _abc._get_dump(target)[0]]
    return all(
        _is_quiet(one, cls, seen)
        for one in (*registered, *type.__subclasses__(target))
        if one is not None
    )


_OF_PROTOCOLS: Any = type(typing.Protocol)
# Of `torch.FloatTensor` and its like, which are types by dtype and device.
_OF_TYPES = vars(type(torch.FloatTensor))["__instancecheck__"]
# Hooks of tensor classes: those of `type`, unless torch defines another.
_OF_TENSORS: dict[str, Any] = {
    hook: raw
    for hook in ("__instancecheck__", "__subclasscheck__")
    if not is_kind(raw := attributes.mro_lookup(type(torch.Tensor), hook), types.FunctionType)
}


@models(type)
def _type(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 1:
        raise Break("GB126", "a class is made")
    return attributes.type_of(m, args[0])


@models(builtins.__build_class__, collections.namedtuple, dataclasses.make_dataclass)
def _class_is_made(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    raise Break("GB126", "a class is defined")


@models(super)
def _super(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if not args:
        frame = m.frames[-1]
        cell = frame.cells.get("__class__")
        first = frame.code.co_varnames[0] if frame.code.co_argcount else None
        if cell is None or first is None:
            if len(m.frames) == 1:  # replacement code has its arguments elsewhere
                raise PlainFrame("PL203", "super() where it has no first argument", m.where)
            raise raises("RuntimeError: super(): no arguments")
        receiver = frame.locals.get(first)
        if receiver is None and first in frame.cells:
            receiver = m.load_cell(frame.cells[first])
        if receiver is None:
            raise raises("RuntimeError: super(): arg[0] deleted")
        args = [m.load_cell(cell), receiver]
    if len(args) != 2 or not isinstance(args[0], Obj) or not is_kind(args[0].value, type):
        raise Break("GB121", "super() with these arguments")
    given = args[1].value if isinstance(args[1], Obj) and is_kind(args[1].value, type) else None
    cls = (
        given
        if given is not None and args[0].value in given.__mro__
        else attributes.real_class(args[1])
    )
    if cls is None or args[0].value not in attributes.bases(m, cls):
        raise Break("GB121", "super() of an object of another class")
    return Super(args[0].value, args[1])


@models(callable)
def _callable(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    value = args[0]
    if isinstance(value, (Function, Method, BuiltinMethod, ContextExit, Getter, Partial)):
        return Const(True)
    if isinstance(value, (Obj, Instance)):
        if isinstance(value, Obj) and not type(value.value).__flags__ & attributes.HEAP_TYPE:
            return Const(callable(value.value))
        return Const(attributes.class_attribute(m, value, "__call__") is not attributes.MISSING)
    cls = attributes.real_class(value)
    return Const(
        cls is not None and attributes.mro_lookup(cls, "__call__") is not attributes.MISSING
    )


@models(getattr)
def _getattr(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    name = _text(args[1])
    try:
        return attributes.load_attr(m, args[0], name)
    except Thrown as error:
        if len(args) > 2 and attributes.no_attribute(error):
            return args[2]
        raise


@models(hasattr)
def _hasattr(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return Const(attributes.has_attr(m, args[0], _text(args[1])))


@models(setattr)
def _setattr(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    attribute_stores.store_attr(m, args[0], _text(args[1]), args[2])
    return NONE


@models(delattr)
def _delattr(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    attribute_stores.store_attr(m, args[0], _text(args[1]), None)
    return NONE


@models(vars)
def _vars(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if not args:
        raise LooksAtFrame("vars")
    try:
        return attributes.load_attr(m, args[0], "__dict__")
    except Thrown as error:
        if not attributes.no_attribute(error):
            raise
        raise raises("TypeError: vars() argument must have __dict__ attribute") from None


@models(id)
def _id(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    """The id of an object from outside, which a guard holds to be that object."""
    (value,) = args
    if not isinstance(value, Obj) or value.source is None:
        raise Break("GB121", "id() of a value that this frame may have made")
    m.guard("is", value.source, value.value)
    return Const(id(value.value))


def _text(value: Value) -> str:
    if isinstance(value, Const) and is_kind(value.value, str):
        return value.value
    raise Break("GB121", "an attribute name that is not a constant")


@models(load_cell)
def _load_cell(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    """A resumed function's own cell: see `bytecode.unbound_cells`."""
    cell, _name = args
    assert isinstance(cell, Cell)
    if cell.content is None:
        raise raises("UnboundLocalError: a local variable is not bound")
    return m.load_cell(cell)


# Python's own classes whose items are generic aliases, by id: other classes may return anything.
_PARAMETRIZED = {
    id(cls): cls
    for module in (builtins, collections)
    for cls in vars(module).values()
    if isinstance(cls, type)
    and isinstance(vars(cls).get("__class_getitem__"), types.ClassMethodDescriptorType)
}


def generic_alias(m: Machine, cls: Obj, index: Value) -> Value | None:
    """`list[Tensor]` of a builtin class; None for classes that define their own items."""
    kind: Any = cls.value
    if id(kind) not in _PARAMETRIZED:
        return None
    given = index.items if isinstance(index, Sequence) and index.cls is tuple else [index]
    parts = [one for one in given if isinstance(one, Obj) and is_kind(one.value, _HINTS)]
    if type(kind) is not type or len(parts) != len(given):
        return None
    for one in parts:
        _hold_hint(m, one)
    made = types.GenericAlias(kind, tuple([one.value for one in parts]))
    return m.wrap(made, Source("const", None, made))


_HINTS = (type, types.UnionType)


def union(m: Machine, left: Value, right: Value) -> Value | None:
    """`float | Tensor` of classes whose metaclass leaves `|` to `type`; None for other values."""
    parts = [one for one in (left, right) if isinstance(one, Obj) and _joins(one.value)]
    if len(parts) != 2:
        return None
    for one in parts:
        _hold_hint(m, one)
    made = parts[0].value | parts[1].value
    return m.wrap(made, Source("const", None, made))


def _hold_hint(m: Machine, hint: Obj) -> None:
    """Guard the identity of a part. The classes of unions are guarded by their identity already."""
    pin(hint)
    if is_kind(hint.value, types.UnionType) and hint.source is not None:
        m.guard("is", hint.source, hint.value)


def _joins(hint: Any) -> bool:
    if not is_kind(hint, type):
        return type(hint) is types.UnionType
    names = [vars(meta) for meta in type.mro(type(hint))]
    found = {name: next(n[name] for n in names if name in n) for name in ("__or__", "__ror__")}
    return all(raw is vars(type)[name] for name, raw in found.items())
