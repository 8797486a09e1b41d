"""Sums of row sums: the sum of a whole tensor whose rows another operator reduces, on a GPU.

A loss such as `(norm(x) * g).sum()` reduces each row of x, and then all elements of the product. As
one sum, the product goes to memory and back. As sums of rows, and the sum of those, the kernel that
reduces the rows of x adds up the rows of the product too: x and g are read once, and a small kernel
reduces one number per row. In: a graph. Out: the graph in which such sums and means, over the
dimensions of a row and others, are two.
"""

from __future__ import annotations

import torch

from ...ir.graph.nodes import Graph, Node
from ...ir.passes.rewriter import Rewriter
from ...ir.symbolic.expr import is_symbolic, product
from ..analysis.dataflow import is_plain_view
from ..lower.builder import argument, opmath
from .column_folds import on_gpu, reduced

aten = torch.ops.aten
_SUMS = (aten.sum.default, aten.sum.dim_IntList)
_MEANS = (aten.mean.default, aten.mean.dim)


def row_sums(graph: Graph) -> Graph:
    """The graph with sums of row sums in place of sums over rows and more."""
    nodes = [node for node in graph.nodes if node.op == "call" and on_gpu(node)]
    if not any(node.target in (*_SUMS, *_MEANS) for node in nodes):
        return graph
    rows = {(node.args[0].meta.shape, dims) for node in nodes if (dims := reduced(node))}
    found = {node: dims for node in nodes if (dims := _row_of(node, rows))}
    if not found:
        return graph

    def split(at: Rewriter, node: Node) -> Node | None:
        return None if at.origin is None else _split(at, node, found[at.origin])

    return Rewriter(graph).walk(lambda node: (split,) if node in found else ())


def _row_of(node: Node, rows: set[tuple[tuple[int, ...], tuple[int, ...]]]) -> tuple[int, ...]:
    """The dimensions of a row, if this is a sum or a mean over those and others of a value that a
    kernel computes; else none.
    """
    if node.target not in (*_SUMS, *_MEANS):
        return ()
    x: Node = node.args[0]
    computed = x
    while is_plain_view(computed):
        computed = computed.alias  # type: ignore[assignment]
    if computed.op == "input" or not x.meta.dtype.is_floating_point:
        return ()
    if node.target in _MEANS and is_symbolic(x.meta.shape):
        return ()
    given = argument(node, 3, "dtype")
    if given in (torch.bfloat16, torch.float16) or not node.meta.dtype.is_floating_point:
        return ()
    dims = reduced(node)
    within = [row for shape, row in rows if shape == x.meta.shape and set(row) < set(dims)]
    return max(within, key=len, default=())


def _split(at: Rewriter, node: Node, row: tuple[int, ...]) -> Node:
    x, meta = node.args[0], node.meta
    dims, kept = reduced(node), bool(argument(node, 2, "keepdim", False))
    wide = opmath(meta.dtype)
    inner = at.call(aten.sum.dim_IntList, x, list(row), True, dtype=wide)
    found = at.call(aten.sum.dim_IntList, inner, list(dims), kept)
    if node.target in _MEANS:
        count = product(x.meta.shape[dim] for dim in dims)
        found = at.call(aten.div.Scalar, found, float(count))
    if meta.dtype != wide:
        found = at.call(aten._to_copy.default, found, dtype=meta.dtype)
    return found
