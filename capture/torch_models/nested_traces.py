"""Nested traces: the function of a torch transform has a trace of its own inside the frame's walk.

In: ghosts of the enclosing traces. Out: inputs of the inner trace for them. A tensor made in an
inner trace and used after its end is a break.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...ir.dataclass import dataclass, field
from ...ir.graph.nodes import meta_of
from ...ir.ops.meta_kernels import pinned_all
from ...ir.trace.ghost import Ghost
from ...ir.trace.tracer import Tracer
from ..breaks import Break

if TYPE_CHECKING:
    from ..interpreter.machine import Machine
    from ..values.value import Tensor


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
    pushes: bool = False  # of a forward-mode derivative
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


def require_rule(m: Machine, cls: Any, tensors: Sequence[Tensor], has_setup: bool) -> None:
    """Break if transforms of torch.func around a call of a custom autograd function need more than
    its forward, and more than torch has for a recorded call: its backward, and the rule for vmap
    that torch derives. `has_setup`: it has `setup_context`."""
    transforms = [one for one in m.inner if not one.custom]
    dtypes = [one.ghost.dtype for one in tensors]
    # Integers have no gradient.
    if not any(dtype.is_floating_point or dtype.is_complex for dtype in dtypes):
        return
    enabled = torch.is_grad_enabled()
    derives = cls.generate_vmap_rule
    if enabled and has_setup and any(one.ghost.requires_grad for one in tensors):
        batches = any(one.batches for one in transforms)
        if not any(one.pushes for one in transforms) and (derives or not batches):
            return
    # Tensors inside of vmap do not require the gradients that those around it require.
    around = m.root_tracer.needs_grad or any(one.origin.requires_grad for one in m.inputs)
    if not (derives and all(one.batches for one in transforms)) or (enabled and around):
        raise Break("GB134", f"{cls.__name__} under a transform of torch.func")
