"""Nested traces: the function of a torch transform has a trace of its own inside the frame's walk.

In: ghosts of the enclosing traces. Out: inputs of the inner trace for them. A tensor made in an
inner trace and used after its end is a break.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.dataclass import dataclass, field
from ...ir.graph.nodes import meta_of
from ...ir.ops.meta_kernels import pinned_all
from ...ir.trace.ghost import Ghost
from ...ir.trace.tracer import Tracer
from ..breaks import Break

if TYPE_CHECKING:
    from ..interpreter.machine import Machine


@dataclass(slots=True)
class Inner:
    """An inner trace.

    `lifted`: id of a ghost of the enclosing traces -> (that ghost, its ghost one trace further out,
    its input). `asked`: questions whose answers may differ when autograd runs it: the memory
    layout of its tensors, and whether they require a gradient.
    """

    tracer: Tracer
    batches: bool = False  # of vmap: no derivative is computed through it
    custom: bool = False  # of a custom autograd function: no transform
    lifted: dict[int, tuple[Ghost, Ghost, Ghost]] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)


def require_history(m: Machine, ghost: Ghost | None = None) -> None:
    """Break for a question about grad mode, or about the history of `ghost`, in a checkpoint with
    use_reentrant=True, which runs a second time with another answer."""
    regions = m.tracer.regions
    if regions is not None and regions.without_history(None if ghost is None else ghost._node):
        raise Break("GB114", "a question about gradients in a checkpoint with use_reentrant=True")


def lift(m: Machine, ghost: Ghost, depth: int | None = None) -> Ghost:
    """The ghost in the innermost trace (or at `depth`) for its own or an enclosing ghost."""
    depth = len(m.inner) if depth is None else depth
    if not depth:
        if not m.root_tracer.owns(ghost):
            raise Break("GB124", "a tensor of a transformed function is used after its end")
        return ghost
    inner = m.inner[depth - 1]
    if inner.tracer.owns(ghost):
        return ghost
    known = inner.lifted.get(id(ghost))
    if known is None:
        around = lift(m, ghost, depth - 1)
        with m.facts.active():
            meta = meta_of(ghost)
            if not inner.custom:  # the trace of a transform has plain sizes
                meta = pinned_all(meta)
        made = inner.tracer.given(meta, ghost.requires_grad)
        known = inner.lifted[id(ghost)] = (ghost, around, made)
    return known[2]
