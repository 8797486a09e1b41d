"""Where the nodes of autograd's graph are: in which parts that data skip (`conditional`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from .inner_results import edge_of, nodes_behind
from .joint_graph import Edge, Span

if TYPE_CHECKING:
    from .ghost import Ghost
    from .tracer import Tracer


def spans_of(tracer: Tracer) -> list[Span]:
    """The parts of a trace."""
    return tracer._recorder.owner.spans


def places(functions: Iterable[Any], spans: Sequence[Span]) -> dict[Any, tuple[Span, ...]]:
    """For each node the parts around it, the outermost first."""
    if not spans:
        return {}
    found: dict[Any, tuple[Span, ...]] = {}
    open_now: list[Span] = []
    pending = sorted(spans, key=lambda one: (one.first, -one.last))
    for function in sorted(functions, key=lambda one: one._sequence_nr()):
        at = function._sequence_nr()
        while pending and pending[0].first <= at:
            open_now.append(pending.pop(0))
        open_now = [one for one in open_now if at < one.last]
        found[function] = tuple(open_now)
    return found


def is_always_tracked(tracer: Tracer, ghost: Ghost) -> bool:
    """Whether a tensor with a history has one whichever parts run. A part that is open runs."""
    spans = [one for one in spans_of(tracer) if one.last >= 0]
    if not spans or ghost.grad_fn is None:
        return True
    inside = places(list(nodes_behind([ghost.grad_fn])), spans)
    pending, seen = [edge_of(ghost)], set[Edge]()
    while pending:
        edge = pending.pop()
        if edge in seen or edge[0] is None:
            continue
        seen.add(edge)
        if hasattr(edge[0], "variable"):
            return True
        around = inside.get(edge[0], ())
        pending += [span.changed.get(edge) or (None, 0) for span in around]
        pending += [] if around else edge[0].next_functions
    return False
