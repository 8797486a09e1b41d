"""Operators of lists of tensors (`torch._foreach_*`), used for clipping and by optimizers.

In: a call of one, without gradients. Out: on CPU and CUDA, the same as torch's own list kernels:
tensor by tensor, by the operator of that name. So they fuse like other operators, and are equal to
the bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _foreach_utils

from ...ir.passes.defer_writes import put_back
from ..breaks import Break
from ..data_model.polyfills import stands_for
from ..values import containers
from ..values.registry import BUILTINS, Args, Kwargs
from ..values.symbolic_numbers import SymbolicNumber
from ..values.value import Const, Obj, Sequence, Tensor, Value
from .tensor_scalars import NARROW

if TYPE_CHECKING:
    from ..interpreter.machine import Machine


_WITH_LIST_KERNELS = ("cpu", "cuda", "xpu", "mtia")


@stands_for(_foreach_utils._device_has_foreach_support)
def has_list_kernels(device: Any) -> Any:
    """torch's function, without its query of a user-named backend for known devices."""
    if device.type in _WITH_LIST_KERNELS:
        return True
    return device.type in _foreach_utils._get_foreach_kernels_supported_devices()


_SUPPORTED = tuple(_foreach_utils._get_foreach_kernels_supported_devices())


@stands_for(_foreach_utils._get_foreach_kernels_supported_devices)
def devices_of_list_kernels() -> Any:
    """torch's function. It reads the name of a user-named backend, which no graph has."""
    return list(_SUPPORTED)


# -- one operator, tensor by tensor ----------------------------------------------------------------
def _each(method: Any, self: Any) -> Any:
    return tuple([method(one) for one in self])


def _one_each(value: Any, tensors: Any) -> Any:
    """An operand for each tensor: from the list, or the same for all."""
    return value if isinstance(value, (list, tuple)) else [value] * len(tensors)


def _each_by(method: Any, self: Any, other: Any, alpha: Any = None) -> Any:
    pairs = zip(self, _one_each(other, self), strict=True)
    if alpha is None:
        return tuple([method(one, by) for one, by in pairs])
    return tuple([method(one, by, alpha=alpha) for one, by in pairs])


def _times(method: Any, self: Any, other: Any) -> Any:
    pairs = zip(self, _one_each(other, self), strict=True)
    return [method(one, _in_kind(one, by)) for one, by in pairs]


def _in_kind(one: Any, by: Any) -> Any:
    """The factor. In place on a CPU, a number is rounded to a narrow dtype before it multiplies."""
    if isinstance(by, torch.Tensor) or one.dtype not in NARROW or one.device.type != "cpu":
        return by
    return torch.scalar_tensor(by, dtype=one.dtype)


def _power(method: Any, self: Any, exponent: Any) -> Any:
    if isinstance(self, (list, tuple)):
        return _each_by(method, self, exponent)
    return tuple([self**one for one in exponent])


def _between(method: Any, self: Any, tensors1: Any, weight: Any) -> Any:
    parts = zip(self, tensors1, _one_each(weight, self), strict=True)
    return tuple([method(one, other, by) for one, other, by in parts])


def _plus(method: Any, self: Any, tensor1: Any, tensor2: Any, value: Any = 1) -> Any:
    parts = zip(self, tensor1, tensor2, _one_each(value, self), strict=True)
    return tuple([method(one, first, second, value=by) for one, first, second, by in parts])


def _norms(method: Any, self: Any, ord: Any = 2) -> Any:
    return tuple([method(one, ord) for one in self])


_T = torch.Tensor
_UNARY = ("abs", "exp", "log", "neg", "reciprocal", "rsqrt", "sigmoid", "sign", "sqrt", "tanh")
_BINARY = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "div": "div",
    "clamp_min": "clamp_min",
    "clamp_max": "clamp_max",
    "maximum": "clamp_min",
    "minimum": "clamp_max",
}
# Name of the list operator without prefix -> (loop over tensors, method).
_WAYS: dict[str, tuple[Any, Any]] = {
    "norm": (_norms, torch.linalg.vector_norm),
    "copy_": (_each_by, _T.copy_),
    "zero_": (_each, _T.zero_),
    "pow": (_power, _T.pow),
    "pow_": (_each_by, _T.pow_),
}
for _end in ("", "_"):
    _WAYS |= {one + _end: (_each, getattr(_T, one + _end)) for one in _UNARY}
    _WAYS |= {one + _end: (_each_by, getattr(_T, by + _end)) for one, by in _BINARY.items()}
    _WAYS |= {one + _end: (_plus, getattr(_T, one + _end)) for one in ("addcmul", "addcdiv")}
    _WAYS["lerp" + _end] = (_between, getattr(_T, "lerp" + _end))
