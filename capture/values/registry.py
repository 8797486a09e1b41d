"""The tables of modelled callables: from the callable to what it means over Values.

In: a function of Python, its library or torch. Out: its model. `operators`, `builtins` and `questions` fill
them; `calls` looks a callee up here before anything else.
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
DUNDERS: dict[
    str, Any
] = {}  # special method of a modelled type -> the callable that means the same
NONE = Const(None)


# What the table has: these hash by identity or by C code, whatever a metaclass or a class of callables says.
_HASHED = (
    types.FunctionType, types.BuiltinFunctionType, type, np.ufunc, type(np.sum), type(np.dtype),
)  # fmt: skip


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
