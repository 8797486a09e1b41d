"""Models of torch's control flow: `torch.cond`, `while_loop`, `scan`.

In: calls of them. Out: the functions of `walked`, walked in their place. A condition on tensor data
is answered, or breaks, as `if` and `while` do; branches and bodies are code like any other. Where a
gradient is needed, torch makes its own function of autograd, whose gradients are zeros in place of
None: such a call is a break.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch
from torch._higher_order_ops import scan as torch_scan
from torch._higher_order_ops import while_loop as torch_while_loop

from ..breaks import Break
from ..data_model.polyfills import stands_for
from ..values.containers import sequence_items
from ..values.registry import NONE, Args, Kwargs, models
from ..values.value import Const, Function, Obj, Sequence, Tensor, Value
from . import walked
from .operator_state import named

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

_CODE = "GB124"
stands_for(torch.cond)(walked.cond)
stands_for(torch_while_loop)(walked.while_loop)
stands_for(torch_scan)(walked.scan)


@models(walked.check)
def _check(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    pred, operands, *functions = args
    if m.modes or m.inner:
        raise Break(_CODE, "torch's control flow under a mode or in a transform")
    if isinstance(pred, Const) and pred is not NONE:
        return NONE  # torch calls the branch too
    if pred is not NONE and not (isinstance(pred, Tensor) and pred.ghost.numel() == 1):
        raise Break(_CODE, "torch.cond of another condition than one element")
    values = sequence_items(m, operands) if isinstance(operands, Sequence) else [operands]
    if not all(isinstance(value, Tensor) for value in values):
        raise Break(_CODE, "torch's control flow over other values than tensors")
    if torch.is_grad_enabled() and any(map(_may_want_gradient, (*values, *functions))):
        raise Break(_CODE, "torch's control flow where a gradient may be needed")
    return NONE


@models(walked.check_dim)
def _check_dim(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    first = isinstance(args[0], Const) and args[0].value == 0
    if not first and torch.torch_version.TorchVersion(torch.__version__) < "2.13":
        raise Break(_CODE, "scan along another dimension than the first, in this version of torch")
    return NONE


def _may_want_gradient(value: Value | None) -> bool:
    """Whether this is a tensor with a gradient, or code that may use one."""
    if isinstance(value, Tensor):
        return value.ghost.requires_grad
    if isinstance(value, Function):
        held = named(value.code, value.globals.names, None)
        cells = [cell.content for cell in value.closure]
        return any(_holds_gradient(one) for _, one in held) or any(map(_may_want_gradient, cells))
    if isinstance(value, Obj):
        return _holds_gradient(value.value)
    return not isinstance(value, Const)


def _holds_gradient(real: Any) -> bool:
    if isinstance(real, types.FunctionType):
        held = [one for _, one in named(real.__code__, real.__globals__, real.__closure__)]
        return any(not isinstance(one, types.FunctionType) and _holds_gradient(one) for one in held)
    if isinstance(real, torch.Tensor):
        return real.requires_grad
    return not isinstance(real, (*_PLAIN, type(None)))


_PLAIN = (bool, int, float, str, type, types.ModuleType, types.BuiltinFunctionType)