_WAYS["mul_"] = (_times, _T.mul_)


def _model(name: str, way: Any, method: Any) -> Any:
    def call(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        if not all(_is_known(m, one) for one in [*args, *kwargs.values()]) or not _fit(m, args):
            raise Break("GB121", f"_foreach_{name}() of these arguments")
        if torch.is_grad_enabled() and any(_followed(m, one) for one in [*args, *kwargs.values()]):
            # It has a formula of its own for the gradient, and saves other things.
            raise Break("GB121", f"_foreach_{name}() of tensors that require a gradient")
        found = m.call(Obj(way), [Obj(method), *args], kwargs)
        return args[0] if name.endswith("_") else found

    return call


def _is_known(m: Machine, value: Value) -> bool:
    """Whether this is a tensor on CPU or CUDA, a number, or a list of either."""
    if isinstance(value, Sequence):
        items = containers.sequence_items(m, value)
        return bool(items) and all(
            not isinstance(one, Sequence) and _is_known(m, one) for one in items
        )
    if isinstance(value, Tensor):
        return value.ghost.device.type in ("cpu", "cuda")
    if not isinstance(value, Const):
        return False
    number = value.real if isinstance(value, SymbolicNumber) else value.value
    return type(number) in (int, float)


def _followed(m: Machine, value: Value) -> bool:
    """Whether this is, or has, a tensor that requires a gradient."""
    if isinstance(value, Sequence):
        return any(_followed(m, item) for item in containers.sequence_items(m, value))
    return isinstance(value, Tensor) and value.ghost.requires_grad


def _fit(m: Machine, args: Args) -> bool:
    """Whether lists have one length, and other tensors are single numbers."""
    lists = [one for one in args if isinstance(one, Sequence)]
    if len({len(containers.sequence_items(m, one)) for one in lists}) != 1:
        return False
    return all(one.ghost.dim() == 0 for one in args if isinstance(one, Tensor))


for _name, (_way, _method) in _WAYS.items():
    _real = getattr(torch, f"_foreach_{_name}", None)
    if _real is not None:
        BUILTINS[_real] = _model(_name, _way, _method)


# -- gradient scalers ------------------------------------------------------------------------------
@stands_for(torch._amp_foreach_non_finite_check_and_unscale_)
def check_and_unscale(self: Any, found_inf: Any, inv_scale: Any) -> None:
    """Unscale gradients, and set `found_inf` to 1 if one is not finite; versions stay."""
    for one in self:
        found = one.abs().lt(float("inf")).all().logical_not()  # nan is not less either
        put_back(found_inf, torch.where(found, torch.ones_like(found_inf), found_inf))
        scaled = (one.to(_wide(one)) * inv_scale.to(_wide(one))).to(one.dtype)
        put_back(one, torch.where(inv_scale == 1, one, scaled))


def _wide(one: Any) -> Any:
    return torch.float32 if one.dtype in NARROW else one.dtype


@stands_for(torch._amp_update_scale_)
def update_scale(
    self: Any, growth_tracker: Any, found_inf: Any, scale_growth_factor: Any,
    scale_backoff_factor: Any, growth_interval: Any,
) -> Any:  # fmt: skip
    """Shrink a scale after a step with an infinity; grow it after `growth_interval` without."""
    found, exact = found_inf != 0, self.to(torch.float64)
    steps = growth_tracker + 1
    due = (steps == growth_interval).logical_and(found.logical_not())
    larger = (exact * scale_growth_factor).to(self.dtype)
    grown = torch.where(due.logical_and(torch.isfinite(larger)), larger, self)
    count = torch.where(found.logical_or(due), torch.zeros_like(steps), steps)
    self.copy_(torch.where(found, (exact * scale_backoff_factor).to(self.dtype), grown))
    put_back(growth_tracker, count)
    return self
