"""CUDA's current device: the meaning of "cuda" without a number, read at capture and guarded.

In: recorded torch calls, and `torch.cuda.current_device()`. Out: a "device" row. The trace itself
has the device with its number (`ir.trace.recorder`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ...runtime.guards.interpreter_state import current_device
from ..values.registry import Args, Kwargs, models
from ..values.value import Const, Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine


def hold(m: Machine, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Guard the current device for a call that depends on it."""
    nowhere = fn is torch.Tensor.cuda and (args[1:2] or (kwargs.get("device"),)) == (None,)
    if nowhere or any(_is_open(value) for value in (*args, *kwargs.values(), *_defaults())):
        m.guard("device", None, current_device())


def _defaults() -> list[Any]:
    """The devices that active modes add to calls."""
    modes = map(torch._C._get_function_stack_at, range(torch._C._len_torch_function_stack()))
    return [getattr(mode, "device", None) for mode in modes]


def _is_open(value: Any) -> bool:
    kind = type(value)
    if kind is torch.device:
        return value.type == "cuda" and value.index is None
    return kind is str and (value == "cuda" or value.startswith("torch.cuda."))


@models(torch.cuda.current_device)
def _current_device(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    found = torch.cuda.current_device()  # this may initialise CUDA
    m.guard("device", None, found)
    return Const(found)
