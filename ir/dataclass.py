"""A `dataclass` decorator that costs little: methods are made when they are first needed.

In: a class with annotated fields. Out: the same as from `dataclasses.dataclass`, for the options
below, with real `dataclasses.Field`s, so that `fields`, `replace`, `asdict` and `is_dataclass`
work.

The standard decorator compiles six functions per class, in half a millisecond; with 150 classes
that was nearly half of a first call. Here `__init__` is compiled at the first instance, and the
other methods are closures over the names of the fields. Classes that users instantiate take the
standard decorator, so that `inspect.signature` shows their parameters.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, field
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, TypeVar, dataclass_transform, overload

__all__ = ["dataclass", "field"]

# `dataclasses.fields` compares with this marker.
_FIELD = dataclasses._FIELD  # type: ignore[attr-defined]
_Class = TypeVar("_Class", bound=type)


@overload
def dataclass(cls: _Class, /) -> _Class: ...
@overload
def dataclass(
    *,
    eq: bool = ...,
    frozen: bool = ...,
    slots: bool = ...,
    kw_only: bool = ...,
    unsafe_hash: bool = ...,
    weakref_slot: bool = ...,
) -> Callable[[_Class], _Class]: ...


@dataclass_transform(field_specifiers=(field,))
def dataclass(cls: Any = None, /, **options: bool) -> Any:
    """As `dataclasses.dataclass`. `slots` makes the class anew, as the standard decorator does."""
    if cls is not None:
        return _made(cls)
    return lambda cls: _made(cls, **options)


def _made(
    cls: type,
    eq: bool = True,
    frozen: bool = False,
    slots: bool = False,
    kw_only: bool = False,
    unsafe_hash: bool = False,
    weakref_slot: bool = False,
) -> type:
    own = _own_fields(cls, kw_only)
    fields: dict[str, Field] = {}
    for base in cls.__mro__[-1:0:-1]:
        fields.update(base.__dict__.get("__dataclass_fields__", ()))
    fields.update(own)
    holder: list[type] = []  # gets the finished class
    scope = dict(cls.__dict__)
    added: dict[str, Any] = {
        "__dataclass_fields__": fields,
        "__match_args__": tuple(f.name for f in fields.values() if f.init and not f.kw_only),
        "__init__": _late_init(holder, fields, frozen),
    }
    optional: dict[str, Any] = {"__repr__": _repr_of([f.name for f in fields.values() if f.repr])}
    if eq:
        key = _key_of([f.name for f in fields.values() if f.compare])
        optional["__eq__"] = _eq_of(key)
        hashed = scope.get("__hash__")
        if unsafe_hash or (frozen and hashed is None):
            added["__hash__"] = _hash_of(key)
        elif not frozen and "__hash__" not in scope:
            added["__hash__"] = None
    if frozen:
        added["__setattr__"], added["__delattr__"] = _frozen(holder, frozenset(fields))
        if slots:
            optional["__getstate__"], optional["__setstate__"] = _state(tuple(fields))
    added.update({name: value for name, value in optional.items() if name not in scope})
    for name, f in own.items():
        scope.pop(name, None)
        if f.default is not MISSING and not slots:
            added[name] = f.default
    made = _again(cls, scope, added, fields, weakref_slot) if slots else _put(cls, own, added)
    holder.append(made)
    return made


def _own_fields(cls: type, kw_only: bool) -> dict[str, Field]:
    own = {}
    for name, annotation in inspect.get_annotations(cls).items():
        if str(annotation).startswith("ClassVar"):
            continue
        given = cls.__dict__.get(name, MISSING)
        made: Any = given if isinstance(given, Field) else field(default=given)
        made.name, made.type, made._field_type = name, annotation, _FIELD
        if made.kw_only is MISSING:
            made.kw_only = kw_only
        own[name] = made
    return own


def _put(cls: type, own: dict[str, Field], added: dict[str, Any]) -> type:
    for name in own:
        if name not in added and name in cls.__dict__:
            delattr(cls, name)
    for name, value in added.items():
        setattr(cls, name, value)
    return cls


def _again(
    cls: type,
    scope: dict[str, Any],
    added: dict[str, Any],
    fields: dict[str, Field],
    weakref_slot: bool,
) -> type:
    """A new class with `__slots__` in place of `cls`."""
    inherited: set[str] = set()
    for base in cls.__mro__[1:-1]:
        inherited.update(base.__dict__.get("__slots__", ()))
        inherited.update({"__weakref__"} & base.__dict__.keys())
    names = [*fields, "__weakref__"] if weakref_slot else list(fields)
    scope.update(added)
    scope["__slots__"] = tuple(name for name in names if name not in inherited)
    scope.pop("__dict__", None)
    scope.pop("__weakref__", None)
    made = type(cls)(cls.__name__, cls.__bases__, scope)
    made.__qualname__ = cls.__qualname__
    return made


def _late_init(holder: list[type], fields: dict[str, Field], frozen: bool) -> Callable[..., None]:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        cls = holder[0]
        made = _init_of(cls, fields, frozen)
        cls.__init__ = made  # type: ignore[misc]
        made(self, *args, **kwargs)

    return __init__


def _init_of(cls: type, fields: dict[str, Field], frozen: bool) -> Any:
    """The compiled `__init__`; SyntaxError for a parameter without default after one with."""
    scope: dict[str, Any] = {"_set": object.__setattr__, "_none": MISSING}
    by_place: list[str] = []
    by_name: list[str] = []
    body: list[str] = []
    for name, f in fields.items():
        value = name
        if f.default_factory is not MISSING:
            scope[f"_made_{name}"] = f.default_factory
            value = f"_made_{name}()"
            if f.init:
                value = f"{value} if {name} is _none else {name}"
        if f.init:
            (by_name if f.kw_only else by_place).append(_parameter(f, scope))
        elif f.default_factory is MISSING and f.default is not MISSING:
            scope[f"_default_{name}"] = f.default
            value = f"_default_{name}"
        if f.init or f.default_factory is not MISSING or f.default is not MISSING:
            body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    listed = ", ".join(["self", *by_place, *(["*", *by_name] if by_name else ())])
    exec(f"def __init__({listed}):\n " + "\n ".join(body or ["pass"]), scope)
    made = scope["__init__"]
    made.__qualname__, made.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return made


def _parameter(f: Field, scope: dict[str, Any]) -> str:
    if f.default_factory is not MISSING:
        return f"{f.name}=_none"
    if f.default is MISSING:
        return f.name
    scope[f"_default_{f.name}"] = f.default
    return f"{f.name}=_default_{f.name}"


def _key_of(names: list[str]) -> Callable[[Any], tuple]:
    """An object's compared fields as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    if names:
        get = attrgetter(names[0])
        return lambda one: (get(one),)
    return lambda one: ()


def _eq_of(key: Callable[[Any], tuple]) -> Callable[[Any, Any], Any]:
    def __eq__(self: Any, other: Any) -> Any:
        if other.__class__ is self.__class__:
            return key(self) == key(other)
        return NotImplemented

    return __eq__


def _hash_of(key: Callable[[Any], tuple]) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:
        return hash(key(self))

    return __hash__


def _repr_of(names: list[str]) -> Callable[[Any], str]:
    @recursive_repr()
    def __repr__(self: Any) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{self.__class__.__qualname__}({shown})"

    return __repr__


def _frozen(holder: list[Any], names: frozenset[str]) -> tuple[Any, Any]:
    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is holder[0] or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(holder[0], self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is holder[0] or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(holder[0], self).__delattr__(name)

    return __setattr__, __delattr__


def _state(names: tuple[str, ...]) -> tuple[Any, Any]:
    """`__getstate__` and `__setstate__` for copies and pickles of frozen objects with slots."""

    def __getstate__(self: Any) -> list[Any]:
        return [getattr(self, name) for name in names]

    def __setstate__(self: Any, state: list[Any]) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    return __getstate__, __setstate__
