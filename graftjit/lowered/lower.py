"""`lower(fn, *args)`: the stages of compiling one call.

In: a target of `jit`, and the arguments of one call. Out: a `Lowered`. The frame is captured as in
a call, in a separate compilation, and the program is not run.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any

from ..compiled import compiled_state
from ..jit import JitFunction, fresh_copy
from ..runtime.errors import UserError, describe
from ..runtime.events import observers
from .collect import parts
from .lowered import Lowered


def lower(target: Any, /, *args: Any, **kwargs: Any) -> Lowered:
    """The stages of compiling the call `target(*args, **kwargs)`; see `Lowered`.

    Raises what the call would raise before its first line (TypeError for wrong arguments) and, with
    `fullgraph=True`, BreakError. The capture uses the caller's grad mode, autocast and default
    device.
    """
    call, given = _callable(fresh_copy(target), args)
    function = call.__wrapped__
    values = _bound(function, given, kwargs)
    unit = call._unit
    state = unit.state_for(function.__code__)
    with observers.watch() as emitted:
        unit.miss(state, values, function.__globals__, function.__closure__)
    return _lowered(call, emitted, lambda: _run(target, args, kwargs))


def _run(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Lowered:
    fresh = fresh_copy(target)
    call, _ = _callable(fresh, args)
    with observers.watch() as emitted:
        fresh(*args, **kwargs)
    return _lowered(call, emitted, None)


def _lowered(call: Any, emitted: list[Any], again: Callable[[], Lowered] | None) -> Lowered:
    found = parts(emitted, call.report())
    return Lowered(call._unit.name, found, again if any(part.notes for part in found) else None)


def _callable(fresh: Any, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """The native callable of what `jit` returned, and its positional arguments."""
    if isinstance(fresh, JitFunction):
        return fresh, args
    if isinstance(fresh, types.MethodType):
        return fresh.__func__, (fresh.__self__, *args)
    state = compiled_state(fresh)
    if state is not None:
        return state.call, (fresh, *args)
    raise UserError(
        "lower takes a callable and arguments that it accepts",
        expected="a function, method, module or callable object",
        found=describe(fresh),
    )


def _bound(
    function: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    """The bound values of the parameters, in the order of the frame's variables: positional,
    keyword-only, *args, **kwargs."""
    signature = inspect.signature(function, follow_wrapped=False)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise UserError(
            f"{function.__qualname__}() cannot be called with these arguments: {error}",
            todo="pass the arguments of a call; for a method: graftjit.lower(obj.method, *args)",
        ) from None
    bound.apply_defaults()
    last = [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD]
    order = sorted(
        signature.parameters.values(),
        key=lambda one: 1 + last.index(one.kind) if one.kind in last else 0,
    )
    return tuple(bound.arguments[one.name] for one in order)
