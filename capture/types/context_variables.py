"""Context variables: `get`, `set` and `reset` of `contextvars.ContextVar`, over Values.

In: a variable from outside the frame, guarded by identity. Out: its value in the call's context,
which is a root of guards; a Token for each `set`, which is an effect until the same frame resets
it. A set and its reset between two breaks are invisible to others, and have no effect.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from ...runtime.guards.sources import Source
from ..breaks import Break
from ..data_model import attributes
from ..values.effects import SetVariable
from ..values.registry import NONE
from ..values.value import BuiltinMethod, Const, Obj, Token, Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

Args = list[Value]
Kwargs = dict[str, Value]


def read(m: Machine, value: Any, name: str) -> Value:
    """variable.name"""
    if name in METHODS:
        return BuiltinMethod(value, name)
    if name == "name":
        return Const(value.value.name)
    raise Break("GB122", f"attribute {name!r} of a context variable")


def _get(m: Machine, variable: Obj, args: Args) -> Value:
    m.heap.read.add(variable)
    token = m.heap.variables.get(variable)
    if token is not None:
        return token.value
    if args:
        raise Break("GB122", "a context variable that is read with a default")
    try:
        real = variable.value.get()
    except LookupError:
        raise Break("GB122", "a context variable without a value") from None
    return m.wrap(real, Source("context", None, variable.value))


def _set(m: Machine, variable: Obj, args: Args) -> Value:
    previous = m.heap.variables.get(variable)
    if previous is None:
        m.unhook(variable.value.get(None))
    token = m.heap.variables[variable] = Token(variable, args[0], previous)
    m.journal.effects.append(SetVariable(token))
    return token


def _reset(m: Machine, variable: Obj, args: Args) -> Value:
    token = args[0]
    if not isinstance(token, Token) or token is not m.heap.variables.get(variable):
        raise Break(
            "GB122", "a context variable reset by a token that is not its last in this frame"
        )
    token.used = True
    m.journal.effects.remove(SetVariable(token))
    if token.previous is None:
        del m.heap.variables[variable]
    else:
        m.heap.variables[variable] = token.previous
    return NONE


METHODS = {"get": (_get, 0, 1), "set": (_set, 1, 1), "reset": (_reset, 1, 1)}


def call(m: Machine, variable: Obj, name: str, args: Args, kwargs: Kwargs) -> Value:
    """variable.name(*args)"""
    method, least, most = METHODS[name]
    if kwargs or not least <= len(args) <= most:
        raise Break("GB121", f"ContextVar.{name}() with these arguments")
    return method(m, variable, args)


attributes.OBJECT_READERS[ContextVar] = read
