"""Models of `torch.distributed._functional_collectives`: functions, and their results.

torch's own functions are walked as they are written. In eager mode each result is an
`AsyncCollectiveTensor`, which waits for its message where an operator first reads it; views of it
are such tensors too. In a walk that is an `Awaited`: the tensor behind it is a value of the graph,
and the wait is a step before the first operator that reads it. One that leaves the frame becomes a
real one, with its message under way if nothing has waited. One that comes into the frame is an
input, for which a call before the program waits.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed import _functional_collectives as functions
from torch.distributed.device_mesh import DeviceMesh

from ...ir.graph.nodes import Node
from ...ir.graph.schema import plan_of
from ...ir.ops import collectives
from ...runtime.guards.sources import Source
from ..breaks import Break
from ..data_model import attribute_stores, attributes
from ..data_model.polyfills import walk_as_written
from ..torch_models import calls
from ..values import containers, wrap
from ..values.registry import BUILTINS, Args, Kwargs, models, waiting_call
from ..values.value import Awaited, Const, Method, Obj, Sequence, Tensor, Value, awaited_among
from . import functional_collectives

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

_CODE = "GB113"
_Async = functions.AsyncCollectiveTensor
_REFUSED = frozenset({"grad", "data", "grad_fn", "is_leaf", "backward", "requires_grad_"})
# Functions that may return a view of their argument, or the argument itself, and write nothing.
_MAY_BE_VIEWS = frozenset(
    {
        *("view", "view_as", "view_as_real", "view_as_complex", "reshape", "reshape_as", "flatten"),
        *("unflatten", "ravel", "t", "T", "mT", "H", "mH", "adjoint", "transpose", "swapaxes"),
        *("swapdims", "permute", "movedim", "moveaxis", "squeeze", "unsqueeze", "expand"),
        *("expand_as", "broadcast_to", "narrow", "select", "split", "split_with_sizes", "chunk"),
        *("tensor_split", "hsplit", "vsplit", "dsplit", "unbind", "_unbind", "unfold", "diagonal"),
        *("as_strided", "getitem", "__getitem__", "detach", "alias", "real", "imag", "contiguous"),
        *("to", "type", "type_as", "float", "double", "half", "bfloat16", "int", "long", "cpu"),
        *("positive", "atleast_1d", "atleast_2d", "atleast_3d", "conj", "resolve_conj"),
    }
)
_OWN = {name: one for name, one in vars(_Async).items() if type(one) is types.FunctionType}


# -- tensors made in the frame ---------------------------------------------------------------------
@models(functions._are_we_tracing)
def _tracing(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return Const(False)


@models(functions._maybe_wrap_tensor)
def _wrapped(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    (elem,) = args
    if kwargs or type(elem) is not Tensor:
        raise Break(_CODE, "an AsyncCollectiveTensor of this value")
    if any(not one.custom for one in m.inner) or m.modes:
        raise Break(_CODE, "an AsyncCollectiveTensor in a transform or under a mode")
    if elem.ghost.requires_grad and not torch.is_grad_enabled():
        raise Break(_CODE, "an AsyncCollectiveTensor of a tensor with a history, without grad mode")
    return _over(m, elem)


if hasattr(functions, "_FromTorchTensor"):
    models(functions._FromTorchTensor)(_wrapped)


def _over(m: Machine, elem: Tensor) -> Awaited:
    return _noted(m, Awaited(elem.ghost, _Async, elem=elem))


def _noted(m: Machine, made: Awaited) -> Awaited:
    made.make = collectives.wrapped
    made.settled = functools.partial(_settled, m, made)
    m.heap.awaited.append(made)
    return made


# -- tensors from outside --------------------------------------------------------------------------
def _entered(m: Machine, value: Any, source: Source) -> Value:
    if value.requires_grad or type(value.elem) is not torch.Tensor:
        m.guard("type", source, _Async)
        return Obj(value, source=source)
    m.guard("tensor", source, wrap.tensor_spec(value))
    elem = m.wrap(value.elem, Source("slot", source, "elem"))
    if type(elem) is not Tensor:
        return Obj(value, source=source)
    return _noted(m, Awaited(elem.ghost, _Async, value, elem=elem, source=source))


wrap.MAKERS[_Async] = _entered


# -- uses ------------------------------------------------------------------------------------------
def _settled(m: Machine, value: Awaited) -> Tensor:
    """The tensor behind, for which something has waited."""
    if not value.completed:
        if value.source is not None:
            functional_collectives.wait_before(m, _Async.trigger_wait, value)
        functional_collectives.wait_for(m, value.elem)
        value.completed = True
    return value.elem


@models(waiting_call)
def _call(m: Machine, given: Args, kwargs: Kwargs) -> Value:
    """A torch call with such tensors among its arguments."""
    (called, *args) = given
    assert isinstance(called, Obj)
    fn = called.value
    mentioned = awaited_among([*args, *kwargs.values()])
    plain = [_plain(m, one) for one in args]
    named = {name: _plain(m, one) for name, one in kwargs.items()}
    if not _only_views(m, fn, plain, named):
        for one in mentioned:
            one.settled()
        return _same(mentioned, calls.call_torch(m, fn, plain, named))
    return _views(m, mentioned, calls.call_torch(m, fn, plain, named))


def _plain(m: Machine, value: Value) -> Value:
    """The value with the tensors behind in the place of the `Awaited`."""
    if type(value) is Awaited:
        return value.elem
    if isinstance(value, Sequence) and awaited_among(value.items):
        items = containers.sequence_items(m, value)
        return Sequence([_plain(m, one) for one in items], value.cls)
    return value


def _only_views(m: Machine, fn: Any, args: list[Value], kwargs: dict[str, Value]) -> bool:
    """Whether a call gives only views of its arguments, or these themselves."""
    if getattr(fn, "__name__", "") not in _MAY_BE_VIEWS:
        return False
    given = tuple([calls.to_argument(m, one) for one in args])
    named = {name: calls.to_argument(m, one) for name, one in kwargs.items()}
    stores = {id(one._store) for one in _ghosts([*given, *named.values()])}
    found = False
    start = m.tracer.n_nodes

    def attempt(*these: Any, **by_name: Any) -> Any:
        nonlocal found
        results = list(_ghosts([fn(*these, **by_name)]))
        nodes = m.tracer.values()[1][start:]
        found = bool(results) and all(id(one._store) in stores for one in results)
        found = found and all(_is_view(node) for node in nodes)
        return results

    try:
        m.tracer.attempt(attempt, given, named)
    except Exception:
        return False
    return found


def _is_view(node: Node) -> bool:
    return node.op == "call" and plan_of(node.target).kind == "view"


def _ghosts(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _ghosts(value)


def _same(mentioned: list[Awaited], result: Value) -> Value:
    """The result of a call, with the `Awaited` that it returns itself."""
    return next((one for one in mentioned if one.elem is result), result)


def _views(m: Machine, mentioned: list[Awaited], result: Value) -> Value:
    if isinstance(result, Sequence):
        return Sequence([_views(m, mentioned, one) for one in result.items], result.cls)
    found = _same(mentioned, result)
    if type(found) is not Tensor:
        return found
    stores = [one.ghost._store for one in mentioned]
    return _over(m, found) if any(found.ghost._store is one for one in stores) else found


# -- attributes ------------------------------------------------------------------------------------
def _attr(m: Machine, value: Awaited, name: str) -> Value:
    if name in _OWN:
        place = Source("mro_attr", Source("const", None, _Async), name)
        return Method(m.wrap(_OWN[name], place), value)
    if name == "elem":
        return value.elem
    if name == "completed":
        if value.source is not None and not value.completed:
            return m.wrap(value.origin.completed, Source("slot", value.source, name))
        return Const(value.completed)
    if name in _REFUSED:
        raise Break(_CODE, f"attribute {name!r} of an AsyncCollectiveTensor")
    return calls.tensor_attr(m, value, name)


def _store(m: Machine, value: Awaited, name: str, item: Value | None) -> None:
    raise Break(_CODE, f"attribute {name!r} of an AsyncCollectiveTensor is set")


attributes.READERS[Awaited] = _attr
attribute_stores.STORES[Awaited, None] = _store


def _of(args: Args, kwargs: Kwargs) -> Awaited:
    if kwargs or len(args) != 1 or type(args[0]) is not Awaited:
        raise Break(_CODE, "a method of AsyncCollectiveTensor with other arguments")
    return args[0]


@models(_Async.trigger_wait)
def _trigger_wait(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    value = _of(args, kwargs)
    if value.completed:
        return value.elem
    value.settled()
    return functional_collectives.waited(m, value.elem)


@models(_Async.wait)
def _wait(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return functional_collectives.waited(m, _of(args, kwargs).elem)


@models(_Async._get_acs_underlying_tensor)
def _underlying(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return _of(args, kwargs).elem


def _by_way_of(wait: Callable[..., Value], name: str) -> Any:
    def model(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        plain = wait(m, args, kwargs)
        return m.call(attributes.load_attr(m, plain, name), [], {})

    return model


models(_Async.tolist)(_by_way_of(_trigger_wait, "tolist"))
models(_Async.numpy)(_by_way_of(_wait, "numpy"))


# -- functions -------------------------------------------------------------------------------------
def _is_walked(name: str, one: Any) -> bool:
    ours = type(one) is types.FunctionType and one.__module__ == functions.__name__
    return ours and not hasattr(one, "__wrapped__") and one not in BUILTINS


def _resolving(name: str) -> None:
    """The model of a function that takes all forms of groups."""
    real = getattr(functions, name)

    def model(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        group, *more = args
        found = _of_mesh(m, group)
        if found is None or kwargs or len(more) > 1:
            return m.inline(Obj(real), args, kwargs)
        return found

    models(real)(model)


def _of_mesh(m: Machine, group: Value) -> Value | None:
    """The name of a group of a mesh; None for other groups."""
    dim: Value | None = None
    if isinstance(group, Sequence) and group.cls is tuple and len(group.items) == 2:
        group, dim = containers.sequence_items(m, group)
    if not isinstance(group, Obj) or type(group.value) is not DeviceMesh:
        return None
    names = attributes.load_attr(m, group, "_dim_group_names")
    if not isinstance(names, Sequence) or (dim is None and len(names.items) != 1):
        return None
    return m.get_item(names, Const(0) if dim is None else dim)


@models(getattr(functions, "_group_or_group_name", _of_mesh))
def _group_name(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return Const(functional_collectives.place_by_name(m, "a collective", args[0]))


for _name in ("_resolve_group", "_resolve_group_name"):
    if hasattr(functions, _name):
        _resolving(_name)
walk_as_written(*(one for name, one in vars(functions).items() if _is_walked(name, one)))
