"""Optimizers of torch.optim inside a frame: their Python code is walked, with some replacements.

In: the calls of `step` and `zero_grad`. Out: results of the functions in this file, for torch's
code that exists for other compilers; `optimizer_rules` has the rules that count steps. Learning
rates may vary from the first call on.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import optimizer as of_torch
from torch.optim import swa_utils

from ...runtime.guards.sources import Source
from ..breaks import Break
from ..data_model.polyfills import stands_for
from ..values.registry import Args, Kwargs, models
from ..values.symbolic_numbers import SymbolicNumber
from ..values.value import Dict, Obj, Sequence, Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine
    from ..values.frames import Frame


# -- around a step ---------------------------------------------------------------------------------
def _in_grad_mode(func: Any, args: Any, kwargs: Any) -> Any:
    """The body of the wrapper that `_use_grad_for_differentiable` makes around a step."""
    before = torch.is_grad_enabled()
    try:
        torch.set_grad_enabled(args[0].defaults["differentiable"])
        return func(*args, **kwargs)
    finally:
        torch.set_grad_enabled(before)


def _code_in(function: Any, name: str) -> types.CodeType | None:
    """The code of a nested function."""
    consts = function.__code__.co_consts
    return next((c for c in consts if isinstance(c, types.CodeType) and c.co_name == name), None)


_USE_GRAD = _code_in(of_torch._use_grad_for_differentiable, "_use_grad")


def in_place_of(m: Machine, frame: Frame) -> Value | None:
    """The result of the frame of a wrapper made by torch.optim; None for other frames."""
    if frame.code is not _USE_GRAD:
        return None
    func, args, kwargs = (m.variable(frame, name) for name in ("func", "args", "kwargs"))
    assert func is not None
    assert isinstance(args, Sequence)
    assert isinstance(kwargs, Dict)
    return m.call(Obj(_in_grad_mode), [func, args, kwargs], {})


def left_to_python(what: str) -> Any:
    """Replaces torch's function where we have no model."""
    raise NotImplementedError(what)


@models(left_to_python)
def _model_left_to_python(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    raise Break("GB115", f"an optimizer with {args[0].value}")  # type: ignore[attr-defined]


@stands_for(of_torch._default_to_fused_or_foreach)
def _way_of(params: Any, differentiable: Any, use_fused: Any = False) -> Any:
    """(fused, foreach) if the program chose none: one by one on a CPU, lists on CUDA."""
    if differentiable:
        return False, False
    lists = True
    for param in params:
        if param is not None:
            kind = param.device.type
            if use_fused or kind not in ("cpu", "cuda"):
                return left_to_python("fused or foreach kernels")
            lists = lists and kind == "cuda"
    return False, lists


@stands_for(of_torch._device_dtype_check_for_fused)
def _check_for_fused(p: Any, cuda_unsupported: Any = False) -> None:
    if p.device.type != "cpu" or not torch.is_floating_point(p):
        left_to_python("fused=True")


@stands_for(torch.optim.Optimizer._group_tensors_by_device_and_dtype)
def _groups(tensorlistlist: Any, with_indices: Any = False) -> Any:
    """{(device, dtype): (lists, indices)}, by the first of the lists."""
    found: dict[Any, Any] = {}
    for place, tensor in enumerate(tensorlistlist[0]):
        key = (tensor.device, tensor.dtype)
        if key not in found:
            found[key] = ([[] for _ in tensorlistlist], [])
        for part, given in zip(found[key][0], tensorlistlist, strict=True):
            if given:
                part.append(given[place])
        found[key][1].append(place)
    return found


def _nothing_to_check(self: Any) -> None:
    """Replaces a warning and an error about accelerator graphs that are being recorded."""


for _name in ("_accelerator_graph_capture_health_check", "_cuda_graph_capture_health_check"):
    _check = getattr(torch.optim.Optimizer, _name, None)
    if _check is not None:
        stands_for(_check)(_nothing_to_check)


# -- gradients -------------------------------------------------------------------------------------
@stands_for(torch.optim.Optimizer.zero_grad)
def zero_grad(self: Any, set_to_none: bool = True) -> None:
    for group in self.param_groups:
        _without_gradients(group["params"], set_to_none)


@stands_for(torch.nn.Module.zero_grad)
def zero_grad_of_module(self: Any, set_to_none: bool = True) -> None:
    _without_gradients(self.parameters(), set_to_none)


def _without_gradients(params: Any, set_to_none: Any) -> None:
    for param in params:
        if set_to_none:
            param.grad = None  # for any old gradient
        elif param.grad is not None:
            if param.grad.requires_grad:
                param.grad.requires_grad_(False)
            param.grad.zero_()


# -- averages --------------------------------------------------------------------------------------
def _made_before(make: Any) -> None:
    """Give `AveragedModel` an averaging function of torch's that exists already.

    torch makes and drops a new one for each update.
    """
    made = make()

    def model(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        if m.frames[-1].code.co_filename != swa_utils.__file__:
            raise Break("GB110", f"{make.__name__}(), whose result a decorator makes")
        return m.wrap(made, Source("const", None, made))

    models(make)(model)


for _make in (swa_utils.get_swa_avg_fn, swa_utils.get_swa_multi_avg_fn):
    _made_before(_make)


# -- numbers ---------------------------------------------------------------------------------------
def may_vary(number: Any) -> Any:
    """The number, which the program may change between calls."""
    return number


@models(may_vary)
def _model_may_vary(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    number = args[0]
    if isinstance(number, SymbolicNumber) and number.source is not None:
        m.varied.mark(number.source)
    return number


@stands_for(of_torch._to_scalar)
def to_scalar(x: Any) -> Any:
    """As torch's own. Every number of a step that a program may change passes here."""
    if isinstance(x, torch.Tensor):
        return x.squeeze() if x.dim() else x
    return may_vary(x)


def power(base: Any, count: Any) -> Any:
    """base ** count, where a schedule may have changed the base (`OneCycleLR`)."""
    return base**count


@stands_for(of_torch._get_value)
def as_number(x: Any) -> Any:
    """A number in a tensor, in double precision, as Python would compute with it."""
    return x.to(torch.float64) if isinstance(x, torch.Tensor) else x


@stands_for(of_torch._stack_if_compiling)
def _as_it_is(x: Any) -> Any:
    return x


def _plain_power(base: Any, count: Any) -> Any:
    return base**count


def _power_of_varied(base: Any, count: Any) -> Any:
    return (torch.zeros_like(count) + base) ** count


@models(power)
def _model_power(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    base = args[0]
    way = _plain_power
    if isinstance(base, SymbolicNumber) and base.source and m.varied.number(base.source, base.real):
        way = _power_of_varied
    return m.call(Obj(way), args, kwargs)
