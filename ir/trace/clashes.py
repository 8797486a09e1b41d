"""Which results of a trace cannot run their backwards one after the other.

In eager mode a backward that does not retain the graph frees what the nodes on its way have saved.
`ir.trace.joint` calls `clashes_of` inside a trace; `runtime.autograd.lasting` follows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import TopologicalSorter
from typing import Any

from .inner_results import nodes_behind, saves


def clashes_of(
    _owner: Any, results: Sequence[Any], ends: Sequence[Any]
) -> tuple[frozenset[int], ...]:
    """For each of these nodes those, by position, whose backward frees what it needs: a node that
    drops what it needs is behind both of them, before the others and the `ends`."""
    stops = {*results, *ends}
    behind: dict[Any, list[Any]] = {}
    for node in nodes_behind(results, stops):
        before = [one for one, _ in getattr(node, "next_functions", ())]
        behind[node] = [one for one in before if one is not None and one not in stops]
    # for each node the results that it is behind, as bits
    masks = dict.fromkeys(behind, 0)
    for at, node in enumerate(results):
        masks[node] |= 1 << at
    saving: set[int] = set()
    # those before come last
    for node in reversed(list(TopologicalSorter(behind).static_order())):
        mask = masks[node]
        for one in behind[node]:
            masks[one] |= mask
        if mask not in saving and _frees(node):
            saving.add(mask)
    numbers = range(len(results))
    return tuple(
        frozenset(by for by in numbers if any(mask >> at & mask >> by & 1 for mask in saving))
        for at in numbers
    )


def _frees(node: Any) -> bool:
    """Whether a node of autograd drops what it needs: a write to a part of memory drops the node of
    what is written."""
    return type(node).__name__ == "CopySlices" or saves(node)
