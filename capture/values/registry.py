"""The tables of modelled callables: from the callable to its model over Values.

In: a function of Python, its library or torch. Out: its model. Modules of `data_model`, `models`
and `torch_models` fill the tables; `calls` looks a callee up here first. A row may name the module
that has the model (`models_in`): that module is imported when the callee is first looked up.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...runtime.process.wrappers import TORCH_FOLDER
from .value import Const, Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

Args = list[Value]
Kwargs = dict[str, Value]
Model = Callable[["Machine", Args, Kwargs], Value]
BUILTINS: dict[Any, Model] = {}
# Callable -> the name of the module that registers its model, until that module is imported.
_PLACES: dict[Any, str] = {}
# Module of torch that programs import -> the name of the module with models of its functions.
_OF_MODULES: dict[str, str] = {}
_CAPTURE = __name__.removesuffix("values.registry")
# Special method of a modelled type -> an equivalent callable.
DUNDERS: dict[str, Any] = {}
NONE = Const(None)


# Types of the table's keys. They hash by identity or in C, for any metaclass or class of callables.
_HASHED = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    type,
    np.ufunc,
    type(np.sum),
    type(np.dtype),
    type(torch.Tensor),
    type(torch.FloatTensor),
    type(torch.autograd.Variable),
    type(torch.nn.Parameter),
    type(torch.Generator),
)


def model_of(real: Any) -> Model | None:
    """The model of a callable, looked up without running code of its class."""
    if type(real) not in _HASHED:
        return None
    place = _PLACES.get(real)
    if place is not None:
        _load(place)
    elif type(real) is types.FunctionType:
        load_models_of(real.__module__)
    return BUILTINS.get(real)


def load_models_of(name: Any) -> None:
    """Load the models of what a module of torch defines, which the program has imported."""
    place = _OF_MODULES.get(name) if type(name) is str else None
    if place is not None and place not in sys.modules:
        _load(place)


def models_in(place: str, *functions: Any) -> None:
    """Note that the module `place` registers the models of these callables, or of some of them."""
    _PLACES.update(dict.fromkeys(functions, place))


def models_of_module(place: str, *names: str) -> None:
    """Note that the module `place` registers models of functions of these modules of torch, which
    are imported when the program imports them."""
    _OF_MODULES.update(dict.fromkeys(names, place))


def _load(place: str) -> None:
    """Import a module of models. What the program has put in the place of a noted callable since
    gets no model."""
    before = set(BUILTINS)
    import_module(place)
    for function in BUILTINS.keys() - before:
        if function not in _PLACES and not _is_ours(function) and not _is_torchs(function):
            del BUILTINS[function]
    for function in [one for one, name in _PLACES.items() if name == place]:
        del _PLACES[function]


def _is_torchs(function: Any) -> bool:
    """Whether this is a function or class of one of the modules of `models_of_module`, by its
    file."""
    if type(function) not in (types.FunctionType, type(torch.autograd.Function)):
        return False
    if function.__module__ not in _OF_MODULES:
        return False
    if type(function) is not types.FunctionType:
        return str(sys.modules[function.__module__].__file__).startswith(TORCH_FOLDER)
    return function.__code__.co_filename.startswith(TORCH_FOLDER)


def _is_ours(function: Any) -> bool:
    """Whether this is a function of capture, which replaces a real one during a walk."""
    if type(function) is not types.FunctionType:
        return False
    return str(function.__globals__.get("__name__", "")).startswith(_CAPTURE)


def drawn_tensor(*_: Any) -> None:
    """Stands in the table for all calls of torch with a generator of random numbers."""


def set_data(*_: Any) -> None:
    """Stands in the table for `tensor.data = other`."""


def library_operator(*_: Any) -> None:
    """Stands in the table for all operators that are not torch's own."""


def collective_operator(*_: Any) -> None:
    """Stands in the table for torch's operators that send messages to other processes."""


def waiting_call(*_: Any) -> None:
    """Stands in the table for all calls of torch with a tensor that waits for a message."""


def group_attribute(*_: Any) -> None:
    """Stands in the table for `group.name` of a process group."""


def models(*functions: Any) -> Callable[[Model], Model]:
    """Register the model of these callables."""

    def register(model: Model) -> Model:
        for function in functions:
            BUILTINS[function] = model
        return model

    return register
