"""Models of `torch.equal` and `torch.allclose`, which read tensor data for their answer.

In: the call. Out: a truth value: that of the elementwise comparison, which is answered before the
graph or read by it (`data_model.value_questions`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..breaks import Break
from ..data_model import value_questions
from ..torch_models.calls import record, to_argument
from ..values.registry import Args, Kwargs, models
from ..values.value import Const, Tensor, Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine


@models(torch.equal, torch.Tensor.equal)
def _equal(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    given = _tensors(m, "equal", [*args, *kwargs.values()])
    one, other = (value.ghost._node.meta for value in given)
    if kwargs or one.device != other.device:
        raise Break("GB104", "equal()")
    if len(one.shape) != len(other.shape):
        return Const(False)
    same = [m.facts.known("==", *sizes) for sizes in zip(one.shape, other.shape, strict=True)]
    if False in same:
        return Const(False)
    if None in same:
        raise Break("GB104", "equal()")
    return _truth(m, _all_equal, given, {})


@models(torch.allclose, torch.Tensor.allclose)
def _allclose(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    given = _tensors(m, "allclose", args[:2])
    return _truth(m, _all_close, [*given, *args[2:]], kwargs)


def _tensors(m: Machine, name: str, given: list[Value]) -> list[Tensor]:
    tensors = [one for one in given if isinstance(one, Tensor)]
    if len(tensors) != len(given) or len(given) != 2 or m.modes or m.inner:
        raise Break("GB104", f"{name}()")
    return tensors


def _truth(m: Machine, fn: Any, args: Any, kwargs: Kwargs) -> Value:
    named = {name: to_argument(m, value) for name, value in kwargs.items()}
    made = record(m, fn, tuple(to_argument(m, value) for value in args), named)
    assert isinstance(made, Tensor)
    return value_questions.truth_value(m, made)


def _all_equal(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (one.detach() == other.detach()).all()


def _all_close(one: torch.Tensor, other: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return torch.isclose(one.detach(), other.detach(), *args, **kwargs).all()
