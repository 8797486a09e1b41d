"""What clipping of gradients (`torch.nn.utils.clip_grad`) asks of torch, and the list operators it calls.

In: calls that its Python code makes, which is walked like the program's. Out: on a processor the operators of lists
(`torch._foreach_*`) as torch's own kernels for it do them: tensor by tensor, each by the operator of that name. So they
are fused like any other, and equal to the bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _foreach_utils

from . import containers, torchcalls
from .numbers import Held
from .polyfills import stands_for
from .tables import BUILTINS, Args, Kwargs
from .values import Const, Obj, Sequence, Tensor, Value

if TYPE_CHECKING:
    from .machine import Machine

_WITH_LIST_KERNELS = ("cpu", "cuda", "xpu", "mtia")


@stands_for(_foreach_utils._device_has_foreach_support)
def has_list_kernels(device: Any) -> Any:
    """Without a question for the backend that a user may have named, where another answers."""
    if device.type in _WITH_LIST_KERNELS:
        return True
    return device.type in _foreach_utils._get_foreach_kernels_supported_devices()


# -- operators of lists ------------------------------------------------------------------------------------
def _norms(self: Any, ord: Any = 2) -> Any:
    return tuple([torch.linalg.vector_norm(one, ord) for one in self])


def _multiply(self: Any, by: Any) -> Any:
    return [one.mul_(by) for one in self]


def _not_below(self: Any, bound: Any) -> Any:
    return [one.clamp_(min=bound) for one in self]


def _not_above(self: Any, bound: Any) -> Any:
    return [one.clamp_(max=bound) for one in self]


_ONE_BY_ONE: dict[Any, Callable[..., Any]] = {
    torch._foreach_norm: _norms,
    torch._foreach_mul_: _multiply,
    torch._foreach_clamp_min_: _not_below,
    torch._foreach_clamp_max_: _not_above,
}


def _model(real: Any, single: Any) -> Any:
    def call(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        if not kwargs and _on_a_processor(m, args[0]) and all(map(_is_single, args[1:])):
            return m.call(Obj(single), args, {})
        return torchcalls.call_torch(m, real, args, kwargs)

    return call


def _on_a_processor(m: Machine, value: Value) -> bool:
    if not isinstance(value, Sequence):
        return False
    items = containers.sequence_items(m, value)
    return bool(items) and all(
        isinstance(one, Tensor) and one.ghost.device.type == "cpu" for one in items
    )


def _is_single(operand: Value) -> bool:
    """Whether an operand besides the tensors is one number for all of them."""
    if isinstance(operand, Tensor):
        return operand.ghost.dim() == 0 and operand.ghost.device.type == "cpu"
    if not isinstance(operand, Const):
        return False
    number = operand.real if isinstance(operand, Held) else operand.value
    return type(number) in (int, float)


for _real, _single in _ONE_BY_ONE.items():
    BUILTINS[_real] = _model(_real, _single)
