"""Negative log likelihood in parts: a value a row, its sum and the sum of weights.

`split_losses` is a pass: nll_loss_forward with a mean or a sum becomes the same operator without reduction, which
kernels take in beside the log-softmax before it, and two sums. The rows come first and raise what the whole
would. A graph to graph function of its own, for the operator gives two results at once. Run by `ir.passes`.
"""

from __future__ import annotations

import torch

from .graph import Graph, Node
from .rewrite import Rewriter, with_nodes
from .symbols import bounds_of

aten = torch.ops.aten
NONE, MEAN = 0, 1


def split_losses(graph: Graph) -> Graph:
    """The same graph with each such loss in parts."""
    if not any(_splits(node) for node in graph.nodes):
        return graph
    walk = Rewriter(graph)
    parts: dict[Node, tuple[Node, Node]] = {}
    for node in graph.nodes:
        walk.origin = node
        if node.op == "get" and node.args[0] in parts:
            walk.now[node] = parts[node.args[0]][node.target]
            continue
        walk.now[node] = carried = walk.carry(node)
        if _splits(node):
            mark = len(walk.nodes)
            found = _parts(walk, carried)
            if tuple(part.meta for part in found) == node.meta:
                parts[node] = found
                continue
            del walk.nodes[mark:]
        walk.nodes.append(carried)
    return with_nodes(graph, walk.nodes, [walk.now[node] for node in graph.outputs])


def _splits(node: Node) -> bool:
    if node.op != "call" or node.target is not aten.nll_loss_forward.default:
        return False
    x, target, weight, reduction, _ignored = node.args
    return (
        reduction != NONE
        and len(x.meta.shape) == 2
        and all(bounds_of(size)[0] > 0 for size in x.meta.shape)
        and x.meta.dtype in (torch.float32, torch.float64)  # others would be rounded in between
        and target.meta.dtype == torch.int64
        and (weight is None or weight.meta.dtype == x.meta.dtype)
    )


def _parts(at: Rewriter, node: Node) -> tuple[Node, Node]:
    """(the loss, the sum of weights)."""
    x, target, weight, reduction, ignored = node.args
    call = at.call(aten.nll_loss_forward.default, x, target, weight, NONE, ignored)
    rows = Node("get", 0, (call,), {}, call.meta[0], f"{call.name}_rows", node.where)
    at.nodes.append(rows)
    total = at.call(aten.sum.default, rows)
    if weight is None:
        counts = at.call(aten._to_copy.default, at.call(aten.ne.Scalar, target, ignored),
                         dtype=x.meta.dtype)  # fmt: skip
    else:
        out = at.call(aten.eq.Scalar, target, ignored)
        label = at.call(aten.masked_fill.Scalar, target, out, 0)
        chosen = at.call(aten.index_select.default, weight, 0, label)
        counts = at.call(aten.masked_fill.Scalar, chosen, out, 0)
    weights = at.call(aten.sum.default, counts)
    if reduction == MEAN:
        total = at.call(aten.div.Tensor, total, weights)
    return total, weights
