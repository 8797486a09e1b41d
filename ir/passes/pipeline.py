"""The passes over the ATen level, in order: `PASSES` is the whole list.

Each is a pure function Graph -> Graph. `optimize` runs and times them, prints the graph on request,
and verifies it after each pass if `check` is set (tests, GRAFTJIT_CHECK).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from ..dataclass import dataclass, field
from ..graph.effects import is_random, reads, root, writes
from ..graph.nodes import Graph, Node
from ..graph.schema import plan_of
from ..ops.may_raise import counts_places, may_raise
from ..ops.region_borders import redrawn
from .backward_decompositions import BACKWARD, BACKWARD_RESULTS
from .decompositions import DECOMPOSITIONS, RESULTS
from .functionalize import values_for_writes
from .losses import split_losses
from .norms import split_norms
from .rewriter import ALGEBRA, Rewriter, apply_table, fold_rule, with_nodes
from .verifier import verify


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass and the reason for it."""

    name: str
    run: Callable[[Graph], Graph]
    why: str


@dataclass(frozen=True, slots=True)
class PassRecord:
    """The effect of one pass: seconds, number of nodes before and after, resulting graph."""

    name: str
    seconds: float
    before: int
    after: int
    graph: Graph | None = field(default=None, compare=False, repr=False)


def fold_constants(graph: Graph) -> Graph:
    """Evaluate operators on constants that only the graph holds."""
    return Rewriter(graph).walk(lambda node: (fold_rule,) if node.op == "call" else ())


def _key_of(value: Any) -> Any:
    """A key of an argument; 1, 1.0 and True have different keys, as have 0.0 and -0.0."""
    if type(value) is Node:
        return id(value)
    if type(value) in (tuple, list):
        return tuple(_key_of(item) for item in value)
    if type(value) is float:
        return ("float", value.hex())
    return (type(value), value)


def merge_equal(graph: Graph) -> Graph:
    """Common subexpressions: keep one of two equal computations on memory that nothing writes."""
    seen: dict[Any, Node] = {}

    def returned(node: Node, returned: Collection[Node]) -> bool:
        """Whether memory that the node makes is returned: its own, or a result's."""
        return root(node) in returned or any(
            one.op == "get" and one.args[0] is node for one in returned
        )

    def replace(rewriter: Rewriter, node: Node) -> Node | None:
        origin = rewriter.origin
        assert origin is not None
        facts = rewriter.facts
        plan = plan_of(node.target) if node.op == "call" else None
        if plan is not None and (plan.kind == "write" or plan.random or plan.row is None):
            return None
        if writes(node):
            return None
        if plan is not None and plan.kind == "view":
            steady = True  # writes do not change what a view refers to
        else:
            steady = all(map(rewriter.steady, reads(node))) and root(origin) not in facts.written
        if not steady:
            return None
        target = node.target if node.op == "call" else ("get", node.target)
        key = (target, _key_of(node.args), _key_of(tuple(sorted(node.kwargs.items()))))
        found = seen.setdefault(key, node)
        if found is node or origin in facts.outputs:  # two outputs are two tensors
            return None
        if (plan is None or plan.kind != "view") and returned(origin, facts.returned):
            return None
        return found

    class Merger(Rewriter):
        def _allowed(self, node: Node, carried: Node, instead: Node, mark: int) -> bool:
            return instead.meta == node.meta

    return Merger(graph).walk(lambda node: () if node.op == "constant" else (replace,))


def drop_dead(graph: Graph) -> Graph:
    """Drop unused nodes without visible writes.

    Random operators (they advance the random state) and operators that may raise stay. Those that
    draw the numbers of a checkpointed region again stay if one of its numbers is used.
    """
    draws = redrawn(graph.nodes)
    unread: set[Node] = set().union(*draws)
    while True:
        kept = _live(graph, unread)
        read = [some for some in draws if some <= unread and not some.isdisjoint(kept)]
        if not read:
            return with_nodes(graph, kept, graph.outputs)
        unread.difference_update(*read)


def _live(graph: Graph, unread: set[Node]) -> list[Node]:
    """The nodes that stay, in order. Those in `unread` are no reason to keep anything."""
    live: set[Node] = set(graph.outputs)
    memory: set[Node] = {root(node) for node in graph.outputs}
    kept: list[Node] = []
    written = {root(target) for node in graph.nodes for target in writes(node)}
    for node in reversed(graph.nodes):
        targets = [root(target) for target in writes(node)]
        seen = any(one.op in ("input", "constant") or one in memory for one in targets)
        if (
            node in live
            or seen
            or (is_random(node) and node not in unread)
            or (may_raise(node) and not _is_safe(node, written))
        ):
            kept.append(node)
            operands = reads(node)
            live.update(operands)
            memory.update(root(operand) for operand in operands)
    kept.reverse()
    return kept


def _is_safe(node: Node, written: set[Node]) -> bool:
    """Whether the node gathers at positions from an unwritten arange, which all exist."""
    places = counts_places(node)
    return places is not None and places not in written


def channels_last(graph: Graph) -> Graph:
    """Let convolutions of GPUs run over NHWC (`channels_last.convolutions_channels_last`)."""
    if all(node.meta.device.type != "cuda" for node in graph.inputs):
        return graph
    # loaded for graphs on GPUs only
    from .channels_last import convolutions_channels_last

    return convolutions_channels_last(graph)


PASSES: tuple[Pass, ...] = (
    Pass("drop_dead", drop_dead, "remove values that nothing uses"),
    Pass(
        "decompose",
        apply_table(DECOMPOSITIONS | BACKWARD, RESULTS | BACKWARD_RESULTS),
        "replace operators by simpler ones that can be fused",
    ),
    Pass(
        "split_losses",
        split_losses,
        "split losses into a loss per row, which can be fused, and sums",
    ),
    Pass("split_norms", split_norms, "split norms into moments and pointwise operators"),
    Pass("values_for_writes", values_for_writes, "replace parts of memory by separate values"),
    Pass("algebra", apply_table(ALGEBRA), "apply algebraic laws that are exact to the last bit"),
    Pass("fold_constants", fold_constants, "compute what depends on constants only"),
    Pass("merge_equal", merge_equal, "merge equal computations"),
    Pass("channels_last", channels_last, "give tensor cores the layout they read"),
    Pass("drop_dead", drop_dead, "remove what the other passes left unused"),
)
EXACT = tuple(one for one in PASSES if one.name not in ("decompose", "split_losses", "split_norms"))


def optimize(
    graph: Graph,
    passes: Sequence[Pass] = PASSES,
    *,
    check: bool = False,
    records: list[PassRecord] | None = None,
    show: Callable[[str], None] | None = None,
) -> Graph:
    """Run the passes. `records` gets one entry per pass; `show` gets the graph's text after each.

    A graph that needs gradients is returned unchanged: only its torch level runs.
    """
    if graph.needs_grad:
        return graph
    for one in passes:
        before = len(graph.nodes)
        start = time.perf_counter()
        graph = one.run(graph)
        seconds = time.perf_counter() - start
        if records is not None:
            records.append(PassRecord(one.name, seconds, before, len(graph.nodes), graph))
        if show is not None:
            show(f"after {one.name} ({one.why}; {seconds * 1e3:.1f} ms)\n{graph.text()}")
        if check:
            verify(graph, one.name)
    return graph
