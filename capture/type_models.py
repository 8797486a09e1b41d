"""Builtins about classes, objects and their attributes: `isinstance`, `type`, `super`, `callable`, `getattr` and the like.

In: Values. Out: a Value, with the meaning that plain Python gives, under guards on what was looked at; a type that a
row does not know is a break. Fills the table of `tables`.
"""

from __future__ import annotations

import functools
import types
import typing
from typing import TYPE_CHECKING, Any

import torch

from ..runtime.sources import Source
from . import (
    attributes,
    containers,
    stores,
)
from .breaks import Break, LooksAtFrame, Thrown
from .containers import raises
from .kinds import is_kind
from .tables import NONE, Args, Kwargs, models
from .unbound import load_cell
from .values import (
    BuiltinMethod,
    Cell,
    Const,
    ContextExit,
    Function,
    Instance,
    Iterator,
    Method,
    Obj,
    Partial,
    Sequence,
    Slice,
    Super,
    Value,
)

if TYPE_CHECKING:
    from .machine import Machine


@models(isinstance)
def _isinstance(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    cls = attributes.real_class(args[0])
    if cls is None:
        cls = _MODELLED_TYPES.get(type(args[0]))
    if cls is None and isinstance(args[0], Iterator):
        cls = _ITERATOR_TYPES.get(args[0].kind)
    if cls is None:
        raise Break("GB121", "isinstance() of this value")
    return Const(any(_is_kind(m, cls, target) for target in _classes(m, args[1])))


_MODELLED_TYPES: dict[type, type] = {Super: super, Partial: functools.partial, Slice: slice}
_ITERATOR_TYPES: dict[str, type] = {
    "generator": types.GeneratorType, "enumerate": enumerate, "zip": zip, "map": map, "filter": filter,
}  # fmt: skip


@models(issubclass)
def _issubclass(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if not isinstance(args[0], Obj) or not is_kind(args[0].value, type):
        raise raises("TypeError: issubclass() arg 1 must be a class")
    return Const(any(_is_kind(m, args[0].value, target) for target in _classes(m, args[1])))


def _classes(m: Machine, value: Value) -> list[type]:
    if isinstance(value, Sequence):
        return [cls for item in containers.sequence_items(m, value) for cls in _classes(m, item)]
    if isinstance(value, Obj):
        if is_kind(value.value, type):
            return [value.value]
        if is_kind(value.value, types.UnionType):
            return [arg for arg in typing.get_args(value.value) if isinstance(arg, type)]
        if is_kind(value.value, _ALIASES):  # typing.Callable, typing.List: the class that they name
            if value.source is not None:
                m.guard("is", value.source, value.value)
            return [value.value.__origin__]
    raise Break("GB121", "isinstance() with this second argument")


_ALIASES: Any = type(typing.List)  # noqa: UP006 (the object itself is what is asked about)


def _bases(m: Machine, cls: type) -> tuple[type, ...]:
    """cls.__mro__, guarded where it can change."""
    found = attributes.bases(m, cls)
    if attributes.of_class(m, cls, "__class__") is not object.__dict__["__class__"]:
        raise Break("GB137", f"isinstance() of a {cls.__name__}, which names its own class")
    return found


def _is_kind(m: Machine, cls: type, target: type) -> bool:
    meta = type(target)
    check = attributes.of_class(m, meta, "__instancecheck__")
    if check is vars(type)["__instancecheck__"]:
        return any(base is target for base in _bases(m, cls))
    if issubclass(cls, torch.Tensor) and issubclass(target, torch.Tensor):
        return issubclass(cls, target)
    if target.__module__.startswith("torch") and not issubclass(cls, torch.Tensor):
        return any(base is target for base in _bases(m, cls))
    if check is _ABC_CHECK:
        import abc

        result = issubclass(cls, target)
        m.guard("abc", None, abc.get_cache_token())
        return result
    if getattr(target, "_graftjit_tensor_face", False):
        return issubclass(cls, torch.Tensor)
    raise Break("GB137", f"isinstance() with {target.__name__}, which decides itself")


def _abc_check() -> Any:
    import abc

    return vars(abc.ABCMeta)["__instancecheck__"]


_ABC_CHECK = _abc_check()


@models(type)
def _type(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 1:
        raise Break("GB126", "a class is made")
    return attributes.type_of(m, args[0])


@models(super)
def _super(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if not args:
        frame = m.frames[-1]
        cell = frame.cells.get("__class__")
        first = frame.code.co_varnames[0] if frame.code.co_argcount else None
        if cell is None or first is None:
            raise raises("RuntimeError: super(): no arguments")
        receiver = frame.locals.get(first)
        if receiver is None and first in frame.cells:
            receiver = m.load_cell(frame.cells[first])
        args = [m.load_cell(cell), receiver]  # type: ignore[list-item]
    if len(args) != 2 or not isinstance(args[0], Obj) or not is_kind(args[0].value, type):
        raise Break("GB121", "super() with these arguments")
    return Super(args[0].value, args[1])


@models(callable)
def _callable(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    value = args[0]
    if isinstance(value, (Function, Method, BuiltinMethod, ContextExit, Partial)):
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
    stores.store_attr(m, args[0], _text(args[1]), args[2])
    return NONE


@models(delattr)
def _delattr(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    stores.store_attr(m, args[0], _text(args[1]), None)
    return NONE


@models(vars)
def _vars(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if not args:
        raise LooksAtFrame("vars")
    return attributes.load_attr(m, args[0], "__dict__")


@models(id)
def _id(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    raise Break("GB121", "id()")


def _text(value: Value) -> str:
    if isinstance(value, Const) and is_kind(value.value, str):
        return value.value
    raise Break("GB121", "an attribute name that is not a constant")


@models(load_cell)
def _load_cell(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    """An own cell of a function that is resumed: see `unbound`."""
    cell, _name = args
    assert isinstance(cell, Cell)
    if cell.content is None:
        raise raises("UnboundLocalError: a local variable is not bound")
    return m.load_cell(cell)


def generic_alias(m: Machine, cls: Obj, index: Value) -> Value | None:
    """`list[Tensor]` of a builtin class and other classes; None for what else decides itself what its items are."""
    kind: Any = cls.value
    if not isinstance(vars(kind).get("__class_getitem__"), types.ClassMethodDescriptorType):
        return None
    given = index.items if isinstance(index, Sequence) and index.cls is tuple else [index]
    parts = [one for one in given if isinstance(one, Obj) and isinstance(one.value, type)]
    if type(kind) is not type or len(parts) != len(given):
        return None
    for one in parts:
        if one.pin is not None:
            one.pin()
    made = types.GenericAlias(kind, tuple([one.value for one in parts]))
    return m.wrap(made, Source("const", None, made))
