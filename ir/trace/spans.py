"""Where the nodes of autograd's graph are: in which parts that data skip (`conditional`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from .joint_graph import Span

if TYPE_CHECKING:
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
