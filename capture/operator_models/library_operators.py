"""Calls of operators that the program or another library has registered (`torch.library`).

In: such an operator, or the packet of its overloads. Out: one recorded call, under a guard that its
fake rule and its formula for the gradient are the same; or a break that says what is missing. A
kernel is called when the graph runs, and is taken to do what its schema says: no effects that the
program sees but the writes that it declares. What a function around it visibly shares with a kernel
is a break (`operator_state`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch._library import custom_ops

from ...ir.graph.schema import plan_of
from ...ir.ops.python_kernels import in_python, untrue
from ...ir.trace.autocast_cache import AUTOCAST_DEVICES
from ...ir.trace.library_operators import follow_formula
from ...runtime.guards.operators import Registered
from ..breaks import Break
from ..exact_type import is_kind
from ..torch_models import calls
from ..values.registry import Args, Kwargs, library_operator, models
from ..values.value import Obj, Sequence, Tensor, Value
from .operator_state import Key, named, state_of

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

_CODE = "GB143"


@models(library_operator)
def _call(m: Machine, given: Args, kwargs: Kwargs) -> Value:
    """Record operator(*args, **kwargs) over ghosts, under guards on what its trace depends on."""
    (called, *args) = given
    assert isinstance(called, Obj)
    fn = called.value
    packet = is_kind(fn, torch._ops.OpOverloadPacket)
    overloads = [getattr(fn, name) for name in fn.overloads()] if packet else [fn]
    guards = tuple(("equals", m.heap.question(Registered, op), True) for op in overloads)
    m.guard_all(guards)
    try:
        return _recorded(m, fn, overloads, args, kwargs)
    except Break as stop:  # it lasts until the operator is registered anew
        stop.guards = (*stop.guards, *guards)
        raise


def _recorded(
    m: Machine, fn: Any, overloads: list[Any], args: list[Value], kwargs: dict[str, Value]
) -> Value:
    _check(fn, overloads)
    if m.modes:
        taken = calls.by_mode(m, fn, args, kwargs)
        if taken is not None:
            return taken
    given = tuple(calls.to_argument(m, value) for value in args)
    by_name = {key: calls.to_argument(m, value) for key, value in kwargs.items()}
    followed = torch.is_grad_enabled() and any(map(_wants_gradient, (*args, *kwargs.values())))
    for op in overloads:
        _check_state(m, op, followed)
    result = calls.record(m, fn, given, by_name)
    follow_formula(_ghosts(result))
    return result


def _check(fn: Any, overloads: list[Any]) -> None:
    """Break where an operator can be no step of a graph."""
    for op in overloads:
        if (how := untrue(op)) is not None:
            raise Break(_CODE, how)
    if not in_python(fn):
        return
    if in_python(fn, "/CompositeImplicitAutograd"):
        raise Break("GB102", f"operator {fn}, whose composite kernel is a Python function")
    for op in overloads:
        plan = plan_of(op)
        if plan.kind == "view":
            raise Break(_CODE, f"{op} returns a view of an argument")
    if any(torch.is_autocast_enabled(kind) for kind in AUTOCAST_DEVICES):
        raise Break(_CODE, f"{fn} under autocast, which its kernel may see")


def _check_state(m: Machine, op: Any, followed: bool) -> None:
    """Break where a function around names what a kernel keeps, or a formula keeps anything.

    `followed`: autograd follows the call.
    """
    defined = custom_ops.OPDEFS.get(op._name)
    if defined is None:
        return
    kept = state_of([defined._init_fn, *defined._backend_fns.values()])
    for key in _named_around(m) if kept else ():
        if key in kept:
            raise Break(_CODE, f"{op} keeps {kept[key]}, which a function around it uses")
    formula = state_of([defined._setup_context_fn, defined._backward_fn]) if followed else {}
    for name in formula.values():
        raise Break(_CODE, f"the formula for the gradient of {op} keeps {name}")


def _named_around(m: Machine) -> Iterator[Key]:
    """What `state_of` knows of the functions of the walk."""
    for frame in m.frames:
        names = frame.scope.names
        for name, value in named(frame.code, names, None):
            yield id(value), ""
            yield id(names), name
        for cell in frame.cells.values():
            yield id(getattr(cell.content, "origin", None)), ""


def _wants_gradient(value: Value) -> bool:
    return any(ghost.requires_grad for ghost in _ghosts(value))


def _ghosts(value: Value) -> list[Any]:
    if isinstance(value, Tensor):
        return [value.ghost]
    if isinstance(value, Sequence):
        return [ghost for item in value.items for ghost in _ghosts(item)]
    return []
