"""torch's context managers inside a frame: grad mode and autocast are followed, others break.

In: `torch.no_grad()` and the like, entered by `with` or by a decorator's wrapper. Out: the tracer
runs and records the switch. The machine lists the entered contexts, so that a break inside can
enter them again for the resume function; a frame that ends with another mode sets it.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from .. import helpers
from ..breaks import Break
from ..data_model.attributes import (
    MISSING,
    class_attribute,
    load_attr,
    mro_lookup,
    real_class,
    special,
)
from ..exact_type import is_kind
from ..values.containers import NotConstant, as_constants, compute, raises
from ..values.value import Const, Context, ContextExit, Dict, Instance, Method, Obj, Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

GRAD_MODES: dict[type, Callable[[tuple[Any, ...]], bool]] = {
    torch.no_grad: lambda args: False,
    torch.enable_grad: lambda args: True,
    torch.set_grad_enabled: lambda args: bool(args[0]),
}
AUTOCASTS = (torch.autocast, torch.amp.autocast_mode.autocast, torch.cpu.amp.autocast)
_REFUSED = (torch.inference_mode, torch.random.fork_rng, torch.device)


def make(m: Machine, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """The Context of `cls(...)`, or None if cls is not a context manager of torch."""
    if cls not in GRAD_MODES and cls not in AUTOCASTS:
        if cls is torch.inference_mode:
            raise Break("GB110", "inference_mode inside the frame")
        return None
    try:
        plain, named = as_constants(m, args, kwargs)
    except NotConstant:
        raise Break("GB110", f"{cls.__name__} with arguments that are not constants") from None
    if cls in GRAD_MODES and cls is not torch.set_grad_enabled and (plain or named):
        raise Break("GB110", f"{cls.__name__} used as a decorator")
    given = [*plain, *named.values()]
    if cls is torch.set_grad_enabled and (
        len(given) != 1 or type(given[0]) is not bool or named.keys() - {"mode"}
    ):
        raise Break("GB110", "set_grad_enabled() with these arguments")
    if cls in AUTOCASTS:
        # What its constructor raises, or warns of, comes from this call and not from `with`.
        compute(lambda: cls(*plain, **named))
    made = Context(cls, tuple(plain), named)
    if cls is torch.set_grad_enabled:  # acts when it is made
        (mode,) = given
        made.args, made.kwargs = (mode,), {}
        made.before = torch.is_grad_enabled()
        made.undo.append(lambda: _back(m, made.before))
        _switch(m, mode)
    return made


def _back(m: Machine, enabled: bool) -> None:
    m.tracer.grad_mode(enabled)


def _switch(m: Machine, enabled: bool) -> None:
    m.activity += 1
    m.tracer.grad_mode(enabled)


def _nothing(value: Context) -> Value:
    return Const(None)


def _same(value: Context) -> Value:
    return value


# Class -> the result of `__enter__`; of others, it is the context.
_RESULTS: dict[type, Callable[[Context], Value]] = {
    **dict.fromkeys(GRAD_MODES, _nothing),
    helpers.AttentionBackends: lambda value: Dict({}),
}


def enter(m: Machine, value: Value) -> tuple[Value, Value] | None:
    """`with value:` -> (exit callable, result of __enter__), or None if value is not modelled."""
    if not isinstance(value, Context):
        return None
    m.activity += 1
    if value.cls in GRAD_MODES:
        if value.cls is not torch.set_grad_enabled:
            value.before = torch.is_grad_enabled()
            value.undo.append(lambda: _back(m, value.before))
        _switch(m, GRAD_MODES[value.cls](value.args))
    else:
        real = compute(lambda: value.cls(*value.args, **value.kwargs))
        m.tracer.state_call(real.__enter__)
        value.undo.append(lambda: m.tracer.state_call(real.__exit__, None, None, None))
    value.index = m.root_index
    m.contexts.append(value)
    return ContextExit(value), _RESULTS.get(value.cls, _same)(value)


def split_block(m: Machine) -> Context | None:
    """The autocast block that the walk has entered and must not leave at a break.

    Until the outermost block ends, eager uses the first cast of each weight, even if the weight is
    written meanwhile. A block that is entered again after a break would cast the weight again, so
    Python enters it before the graph (see `ir.trace.autocast_cache`)."""
    blocks = [one for one in m.contexts if one.cls in AUTOCASTS]
    return blocks[0] if blocks and m.tracer.has_cached_casts else None


def leave(m: Machine, value: Context) -> None:
    if not value.undo:
        raise Break("GB110", f"{value.cls.__name__} left twice")
    m.activity += 1
    value.undo.pop()()
    if value in m.contexts:
        m.contexts.remove(value)


def method(m: Machine, value: Context, name: str, args: list[Value]) -> Value:
    if name == "__enter__":
        entered = enter(m, value)
        assert entered is not None
        return entered[1]
    if name == "__exit__":
        leave(m, value)
        return Const(None)
    raise Break("GB110", f"{value.cls.__name__}.{name}")


def has(value: Context, real: types.FunctionType) -> bool:
    """Whether this is `__enter__` or `__exit__` of its class."""
    name = real.__name__
    return name in ("__enter__", "__exit__") and mro_lookup(value.cls, name) is real


def is_context_exit(fn: Method) -> bool:
    """Whether fn is the bound `__exit__` of a grad mode entered before this frame."""
    receiver = fn.receiver
    return (
        isinstance(receiver, Obj)
        and type(receiver.value) in GRAD_MODES
        and is_kind(fn.func.value, types.FunctionType)  # type: ignore[attr-defined]
        and fn.func.value.__name__ == "__exit__"  # type: ignore[attr-defined]
    )


def exit_real(m: Machine, fn: Method, args: list[Value]) -> Value:
    """Leaving it here sets the mode that it found when it was entered."""
    before = load_attr(m, fn.receiver, "prev")
    if not isinstance(before, Const):
        raise Break("GB110", "a context manager without a constant previous mode")
    _switch(m, bool(before.value))
    return Const(None)


def enter_object(m: Machine, value: Value) -> tuple[Value, Value]:
    """`with value:` for a context manager of a class written in Python."""
    if not isinstance(value, (Obj, Instance)):
        cls = real_class(value)
        if cls is None or mro_lookup(cls, "__enter__") is not MISSING:
            raise Break("GB110", "a context manager that is not modelled")
        raise raises("TypeError: the value does not support the context manager protocol")
    for name in ("__enter__", "__exit__"):
        if not isinstance(class_attribute(m, value, name), types.FunctionType):
            raise Break("GB110", "a context manager that is not modelled")
    start, leave = special(m, value, "__enter__"), special(m, value, "__exit__")
    assert start is not None and leave is not None
    return leave, m.call(start, [], {})
