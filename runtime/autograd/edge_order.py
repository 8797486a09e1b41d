"""The order of a node's edges for which autograd's engine accumulates gradients as in eager mode.

The engine keeps the nodes that can run in a binary heap (C++'s `std::priority_queue`), by sequence
number. The nodes that accumulate gradients have the greatest number, so they run before any other
node, but in which order they leave the heap depends on that in which they entered it. Hooks on
leaves see this order. A compiled region returns all its gradients at once; `arranged` gives the
order of the edges for which they leave the heap in a given order. If other nodes wait in the heap
at that time, this holds for two leaves only (`runtime.autograd.leaf_order`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence


def arranged(inputs: Sequence[int], leaves: Sequence[int]) -> tuple[int, ...]:
    """The inputs in the order for edges. `leaves`: in the order in which their gradients should be
    accumulated; the others among the inputs have a history."""
    first = [at for at in leaves if at in inputs]
    others = [at for at in inputs if at not in first]
    if len(first) < 2:
        return tuple(inputs)
    pairs = zip(_left(len(first), len(others)), first, strict=True)
    return *(at for _, at in sorted(pairs)), *others


@functools.cache
def _left(leaves: int, others: int) -> tuple[int, ...]:
    """Which of the nodes leaves the heap first, second..., if those of leaves enter it first."""
    heap: list[tuple[int, int]] = []
    for number in range(leaves + others):
        heap.append((0, 0))
        _rise(heap, len(heap) - 1, (int(number < leaves), number))
    return tuple(_popped(heap) for _ in range(leaves))


def _rise(heap: list[tuple[int, int]], hole: int, item: tuple[int, int]) -> None:
    """Put an item into the hole, or above it, as `std::push_heap`."""
    while hole and heap[(hole - 1) // 2][0] < item[0]:
        heap[hole] = heap[(hole - 1) // 2]
        hole = (hole - 1) // 2
    heap[hole] = item


def _popped(heap: list[tuple[int, int]]) -> int:
    """Remove the first item, as `std::pop_heap`; its number."""
    first, last = heap[0], heap.pop()
    n, hole = len(heap), 0
    while 2 * hole + 1 < n:
        child = 2 * hole + 2
        if child == n or heap[child][0] < heap[child - 1][0]:
            child -= 1
        heap[hole] = heap[child]
        hole = child
    if heap:
        _rise(heap, hole, last)
    return first[1]
