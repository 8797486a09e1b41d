"""Minimum vertex cut: the cheapest set of vertices that separates sources from sinks.

Vertices have capacities, edges have none: each vertex becomes an edge between two vertices, and
Dinic's algorithm finds a maximum flow (E. A. Dinic, "Algorithm for solution of a problem of maximum
flow in networks with power estimation", 1970). Of several cheapest cuts the result is the one
nearest to the sinks. `ir.autograd.partition` uses it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping

INFINITE = float("inf")


class Network:
    """Vertices by name. `cut` consumes the capacities: call it once."""

    def __init__(self) -> None:
        self._number: dict[Hashable, int] = {}
        # edge -> its end; edge ^ 1 is the reverse edge
        self._to: list[int] = []
        self._room: list[float] = []
        self._edges: list[list[int]] = [[], []]  # 0: the source, 1: the sink

    def vertex(self, name: Hashable, cost: float) -> None:
        """Add a vertex whose cut costs `cost`."""
        way_in = self._number[name] = len(self._edges)
        self._edges += [[], []]
        self._edge(way_in, way_in + 1, cost)

    def edge(self, before: Hashable, after: Hashable) -> None:
        self._edge(self._number[before] + 1, self._number[after], INFINITE)

    def source(self, name: Hashable, cost: float = INFINITE) -> None:
        """The vertex is a source, unless this edge is cut at its cost."""
        self._edge(0, self._number[name], cost)

    def sink(self, name: Hashable) -> None:
        self._edge(self._number[name] + 1, 1, INFINITE)

    def _edge(self, start: int, end: int, capacity: float) -> None:
        for at, to, left in ((start, end, capacity), (end, start, 0.0)):
            self._edges[at].append(len(self._to))
            self._to.append(to)
            self._room.append(left)

    def cut(self) -> set[Hashable]:
        """The vertices to cut. Raises ValueError if every cut is infinite."""
        while levels := self._levels():
            self._push(levels)
        reaching = self._reaching_sink()
        found = {
            name
            for name, way_in in self._number.items()
            if way_in + 1 in reaching and way_in not in reaching
        }
        if 0 in reaching:
            raise ValueError("no finite cut")
        return found

    def _levels(self) -> dict[int, int]:
        """Distances from the source along edges with free capacity; empty without a path."""
        levels, waiting = {0: 0}, deque([0])
        while waiting:
            at = waiting.popleft()
            for edge in self._edges[at]:
                to = self._to[edge]
                if self._room[edge] > 0 and to not in levels:
                    levels[to] = levels[at] + 1
                    waiting.append(to)
        return levels if 1 in levels else {}

    def _push(self, levels: Mapping[int, int]) -> None:
        """A blocking flow: paths along growing levels, with their least edge capacity."""
        passed: dict[int, int] = {}  # vertex -> number of its exhausted edges
        path: list[int] = []
        at = 0
        while True:
            if at == 1:
                narrow = min(self._room[edge] for edge in path)
                if narrow == INFINITE:
                    raise ValueError("no finite cut")
                for edge in path:
                    self._room[edge] -= narrow
                    self._room[edge ^ 1] += narrow
                at, path = 0, []
                continue
            onward = self._next(passed, at, levels)
            if onward is not None:
                path.append(onward)
                at = self._to[onward]
            elif path:
                at = self._to[path.pop() ^ 1]
                passed[at] += 1
            else:
                return

    def _next(self, passed: dict[int, int], at: int, levels: Mapping[int, int]) -> int | None:
        edges = self._edges[at]
        for place in range(passed.get(at, 0), len(edges)):
            edge = edges[place]
            if self._room[edge] > 0 and levels.get(self._to[edge]) == levels[at] + 1:
                passed[at] = place
                return edge
        passed[at] = len(edges)
        return None

    def _reaching_sink(self) -> set[int]:
        """The vertices from which the sink can still be reached."""
        reached, waiting = {1}, deque([1])
        while waiting:
            at = waiting.popleft()
            for back in self._edges[at]:
                before = self._to[back]
                if self._room[back ^ 1] > 0 and before not in reached:
                    reached.add(before)
                    waiting.append(before)
        return reached
