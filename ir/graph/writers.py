"""The nodes of a trace that write, kept while it grows: a trace has many nodes, of which few write.

In: the nodes recorded so far. Out: those that write to memory, with their places and targets.
`asked` and `certain` look at them for each condition of a walk.
"""

from __future__ import annotations

from collections.abc import Sequence

from .effects import root, writes
from .nodes import Node


class Writers:
    """`nodes`: (place, node, its targets); `has_parts`: some run only if a number is not zero."""

    def __init__(self) -> None:
        self.nodes: list[tuple[int, Node, list[Node]]] = []
        self.has_parts = False
        self._last: Node | None = None
        self._seen = 0

    def of(self, recorded: Sequence[Node]) -> Writers:
        """Itself, up to date."""
        seen = self._seen
        if seen > len(recorded) or (seen and recorded[seen - 1] is not self._last):
            # the trace has forgotten nodes
            seen, self.nodes, self.has_parts = 0, [], False
        for at in range(seen, len(recorded)):
            one = recorded[at]
            if targets := writes(one):
                self.nodes.append((at, one, targets))
            self.has_parts |= getattr(one.target, "_opname", "") == "only_if"
        self._seen = len(recorded)
        self._last = recorded[-1] if recorded else None
        return self

    def memory(self) -> set[Node]:
        """The nodes that made the memory which is written."""
        return {root(target) for _, _, targets in self.nodes for target in targets}

    def of_memory(self, memory: set[Node]) -> list[tuple[int, Node]]:
        """The nodes that write to this memory, with their places."""
        return [
            (at, one)
            for at, one, targets in self.nodes
            if any(root(target) in memory for target in targets)
        ]
