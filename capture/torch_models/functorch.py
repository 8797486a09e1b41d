"""torch.func's transforms inside a graph: vmap, grad, grad_and_value, jacrev, jacfwd, hessian, jvp.

In: the call of a function made by such a transform (`torch.vmap(f)(x)`), which `calls` is about to
inline. Out: one recorded call. The transformed function is walked once into a trace of its own,
over ghosts as torch itself passes them (an example without its batch dimension, a differentiable
alias); tensors of the enclosing frame that it reads become inputs of that trace. The recorded call
runs torch's own transform over the inner trace, so batching rules, derivatives and errors are
torch's.
"""

from __future__ import annotations

import inspect
import types
import warnings
from collections.abc import Callable
from collections.abc import Sequence as Items
from typing import TYPE_CHECKING, Any

import torch
import torch.func
from torch.autograd import forward_ad
from torch.utils import _pytree as pytree

from ...ir.dataclass import dataclass
from ...ir.graph.interpreter import replay
from ...ir.graph.nodes import Graph, Meta
from ...ir.trace.ghost import Ghost
from ...ir.trace.tracer import TraceError, Tracer
from ..breaks import Break
from ..values import containers
from ..values.containers import NotConstant, as_constant
from ..values.value import Const, Dict, Sequence, Tensor, Value
from . import calls
from .nested_traces import Inner

if TYPE_CHECKING:
    from ..interpreter.machine import Machine
    from ..values.frames import Frame

_CODE = "GB124"


@dataclass(frozen=True, slots=True)
class Transform:
    """A transform of torch.func.

    `options` are the parameters of `api` besides the function. `direct`: api itself takes the
    function's arguments; otherwise api makes a function that does.
    """

    api: Callable[..., Any]
    options: tuple[str, ...]
    direct: bool = False

    @property
    def pushes(self) -> bool:
        """Whether it computes derivatives in forward mode."""
        return self.api in (torch.func.jvp, torch.func.jacfwd)

    def apply(self, function: Any, options: dict[str, Any], args: Any, kwargs: Any) -> Any:
        if self.direct:
            return self.api(function, *args, **kwargs, **options)
        return self.api(function, **options)(*args, **kwargs)


def _maker(api: Any) -> tuple[int, Transform]:
    """The row of an api that makes a function, by the id of that function's code."""
    code = next(
        const
        for const in api.__code__.co_consts
        if isinstance(const, types.CodeType) and const.co_name.startswith("wrap")
    )
    names = [name for name in inspect.signature(api).parameters if name in code.co_freevars]
    return id(code), Transform(api, tuple(names[1:]))


_MAKERS = (
    torch.func.vmap,
    torch.func.grad,
    torch.func.grad_and_value,
    torch.func.jacrev,
    torch.func.jacfwd,
)
TRANSFORMS: dict[int, Transform] = {
    **dict(_maker(api) for api in _MAKERS),
    id(torch.func.jvp.__code__): Transform(torch.func.jvp, ("strict", "has_aux"), direct=True),
}

# Python functions of torch._functorch that are walked; its others are not.
_HELPERS = ("_check_randomness_arg", "_wraps_without_dynamo_attrs")
WALKED = {
    id(function.__code__)
    for function in [
        *_MAKERS,
        torch.func.jvp,
        torch.func.vjp,
        torch.func.linearize,
        torch.func.hessian,
        torch.func.functional_call,
        *[getattr(torch._functorch.apis, name, None) for name in _HELPERS],
        *[getattr(torch._functorch.eager_transforms, name, None) for name in _HELPERS],
    ]
    if isinstance(function, types.FunctionType)
}


