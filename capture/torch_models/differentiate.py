"""`runtime.autograd.differentiate` inside a graph: one trace records a function and its gradients.

In: a call of `differentiate`, from graftjit's public functions for gradients. Out: its steps,
walked; autograd runs over the ghosts where a step computes gradients, so that all is one graph.
Where autograd would do something outside the graph (hooks of a weight, an older history), it is a
break, and Python makes the call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...runtime.autograd import differentiate
from ...runtime.guards.tensor_access import history
from ..breaks import Break
from ..values import containers
from ..values.registry import Args, Kwargs, models
from ..values.value import Const, Obj, Sequence, Tensor, Value
from . import calls
from .backward import require_no_hooks, require_no_reentrant

if TYPE_CHECKING:
    from ..interpreter.machine import Machine


@models(differentiate.differentiate)
def _differentiate(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    within = Const(bool(m.differentiating) or _around(m))
    m.differentiating += 1
    try:
        return m.inline(Obj(differentiate.steps, source=None), args, {**kwargs, "within": within})
    finally:
        m.differentiating -= 1


def _around(m: Machine) -> bool:
    """Whether the frame's caller is being differentiated; guarded."""
    found = differentiate.nested()
    m.guard("nested", None, found)
    return found


@models(differentiate.separate)
def _separate(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return calls.record(m, differentiate.separate, (calls.to_argument(m, args[0]),), {})


@models(differentiate.gradients)
def _gradients(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    wanted = args[1]
    assert isinstance(wanted, Sequence)
    require_no_reentrant(m)
    _check_outside(m, containers.sequence_items(m, wanted))
    m.tracer.spends = m.root_tracer.spends = True
    sent = tuple(calls.to_argument(m, value) for value in args)
    # the function has run
    found = calls.record(m, differentiate.gradients, sent, {}, may_fail=False)
    m.tracer.backward_end = m.tracer.recorded
    return found


def _check_outside(m: Machine, wanted: list[Value]) -> None:
    """Break if a gradient of a tensor from outside depends on anything but the graph."""
    given = [value for value in wanted if isinstance(value, Tensor) and value.source is not None]
    if not given:
        return
    if m.inner:
        raise Break("GB124", "gradients of weights inside of a transform")
    if m.tracer.differentiable_constants():
        raise Break("GB114", "gradients of weights of which one is not an input of the graph")
    for value in given:
        require_no_hooks(m, value, "a gradient of a tensor with hooks")
    for value in m.inputs:
        if value.origin.requires_grad:
            if history(value.origin) != "leaf":
                raise Break("GB114", "gradients of weights beside a history from before the graph")
            m.guard("history", value.source, "leaf")
