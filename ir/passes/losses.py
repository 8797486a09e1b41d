"""Negative log likelihood in parts: a loss per row, its sum, and the sum of weights.

`split_losses` is a pass: nll_loss_forward with a mean or a sum becomes the same operator without
reduction, which kernels fuse with the log-softmax before it, and two sums. The rows are computed
first and raise the errors of the whole operator. It is a function Graph -> Graph, not a rule,
because the operator has two results. A pass of `ir.passes.pipeline`.
"""

from __future__ import annotations

import torch

from ..graph.nodes import Graph, Node
from ..symbolic.expr import bounds_of
from .losses_pointwise import MEAN, NONE
from .rewriter import Rewriter, split_results

aten = torch.ops.aten


def split_losses(graph: Graph) -> Graph:
    """The graph with each such loss in parts."""
    if not any(_splits(node) for node in graph.nodes):
        return graph
    return split_results(graph, _splits, _parts)


def _splits(node: Node) -> bool:
    if node.op != "call" or node.target is not aten.nll_loss_forward.default:
        return False
    x, target, weight, reduction, _ignored = node.args
    return (
        reduction != NONE
        and len(x.meta.shape) == 2
        and all(bounds_of(size)[0] > 0 for size in x.meta.shape)
        # Rows of narrow elements are exact without weights, which would be rounded into them.
        and (x.meta.dtype in (torch.float32, torch.float64) or (_narrow(x) and weight is None))
        and target.meta.dtype == torch.int64
        and (weight is None or weight.meta.dtype == x.meta.dtype)
    )


def _narrow(node: Node) -> bool:
    return node.meta.dtype in (torch.float16, torch.bfloat16)


def _parts(at: Rewriter, node: Node) -> tuple[Node, Node]:
    """(the loss, the sum of weights): of narrow elements float32 sums, rounded once."""
    x, target, weight, reduction, ignored = node.args
    dtype = torch.float32 if _narrow(x) else x.meta.dtype
    call = at.call(aten.nll_loss_forward.default, x, target, weight, NONE, ignored)
    rows = _cast(at, at.result(call, 0), dtype)
    total = at.call(aten.sum.default, rows)
    if weight is None:
        counts = _cast(at, at.call(aten.ne.Scalar, target, ignored), dtype)
    else:
        out = at.call(aten.eq.Scalar, target, ignored)
        label = at.call(aten.masked_fill.Scalar, target, out, 0)
        chosen = at.call(aten.index_select.default, weight, 0, label)
        counts = at.call(aten.masked_fill.Scalar, chosen, out, 0)
    weights = at.call(aten.sum.default, counts)
    if reduction == MEAN:
        total = at.call(aten.div.Tensor, total, weights)
    return _cast(at, total, x.meta.dtype), _cast(at, weights, x.meta.dtype)


def _cast(at: Rewriter, node: Node, dtype: torch.dtype) -> Node:
    return node if node.meta.dtype == dtype else at.call(aten._to_copy.default, node, dtype=dtype)
