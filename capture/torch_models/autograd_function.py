"""`torch.autograd.Function.apply` without a gradient: capture walks its forward like any function.

In: the class and the arguments of `apply`. Out: forward's result. Eager runs forward without grad
mode, passes it (or setup_context) a context object, and drops the context if no backward follows.
It is a break with a gradient, under a derivative of torch.func, or where autograd would do more
than call forward: then torch itself runs it.
"""

from __future__ import annotations

import inspect
import types
from typing import TYPE_CHECKING, Any

import torch

from ..breaks import Break
from ..data_model import attributes
from ..values import containers
from ..values.registry import Args, Kwargs, models
from ..values.value import Const, Instance, Obj, Sequence, Tensor, Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

_CODE = "GB134"
_NO_SETUP = torch.autograd.function._SingleLevelFunction.setup_context


class Context:
    """The `ctx` of a forward without a backward."""

    needs_input_grad: tuple[bool, ...]
    saved_tensors: tuple[Any, ...] = ()
    materialize_grads = True

    def save_for_backward(self, *tensors: Any) -> None:
        self.to_save = tensors  # `saved_tensors` is empty until forward returns

    def save_for_forward(self, *tensors: Any) -> None:
        pass

    def mark_non_differentiable(self, *tensors: Any) -> None:
        pass

    def set_materialize_grads(self, value: bool) -> None:
        self.materialize_grads = value


attributes.STAND_INS[Context] = (_CODE, "the context of a custom function is looked at or kept")


@models(torch.autograd.Function.apply.__func__)
def _apply(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    owner, given = args[0], args[1:]
    if not isinstance(owner, Obj):
        raise Break(_CODE, "apply of a class that is not known")
    cls = owner.value
    forward, setup = (_static(m, owner, name) for name in ("forward", "setup_context"))
    if setup.value is not _NO_SETUP:
        given = _defaults(forward.value, given, kwargs)
        kwargs = {}
    elif kwargs:
        raise Break(_CODE, f"{cls.__name__}.apply() with keyword arguments")
    _refuse(m, cls, given)
    context = _context(m, given)
    enabled = torch.is_grad_enabled()
    if enabled:
        m.tracer.grad_mode(False)
    try:
        if setup.value is _NO_SETUP:
            result = m.call(forward, [context, *given], {})
        else:
            result = m.call(forward, given, {})
            m.call(setup, [context, Sequence(list(given), tuple), result], {})
    finally:
        if enabled:
            m.tracer.grad_mode(True)
    _check(m, cls, given, result)
    return result


def _static(m: Machine, owner: Obj, name: str) -> Obj:
    found = attributes.load_attr(m, owner, name)
    if not isinstance(found, Obj) or type(found.value) is not types.FunctionType:
        raise Break(_CODE, f"{owner.value.__name__}.{name} is not a static method")
    return found


def _defaults(forward: Any, given: Args, kwargs: Kwargs) -> Args:
    """The arguments for setup_context: all positional, with defaults."""
    parameters = inspect.signature(forward).parameters.values()
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if kwargs or len(given) != len(parameters) or any(one.kind not in plain for one in parameters):
        raise Break(_CODE, "apply with defaults or keyword arguments")
    return given


def _refuse(m: Machine, cls: Any, given: Args) -> None:
    """Break where autograd or a transform does more than call forward."""
    tensors = [value for value in given if isinstance(value, Tensor)]
    if torch.is_grad_enabled() and any(value.ghost.requires_grad for value in tensors):
        raise Break(_CODE, f"{cls.__name__} with an input that requires a gradient")
    if m.inner and not (cls.generate_vmap_rule and all(one.batches for one in m.inner)):
        raise Break(_CODE, f"{cls.__name__} under a transform of torch.func")


def _context(m: Machine, given: Args) -> Instance:
    made = Instance(Obj(Context))
    needs = Sequence([Const(False) for _ in given], tuple)
    m.heap.overlay[made] = {"needs_input_grad": needs}
    return made


def _check(m: Machine, cls: Any, given: Args, result: Value) -> None:
    """Break where autograd would make a view of an input that forward returns."""
    tuples = isinstance(result, Sequence) and result.cls is tuple
    parts = containers.sequence_items(m, result) if tuples else [result]  # type: ignore[arg-type]
    for part in parts:
        if isinstance(part, Tensor) and (part in given or part.source is not None):
            raise Break(_CODE, f"{cls.__name__} returns a tensor that it was given")
