"""Small models of library callables: operator's getters, copies, regular expressions, json.

In: a call of one of them. Out: its Value. Pure functions of constants are computed at capture; a
copy of containers is walked item by item; a getter is known by its arguments.
"""

from __future__ import annotations

import copy
import json
import os
import re
import types
from typing import TYPE_CHECKING, Any

from ..breaks import Break
from ..data_model.polyfills import stands_for
from ..values.containers import NotConstant, as_constants, fold
from ..values.registry import BUILTINS, Args, Kwargs, models
from ..values.value import Obj, Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine


# -- copy -----------------------------------------------------------------------------------------
_ATOMS = (
    type(None),
    int,
    float,
    bool,
    complex,
    bytes,
    str,
    type,
    type(...),
    type(NotImplemented),
    range,
    types.FunctionType,
    types.BuiltinFunctionType,
    property,
)


def _python_copies(name: str) -> Any:
    """Replaces the real function where we have no model."""
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
    # A list inside that contains the tuple has already made its copy.
    for before, after in done:
        if before is x:
            return after
    if same:
        return x
    made = tuple(parts)
    done.append((x, made))
    return made


# -- pure functions of constants -------------------------------------------------------------------
def _pure(real: Any) -> Any:
    def model(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        try:
            plain, rest = as_constants(m, args, kwargs)
        except NotConstant:
            raise Break("GB121", f"{real.__name__}() of values that are not constants") from None
        return fold(lambda: real(*plain, **rest))

    return model


_PURE = (
    str.maketrans,
    bytes.maketrans,
    re.sub,
    re.subn,
    re.split,
    re.findall,
    re.escape,
    json.dumps,
    json.loads,
)
for _real in _PURE:
    BUILTINS[_real] = _pure(_real)


# -- the environment: a mapping in Python over a dict ----------------------------------------------
def _by_its_code(fn: Any) -> Any:
    return lambda m, args, kwargs: m.inline(Obj(fn), args, kwargs)


for _read in (os._Environ.__getitem__, os.getenv, os.environ.encodekey, os.environ.decodevalue):
    BUILTINS[_read] = _by_its_code(_read)
