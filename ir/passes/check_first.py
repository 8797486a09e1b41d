"""Indices that are checked before the first write to an input, so that no write has to wait.

In: a graph whose program must not raise after it has written to an input (`Graph.late`). Out: the
graph with one check in front of the first such write, after which no operator raises; or None where
something else may raise. The usual case is a cache of fixed size, which each layer
writes at the same places: without the check, `defer_writes` would copy each cache. Capture asks the
same of the nodes so far (`covers`) where a write cannot be deferred.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from ..graph.effects import is_random, reads, root, writes
from ..graph.nodes import Graph, Meta, Node
from ..graph.opdef import OPS
from ..ops.checks import leave_unless
from ..ops.may_raise import may_raise
from ..symbolic.expr import symbols_of
from .rewriter import Rewriter

if TYPE_CHECKING:
    from ..trace.tracer import Tracer

aten = torch.ops.aten
MOST_MOVED = 48  # the nodes that compute one index
_WHOLE = (torch.int32, torch.int64)
_FROM_ZERO = (
    *("index_copy", "index_add", "index_select", "index_fill", "index_reduce"),
    *("gather", "scatter", "scatter_add", "scatter_reduce"),
)
# (index, least, size): least <= index < size
Range = tuple[Node, Any, Any]


def may_come_first(
    nodes: Sequence[Node], together: Iterable[Collection[int]], from_data: Callable[[Any], bool]
) -> tuple[int, list[Range], list[Node]] | None:
    """(position of the first write to an input; what to check before it; the nodes that have to
    move there). None if something after it may raise otherwise.

    `together`: positions of inputs that share memory. `from_data`: whether sizes are known only
    when the graph runs.
    """
    groups = [*map(frozenset, together)]
    written: set[Node] = set()
    inputs: set[int] = set()
    outside = False
    first: int | None = None
    ranges: dict[Any, Range] = {}
    moved: dict[Node, None] = {}
    order = {node: at for at, node in enumerate(nodes)}
    parted = False  # some node runs only if a number is not zero
    for at, node in enumerate(nodes):
        if node.op != "call":
            continue
        parted |= getattr(node.target, "_opname", "") == "only_if"
        roots = [root(target) for target in writes(node)]
        touched = [one.target for one in roots if one.op == "input"]
        first = at if first is None and touched else first
        if first is not None and may_raise(node):
            found = _ranges(node)
            if parted or found is None or from_data([part[2] for part in found]):
                return None
            for index, least, size in found:
                behind = _behind(index, order, first)
                if behind is None or not all(map(_may_move, behind)):
                    return None
                for one in map(root, [index, *behind, *(r for b in behind for r in reads(b))]):
                    if one in written or (one.op == "input" and one.target in inputs):
                        return None
                    if outside and one.op == "constant" and one.args != ("own",):
                        return None
                if from_data([one.meta.shape for one in (index, *behind)]):
                    return None
                moved.update(dict.fromkeys(behind))
                ranges[index, least, size] = index, least, size
        outside |= bool(touched) or any(one.op == "constant" for one in roots)
        written.update(roots)
        inputs.update(touched)
        inputs.update(*(group for group in groups if not group.isdisjoint(touched)))
    if first is None:
        return None
    return first, [*ranges.values()], sorted(moved, key=order.__getitem__)


def _ranges(node: Node) -> list[Range] | None:
    """Which indices must be in which ranges for the node to raise nothing; None: not known."""
    name = node.target._opname.rstrip("_").removeprefix("_unsafe_")
    if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace != "aten":
        return None
    table = node.args[0]
    if name == "embedding":
        found: list[Range] = [(node.args[1], 0, table.meta.shape[0])]
    elif name in _FROM_ZERO and table.meta.shape:
        found = [(node.args[2], 0, table.meta.shape[node.args[1]])]
    elif name in ("index", "index_put"):
        found = []
        for size, index in zip(table.meta.shape, node.args[1], strict=False):
            if index is not None:
                found.append((index, None, size))
    else:
        return None
    for index, _, _ in found:
        meta = index.meta if type(index) is Node else None
        # A GPU tells nothing of an index before the end of its work.
        if type(meta) is not Meta or meta.dtype not in _WHOLE or meta.device.type != "cpu":
            return None
    return found


def _behind(index: Node, order: dict[Node, int], first: int) -> list[Node] | None:
    """The nodes that compute an index and come after the first write."""
    found, pending = dict[Node, None](), [index]
    while pending:
        node = pending.pop()
        if order.get(node, -1) < first or node in found:
            continue
        found[node] = None
        pending += reads(node)
        if len(found) > MOST_MOVED:
            return None
    return list(found)


def _may_move(node: Node) -> bool:
    if node.op == "constant":
        return True
    if node.op != "call" or type(node.meta) is not Meta or may_raise(node) or is_random(node):
        return False
    return not writes(node) and str(node.target) in OPS


def covers(tracer: Tracer) -> bool:
    """Whether a check in front can stand for whatever may raise in a trace after its first write to
    an input."""
    if tracer.rewritten() or tracer.needs_grad or tracer.regions is not None:
        return False
    together = [ghost._store.inputs for _, ghost in tracer.entered_inputs()]
    return may_come_first(tracer.values()[1], together, tracer.facts.from_data) is not None


def checked(graph: Graph, held: set[Node]) -> Graph | None:
    """The graph with the check, if no operator after it may raise. `held`: the nodes of numbers
    that the program checks otherwise."""
    data = {symbol for symbol, of in graph.symbols.items() if of[0] == "data"}
    found = may_come_first(
        graph.nodes, graph.overlaps, lambda sizes: not data.isdisjoint(symbols_of(sizes))
    )
    if found is None or not found[1]:
        return None
    first, ranges, moved = found
    if not held.isdisjoint(graph.nodes[first:]):
        return None
    made = Rewriter(graph)
    made.origin = graph.nodes[first]
    condition = _condition(made, ranges)
    name = f"{made.origin.name}_checked"
    check = Node("call", leave_unless, (condition, True), {}, None, name, made.origin.where)
    away = set(moved)
    rest = [node for node in graph.nodes[first:] if node not in away]
    return replace(graph, nodes=[*graph.nodes[:first], *moved, *made.nodes, check, *rest])


def _condition(made: Rewriter, ranges: list[Range]) -> Node:
    """Whether all indices are in their ranges."""
    found: list[Node] = []
    for index, least, size in ranges:
        for each in (
            made.call(aten.ge.Scalar, index, -size if least is None else least),
            made.call(aten.lt.Scalar, index, size),
        ):
            whole = made.call(aten.all.default, each) if each.meta.shape else each
            found.append(
                made.call(aten.logical_and.default, found.pop(), whole) if found else whole
            )
    return found[0]