# -- the call --------------------------------------------------------------------------------------
def run(m: Machine, frame: Frame, transform: Transform) -> Value:
    """Record the transform's call instead of walking `frame`, which has its code."""
    func, options, args, kwargs = _parts(m, frame, transform)
    sent = [calls.to_argument(m, value) for value in args]
    named = {name: calls.to_argument(m, value) for name, value in kwargs.items()}
    seen = handed_over(m, transform, options, sent, named)
    before = len(m.journal.effects)
    # jvp(func, primals, tangents) calls func(*primals).
    if transform.direct:
        assert isinstance(args[0], Sequence)
        taken, given = containers.sequence_items(m, args[0]), sent[0]
    else:
        taken, given = args, sent
    body, lifted = walked(m, transform, func, (taken, kwargs), (given, named), seen)
    if len(m.journal.effects) != before and options.get("chunk_size") is not None:
        raise Break(_CODE, "a function with effects under a transform in chunks")
    call = Transformed(transform, options, body)
    return calls.record(m, call, (tuple(sent), named, tuple(lifted)), {})


def _parts(
    m: Machine, frame: Frame, transform: Transform
) -> tuple[Value, dict[str, Any], list[Value], dict[str, Value]]:
    """The function, the transform's options, and the arguments, from the frame's variables."""
    if transform.direct:
        held = dict(frame.locals)
        func = held.pop("func")
        places = [held.pop(name) for name in ("primals", "tangents")]
        named: dict[str, Value] = {}
    else:
        held = {name: m.load_cell(frame.cells[name]) for name in ("func", *transform.options)}
        func = held.pop("func")
        given = m.variable(frame, "args")
        assert isinstance(given, Sequence)
        places = containers.sequence_items(m, given)
        rest = m.variable(frame, "kwargs")
        pairs = containers.dict_items(m, rest) if isinstance(rest, Dict) else []
        named = {as_constant(m, key): item for key, item in pairs}
    try:
        options = {name: as_constant(m, value) for name, value in held.items()}
    except NotConstant:
        raise Break(
            _CODE, f"{transform.api.__name__} with options that are not constants"
        ) from None
    return func, options, places, named


# -- the arguments that torch passes to the function
# -------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Leaf:
    """A tensor that the transform made from an argument."""

    meta: Meta
    requires_grad: bool


@dataclass(frozen=True, slots=True)
class _Seen:
    """The arguments of the transform's call of its function."""

    args: Any
    kwargs: Any
    grad: bool


class _Reached(Exception):
    """Leaves the transform at its function's call. Keep none: its traceback holds all frames."""

    def __init__(self, seen: _Seen) -> None:
        super().__init__("reached")
        self.seen = seen


def _leaf(value: Any) -> Any:
    if type(value) is Ghost or not isinstance(value, torch.Tensor):
        return value
    meta = Meta(tuple(value.shape), tuple(value.stride()), value.dtype, value.device, 0)
    return _Leaf(meta, value.requires_grad)


def handed_over(
    m: Machine, transform: Transform, options: dict[str, Any], args: list[Any], kwargs: Any
) -> _Seen:
    """Run the transform until it calls its function."""
    if transform.pushes:
        with warnings.catch_warnings():
            # Once per process, torch compiles rules, with a warning that is not the program's.
            warnings.simplefilter("ignore")
            forward_ad._maybe_load_decompositions()

    def probe(*found: Any, **named: Any) -> Any:
        args_seen = pytree.tree_map_only(torch.Tensor, _leaf, found)
        kwargs_seen = pytree.tree_map_only(torch.Tensor, _leaf, named)
        raise _Reached(_Seen(args_seen, kwargs_seen, torch.is_grad_enabled()))

    def attempt(found: Any, named: Any) -> Any:
        return transform.apply(probe, options, found, named)

    try:
        m.tracer.attempt(attempt, (tuple(args), kwargs))
    except TraceError as error:
        if isinstance(error.__cause__, _Reached):
            return error.__cause__.seen
        raise Break("GB108", f"{transform.api.__name__}: {error}") from error
    raise Break(_CODE, f"{transform.api.__name__} that does not call its function")


