"""The tables of modelled callables: from the callable to its model over Values.

In: a function of Python, its library or torch. Out: its model. Modules of `data_model`, `models`
and `torch_models` fill the tables; `calls` looks a callee up here first.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .value import Const, Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

Args = list[Value]
Kwargs = dict[str, Value]
Model = Callable[["Machine", Args, Kwargs], Value]
BUILTINS: dict[Any, Model] = {}
# Special method of a modelled type -> an equivalent callable.
DUNDERS: dict[str, Any] = {}
NONE = Const(None)


# Types of the table's keys. They hash by identity or in C, for any metaclass or class of callables.
_HASHED = (
    types.FunctionType,
    types.BuiltinFunctionType,
    type,
    np.ufunc,
    type(np.sum),
    type(np.dtype),
)


def model_of(real: Any) -> Model | None:
    """The model of a callable, looked up without running code of its class."""
    return BUILTINS.get(real) if type(real) in _HASHED else None


def models(*functions: Any) -> Callable[[Model], Model]:
    """Register the model of these callables."""

    def register(model: Model) -> Model:
        for function in functions:
            BUILTINS[function] = model
        return model

    return register
