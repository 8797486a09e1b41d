"""`torch.func.vjp` and `torch.func.linearize` in a graph: a result, and a function that applies a
derivative.

In: the frame of such a call, or of the function that it returned. Out: recorded calls. The user's
function is walked once, into a trace of its own, as for other transforms (`functorch`). The result
is one recorded call. The returned function is one of the frame, with torch's code; each call of it
is a recorded call that runs torch's own `vjp` or `jvp` over that trace. What this computes again is
equal to what the graph has, and is merged with it. If the returned function outlives the graph, or
what it reads has changed before it is called, Python makes the call of `vjp`.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.func
from torch._functorch import eager_transforms
from torch.utils import _pytree as pytree

from ...ir.dataclass import dataclass
from ...ir.graph.effects import root, writes
from ...ir.graph.nodes import Node
from ...ir.trace.autocast_cache import casts_now
from ...ir.trace.ghost import Ghost
from ...ir.trace.tracer import Tracer
from ..breaks import Break, MustBePython
from ..values import containers
from ..values.containers import NotConstant, as_constant
from ..values.registry import NONE
from ..values.value import Cell, Const, Function, Held, Sequence, Value
from . import calls, functorch
from .functorch import Body, Transform
from .nested_traces import lift

if TYPE_CHECKING:
    from ..interpreter.machine import Machine
    from ..values.frames import Frame

_CODE = "GB124"


# -- what is recorded ------------------------------------------------------------------------------
def _vjp_result(function: Any, primals: Any, has_aux: bool) -> Any:
    found = torch.func.vjp(function, *primals, has_aux=has_aux)
    return (found[0], *found[2:])


def _vjp_map(
    function: Any, primals: Any, has_aux: bool, cotangents: Any, create_graph: bool | None
) -> Any:
    apply = torch.func.vjp(function, *primals, has_aux=has_aux)[1]
    return apply(cotangents, create_graph=create_graph)


def _linear_result(function: Any, primals: Any) -> Any:
    return (function(*primals),)


def _linear_map(function: Any, primals: Any, *tangents: Any) -> Any:
    return torch.func.jvp(function, tuple(primals), tangents)[1]


class _Recorded:
    """A call of one of these functions for a walked function, as the trace records it."""

    def __init__(self, target: Callable[..., Any], body: Body, options: tuple[Any, ...]) -> None:
        self.target = target
        self.body = body
        self.options = options
        self.__name__ = target.__name__.strip("_")

    def __call__(self, primals: Any, lifted: Any, *given: Any) -> Any:
        def function(*found: Any) -> Any:
            return self.body(found, {}, lifted)

        return self.target(function, primals, *self.options, *given)


# -- what the returned function holds --------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Point:
    """Where a function is differentiated.

    body, options   the walked function, and the constants of the call
    primals, lifted its arguments, as the tracer takes them, and the other ghosts that it reads
    tracer, start   their trace, and its number of nodes at the call
    nodes           the nodes of these ghosts at the call
    modes           the modes of torch at the call
    """

    body: Body
    options: tuple[Any, ...]
    primals: tuple[Any, ...]
    lifted: tuple[Ghost, ...]
    tracer: Tracer
    start: int
    nodes: tuple[Node, ...]
    modes: Any

    def ghosts(self) -> list[Ghost]:
        return [one for one in pytree.tree_leaves((self.primals, self.lifted)) if _is_ghost(one)]

    def changed(self) -> str:
        """Why the function would compute something else now; "" if it would not."""
        if self.body.graph.random:
            return "which draws random numbers"
        ghosts, (_, nodes) = self.ghosts(), self.tracer.values()
        written = {root(target) for node in nodes[self.start :] for target in writes(node)}
        pairs = zip(ghosts, self.nodes, strict=True)
        if any(one._node is not node or root(node) in written for one, node in pairs):
            return "whose arguments the frame has written to since"
        return "" if self.modes == _modes(ghosts) else "under another mode than its derivative"


def _is_ghost(value: Any) -> bool:
    return type(value) is Ghost


def _modes(ghosts: list[Ghost]) -> Any:
    """What a computation over these depends on, besides them: autocast, and the grad mode where one
    requires a gradient."""
    return casts_now(), any(one.requires_grad for one in ghosts) and torch.is_grad_enabled()


# -- the calls -------------------------------------------------------------------------------------
def in_place_of(m: Machine, frame: Frame) -> Value | None:
    """The result of a frame of torch that is modelled here; None for other frames."""
    model = _MODELS.get(id(frame.code))
    return None if model is None else model(m, frame)


def _vjp(m: Machine, frame: Frame) -> Value:
    has_aux = _constant(m, frame.locals["has_aux"])
    transform = Transform(torch.func.vjp, ("has_aux",), direct=True)
    primals, sent = _primals(m, frame)
    seen = functorch.handed_over(m, transform, {"has_aux": has_aux}, list(sent), {})
    body, lifted = functorch.walked(
        m, transform, _variable(m, frame, "func"), (primals, {}), (sent, {}), seen
    )
    point = _point(m, body, (has_aux,), sent, lifted)
    result = _record(m, _Recorded(_vjp_result, body, (has_aux,)), point)
    made = _function(m, frame, _VJP_MAP, (Const(True), NONE), point)
    return Sequence([result[0], made, *result[1:]], tuple)


def _linearize(m: Machine, frame: Frame) -> Value:
    transform = Transform(torch.func.jvp, (), direct=True)
    primals, sent = _primals(m, frame)
    before = len(m.journal.effects)
    seen = functorch.handed_over(m, transform, {}, [sent, sent], {})
    body, lifted = functorch.walked(
        m, transform, _variable(m, frame, "func"), (primals, {}), (sent, {}), seen
    )
    # torch calls the function twice
    if len(m.journal.effects) != before or body.graph.random:
        raise Break(_CODE, "linearize of a function with effects or random numbers")
    point = _point(m, body, (), sent, lifted)
    # torch makes constants of what the function computes without the tangents: they have no history
    if m.inner or (torch.is_grad_enabled() and any(one.requires_grad for one in point.ghosts())):
        raise Break(_CODE, "linearize where a gradient may be needed")
    (result,) = _record(m, _Recorded(_linear_result, body, ()), point)
    return Sequence([result, _function(m, frame, _LINEAR_MAP, (), point)], tuple)


def _apply_vjp(m: Machine, frame: Frame) -> Value:
    point = _point_of(m, frame)
    if _constant(m, frame.locals["retain_graph"]) is not True:
        raise Break(_CODE, "the function of vjp with retain_graph=False")
    create = _constant(m, frame.locals["create_graph"])
    cotangents = calls.to_argument(m, _variable(m, frame, "cotangents"))
    call = _Recorded(_vjp_map, point.body, point.options)
    return calls.record(m, call, (*_lifted(m, point), cotangents, create), {})


def _apply_linear(m: Machine, frame: Frame) -> Value:
    point = _point_of(m, frame)
    given = _variable(m, frame, "tangents")
    assert isinstance(given, Sequence)
    tangents = [calls.to_argument(m, one) for one in containers.sequence_items(m, given)]
    pairs = [pytree.tree_flatten(one) for one in (tuple(tangents), point.primals)]
    if pairs[0][1] != pairs[1][1] or any(
        (one.shape, one.dtype, one.device) != (other.shape, other.dtype, other.device)
        for one, other in zip(pairs[0][0], pairs[1][0], strict=True)
    ):
        raise Break("GB108", "the function of linearize with tangents of another kind")
    call = _Recorded(_linear_map, point.body, ())
    return calls.record(m, call, (*_lifted(m, point), *tangents), {})


# -- their parts -----------------------------------------------------------------------------------
def _primals(m: Machine, frame: Frame) -> tuple[list[Value], tuple[Any, ...]]:
    """The primals, as values and as the tracer takes them."""
    given = _variable(m, frame, "primals")
    assert isinstance(given, Sequence)
    primals = list(containers.sequence_items(m, given))
    return primals, tuple([calls.to_argument(m, one) for one in primals])


def _point(
    m: Machine, body: Body, options: tuple[Any, ...], sent: tuple[Any, ...], lifted: list[Ghost]
) -> _Point:
    ghosts = list(filter(_is_ghost, pytree.tree_leaves((sent, tuple(lifted)))))
    return _Point(
        body,
        options,
        sent,
        tuple(lifted),
        m.tracer,
        m.tracer.n_nodes,
        tuple([one._node for one in ghosts]),
        _modes(ghosts),
    )


def _record(m: Machine, call: _Recorded, point: _Point) -> list[Value]:
    made = calls.record(m, call, (point.primals, point.lifted), {})
    assert isinstance(made, Sequence)
    return containers.sequence_items(m, made)


def _function(
    m: Machine, frame: Frame, code: types.CodeType, defaults: tuple[Value, ...], point: _Point
) -> Function:
    """The function that torch returns; its cells hold the point."""
    name = f"the function that {frame.code.co_name} has returned outlives the graph"
    stop = MustBePython(m.root_index, _CODE, name)
    stop.inlined = (m.where,) if len(m.frames) > 1 and m.where is not None else ()
    cells = tuple([Cell(Held(point, stop)) for _ in code.co_freevars])
    return Function(code, frame.scope, code.co_name, code.co_qualname, defaults, closure=cells)


def _point_of(m: Machine, frame: Frame) -> _Point:
    cell = frame.cells[frame.code.co_freevars[0]]
    held = cell.content
    if not isinstance(held, Held):  # torch's own function
        raise Break(_CODE, f"call of {frame.code.co_qualname}, which was made outside of the graph")
    point: _Point = held.held
    why = point.changed()
    if why:
        raise Break(_CODE, f"the derivative of a function {why}")
    return point


def _lifted(m: Machine, point: _Point) -> tuple[Any, Any]:
    """The primals and the other ghosts, in the innermost trace."""
    return pytree.tree_map_only(  # type: ignore[no-any-return]
        Ghost, lambda one: lift(m, one), (point.primals, point.lifted)
    )


def _variable(m: Machine, frame: Frame, name: str) -> Value:
    found = m.variable(frame, name)
    assert found is not None
    return found


def _constant(m: Machine, value: Value) -> Any:
    try:
        return as_constant(m, value)
    except NotConstant:
        raise Break(_CODE, "vjp with options that are not constants") from None


def _code_in(function: Any, name: str) -> types.CodeType:
    """The code of a function that another one makes."""
    consts = getattr(function, "__wrapped__", function).__code__.co_consts
    return next(one for one in consts if isinstance(one, types.CodeType) and one.co_name == name)


_VJP_MAP = _code_in(eager_transforms._vjp_with_argnums, "wrapper")
_LINEAR_MAP = _code_in(torch.func.linearize, "jvp_fn")
_MODELS: dict[int, Callable[[Machine, Frame], Value]] = {
    id(torch.func.vjp.__code__): _vjp,
    id(torch.func.linearize.__code__): _linearize,
    id(_VJP_MAP): _apply_vjp,
    id(_LINEAR_MAP): _apply_linear,
}
