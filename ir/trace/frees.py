"""What the backwards of a trace's results free.

In eager mode a backward that does not retain the graph runs the nodes between the results that have
a gradient and the tensors whose gradients it computes, and frees what these nodes have saved. With
`backward(inputs=[result])` it runs the node of that result too.
`ir.trace.joint` calls `frees_of` inside a trace; `runtime.autograd.lasting` follows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import TopologicalSorter
from typing import Any

from .inner_results import nodes_behind, saves


def frees_of(
    _owner: Any, results: Sequence[Any], views: Sequence[Any], leaves: Mapping[int, int], n: int
) -> tuple[tuple[int, int], ...]:
    """For the nodes that drop what they need, each pair once: the results that one is behind, as
    bits, and the inputs and results that it is before, as bits: first the `n` inputs, then the
    results, whose own nodes are before them, then the `views` that results depend on. `leaves`: id
    of a leaf -> its position."""
    stops: dict[Any, int] = {}
    for number, node in enumerate((*results, *views), n):
        stops[node] = stops.get(node, 0) | 1 << number
    behind: dict[Any, list[Any]] = {}
    before: dict[Any, int] = {}
    for node in nodes_behind(results, stops):
        following = [one for one, _ in getattr(node, "next_functions", ()) if one is not None]
        behind[node] = [one for one in following if one not in stops]
        at = leaves.get(id(getattr(node, "variable", node)))
        before[node] = stops.get(node, 0) if at is None else 1 << at
        for one in stops.keys() & following:
            before[node] |= stops[one]
    order = list(TopologicalSorter(behind).static_order())
    for node in order:
        for one in behind[node]:
            before[node] |= before[one]
    masks = dict.fromkeys(behind, 0)
    for at, node in enumerate(results):
        masks[node] |= 1 << at
    found: dict[tuple[int, int], None] = {}
    # those before come last
    for node in reversed(order):
        for one in behind[node]:
            masks[one] |= masks[node]
        if _frees(node):
            found[masks[node], before[node]] = None
    return tuple(found)


def _frees(node: Any) -> bool:
    """Whether a node of autograd drops what it needs: a write to a part of memory drops the node of
    what is written."""
    return type(node).__name__ == "CopySlices" or saves(node)
