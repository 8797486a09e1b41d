"""torch function modes inside a frame: torch calls go to `__torch_function__`, inlined.

In: `with Mode():` of a class written in Python, which arrives through torch's own `_push_mode`, and
a torch call about to be recorded. Out: the handler's result. torch itself determines the function
and arguments for the handler: the call is made on tensors without memory, under a mode of ours that
stops it there. A mode is inactive while its handler runs. No mode is pushed when the graph runs, so
a break under a mode becomes a break before it.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from ...ir.dataclass import dataclass
from ...runtime.guards.sources import Source
from ..breaks import Break
from ..data_model import attributes
from ..values import containers
from ..values.registry import NONE, Args, Kwargs, models
from ..values.value import Const, Dict, Instance, Obj, Sequence, Slice, Tensor, Value
from . import calls

if TYPE_CHECKING:
    from ..interpreter.machine import Machine


@dataclass(frozen=True, slots=True)
class Entered:
    """An active mode, and the root's instruction that entered it."""

    mode: Value
    index: int


@models(torch.overrides._push_mode)
def _push(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    mode = args[0]
    cls = attributes.real_class(mode)
    if not isinstance(mode, (Obj, Instance)) or not issubclass(cls or object, TorchFunctionMode):
        raise Break("GB110", "a torch function mode that is not modelled")
    m.activity += 1
    m.modes.append(Entered(mode, m.root_index))
    return NONE


@models(torch.overrides._pop_mode)
def _pop(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if not m.modes:
        raise Break("GB110", "a torch function mode is left that was entered elsewhere")
    m.activity += 1
    return m.modes.pop().mode


class _Seen(Exception):
    """Leaves a torch call at the point where torch calls its mode."""

    def __init__(self, *given: Any) -> None:
        super().__init__("seen")
        self.given = given


class _Probe(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise _Seen(func, types, args, kwargs)


def handled(
    m: Machine, fn: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]
) -> Value | None:
    """The result of the innermost mode's handler for fn(*args, **kwargs); None without one.

    Where torch passes an argument on, the handler gets the same Value.
    """
    known: dict[int, Value] = {}
    sent = [_stand_in(m, value, known) for value in args]
    named = {name: _stand_in(m, value, known) for name, value in kwargs.items()}
    try:
        with _Probe():
            # torch passes the form of the call to a handler
            fn(*sent, **named) if named else fn(*sent)
        return None
    except _Seen as seen:
        func, kinds, passed, rest = seen.given
    except Exception:  # the real call will fail as well
        return None
    values = [
        _function(m, func),
        Sequence([m.wrap(kind, Source("const", None, kind)) for kind in kinds], tuple),
        _value(m, passed, known),
    ]
    if rest is not None:
        values.append(_value(m, rest, known))
    return _handle(m, values)


def _stand_in(m: Machine, value: Value, known: dict[int, Value]) -> Any:
    """An argument of the probe call; `known` maps its parts to their Values.

    A tensor becomes a tensor without memory, since torch does not call `__torch_function__` for
    ghosts.
    """
    made: Any
    if isinstance(value, Tensor):
        ghost = value.ghost
        made = torch.empty_strided(ghost.shape, ghost.stride(), dtype=ghost.dtype, device="meta")
        if issubclass(value.cls, torch.nn.Parameter):
            made = torch.nn.Parameter(made, requires_grad=ghost.requires_grad)
    elif isinstance(value, Sequence):
        items = [_stand_in(m, item, known) for item in containers.sequence_items(m, value)]
        made = (
            value.cls(items)
            if value.cls in (list, tuple)
            # named tuple
            else value.cls._make(items)  # type: ignore[attr-defined]
        )
    elif isinstance(value, Slice):
        made = slice(*[_stand_in(m, part, known) for part in (value.start, value.stop, value.step)])
    else:
        return calls.to_argument(m, value)
    known[id(made)] = value
    known[id(value)] = Const(made)  # keeps `made` alive, and so its id
    return made


def _function(m: Machine, func: Any) -> Value:
    if type(func) is types.MethodWrapperType:
        return Obj(func)  # new at each look-up
    return m.wrap(func, Source("const", None, func))


def _handle(m: Machine, values: list[Value]) -> Value:
    entered = m.modes
    mode = entered[-1].mode
    handler = attributes.load_attr(m, mode, "__torch_function__")
    m.modes = entered[:-1]
    try:
        result = m.call(handler, values, {})
    finally:
        m.modes = entered
    if isinstance(result, Const) and result.value is NotImplemented:
        raise Break("GB110", "a torch function mode that gives NotImplemented")
    return result


def _value(m: Machine, python: Any, known: dict[int, Value]) -> Value:
    """The Value of an object that torch passes to a handler."""
    if id(python) in known:
        return known[id(python)]
    kind = type(python)
    if kind in (tuple, list):
        return Sequence([_value(m, item, known) for item in python], kind)
    if kind is dict:
        made = Dict({})
        for key, item in python.items():
            containers.dict_set(m, made, Const(key), _value(m, item, known))
        return made
    return containers.from_constant(python)


def getter(m: Machine, func: Any, args: list[Value]) -> Value | None:
    """`torch.Tensor.shape.__get__(x)`, the form of an attribute in a handler; None for others."""
    descriptor = func.__self__
    if func.__name__ != "__get__" or type(descriptor) is not types.GetSetDescriptorType or not args:
        return None
    if not issubclass(torch.Tensor, descriptor.__objclass__):
        return None
    return attributes.load_attr(m, args[0], descriptor.__name__)
