"""Values inside a trace that become results of its autograd nodes, though no user sees them.

Consider `h = x.sin(); y = h * h; return y, (y * h).sum()`. Gradients of both results meet at `h`,
and what comes before it has saved a value for both. If both were results of one node, no path would
lead from the second one to `y`. So `h` is a result with a node of its own, and the nodes of `y` and
of the sum lead to it, as in eager mode.

`hidden_results` follows the gradients from the results through autograd's graph. Where those of
different results meet in a node that has saved a value, the tensor before which they meet is such a
value. Results on which no other one depends, and that lead to the same histories, may share a node;
there nothing is hidden. Autograd runs all that a node leads to, also without a gradient: so a node
of results that lead to different histories would call hooks, or find a history freed, that in eager
mode only one of them comes to. `ir.trace.joint` calls it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any

from ..dataclass import dataclass
from ..errors import CannotTrace
from ..graph.effects import root, writes
from ..graph.nodes import Node
from .conditional import places, spans_of
from .inner_results import VALUE, edge_of, nodes_behind, saves

if TYPE_CHECKING:
    from .tracer import Tracer

_LED_APART = (
    "what two results share is inside a torch function, and they lead to different histories"
)

Edge = tuple[Any, int]  # a node of autograd and the number of its output


@dataclass(frozen=True, slots=True)
class Hidden:
    """A hidden result: the node of autograd that makes it, its place there, and its node."""

    function: Any
    number: int
    node: Node


def hidden_results(
    tracer: Tracer,
    results: Sequence[Any],
    inner: Iterable[int],
    views: Sequence[Any],
    further: Sequence[Any],
) -> tuple[Hidden, ...]:
    """The hidden results. `results`: the ghosts with a gradient, `inner`: the positions of those
    that others depend on, `views`: the ghosts of views that others depend on, `further`: the
    inputs, as leaves of the trace, that may have a history. Raises CannotTrace where results that
    lead to different histories would share a node."""
    if not views and not inner and (len(results) < 2 or not further):
        return ()
    search = partial(_Search, tracer, results, inner, views, further)
    found, _ = tracer.beside(lambda _owner: search().found())
    return found  # type: ignore[no-any-return]


class _Search:
    """The search. A source is a result, a view or a hidden result, by its edge."""

    def __init__(
        self,
        tracer: Tracer,
        results: Sequence[Any],
        inner: Iterable[int],
        views: Sequence[Any],
        further: Sequence[Any],
    ) -> None:
        self.values, nodes = tracer.values()
        self.written = {root(target) for node in nodes for target in writes(node)}
        ends = list(map(edge_of, (*results, *views)))
        self.ends: set[Edge] = set(ends)
        self.inner = {ends[at] for at in inner} | set(ends[len(results) :])
        self.consumers: dict[Edge, set[Any]] = {}
        order = TopologicalSorter[Any]()
        for function in nodes_behind(function for function, _ in ends):
            order.add(function)
            for before, number in function.next_functions:
                if before is not None:
                    self.consumers.setdefault((before, number), set()).add(function)
                    order.add(before, function)
        self.order = list(order.static_order())
        self.outputs: dict[Any, set[int]] = {}
        for function, number in (*self.consumers, *ends):
            self.outputs.setdefault(function, set()).add(number)
        self.saving = {function: saves(function) for function in self.order}
        self.further = set(map(id, further))
        # What is inside a part that data skip is no value of the graph: it has one before it.
        inside = places(self.order, spans_of(tracer))
        if inside:
            self._save_before(inside)

    def _save_before(self, inside: dict[Any, Any]) -> None:
        """Take nodes whose gradients pass into a part, with no saved value between, as those that
        have saved one."""
        enters: set[Any] = set()
        for function in reversed(self.order):
            behind = [before for before, _ in function.next_functions if before is not None]
            here = any(inside.get(one) or one in enters for one in behind)
            if here and not inside[function] and not self.saving[function]:
                enters.add(function)
        self.saving |= dict.fromkeys(enters, True)

    def found(self) -> tuple[Hidden, ...]:
        sources, hidden = self._flow(set())
        groups = self._groups(sources)
        bad = set[Edge]().union(*(one for one in groups if not one.isdisjoint(self.inner)))
        new = bad | self._led_apart(groups, self.inner)
        while new:
            bad |= new
            sources, hidden = self._flow(bad)
            parted = self.inner | self._own(hidden)
            remaining = self._led_apart(self._groups(sources), parted)
            if remaining and bad.issuperset(remaining):
                raise CannotTrace(_LED_APART)
            new = remaining - bad
        return tuple(hidden)

    def _groups(self, sources: dict[Any, set[Edge]]) -> list[set[Edge]]:
        """The sources that share saved values."""
        groups: list[set[Edge]] = []
        for function in self.order:
            if len(sources[function]) > 1 and self.saving[function]:
                mine = sources[function]
                others = [one for one in groups if one.isdisjoint(mine)]
                groups = [*others, mine.union(*(one for one in groups if one not in others))]
        return groups

    def _led_apart(self, groups: Iterable[set[Edge]], parted: set[Edge]) -> set[Edge]:
        """The sources of the groups that lead to different histories: those of inputs, and of
        results that are `parted`."""
        leads: dict[Any, set[Any]] = {}
        for function in reversed(self.order):
            mine = leads[function] = set[Any]()
            for edge in getattr(function, "next_functions", ()):
                before = edge[0]
                if edge in parted:
                    mine.add(edge)
                elif id(getattr(before, "variable", None)) in self.further:
                    mine.add(before)
                elif before is not None:
                    mine |= leads[before]
        differ = (one for one in groups if len({frozenset(leads[f]) for f, _ in one}) > 1)
        return set[Edge]().union(*differ)

    def _flow(self, apart: set[Edge]) -> tuple[dict[Any, set[Edge]], list[Hidden]]:
        """The sources whose gradients reach each node, and the hidden results that keep those in
        `apart` from meeting in a node that has saved a value."""
        sources: dict[Any, set[Edge]] = {}
        # nodes in which gradients meet, or that follow such nodes without a saved value
        meets: dict[Any, bool] = {}
        hidden: list[Hidden] = []
        for function in self.order:
            mine: set[Edge] = set()
            meeting = False
            for number in self.outputs[function]:
                edge = function, number
                if edge in self.ends:
                    mine.add(edge)
                    continue
                before = self.consumers[edge]
                whole = set[Edge]().union(*(sources[one] for one in before))
                here = any(sources[one] != whole or meets[one] for one in before)
                one = self._hidden(edge) if here and apart and self.saving[function] else None
                if one is not None and (not whole.isdisjoint(apart) or whole & self._own(hidden)):
                    hidden.append(one)
                    mine.add(edge)
                else:
                    mine |= whole
                    meeting |= here
            sources[function], meets[function] = mine, meeting and not self.saving[function]
        return sources, hidden

    def _own(self, hidden: Sequence[Hidden]) -> set[Edge]:
        return {(one.function, one.number) for one in hidden}

    def _hidden(self, edge: Edge) -> Hidden | None:
        """The hidden result of an edge; None if it is no value of the torch level."""
        function, number = edge
        ref = function.metadata.get((VALUE, number))
        if ref is None:
            return None
        node = self.values[ref]
        if node.alias is not None or node.op not in ("call", "get") or node in self.written:
            return None
        return Hidden(function, number, node)
