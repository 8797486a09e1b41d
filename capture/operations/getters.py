"""Getters: `operator.itemgetter`, `attrgetter` and `methodcaller`, made in the frame or before it.

In: a call of one of these classes, or of a getter. Out: a Getter, or what it gets. A getter is
known by what it gets.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...runtime.guards.sources import Source
from ..breaks import Break
from ..values.containers import named
from ..values.registry import BUILTINS, Args, Kwargs
from ..values.value import Const, Getter, Obj, Sequence, Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine


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


def call(m: Machine, fn: Getter, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 1 or kwargs:
        raise Break("GB121", f"a call of {fn.kind.__name__} with these arguments")
    given = [Sequence(list(fn.args), tuple), named(m, fn.kwargs), args[0]]
    return m.call(Obj(GETTERS[fn.kind]), given, {})


def from_outside(m: Machine, value: Obj) -> Getter | None:
    """A getter that existed before: it cannot be changed, so that who it is says what it gets."""
    real = value.value
    if type(real) not in GETTERS or value.source is None:
        return None
    kind, arguments, *_rest = real.__reduce__()
    if kind is not type(real):
        return None  # methodcaller with keywords
    m.guard("is", value.source, real)
    return Getter(kind, tuple([m.wrap(one, Source("const", None, one)) for one in arguments]), {})
