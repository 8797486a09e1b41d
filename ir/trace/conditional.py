"""Parts of a graph that run only if a number which the graph reads is not zero.

`begin(tracer, taken)` and `end(tracer)` mark the nodes and calls between them. They are the body of
a branch of the program whose two ways meet again (`capture.data_model.conditional`): no value of
theirs is used behind it, and all that is left of them are writes to memory that the graph has made
before. So in a part a write to such memory stays a write (`ghost.owns_its_memory`).
`codegen.read_parts` makes programs of their own of the nodes between two marks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..graph.effects import is_fresh, uses, writes
from ..graph.nodes import Call, Node
from ..graph.opdef import OPS, OpDef
from ..graph.schema import OURS
from ..location import Location
from ..symbolic.expr import Symbol, symbols_of
from .ghost import Ghost, Store
from .inner_results import edge_of, nodes_behind
from .joint_graph import Edge, Span

if TYPE_CHECKING:
    from .tracer import Tracer

_sequence_number = torch.autograd._get_sequence_nr  # type: ignore[attr-defined]
# The operators live as long as this object.
_LIBRARY = torch.library.Library(OURS, "FRAGMENT")
_LIBRARY.define("only_if(SymInt taken) -> ()")
_LIBRARY.define("end_only_if() -> ()")
only_if = torch.ops.graftjit.only_if.default
end_only_if = torch.ops.graftjit.end_only_if.default
OPS[str(only_if)] = OpDef(str(only_if), "check", lambda op, taken: None)
OPS[str(end_only_if)] = OpDef(str(end_only_if), "check", lambda op: None)


def part_begins(taken: int) -> None:
    """The calls up to `part_ends` run if the number is not zero."""


def part_ends() -> None:
    """The end of what the last `part_begins` that has none yet decides about."""


def overwrite(tensor: torch.Tensor, by: torch.Tensor) -> None:
    """Give a tensor that nothing else has the values of another one, whose name it may take."""
    tensor.copy_(by)


def begin(
    tracer: Tracer, taken: Symbol, where: Location | None, ghosts: Iterable[Ghost] = ()
) -> None:
    """Begin a part that runs if `taken` is not zero. `ghosts`: those that it may write to."""
    recorder = tracer._recorder
    recorder.owner.parts.append(Store(fresh=True).number)
    recorder.nodes.append(Node("call", only_if, (taken,), name=f"part_{len(recorder.nodes)}"))
    tracer._calls.append(Call(part_begins, (taken,), {}, None, where))
    before = [(ghost, _edge(ghost)) for ghost in ghosts if not ghost._is_view()]
    recorder.owner.spans.append(Span(taken, _sequence_number(), before))


def end(tracer: Tracer, where: Location | None, replaced: Iterable[Ghost] = ()) -> None:
    """End the innermost part. `replaced`: tensors that it has overwritten as a whole, of which
    nothing has read the values before."""
    recorder = tracer._recorder
    recorder.owner.parts.pop()
    recorder.nodes.append(Node("call", end_only_if, name=f"part_{len(recorder.nodes)}"))
    tracer._calls.append(Call(part_ends, (), {}, None, where))
    span = next(one for one in reversed(recorder.owner.spans) if one.last < 0)
    span.last = _sequence_number()
    for ghost, edge in span.before:
        now = _edge(ghost)
        if now is not None and now != edge:
            span.changed[now] = edge
    span.replaced = {edge for one in replaced if (edge := _edge(one)) is not None}
    span.before = []


def _edge(ghost: Ghost) -> Edge | None:
    return None if ghost.grad_fn is None else edge_of(ghost)


def in_part(tracer: Tracer) -> bool:
    """Whether a part has begun that is not at its end."""
    return bool(tracer._recorder.owner.parts)


def is_apart(nodes: Sequence[Node], outputs: Sequence[Node], read: dict[Symbol, Node]) -> bool:
    """Whether the parts of a trace leave nothing behind but writes to the graph's own memory.

    `read`: for each number that the graph reads the tensor that holds it, which is an output for
    the sake of the program alone.
    """
    inside: list[set[Node]] = []
    gone: set[Node] = set()
    numbers: set[Symbol] = set()  # those that are read in a part that is over
    for node in nodes:
        if node.target is end_only_if:
            gone |= inside.pop()
            numbers = {symbol for symbol, held in read.items() if held in gone}
            continue
        if not gone.isdisjoint(uses(node)):
            return False
        if numbers and not numbers.isdisjoint(symbols_of([node.meta, node.args, node.kwargs])):
            return False
        if node.target is only_if:
            inside.append(set())
        elif inside and node.op != "constant":
            if not all(map(is_fresh, writes(node))):
                return False
            inside[-1].add(node)
    return not inside and gone.isdisjoint(set(outputs) - set(read.values()))


def is_mark(node: Node) -> bool:
    """Whether a part begins or ends here."""
    return node.target is only_if or node.target is end_only_if


def unmarked(nodes: Sequence[Node]) -> tuple[list[Node], dict[Node, tuple[Any, ...]]]:
    """(the nodes but for marks, for each node of a part the numbers that it needs)"""
    found: list[Node] = []
    when: dict[Node, tuple[Any, ...]] = {}
    now: tuple[Any, ...] = ()
    for node in nodes:
        if node.target is only_if:
            now = *now, *node.args
        elif node.target is end_only_if:
            now = now[:-1]
        else:
            found.append(node)
            if now:
                when[node] = now
    return found, when


def marked(nodes: Sequence[Node], when: dict[Node, tuple[Any, ...]]) -> list[Node]:
    """The nodes with marks: as before `unmarked`."""
    found: list[Node] = []
    now: tuple[Any, ...] = ()
    for node in [*nodes, None]:
        wanted = when.get(node, ()) if node is not None else ()
        if node is not None and node.op == "constant":
            wanted = now
        same = 0
        while same < min(len(now), len(wanted)) and now[same] == wanted[same]:
            same += 1
        found += [Node("call", end_only_if) for _ in now[same:]]
        found += [Node("call", only_if, (taken,)) for taken in wanted[same:]]
        now = wanted
        if node is not None:
            found.append(node)
    return found


def placeholder(meta: Any) -> torch.Tensor:
    """A tensor in place of one that was not made, since its part did not run."""
    return torch.zeros((0,) * len(meta.shape), dtype=meta.dtype, device=meta.device)


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
