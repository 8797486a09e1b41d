"""`DistributedDataParallel.forward` in a frame: the module that it wraps is part of the graph.

In: a call of a DistributedDataParallel module. Out: the result of its module, and what torch does
around a forward as effects (`runtime.autograd.reducers`). What prepares the reducer for the
backward touches no tensor of the graph, so it is one effect after the graph. Where torch broadcasts
the module's buffers first, that is an effect before the graph, which must not have used a buffer
yet. A break is what else it does: inputs that are moved or cast, results that are wrapped to find
unused parameters; and a handler of the frame for what the reducer raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parallel import DistributedDataParallel

from ...ir.graph.effects import sends_any
from ...runtime.autograd import reducers
from ..breaks import Break
from ..data_model.polyfills import stands_for
from ..values.effects import Called, Effect, SetAttr, can_be_made
from ..values.handled import is_handled
from ..values.registry import NONE, Args, Kwargs, models
from ..values.value import Const, Obj, Tensor, Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

_CODE = "GB103"  # its messages to other processes have their place
_BUFFERS = "a DistributedDataParallel that broadcasts its buffers"


@stands_for(DistributedDataParallel.forward)
def _forward(self: Any, *inputs: Any, **kwargs: Any) -> Any:
    if (
        self._use_python_reducer
        or self._delay_all_reduce_all_params
        or self._delay_grad_buffer is not None
        or self._join_config.enable
    ):
        left_to_python("in this state")
    if self.device_ids or self.mixed_precision is not None:
        left_to_python("that moves or casts its inputs")
    if self.find_unused_parameters or (
        self.static_graph and not self._static_graph_delay_allreduce_enqueued
    ):
        left_to_python("that looks for unused parameters")
    if not (self.broadcast_buffers and self.modules_buffers):
        output = self.module(*inputs, **kwargs)
        prepare(self)
        return output
    if hasattr(self, "buffer_hook"):
        left_to_python("with a hook for its buffers")
    begin(self)
    output = self.module(*inputs, **kwargs)
    finish(self)
    return output


def left_to_python(what: str) -> Any:
    """Replaces torch's forward where we have no model."""
    raise NotImplementedError(what)


def prepare(module: Any) -> None:
    """Replaces what torch does around the forward of the module inside."""
    raise NotImplementedError


def begin(module: Any) -> None:
    """Replaces what torch does before the forward of the module inside."""
    raise NotImplementedError


def finish(module: Any) -> None:
    """Replaces what torch does after the forward of the module inside."""
    raise NotImplementedError


@models(left_to_python)
def _left_to_python(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    raise Break(_CODE, f"a DistributedDataParallel {args[0].value}")  # type: ignore[attr-defined]


@models(prepare)
def _prepare(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return _called(m, reducers.prepare, args[0])


@models(begin)
def _begin(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    (module,) = args
    if not can_be_made(m):
        raise Break(_CODE, f"{_BUFFERS} inside of a transform, a mode, a loop or a checkpoint")
    if not all(map(_may_follow, m.journal.effects)):
        raise Break(_CODE, f"{_BUFFERS} after another effect of the frame")
    if m.numbers.read or m.tracer.may_raise_since(0) or sends_any(m.tracer.values()[1]):
        raise Break(_CODE, f"{_BUFFERS} after a step that must come before it")
    if _uses_one(m, module.value.modules_buffers):  # type: ignore[attr-defined]
        raise Break(_CODE, f"{_BUFFERS} after a step that uses one")
    return _called(m, reducers.begin, module, early=True)


@models(finish)
def _finish(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return _called(m, reducers.finish, args[0])


def _may_follow(effect: Effect) -> bool:
    """Whether what torch does before a forward may come before an earlier effect of the frame."""
    if isinstance(effect, SetAttr):
        return isinstance(effect.obj, Tensor) and effect.name == "grad"
    return isinstance(effect, Called) and (effect.early or effect.calm)


def _uses_one(m: Machine, buffers: Sequence[torch.Tensor]) -> bool:
    """Whether the memory of one of these tensors is an input of the graph."""
    inputs = [m.tracer.origin(at)[1] for at, _ in m.tracer.entered_inputs()]
    memory = {one.untyped_storage()._cdata for one in inputs if one is not None}
    return any(one.untyped_storage()._cdata in memory for one in buffers)


def _called(m: Machine, step: Any, module: Value, early: bool = False) -> Value:
    """Note that `step(module, grad mode)` is called."""
    if not isinstance(module, Obj) or type(module.value) is not DistributedDataParallel:
        raise Break(_CODE, "a DistributedDataParallel of another class")
    if m.inner or m.modes or is_handled(m):
        raise Break(_CODE, "a DistributedDataParallel inside of a handler, a transform or a mode")
    items = module, Const(torch.is_grad_enabled())
    m.journal.effects.append(Called(step, items, early=early))
    return NONE
