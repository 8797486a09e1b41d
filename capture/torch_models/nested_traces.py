"""Traces within traces: a function that a transform of torch takes is traced on its own, inside the frame's walk.

In: ghosts of the traces around. Out: the inputs of the inner trace that stand for them; a tensor that is made in
an inner trace and used after its end is a break.
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
    """An inner trace. `lifted` maps the id of a ghost of the traces around it to (that ghost, the ghost one trace
    further out, the input that stands for it)."""

    tracer: Tracer
    batches: bool = False  # it is vmap's: no derivative is taken of it
    lifted: dict[int, tuple[Ghost, Ghost, Ghost]] = field(default_factory=dict)


def lift(m: Machine, ghost: Ghost, depth: int | None = None) -> Ghost:
    """The ghost by which the innermost trace (or that at `depth`) knows a ghost of its own or of one around it."""
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
        with m.facts.active():  # an inner trace has plain sizes
            meta = pinned_all(meta_of(ghost))
        made = inner.tracer.given(meta, ghost.requires_grad)
        known = inner.lifted[id(ghost)] = (ghost, around, made)
    return known[2]
