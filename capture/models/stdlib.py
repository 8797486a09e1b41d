"""Small models of library callables: the getters of operator, copies, regular expressions, json, alternatives of types.

In: a call of one of them. Out: its Value. What is pure and has constants for arguments is computed at capture; a
copy of containers is walked item by item; a getter is known by what it gets.
"""

from __future__ import annotations

import copy
import json
import operator
import re
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...runtime.guards.sources import Source
from ..breaks import Break
from ..values.containers import NotConstant, as_constants, fold, named
from ..values.registry import BUILTINS, Args, Kwargs, models
from ..values.value import Const, Getter, Obj, Sequence, Value
from .polyfills import stands_for

if TYPE_CHECKING:
    from ..interpreter.machine import Machine


# -- operator.itemgetter, attrgetter, methodcaller ---------------------------------------------------------
def _items(names: tuple[Any, ...], named: dict[str, Any], of: Any) -> Any:
    return of[names[0]] if len(names) == 1 else tuple([of[name] for name in names])


def _attribute(of: Any, dotted: str) -> Any:
    for name in dotted.split("."):
        of = getattr(of, name)
    return of


def _attributes(names: tuple[Any, ...], named: dict[str, Any], of: Any) -> Any:
    if len(names) == 1:
        return _attribute(of, names[0])
    return tuple([_attribute(of, name) for name in names])


def _method(names: tuple[Any, ...], named: dict[str, Any], of: Any) -> Any:
    return getattr(of, names[0])(*names[1:], **named)


GETTERS: dict[Any, Callable[..., Any]] = {
    operator.itemgetter: _items,
    operator.attrgetter: _attributes,
    operator.methodcaller: _method,
}


def _is_text(value: Value) -> bool:
    return isinstance(value, Const) and isinstance(value.value, str)


def _maker(kind: Any) -> Any:
    def make(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        names = all(map(_is_text, args))
        if (
            not args
            or (kind is operator.attrgetter and not names)
            or (kind is operator.methodcaller and not _is_text(args[0]))
            or (kwargs and kind is not operator.methodcaller)
        ):
            raise Break("GB121", f"{kind.__name__}() with these arguments")
        return Getter(kind, tuple(args), dict(kwargs))

    return make


for _kind in GETTERS:
    BUILTINS[_kind] = _maker(_kind)


def call_getter(m: Machine, fn: Getter, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 1 or kwargs:
        raise Break("GB121", f"a call of {fn.kind.__name__} with these arguments")
    given = [Sequence(list(fn.args), tuple), named(m, fn.kwargs), args[0]]
    return m.call(Obj(GETTERS[fn.kind]), given, {})


def getter_from_outside(m: Machine, value: Obj) -> Getter | None:
    """A getter that existed before: it cannot be changed, so that who it is says what it gets."""
    real = value.value
    if type(real) not in GETTERS or value.source is None:
        return None
    kind, arguments, *_rest = real.__reduce__()
    if kind is not type(real):
        return None  # methodcaller with keywords
    m.guard("is", value.source, real)
    return Getter(kind, tuple([m.wrap(one, Source("const", None, one)) for one in arguments]), {})


# -- copy --------------------------------------------------------------------------------------------------
_ATOMS = (
    type(None), int, float, bool, complex, bytes, str, type, type(...), type(NotImplemented), range,
    types.FunctionType, types.BuiltinFunctionType, property,
)  # fmt: skip


def _python_copies(name: str) -> Any:
    """Stands for the real function where no model of ours does."""
    raise NotImplementedError(name)


@models(_python_copies)
def _left_to_python(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    raise Break("GB102", f"call of copy.{args[0].value} with this object")  # type: ignore[attr-defined]


@stands_for(copy.copy)
def copied(x: Any) -> Any:
    cls = type(x)
    if cls in _ATOMS or cls in (tuple, frozenset, slice):
        return x
    if cls is list or cls is dict or cls is set:
        return x.copy()
    return _python_copies("copy")


@stands_for(copy.deepcopy)
def copied_deeply(x: Any, memo: Any = None) -> Any:
    if memo is not None:
        return _python_copies("deepcopy")
    return _deep(x, [])


def _deep(x: Any, done: list[tuple[Any, Any]]) -> Any:
    cls = type(x)
    if cls in _ATOMS:
        return x
    for before, after in done:
        if before is x:
            return after
    if cls is list:
        made: Any = []
        done.append((x, made))
        for item in x:
            made.append(_deep(item, done))
        return made
    if cls is dict:
        made = {}
        done.append((x, made))
        for key, item in x.items():
            made[_deep(key, done)] = _deep(item, done)
        return made
    if cls is tuple:
        return _deep_tuple(x, done)
    return _python_copies("deepcopy")


def _deep_tuple(x: Any, done: list[tuple[Any, Any]]) -> Any:
    parts, same = [], True
    for item in x:
        part = _deep(item, done)
        parts.append(part)
        if type(item) not in _ATOMS and part is not item:
            same = False
    for before, after in done:  # a list in it that holds the tuple has led to its copy
        if before is x:
            return after
    if same:
        return x
    made = tuple(parts)
    done.append((x, made))
    return made


# -- pure functions of constants ---------------------------------------------------------------------------
def _pure(real: Any) -> Any:
    def model(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        try:
            plain, rest = as_constants(m, args, kwargs)
        except NotConstant:
            raise Break("GB121", f"{real.__name__}() of values that are not constants") from None
        return fold(lambda: real(*plain, **rest))

    return model


_PURE = (
    str.maketrans, bytes.maketrans, re.sub, re.subn, re.split, re.findall, re.escape, json.dumps, json.loads,
)  # fmt: skip
for _real in _PURE:
    BUILTINS[_real] = _pure(_real)
