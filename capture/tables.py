"""The tables of modelled callables: from the callable to what it means over Values.

In: a function of Python, its library or torch. Out: its model. `operators`, `builtins` and `questions` fill
them; `calls` looks a callee up here before anything else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .values import Const, Value

if TYPE_CHECKING:
    from .machine import Machine

Args = list[Value]
Kwargs = dict[str, Value]
Model = Callable[["Machine", Args, Kwargs], Value]
BUILTINS: dict[Any, Model] = {}
DUNDERS: dict[
    str, Any
] = {}  # special method of a modelled type -> the callable that means the same
NONE = Const(None)


def models(*functions: Any) -> Callable[[Model], Model]:
    """Register the model of these callables."""

    def register(model: Model) -> Model:
        for function in functions:
            BUILTINS[function] = model
        return model

    return register
