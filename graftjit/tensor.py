"""`Tensor`, `Parameter` and `ParameterTuple`, the names that static-graph programs import.

In: numbers, lists, numpy arrays, tensors. Out: plain torch tensors; graftjit has no tensor class of
its own. `isinstance(x, graftjit.Tensor)` is true for every torch tensor, so that checks written for
another system work.
"""

from __future__ import annotations

from typing import Any

import torch

from .context import current_context


class _StandsFor(type):
    """Metaclass of classes whose instances are those of `stands_for`, a class of torch."""

    stands_for: type

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.stands_for)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.stands_for)


class Tensor(metaclass=_StandsFor):
    """`Tensor(data, dtype=None)`: a `torch.Tensor` with a copy of the data, on the context's
    device."""

    stands_for = torch.Tensor

    def __new__(cls, data: Any, dtype: torch.dtype | None = None) -> Any:
        device = current_context().device
        if isinstance(data, torch.Tensor):
            return data.detach().clone().to(device=device or data.device, dtype=dtype or data.dtype)
        return torch.tensor(data, dtype=dtype, device=device)


class Parameter(metaclass=_StandsFor):
    """`Parameter(data, name=None, requires_grad=True)`: a `torch.nn.Parameter`. As in torch, the
    name of a parameter is that of its attribute; `name` is accepted and ignored."""

    stands_for = torch.nn.Parameter

    def __new__(cls, data: Any, name: str | None = None, requires_grad: bool = True) -> Any:
        value = data if isinstance(data, torch.Tensor) else Tensor(data)
        differentiable = value.is_floating_point() or value.is_complex()
        return torch.nn.Parameter(value.detach(), requires_grad=requires_grad and differentiable)


class ParameterTuple(tuple[Any, ...]):
    """A tuple of parameters, as an argument for `ops.GradOperation(get_by_list=True)`."""

    __slots__ = ()
