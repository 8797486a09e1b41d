"""`DistributedDataParallel.forward` in a frame: the module that it wraps is part of the graph.

In: a call of a DistributedDataParallel module. Out: the result of its module, and an effect after
the graph: what torch does around a forward, which prepares the reducer for the backward
(`runtime.autograd.reducers.prepare`). That touches no tensor of the graph, so it need not come
before it. A break is what does: buffers that are broadcast, inputs that are moved or cast, results
that are wrapped to find unused parameters; and a handler of the frame for what the reducer raises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parallel import DistributedDataParallel

from ...runtime.autograd import reducers
from ..breaks import Break
from ..data_model.polyfills import stands_for
from ..values.effects import Called
from ..values.handled import is_handled
from ..values.registry import NONE, Args, Kwargs, models
from ..values.value import Const, Obj, Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

_CODE = "GB103"  # its messages to other processes have their place


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
    if self.broadcast_buffers and self.modules_buffers:
        left_to_python("with buffers that are broadcast")
    if self.find_unused_parameters or (
        self.static_graph and not self._static_graph_delay_allreduce_enqueued
    ):
        left_to_python("that looks for unused parameters")
    output = self.module(*inputs, **kwargs)
    prepare(self)
    return output


def left_to_python(what: str) -> Any:
    """Replaces torch's forward where we have no model."""
    raise NotImplementedError(what)


def prepare(module: Any) -> None:
    """Replaces what torch does around the forward of the module inside."""
    raise NotImplementedError


@models(left_to_python)
def _left_to_python(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    raise Break(_CODE, f"a DistributedDataParallel {args[0].value}")  # type: ignore[attr-defined]


@models(prepare)
def _prepare(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    (module,) = args
    if not isinstance(module, Obj) or type(module.value) is not DistributedDataParallel:
        raise Break(_CODE, "a DistributedDataParallel of another class")
    if m.inner or m.modes or is_handled(m):
        raise Break(_CODE, "a DistributedDataParallel inside of a handler, a transform or a mode")
    m.journal.effects.append(Called(reducers.prepare, (module, Const(torch.is_grad_enabled()))))
    return NONE
