"""Inputs that a graph writes although its differentiable results depend on the old values.

In: a graph with its `joint`. Out: positions of inputs. To run the graph again for a second
derivative, the caller must have kept their values. Running statistics do not count: an operator
reads them only to update them.
"""

from __future__ import annotations

from ..graph.effects import operands, root, writes
from ..graph.nodes import Graph, Node
from ..graph.opdef import OPS


def wanted_before(graph: Graph) -> tuple[int, ...]:
    """Positions of the inputs, in order."""
    written = set(graph.written)
    if not written:
        return ()
    writers: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        for one in writes(node):
            writers.setdefault(root(one), []).append(node)
    seen: set[Node] = set()
    left = [graph.joint.pieces[at] for at in graph.joint.results]
    while left:
        node = left.pop()
        if node in seen:
            continue
        seen.add(node)
        left += [*_read(node), root(node), *writers.get(root(node), ())]
    return tuple(at for at, node in enumerate(graph.inputs) if at in written and node in seen)


def _read(node: Node) -> list[Node]:
    """The operands that a node's results depend on."""
    row = OPS.get(str(node.target)) if node.op == "call" else None
    renewed = row.mutates(node.args, node.kwargs) if row is not None and row.mutates else ()
    return [
        one
        for value in (*(a for at, a in enumerate(node.args) if at not in renewed), node.kwargs)
        for one in operands(value)
    ]