# -- walking the function --------------------------------------------------------------------------
def walked(
    m: Machine, transform: Transform, func: Value, taken: Any, sent: Any, seen: _Seen
) -> tuple[Body, list[Ghost]]:
    """The function as a trace of its own, and the enclosing ghosts that it reads."""
    inner = Inner(
        Tracer(transform.api.__name__),
        batches=transform.api is torch.func.vmap,
        pushes=transform.pushes,
    )
    outer, grad = m.tracer, torch.is_grad_enabled()
    m.activity += 1
    m.inner.append(inner)
    m.tracer = inner.tracer
    torch._C._set_grad_enabled(seen.grad)
    try:
        places = [
            _argument(m, inner, value, was, now)
            for value, was, now in zip(taken[0], sent[0], seen.args, strict=True)
        ]
        named = {
            name: _argument(m, inner, value, sent[1][name], seen.kwargs[name])
            for name, value in taken[1].items()
        }
        result = m.call(func, places, named)
        outputs: list[Ghost] = []
        shape = _result(m, result, outputs)
        if inner.tracer.mutates:
            raise Break(_CODE, f"a write to a tensor inside {transform.api.__name__}")
        graph = inner.tracer.finish(outputs)
    finally:
        torch._C._set_grad_enabled(grad)
        m.inner.pop()
        m.tracer = outer
    leaves = pytree.tree_leaves((seen.args, seen.kwargs))
    formal = tuple(isinstance(leaf, _Leaf) for leaf in leaves)
    return Body(graph, formal, shape), [around for _, around, _ in inner.lifted.values()]


def _argument(m: Machine, inner: Inner, value: Value, sent: Any, seen: Any) -> Value:
    """An argument for the function: the same Value if torch passes it on."""
    if isinstance(seen, _Leaf):
        ghost = inner.tracer.given(seen.meta, seen.requires_grad)
        return calls.from_result(m, ghost)
    if seen is sent:
        return value
    if isinstance(value, Sequence) and isinstance(seen, (list, tuple)):
        items = containers.sequence_items(m, value)
        parts = zip(items, sent, seen, strict=True)
        return Sequence([_argument(m, inner, *part) for part in parts], type(seen))
    if isinstance(value, Dict) and type(seen) is dict:
        made = Dict({})
        for key, item in containers.dict_items(m, value):
            name = as_constant(m, key)
            part = _argument(m, inner, item, sent[name], seen[name])
            containers.dict_set(m, made, key, part)
        return made
    if isinstance(value, Const):
        return value
    raise Break(_CODE, "an argument of a transform that is not modelled")


@dataclass(frozen=True, slots=True)
class _Slot:
    """The position of an output of the inner trace in the function's result."""

    index: int


def _result(m: Machine, value: Value, outputs: list[Ghost]) -> Any:
    """The function's result with a slot for each tensor, whose ghosts go to `outputs`."""
    if isinstance(value, Tensor):
        outputs.append(calls.to_argument(m, value))
        return _Slot(len(outputs) - 1)
    if isinstance(value, Sequence):
        items = [_result(m, item, outputs) for item in containers.sequence_items(m, value)]
        return (
            value.cls(items)
            if value.cls in (list, tuple)
            # named tuple
            else value.cls._make(items)  # type: ignore[attr-defined]
        )
    if isinstance(value, Dict) and value.cls is dict:
        return {
            as_constant(m, key): _result(m, item, outputs)
            for key, item in containers.dict_items(m, value)
        }
    if isinstance(value, Const):
        return value.value
    raise Break(_CODE, "a result of a transformed function that is not modelled")


# -- run time
# ----------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Body:
    """The walked function: its graph, which argument leaves are inputs, its result's form."""

    graph: Graph
    formal: tuple[bool, ...]
    shape: Any

    def __call__(self, args: Any, kwargs: Any, lifted: Items[torch.Tensor]) -> Any:
        leaves = zip(pytree.tree_leaves((args, kwargs)), self.formal, strict=True)
        values = replay(self.graph, [*[leaf for leaf, formal in leaves if formal], *lifted])
        return pytree.tree_map_only(_Slot, lambda slot: values[slot.index], self.shape)


class Transformed:
    """transform(body)(*args, **kwargs), as the trace records it."""

    def __init__(self, transform: Transform, options: dict[str, Any], body: Body) -> None:
        self.transform = transform
        self.options = options
        self.body = body
        self.__name__ = transform.api.__name__

    def __call__(self, args: Any, kwargs: Any, lifted: Items[torch.Tensor]) -> Any:
        def function(*found: Any, **named: Any) -> Any:
            return self.body(found, named, lifted)

        return self.transform.apply(function, self.options, args, kwargs)
