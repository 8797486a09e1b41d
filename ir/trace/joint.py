"""Forward and backward of a graph in one trace.

`differentiate(tracer, outputs)` runs torch's own autograd backwards over the ghosts of a trace and takes the ATen nodes
that it records: the formulas are torch's, and so is what it refuses (a value that was written to after autograd had
saved it, a view that may not be written...). The result is a `Joint`, which `ir.autograd.partition` divides into a forward and a
backward graph. Where a gradient can only come from torch's own calls it is a `Declined`, with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..dataclass import dataclass
from ..errors import CannotTrace
from ..graph.effects import reads, root
from ..graph.layout import gradient_strides
from ..graph.nodes import Meta, Node
from .ghost import Ghost, Store, beginning, make_ghost
from .output_views import Found, NoRoots, roots_of

if TYPE_CHECKING:
    from .tracer import Tracer


@dataclass(frozen=True, slots=True)
class Joint:
    """What a backward adds to a graph.

    nodes       the backward's nodes, which come after the graph's own
    pieces, found, views, given
                what the node of autograd gives, and how the outputs are made of it: see `ir.trace.output_views.Roots`
    results     the pieces that have a gradient, by position
    tangents    their gradients: inputs of the backward, numbered after the graph's inputs
    wanted      the inputs of the graph that ask for a gradient, by position
    gradients   theirs; None where an input has no part in the results
    parameters  the inputs that are parameters, by position
    name        what autograd calls the operator that gives the first of the results
    kept        memory of the graph (roots of inputs, constants and pieces) that autograd itself saves
    inner       the outputs that other pieces depend on, by position
    """

    nodes: tuple[Node, ...]
    pieces: tuple[Node, ...]
    found: tuple[Found | None, ...]
    views: tuple[tuple[Node, bool], ...]
    given: tuple[Node, ...]
    results: tuple[int, ...]
    tangents: tuple[Node, ...]
    wanted: tuple[int, ...]
    gradients: tuple[Node | None, ...]
    parameters: tuple[int, ...]
    name: str
    kept: frozenset[Node]
    inner: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Declined:
    """Why a graph has no backward of its own."""

    reason: str


def differentiate(tracer: Tracer, outputs: Sequence[Ghost]) -> Joint | Declined:
    """The backward of `outputs`, which belong to the trace. The trace is as before afterwards."""
    inputs = tracer.entered_inputs()
    views = [ghost for ghost in outputs if ghost._is_view() and ghost.requires_grad]
    try:
        roots = roots_of(tracer, outputs)
        # Within the trace: the `grad_fn` of a view whose base was written to since is made, or refused, when it is asked for.
        tracer.beside(_histories, views)
    except NoRoots as error:
        return Declined(str(error))
    except RuntimeError as error:
        return Declined(str(error).split(". ")[0])
    results = roots.results
    wanted = tuple(at for at, ghost in inputs if tracer.wants_gradient(at)) if results else ()
    reason = _why_not(tracer, results, wanted)
    if reason:
        return Declined(reason)
    ghosts: list[Any] = [roots.ghosts[at] for at in results]
    leaves = [beginning(ghost) for at, ghost in inputs if at in wanted]
    tangents = [
        Node("input", tracer.n_inputs + k, meta=_tangent(ghost._node.meta), name=f"g{k}")
        for k, ghost in enumerate(ghosts)
    ]  # fmt: skip
    try:
        found, nodes = tracer.beside(_backward, ghosts, leaves, tangents)
    except CannotTrace as error:
        return Declined(str(error))
    except RuntimeError as error:
        # What autograd refuses it refuses when the program goes backward.
        return Declined(str(error).splitlines()[0])
    memory = {root(node) for node in roots.pieces}
    kept = {
        origin
        for node in nodes
        for operand in reads(node)
        if (origin := root(operand)).op in ("input", "constant") or origin in memory
    }
    name = type(ghosts[0].grad_fn).__name__ if ghosts else ""
    parameters = tuple(at for at, ghost in inputs if getattr(ghost, "_is_param", False))
    return Joint(
        tuple(nodes), roots.pieces, roots.found, roots.views, roots.given, results, tuple(tangents),
        wanted, found, parameters, name, frozenset(kept),
        _inner(outputs, ghosts),
    )  # fmt: skip


def _why_not(tracer: Tracer, results: Sequence[int], wanted: Sequence[int]) -> str:
    if tracer.differentiable_constants():
        return "a tensor that requires a gradient is no argument of the graph"
    if results and not wanted:  # a leaf of the program's own making
        return "nothing that comes in requires a gradient"
    return ""


def _inner(outputs: Sequence[Ghost], pieces: Sequence[Any]) -> tuple[int, ...]:
    """The outputs that the history of one of these pieces passes through."""
    if len(outputs) < 2:
        return ()
    ends = {
        (ghost.grad_fn, ghost.output_nr): at  # type: ignore[attr-defined]
        for at, ghost in enumerate(outputs)
        if ghost.requires_grad and ghost.grad_fn is not None
    }
    passed: set[Any] = set()
    seen: set[Any] = {ghost.grad_fn for ghost in pieces}
    pending = list(seen)
    while pending:
        edges = pending.pop().next_functions
        passed.update(edges)
        fresh = {before for before, _ in edges if before is not None} - seen
        seen |= fresh
        pending += fresh
    return tuple(at for end, at in ends.items() if end in passed)


def leaves_of(outputs: Sequence[torch.Tensor], until: Sequence[torch.Tensor] = ()) -> list[Any]:
    """The leaves that a backward of these reaches, as their nodes name them. It goes no further than to `until`."""
    pending = [ghost.grad_fn or ghost for ghost in outputs if ghost.requires_grad]
    seen: set[Any] = {ghost.grad_fn for ghost in until}
    pending = [node for node in pending if node not in seen]
    seen.update(pending)
    found: dict[int, Any] = {}
    while pending:
        node = pending.pop()
        leaf = node if isinstance(node, torch.Tensor) else getattr(node, "variable", None)
        if leaf is not None:
            found.setdefault(id(leaf), leaf)
            continue
        for before, _ in node.next_functions:
            if before is not None and before not in seen:
                seen.add(before)
                pending.append(before)
    return list(found.values())


def spent(tracer: Tracer, outputs: Sequence[Ghost]) -> tuple[tuple[int, str], ...] | None:
    """(position, name of the node) of the outputs with a history, where a backward in the trace has used up all of
    it; None where one of them can go backward yet."""
    found = []
    for at, ghost in enumerate(outputs):
        if not ghost.requires_grad or ghost._node.op == "input":
            continue
        try:
            if ghost.grad_fn is None:
                return None
            tracer.beside(_again, ghost, leaves_of([ghost]))
        except RuntimeError as error:
            if "a second time" not in str(error):
                return None
        except CannotTrace:
            return None
        else:
            return None
        found.append((at, type(ghost.grad_fn).__name__))
    return tuple(found)


def _again(_owner: Any, ghost: Ghost, leaves: Sequence[Any]) -> None:
    torch.autograd.grad(
        ghost, leaves, torch.empty_like(ghost), retain_graph=True, allow_unused=True
    )


def _histories(owner: Any, views: Sequence[Ghost]) -> None:
    for view in views:
        _ = view.grad_fn


def _tangent(meta: Meta) -> Meta:
    """A gradient is taken to lie as its tensor does, where that has no holes."""
    stride = gradient_strides(meta.shape, meta.stride)
    return Meta(meta.shape, stride, meta.dtype, meta.device)


def _backward(
    owner: Any, outputs: Sequence[Ghost], leaves: Sequence[Ghost], tangents: Sequence[Node]
) -> tuple[Node | None, ...]:
    """The nodes of the gradients of `leaves`."""
    given = [make_ghost(owner, node, node.meta, Store(fresh=False)) for node in tangents]
    if not outputs:
        return ()
    # What torch.autograd.grad does once it has checked the shapes of `given`, for which it imports sympy: a second.
    found: Any = torch.autograd.graph._engine_run_backward(
        tuple(outputs), tuple(given), True, False, tuple(leaves), True, accumulate_grad=False
    )
    return tuple(None if ghost is None else ghost._node for ghost in found)
