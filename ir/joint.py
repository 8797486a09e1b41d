"""Forward and backward of a graph in one trace.

`differentiate(tracer, outputs)` runs torch's own autograd backwards over the ghosts of a trace and takes the ATen nodes
that it records: the formulas are torch's, and so is what it refuses (a value that was written to after autograd had
saved it, a view that may not be written...). The result is a `Joint`, which `ir.halves` divides into a forward and a
backward graph. Where a gradient can only come from torch's own calls it is a `Declined`, with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from .dataclass import dataclass
from .effects import reads, root
from .errors import CannotTrace
from .ghost import Ghost, Store, make_ghost
from .graph import Meta, Node
from .layout import contiguous_strides, is_dense

if TYPE_CHECKING:
    from .trace import Tracer


@dataclass(frozen=True, slots=True)
class Joint:
    """What a backward adds to a graph.

    nodes       the backward's nodes, which come after the graph's own
    results     the outputs of the graph that have a gradient, by position
    tangents    their gradients: inputs of the backward, numbered after the graph's inputs
    wanted      the inputs of the graph that ask for a gradient, by position
    gradients   theirs; None where an input has no part in the results
    parameters  the inputs that are parameters, by position
    name        what autograd calls the operator that gives the first of the results
    kept        memory of the graph (roots of inputs, constants and outputs) that autograd itself saves
    """

    nodes: tuple[Node, ...]
    results: tuple[int, ...]
    tangents: tuple[Node, ...]
    wanted: tuple[int, ...]
    gradients: tuple[Node | None, ...]
    parameters: tuple[int, ...]
    name: str
    kept: frozenset[Node]


@dataclass(frozen=True, slots=True)
class Declined:
    """Why a graph has no backward of its own."""

    reason: str


def differentiate(tracer: Tracer, outputs: Sequence[Ghost], ties: bool) -> Joint | Declined:
    """The backward of `outputs`, which belong to the trace. The trace is as before afterwards.

    ties: an output shares memory with an input that requires a gradient.
    """
    inputs = tracer.entered_inputs()
    results = _results(outputs)
    reason = _why_not(tracer, outputs, results, ties)
    if reason:
        return Declined(reason)
    wanted = tuple(at for at, ghost in inputs if ghost.requires_grad)
    if not wanted:  # a leaf of the program's own making
        return Declined("nothing that comes in requires a gradient")
    leaves = [ghost for _, ghost in inputs if ghost.requires_grad]
    tangents = [
        Node("input", tracer.n_inputs + k, meta=_tangent(outputs[at]._node.meta), name=f"g{k}")
        for k, at in enumerate(results)
    ]  # fmt: skip
    try:
        found, nodes = tracer.beside(_backward, [outputs[at] for at in results], leaves, tangents)
    except CannotTrace as error:
        return Declined(str(error))
    except RuntimeError as error:
        # What autograd refuses it refuses when the program goes backward.
        return Declined(str(error).splitlines()[0])
    memory = {root(ghost._node) for ghost in outputs}
    kept = {
        origin
        for node in nodes
        for operand in reads(node)
        if (origin := root(operand)).op in ("input", "constant") or origin in memory
    }
    name = type(outputs[results[0]].grad_fn).__name__
    parameters = tuple(at for at, ghost in inputs if getattr(ghost, "_is_param", False))
    return Joint(
        tuple(nodes), results, tuple(tangents), wanted, found, parameters, name, frozenset(kept)
    )


def _results(outputs: Sequence[Ghost]) -> tuple[int, ...]:
    """One position for each output that has a history and is no input handed back."""
    seen: set[int] = set()
    found = []
    for at, ghost in enumerate(outputs):
        if ghost.requires_grad and ghost._node.op != "input" and id(ghost) not in seen:
            seen.add(id(ghost))
            found.append(at)
    return tuple(found)


def _why_not(tracer: Tracer, outputs: Sequence[Ghost], results: tuple[int, ...], ties: bool) -> str:
    if not results:
        return "no result has a gradient"
    # Within the trace: the `grad_fn` of a view whose base was written to since is made when it is asked for.
    if tracer.beside(_any_leaf, [outputs[at] for at in results])[0]:
        return "a result is a leaf of its own"
    if tracer.differentiable_constants():
        return "a tensor that requires a gradient is no argument of the graph"
    if ties:
        return "a result is a view of a tensor that requires a gradient"
    if tracer.followed():
        return "a tensor that requires a gradient is written to"
    made: dict[Node, Ghost] = {}
    for at in results:
        ghost = outputs[at]
        if made.setdefault(root(ghost._node), ghost) is not ghost:
            return "two results share memory"
    for ghost in outputs:
        if made.get(root(ghost._node), ghost) is not ghost:
            return "two results share memory"
    if any(root(ghost._node).op == "constant" for ghost in made.values()):
        return "a result is a view of a constant"
    return ""


def _any_leaf(owner: Any, ghosts: Sequence[Ghost]) -> bool:
    return any(ghost.is_leaf for ghost in ghosts)


def _tangent(meta: Meta) -> Meta:
    """A gradient is taken to lie as its tensor does, where that has no holes."""
    stride = meta.stride if is_dense(meta.shape, meta.stride) else contiguous_strides(meta.shape)
    return Meta(meta.shape, stride, meta.dtype, meta.device)


def _backward(
    owner: Any, outputs: Sequence[Ghost], leaves: Sequence[Ghost], tangents: Sequence[Node]
) -> tuple[Node | None, ...]:
    """The nodes of the gradients of `leaves`."""
    given = [make_ghost(owner, node, node.meta, Store(fresh=False)) for node in tangents]
    found: Any = torch.autograd.grad(outputs, leaves, given, retain_graph=True, allow_unused=True)
    return tuple(None if ghost is None else ghost._node for ghost in found)
