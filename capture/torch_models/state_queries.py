"""Queries of torch's state, answered at capture from the guarded interpreter state.

In: `torch.is_grad_enabled()` and the like. Out: constants; `_set_grad_enabled` switches the tracer.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch

from ...runtime.guards.interpreter_state import FLAGS
from ...runtime.guards.sources import Source
from ...runtime.process.wrappers import TORCH_FOLDER
from ..breaks import Break
from ..data_model.attributes import MISSING, mro_lookup
from ..data_model.polyfills import walk_as_written
from ..exact_type import is_kind
from ..values import containers
from ..values.containers import as_constant
from ..values.registry import BUILTINS, NONE, Args, Kwargs, Model, models
from ..values.value import Const, Obj, Sequence, Tensor, Value
from .nested_traces import require_history

if TYPE_CHECKING:
    from ..interpreter.machine import Machine


@models(torch.is_grad_enabled)
def _is_grad_enabled(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if args or kwargs:
        raise Break("GB108", "arguments of is_grad_enabled()")
    require_history(m)
    if m.inner:
        m.inner[-1].asked.add("is_grad_enabled")
    return Const(torch.is_grad_enabled())


@models(torch.is_tensor)
def _is_tensor(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if isinstance(args[0], Obj) and is_kind(args[0].value, torch.Tensor):
        return Const(True)
    return Const(isinstance(args[0], Tensor))


def _answers(fn: Any) -> Model:
    """The model of a query whose answer is part of the guarded interpreter state."""

    def answered(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        given = [as_constant(m, one) for one in args]
        named = {name: as_constant(m, one) for name, one in kwargs.items()}
        return containers.fold(lambda: fn(*given, **named))

    return answered


_STATE_QUESTIONS = (
    torch.is_inference_mode_enabled, torch.get_default_dtype, torch.is_autocast_enabled,
    torch._C._get_tracing_state, torch.jit.is_scripting, torch.jit.is_tracing,
    torch.get_autocast_dtype, torch.is_autocast_cache_enabled,
    torch.are_deterministic_algorithms_enabled, torch.cuda.is_available,
    torch.distributed.is_available, torch._C._get_cudnn_enabled,
    *(getter for _, getter in FLAGS),
)  # fmt: skip
for _question in _STATE_QUESTIONS:
    BUILTINS[_question] = _answers(_question)


def _is_compiling(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    """Plain Python's answer, by its own code.

    True in code that is not torch's own, if `JitConfig(claims_compiling=True)` is set.
    """
    asking = next(
        frame.code for frame in reversed(m.frames) if frame.code.co_name != "is_compiling"
    )
    if m.claims_compiling and not asking.co_filename.startswith(TORCH_FOLDER):
        m.claimed = True
        return Const(True)
    return m.inline(Obj(torch.compiler.is_compiling), args, kwargs)


BUILTINS[torch.compiler.is_compiling] = _is_compiling


def _asked_at_each_call(fn: Any) -> Model:
    return lambda m, args, kwargs: m.wrap(fn(), Source("context", None, fn))


walk_as_written(torch.compiler.is_dynamo_compiling, torch.compiler.is_exporting)

# Whether a graph is being captured on the current stream: queried again before each call. A build
# without the device has a class in place of the function; its construction raises.
for _device in ("cuda", "xpu"):
    walk_as_written(getattr(torch, _device).is_current_stream_capturing)
    _question = getattr(torch._C, f"_{_device}_isCurrentStreamCapturing")
    if is_kind(_question, types.BuiltinFunctionType):
        BUILTINS[_question] = _asked_at_each_call(_question)
if torch.distributed.is_available():
    _question = torch.distributed.is_initialized
    BUILTINS[_question] = _asked_at_each_call(_question)
    # `torch.distributed.group.WORLD` is a property of the metaclass.
    walk_as_written(
        vars(type(torch.distributed.group))["WORLD"].fget,
        vars(torch.distributed.distributed_c10d._World)["default_pg"].fget,
    )
BUILTINS[torch._C._log_api_usage_once] = lambda m, args, kwargs: (
    NONE
)  # counts the names that a process uses


def _no_modes(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return Const(0)  # capture and the state guard require that none is active


BUILTINS[torch._C._len_torch_dispatch_stack] = _no_modes
BUILTINS[torch._C._len_torch_function_stack] = lambda m, args, kwargs: Const(
    len(m.modes) + torch._C._len_torch_function_stack()  # the mode of a default device
)


def _no_torch_function(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if m.modes or torch._C._len_torch_function_stack():
        return Const(True)
    for value in args:
        items = value.items if isinstance(value, Sequence) else [value]
        if any(
            isinstance(i, Obj) and mro_lookup(type(i.value), "__torch_function__") is not MISSING
            for i in items
        ):
            raise Break("GB113", "an operand with __torch_function__")
    return Const(False)


for _name in ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"):
    BUILTINS[getattr(torch.overrides, _name)] = _no_torch_function


def _set_grad(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if not isinstance(args[0], Const):
        raise Break("GB118", "grad mode set from a value that is not a constant")
    m.activity += 1
    m.tracer.grad_mode(bool(args[0].value))
    return NONE


BUILTINS[torch._C._set_grad_enabled] = _set_grad
