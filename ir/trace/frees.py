"""What the backwards of a trace's results free.

In eager mode a backward that does not retain the graph frees what the nodes that it runs have
saved: those behind a result with a gradient, and before an input whose gradient is asked for.
`ir.trace.joint` calls `frees_of` inside a trace; `runtime.autograd.lasting` follows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import TopologicalSorter
from typing import Any

from .inner_results import nodes_behind, saves
from .joint_graph import BEYOND


def frees_of(
    _owner: Any, results: Sequence[Any], ends: Sequence[Any], leaves: Mapping[int, int]
) -> tuple[tuple[int, int], ...]:
    """For the nodes that drop what they need, each pair once: the results that one is behind, as
    bits, and the inputs that it is before, as bits behind `BEYOND`, which stands for other results
    and the `ends`. `leaves`: id of a leaf -> its position."""
    stops = {*results, *ends}
    behind: dict[Any, list[Any]] = {}
    before: dict[Any, int] = {}
    for node in nodes_behind(results, stops):
        following = [one for one, _ in getattr(node, "next_functions", ()) if one is not None]
        behind[node] = [one for one in following if one not in stops]
        at = leaves.get(id(getattr(node, "variable", node)))
        before[node] = 0 if at is None else BEYOND << 1 + at
        if len(behind[node]) < len(following):
            before[node] |= BEYOND
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
