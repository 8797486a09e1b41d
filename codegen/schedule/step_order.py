"""Step order: the order of a program's steps.

`in_order(flow, units)` stays close to the order of the program. `put_off(...)` returns another
order, in which a step that makes memory runs shortly before its readers: projections whose products
come late, gradients that are returned. In that of `bring_forward(...)`, the last reader of a value
runs as soon as it can: the gradient of a bias with its update. Which order needs least memory is
only known together with in-place results (`inplace`), so `schedule.plan` compares them.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from ...ir.graph.effects import root
from ...ir.graph.nodes import Node
from ..analysis.dataflow import Flow
from ..fusion.fuse import Unit
from ..loops.kernel import Kernel
from . import peak_memory


def in_order(flow: Flow, units: list[Unit]) -> list[Unit]:
    """An order in which each unit comes after those directly before it, close to the order of the
    program.
    """
    position = {node: index for index, node in enumerate(flow.nodes)}
    last = {unit: max(position[node] for node in unit.nodes) for unit in units}
    missing = {unit: len(unit.before) for unit in units}
    ready = [(last[unit], unit.number, unit) for unit in units if not unit.before]
    heapq.heapify(ready)
    found: list[Unit] = []
    while ready:
        unit = heapq.heappop(ready)[2]
        found.append(unit)
        for later in unit.after:
            missing[later] -= 1
            if not missing[later]:
                heapq.heappush(ready, (last[later], later.number, later))
    if len(found) != len(units):
        raise AssertionError("the units of a graph follow each other in a circle")
    return found


def put_off(
    steps: Sequence[Kernel | Node], follows: Sequence[set[int]], flow: Flow
) -> list[Kernel | Node]:
    """The steps in an order that is built from the last step to the first.

    Next comes a step that needs less memory before it than after it, else the last one in the given
    order. follows[i]: positions of steps that step i follows.
    """
    given = _Backwards(steps, flow)
    waits = [0] * len(steps)
    for before in follows:
        for at in before:
            waits[at] += 1
    ready = [(given.key(at), at) for at in range(len(steps)) if not waits[at]]
    heapq.heapify(ready)
    found: list[Kernel | Node] = []
    placed: set[int] = set()
    while ready:
        key, at = heapq.heappop(ready)
        if at in placed:
            continue
        if key != given.key(at):  # placing other steps has changed its key
            heapq.heappush(ready, (given.key(at), at))
            continue
        placed.add(at)
        found.append(steps[at])
        changed = given.place(at)
        for other in follows[at]:
            waits[other] -= 1
        for other in {*follows[at], *changed}:
            if not waits[other] and other not in placed:
                heapq.heappush(ready, (given.key(other), other))
    found.reverse()
    return found


class _Backwards:
    """The values that are live before the placed steps."""

    def __init__(self, steps: Sequence[Kernel | Node], flow: Flow) -> None:
        self.uses = peak_memory.uses(steps, flow)
        self.size: dict[Node, int] = {
            node: peak_memory.size_of(node) for node in peak_memory.owned(flow)
        }
        # the number of makers that are not placed yet; a cat in parts has many
        self.makers: dict[Node, int] = {}
        self.readers: dict[Node, list[int]] = {}
        for at, (made, read) in enumerate(self.uses):
            for node in dict.fromkeys(made):
                self.size.setdefault(node, peak_memory.size_of(node))
                self.makers[node] = self.makers.get(node, 0) + 1
            for node in dict.fromkeys(read):
                self.readers.setdefault(node, []).append(at)
        self.live = {root(node) for node in flow.graph.outputs}

    def key(self, at: int) -> tuple[bool, int]:
        made, read = self.uses[at]
        more = sum(self.size.get(node, 0) for node in {*read} - {*made} if node not in self.live)
        less = sum(self.size[node] for node in {*made} & self.live if self.makers[node] == 1)
        return more >= less, -at

    def place(self, at: int) -> list[int]:
        """Place a step; returns the steps whose keys may have changed."""
        made, read = self.uses[at]
        changed: list[int] = []
        for node in dict.fromkeys(made):
            self.makers[node] -= 1
            if not self.makers[node]:
                self.live.discard(node)
        for node in {*read} - self.live:
            self.live.add(node)
            changed += self.readers[node]
        return changed


# steps that come forward together: the last reader of a value, and those around it
MOST_TOGETHER = 8


def bring_forward(
    steps: Sequence[Kernel | Node], follows: Sequence[set[int]], flow: Flow
) -> list[Kernel | Node]:
    """The steps in the given order, except that the last reader of a value comes as soon as that
    frees memory, with the few steps that it waits for or that read its results. `follows`: as in
    `put_off`.
    """
    given = _Forwards(steps, follows, flow)
    for at in range(len(steps)):
        waiting = [] if at in given.placed else given.place(at)
        while waiting:
            group = given.group(waiting.pop())
            if given.frees(group):
                for one in group:
                    waiting += given.place(one)
    return [steps[at] for at in given.placed]


class _Forwards:
    """The values that the steps still to be placed read."""

    def __init__(
        self, steps: Sequence[Kernel | Node], follows: Sequence[set[int]], flow: Flow
    ) -> None:
        self.uses, self.follows = peak_memory.uses(steps, flow), follows
        self.placed: dict[int, None] = {}
        made = {node for makes, _ in self.uses for node in makes}
        self.size = {node: peak_memory.size_of(node) for node in (*peak_memory.owned(flow), *made)}
        # the steps that have to come before a value is free; None: the caller gets it
        self.left: dict[Node, set[int | None]] = {}
        for at, used in enumerate(self.uses):
            for node in {*used[0], *used[1]} & self.size.keys():
                self.left.setdefault(node, set()).add(at)
        for node in flow.graph.outputs:
            self.left.setdefault(root(node), set()).add(None)

    def place(self, at: int) -> list[int]:
        """Place a step; returns those that are now the last users of a value."""
        self.placed[at] = None
        found: list[int] = []
        for node in {*self.uses[at][0], *self.uses[at][1]} & self.size.keys():
            self.left[node].discard(at)
            if len(self.left[node]) == 1:
                found += [one for one in self.left[node] if one is not None]
        return sorted(found)

    def group(self, last: int) -> list[int]:
        """A step, what must come before it, and what ends its results, in order; empty if it is
        placed or these are many steps.
        """
        group, waiting = set[int](), [last]
        while waiting and len(group) < MOST_TOGETHER:
            at = waiting.pop()
            if at not in self.placed and at not in group:
                group.add(at)
                waiting += self.follows[at]
                waiting += self._enders(at, group) if not waiting else ()
        return [] if waiting else sorted(group)

    def _enders(self, at: int, group: set[int]) -> set[int]:
        """The steps that may come next and read what this one makes."""
        readers = {one for node in self.uses[at][0] for one in self.left.get(node, ())} - group
        placed = self.placed.keys() | group
        return {one for one in readers if one is not None and self.follows[one] <= placed}

    def frees(self, group: Sequence[int]) -> bool:
        """Whether less memory is alive when these have run."""
        inside = set(group)
        used = {node: None for at in group for part in self.uses[at] for node in part}
        made = {node for at in group for node in self.uses[at][0]}
        change = 0
        for node in used.keys() & self.size.keys():
            change += self.size[node] * (node in made)
            change -= self.size[node] * (self.left[node] <= inside)
        return change < 0
