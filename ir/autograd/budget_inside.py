"""Memory budgets of a backward inside the graph: a whole training step with `memory_budget`.

In: a graph that contains a backward, before its passes run, and a budget. Out: a graph whose
backward computes more values of the forward again. Forward and backward are one program, which
keeps a value from the forward to its last reader: all that the backward reads. A float is a part of
these bytes, a whole number is a number of bytes. `ir.autograd.budget` chooses what is kept; the
rest is computed shortly before its first reader in the backward, behind borders, so that no pass
merges it with the first computation. Parameters may be written to after that (an optimizer's
update); what reads memory that is written earlier is not computed again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..graph.effects import reads, root, uses, writes
from ..graph.interpreter import moved
from ..graph.nodes import Graph, Meta, Node
from ..ops.region_borders import NO_REGION, again
from ..trace.joint_graph import Trade
from .budget import Choices, is_repeatable, limit_of, seconds, within
from .partition import is_cheap, nbytes_of


def within_budget(graph: Graph, budget: float) -> tuple[Graph, Trade]:
    """(the graph whose backward finds at most so much of the forward, what that changes)"""
    return _Inside(graph).made(budget)


class _Inside:
    """A graph, divided at `Graph.forward_end`."""

    def __init__(self, graph: Graph) -> None:
        end = graph.forward_end or 0
        self.graph = graph
        self.forward, self.behind = graph.nodes[:end], graph.nodes[end:]
        self.inside = set(self.forward)
        self.at = {node: position for position, node in enumerate(graph.nodes)}
        self.needed = {one for node in self.behind for one in uses(node) if one in self.inside}
        # the position where the last of them is read for the first time
        first = {one: at for at, node in reversed(self._behind()) for one in uses(node)}
        self.last = max((first[one] for one in self.needed), default=0)
        self.written: dict[Node, list[int]] = {}
        for node in graph.nodes:
            for target in writes(node):
                self.written.setdefault(root(target), []).append(self.at[node])
        # memory that lives on anyway
        self.alive = {*graph.inputs, *map(root, graph.outputs)}

    def _behind(self) -> list[tuple[int, Node]]:
        return [(self.at[node], node) for node in self.behind]

    def made(self, budget: float) -> tuple[Graph, Trade]:
        most = self._bytes({root(node) for node in self.needed})
        limit = limit_of(budget, most)
        if most <= limit:
            return self.graph, Trade(most)
        order = [*self.graph.inputs, *self.forward]
        choices = Choices(self.needed, order, self._cost, self._is_free, self._is_repeatable)
        kept = within(choices, limit, self._bytes)
        nodes, now = self._behind_copies(kept)
        saved = self._bytes(kept)
        run = [node for node in now if self._computes(node)]
        trade = Trade(saved, most - saved, len(run), sum(map(seconds, run)))
        outputs = [now.get(node, node) for node in self.graph.outputs]
        return replace(self.graph, nodes=[*self.forward, *nodes], outputs=outputs), trade

    def _computes(self, node: Node) -> bool:
        return node in self.inside and node.op == "call" and node.alias is None

    # -- what may be chosen

    def _bytes(self, nodes: Iterable[Node]) -> int:
        return sum(nbytes_of(node) for node in nodes if 0 < self._cost(node) < float("inf"))

    def _cost(self, node: Node) -> float:
        """The cost of keeping a value, in bytes. A view is not kept; its base is."""
        if not isinstance(node.meta, Meta) or node.alias is not None:
            return float("inf")
        if node in self.alive or node.op in ("input", "constant"):
            return 0.0
        return float(nbytes_of(node)) + 1

    def _is_free(self, node: Node) -> bool:
        """Whether a value may be computed a second time, and costs little then."""
        if node.alias is not None:
            return True
        return is_cheap(node) and node not in self.written and self._operands_stay(node)

    def _is_repeatable(self, node: Node) -> bool:
        return node not in self.written and is_repeatable(node) and self._operands_stay(node)

    def _operands_stay(self, node: Node) -> bool:
        """Whether the operands have the same content wherever the backward may need the value."""
        return not any(
            self.at[node] < position <= self.last
            for one in reads(node)
            for position in self.written.get(root(one), ())
        )

    # -- the backward

    def _behind_copies(self, kept: set[Node]) -> tuple[list[Node], dict[Node, Node]]:
        """(the backward's nodes over copies of what is not kept, what replaces each old node)"""
        made: list[Node] = []
        now: dict[Node, Node] = {}
        borders: dict[Node, Node] = {}

        def operand(node: Node) -> Node:
            """An operand of a copy."""
            if node in now or not isinstance(node.meta, Meta):
                return now.get(node, node)
            if node not in borders:
                options, name = (node, NO_REGION), f"{node.name}_kept"
                borders[node] = Node("call", again, options, {}, node.meta, name, node.where)
                made.append(borders[node])
            return borders[node]

        for node in self.behind:
            for one in self._missing(node, kept, now):
                now[one] = moved(one, operand, f"{one.name}_again")
                made.append(now[one])
            if any(one in now for one in uses(node)):
                now[node] = node = moved(node, lambda one: now.get(one, one))
            made.append(node)
        return made, now

    def _missing(self, node: Node, kept: set[Node], now: dict[Node, Node]) -> list[Node]:
        """The values that must be computed again before the node, in the order of the program."""
        found: set[Node] = set()
        pending = list(uses(node))
        while pending:
            one = pending.pop()
            if one not in found and one not in now and self._runs_again(one, kept):
                found.add(one)
                pending += uses(one)
        return sorted(found, key=self.at.__getitem__)

    def _runs_again(self, node: Node, kept: set[Node]) -> bool:
        if node not in self.inside or node in kept:
            return False
        base = root(node)
        return base in self.inside and base not in kept and self._cost(base) != 0.0
