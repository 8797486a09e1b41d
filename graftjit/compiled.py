"""`compile(model)`: a compiled module that shares the model's state.

In: a torch module. Out: an instance of a subclass of the model's class that shares the model's
`__dict__`: an attribute, parameter, hook or submodule set on either exists on both. A call runs the
model's own `__call__`, including hooks, through `jit`, with the model itself as `self`, so that
`type(self)` and identity comparisons give the results of plain Python. Copies and pickles are
compiled copies of the model.
"""

from __future__ import annotations

import copy
import types
from typing import Any

import torch

from .ir.dataclass import dataclass
from .ir.location import Location
from .jit import beginning, is_disabled, lower, make_callable, options_of
from .runtime.errors import UserError
from .runtime.process.options import JitConfig

_STATE = "__graftjit_compiled__"


@dataclass(frozen=True, slots=True)
class _State:
    """The data of a class made by `compile`: the model, its options, and the jitted call."""

    model: torch.nn.Module
    options: dict[str, Any]
    call: Any


def compile(
    model: Any,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    config: JitConfig | None = None,
    **of_torch: Any,
) -> Any:
    """A compiled module that shares the state of `model`. The options are those of `jit`; with
    `disable=True` the model itself.

    It has `.report()`, `.reset()` and `.lower(*args)`, unless the model has methods of these names;
    then use `graftjit.report(compiled)`, `graftjit.reset(compiled)` and `graftjit.lower(compiled,
    *args)`. Raises UserError (a TypeError) if `model` is not a module.
    """
    state = compiled_state(model)
    if state is not None:
        model = state.model
    _check(model)
    chosen = options_of(fullgraph, dynamic, config, of_torch)
    if is_disabled(of_torch):
        return model
    options: dict[str, Any] = {"fullgraph": fullgraph, "dynamic": dynamic, "config": config}
    options |= of_torch
    call = make_callable(module_call(model), chosen, beginning_of(model), type(model))
    return _wrap(_State(model, options, call))


def compiled_state(module: Any) -> _State | None:
    """The data of a module made by `compile`; None for any other object."""
    return getattr(type(module), _STATE, None)


def module_call(model: torch.nn.Module) -> types.FunctionType:
    """A function `(self, *args, **kwargs)` that calls the model and ignores `self`.

    Each has its own code object, named after the model's class, so that compiled code, limits and
    reports of two models are separate.
    """

    def __call__(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return model(*args, **kwargs)

    name = type(model).__name__
    code = __call__.__code__.replace(co_name=name, co_qualname=f"{type(model).__qualname__}()")
    function = types.FunctionType(
        code, __call__.__globals__, name, __call__.__defaults__, __call__.__closure__
    )
    function.__doc__ = type(model).forward.__doc__
    function.__module__ = type(model).__module__
    return function


def beginning_of(model: torch.nn.Module) -> Location | None:
    """The first line of the method that does the model's work."""
    for name in ("construct", "forward"):
        method = getattr(model, name, None)
        if method is not None:
            return beginning(method)
    return None


def _check(model: Any) -> None:
    if isinstance(model, type):
        raise UserError(
            f"compile was given the class {model.__name__}",
            expected="a module: compile(Network())",
            found="a class",
            todo="make an instance first, or use @jit on the class",
        )
    if isinstance(model, torch.jit.ScriptModule):
        raise UserError(
            "compile was given a TorchScript module, which has no Python code left",
            expected="the module that the script was made from",
            found=type(model).__name__,
        )
    if not isinstance(model, torch.nn.Module):
        raise UserError(
            f"compile was given {type(model).__name__}, which is not a torch.nn.Module",
            expected="a module",
            found=type(model).__name__,
            todo="for a function or any other callable use graftjit.jit",
        )


def _wrap(state: _State) -> Any:
    model = state.model
    base = type(model)
    body: dict[str, Any] = {
        _STATE: state,
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        "__call__": state.call,
        "__reduce_ex__": _reduce,
        "__copy__": _shallow_copy,
        "__deepcopy__": _deep_copy,
        "_replicate_for_data_parallel": _replicate,
        **{name: _forwarded_slot(name) for name in _slots_of(base)},
    }
    for name, method in (("report", _report), ("reset", _reset), ("lower", _lower)):
        if not hasattr(model, name):
            body[name] = method
    wrapped: Any = object.__new__(_derive(base, body))
    # Bypasses the class's own handling of attribute stores.
    object.__setattr__(wrapped, "__dict__", model.__dict__)
    return wrapped


def _derive(base: type, body: dict[str, Any]) -> type:
    """A subclass of `base`, created without `__init_subclass__` and without a metaclass's
    constructor, so that a class which registers its subclasses does not register this one."""
    silent = not any("__init_subclass__" in vars(cls) for cls in base.__mro__[:-1])
    if type(base) is type and silent:
        return type(base.__name__, (base,), body)
    derived = type.__new__(type(base), base.__name__, (torch.nn.Module,), body)
    try:
        derived.__bases__ = (base,)
    # A base with slots has another layout; its __init_subclass__ does see the class.
    except TypeError:
        derived = types.new_class(base.__name__, (base,), {}, lambda space: space.update(body))
    return derived


def _slots_of(base: type) -> set[str]:
    """Names of `__slots__` in the class and its bases: state outside `__dict__`."""
    found: set[str] = set()
    for cls in base.__mro__:
        slots = vars(cls).get("__slots__", ())
        found.update((slots,) if isinstance(slots, str) else slots)
    return found - {"__dict__", "__weakref__"}


def _forwarded_slot(name: str) -> property:
    return property(
        lambda self: getattr(compiled_state(self).model, name),  # type: ignore[union-attr]
        lambda self, value: setattr(
            compiled_state(self).model,  # type: ignore[union-attr]
            name,
            value,
        ),
        lambda self: delattr(compiled_state(self).model, name),  # type: ignore[union-attr]
    )


def _state(wrapped: Any) -> _State:
    state = compiled_state(wrapped)
    assert state is not None
    return state


def _rebuild(model: torch.nn.Module, options: dict[str, Any]) -> Any:
    return compile(model, **options)


def _reduce(self: Any, protocol: Any) -> tuple[Any, ...]:
    return _rebuild, (_state(self).model, _state(self).options)


def _shallow_copy(self: Any) -> Any:
    return _rebuild(copy.copy(_state(self).model), _state(self).options)


def _deep_copy(self: Any, memo: dict[int, Any]) -> Any:
    return _rebuild(copy.deepcopy(_state(self).model, memo), _state(self).options)


def _replicate(self: Any) -> Any:
    """The replica of the plain model, since DataParallel replaces the parameters of its
    replicas."""
    return _state(self).model._replicate_for_data_parallel()


def _report(self: Any) -> Any:
    """What has been compiled so far and what has not; see `graftjit.report`."""
    return _state(self).call.report()


def _reset(self: Any) -> None:
    """Drop everything compiled."""
    _state(self).call.reset()


def _lower(self: Any, /, *args: Any, **kwargs: Any) -> Any:
    """The stages of compiling a call with these arguments, without running it: see
    `graftjit.lower`."""
    return lower(self, *args, **kwargs)
