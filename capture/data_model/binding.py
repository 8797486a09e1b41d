"""Argument binding: to the names of a Python function, and to the signature of a modelled builtin.

In: arguments as Values. Out: local names and their Values, as in a call of the function; or a break
or TypeError for wrong arguments. `calls` uses it.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import itertools
import math
import operator
import types
from typing import TYPE_CHECKING, Any

from ..breaks import Break
from ..values import containers, registry
from ..values.containers import raises
from ..values.value import Const, Dict, Partial, Sequence, Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

Args = list[Value]
Kwargs = dict[str, Value]


def bind(
    m: Machine,
    code: types.CodeType,
    defaults: tuple[Value, ...],
    kwdefaults: dict[str, Value],
    args: Args,
    kwargs: Kwargs,
) -> dict[str, Value]:
    """Bind arguments to local names, as a call of a function with this code does."""
    count, names = code.co_argcount, code.co_varnames
    kwonly = names[count : count + code.co_kwonlyargcount]
    bound: dict[str, Value] = dict(zip(names[:count], args, strict=False))
    extra, rest = args[count:], dict(kwargs)
    for name in names[code.co_posonlyargcount : min(count, len(args))]:
        if name in rest:
            raise raises(f"TypeError: {code.co_name}() got multiple values for argument {name!r}")
    for position in range(len(args), count):
        name = names[position]
        if position >= code.co_posonlyargcount and name in rest:
            bound[name] = rest.pop(name)
        elif position >= count - len(defaults):
            bound[name] = defaults[position - (count - len(defaults))]
        else:
            raise raises(f"TypeError: {code.co_name}() missing argument {name!r}")
    for name in kwonly:
        if name in rest:
            bound[name] = rest.pop(name)
        elif name in kwdefaults:
            bound[name] = kwdefaults[name]
        else:
            raise raises(f"TypeError: {code.co_name}() missing keyword argument {name!r}")
    at = count + len(kwonly)
    if code.co_flags & inspect.CO_VARARGS:
        bound[names[at]] = Sequence(extra, tuple)
        at += 1
    elif extra:
        raise raises(f"TypeError: {code.co_name}() takes fewer positional arguments")
    if code.co_flags & inspect.CO_VARKEYWORDS:
        named = Dict({})
        for key, value in rest.items():
            containers.dict_set(m, named, Const(key), value)
        bound[names[at]] = named
    elif rest:
        raise raises(f"TypeError: {code.co_name}() got an unexpected keyword {next(iter(rest))!r}")
    return bound


def keywords_of(m: Machine, fn: Partial) -> Kwargs:
    """The present keywords of a partial."""
    if fn.held is None:
        return fn.kwargs
    named: Kwargs = {}
    for key, item in containers.dict_items(m, fn.held[1]):
        if not isinstance(key, Const) or type(key.value) is not str:
            raise Break("GB121", "a partial with a keyword that is not a string")
        named[key.value] = item
    return named


@functools.cache
def _signature(real: Any) -> inspect.Signature | None:
    """The signature of a modelled callable, or None if Python does not know it."""
    try:
        return inspect.signature(real)
    except (ValueError, TypeError):
        return None


@functools.cache
def _takes(real: Any, count: int, names: tuple[str, ...]) -> bool:
    """Whether a modelled callable accepts this number of arguments and these keywords."""
    signature = _signature(real)
    if signature is None:
        least, most = _COUNTS.get(real, (0, math.inf))
        known = (
            names if real in _ANY_KEYWORD or id(real) not in _PYTHONS else _KEYWORDS.get(real, ())
        )
        return least <= count <= most and set(names) <= set(known)
    try:
        signature.bind(*[None] * count, **dict.fromkeys(names))
    except TypeError:
        return False
    return True


def modelled(m: Machine, real: Any, model: registry.Model, args: Args, kwargs: Kwargs) -> Value:
    """Call a modelled callable; wrong arguments are a break, so that Python raises."""
    if not _takes(real, len(args), tuple(kwargs)):
        raise Break("GB121", f"{real.__name__}() with these arguments")
    if kwargs and isinstance(real, (type, types.BuiltinFunctionType)):
        signature = _signature(real)
        # Pass by position what has one.
        if signature is not None:
            bound = signature.bind(*args, **kwargs)
            args, kwargs = list(bound.args), dict(bound.kwargs)
    return model(m, args, kwargs)


def fitted(real: Any, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    """Arguments of a C method in the form of its model: by position where possible.

    Wrong arguments are a break, so that Python raises.
    """
    signature = _signature(real)
    if signature is not None:
        try:
            bound = signature.bind(None, *args, **kwargs)
        except TypeError:
            raise Break("GB121", f"{real.__name__}() with these arguments") from None
        return list(bound.args[1:]), dict(bound.kwargs)
    least, most, named = _OF_METHODS.get(real.__name__, (0, math.inf, False))
    if real.__name__ == "update" and not issubclass(real.__objclass__, dict):
        most, named = math.inf, False
    if not least <= len(args) <= most or (kwargs and not named):
        raise Break("GB121", f"{real.__name__}() with these arguments")
    return args, kwargs


# C methods whose signature Python does not know -> (least, most arguments, whether they accept
# keywords).
_OF_METHODS: dict[str, tuple[int, float, bool]] = {
    "pop": (1, 2, False),
    "update": (0, 1, True),
    "add": (1, 1, False),
    "discard": (1, 1, False),
    "remove": (1, 1, False),
    "clear": (0, 0, False),
    "copy": (0, 0, False),
    "keys": (0, 0, False),
    "values": (0, 0, False),
    "items": (0, 0, False),
    "difference_update": (0, math.inf, False),
    "__getitem__": (1, 1, False),
    "__contains__": (1, 1, False),
    "__missing__": (1, 1, False),
}


# Callables whose signature Python does not know -> (least, most arguments).
_COUNTS: dict[Any, tuple[int, float]] = {
    type: (1, 3),
    getattr: (2, 3),
    range: (1, 3),
    slice: (1, 3),
    map: (2, math.inf),
    filter: (2, 2),
    iter: (1, 2),
    next: (1, 2),
    min: (1, math.inf),
    max: (1, math.inf),
    functools.partial: (1, math.inf),
    functools.reduce: (2, 3),
    set: (0, 1),
    frozenset: (0, 1),
    vars: (0, 1),
    dir: (0, 1),
    bool: (0, 1),
    dict: (0, 1),
    int: (0, 2),
    str: (0, 3),
    bytes: (0, 3),
    super: (0, 2),
    itertools.islice: (2, 4),
    itertools.repeat: (0, 2),
}

# Their keywords; torch's own functions check theirs.
_KEYWORDS: dict[Any, tuple[str, ...]] = {
    int: ("base",),
    str: ("object", "encoding", "errors"),
    bytes: ("source", "encoding", "errors"),
    min: ("key", "default"),
    max: ("key", "default"),
    zip: ("strict",),
    itertools.repeat: ("object", "times"),
    itertools.product: ("repeat",),
    itertools.zip_longest: ("fillvalue",),
}
_ANY_KEYWORD = frozenset({dict, functools.partial, operator.methodcaller})
_PYTHONS = frozenset(
    id(one)
    for module in (builtins, itertools, functools, operator)
    for one in vars(module).values()
)
