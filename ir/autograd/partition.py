"""Partition: divides a graph and its backward into a forward graph and a backward graph.

First the two are one graph, which runs through all passes. Then each value of the forward that the
backward reads is either saved or computed again, by a minimum cut on bytes: pointwise operators,
views and casts may run again at no cost; products, reductions, gathers and random numbers are not
repeated. Memory that the program can write (inputs, results) is saved only where autograd itself
saves it, so that a write in between raises exactly where eager raises; of other such memory a copy
is saved. The cut that autograd chooses is always one of the candidates: no more memory is kept than
in eager. A memory budget (`ir.autograd.budget`) lets more be computed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch

from ..dataclass import dataclass
from ..errors import NoRule
from ..graph.effects import is_random, reads, root, writes
from ..graph.interpreter import moved
from ..graph.layout import numel
from ..graph.nodes import Graph, Meta, Node, meta_args
from ..graph.opdef import OPS
from ..graph.schema import plan_of
from ..ops.region_borders import BORDERS, again
from ..passes.pipeline import PassRecord, drop_dead, optimize
from ..passes.rewriter import Rewriter, apply_table
from ..symbolic.expr import Symbol, Undecided, hint_of, symbols_of
from ..trace.autocast_cache import cached_cast
from ..trace.conditional import marked, unmarked
from ..trace.joint_graph import Joint, Trade
from .budget import Choices, is_repeatable, limit_of, on_demand, seconds, within
from .min_cut import Network
from .needs import Needs, with_copies
from .segments import Segment

aten = torch.ops.aten
# Kinds of operators that may run twice.
AGAIN = frozenset({"pointwise", "view", "create", "copy"})
# Cost factor of a saved copy: it is written and read in addition.
COPY = 3


@dataclass(frozen=True, slots=True)
class Halves:
    """Forward and backward graphs with their connection.

    forward     outputs: the pieces of memory that the graph gives (`ir.trace.output_views`), then
    the
                values that it saves for the backward
    backward    inputs: saved values, the gradients of the results; then numbers
    saved       origin of each saved value: ("input", position), ("output", position), ("made",
                position among the forward's further outputs) or ("constant", tensor); last
                ("current", position): an input as it is when the backward runs, or, with ~position,
                an output
    witnesses   positions of the outputs that autograd saves: their versions must not change, even
                if another value is saved in their place
    gradients   per wanted input: the position among the backward's outputs, or None
    trade       what is saved, and what a memory budget changes
    apart       for each saved value the segments, by number, that read it as it is when the
                backward runs, though autograd saves it for others
    """

    forward: Graph
    backward: Graph
    saved: tuple[tuple[str, Any], ...]
    witnesses: tuple[int, ...]
    gradients: tuple[int | None, ...]
    trade: Trade = Trade()
    apart: tuple[frozenset[int], ...] = ()


def is_cheap(node: Node) -> bool:
    """Whether an operator that runs again costs little: it is fused with its readers."""
    row = plan_of(node.target).row if node.op == "call" else None
    return row is not None and row.kind in AGAIN and not is_random(node)


def divide(
    graph: Graph,
    *,
    budget: float | None = None,
    check: bool = False,
    show: Any = None,
    records: list[PassRecord] | None = None,
    segments: Sequence[Segment] = (),
) -> Halves:
    """The halves of a graph whose `joint` is a Joint. `budget`: see `JitConfig.memory_budget`;
    `records` gets an entry per pass; `segments`: where there are several."""
    whole = joined(graph)
    nodes, when = unmarked(whole.nodes)
    if when:
        # A value of a part is not there for others: the passes run over each part for itself.
        whole = drop_dead(replace(whole, nodes=nodes))
    else:
        whole = optimize(whole, check=check, show=show, records=records)
    whole = with_copies(whole, graph.joint, segments)
    return _Division(graph, whole, budget, Needs(whole, graph.joint, segments), when).halves()


def _below(graph: Graph, **changes: Any) -> Graph:
    """The graph with `changes`, without its torch level and without a gradient requirement."""
    bare: dict[str, Any] = {
        "calls": [],
        "call_outputs": [],
        "constants": {},
        "values": (),
        "needs_grad": False,
        "joint": None,
    }
    return replace(graph, **bare, **changes)


def joined(graph: Graph) -> Graph:
    """Forward and backward as one graph; its outputs are the results, then the gradients."""
    joint: Joint = graph.joint
    made = _below(
        graph,
        inputs=[*graph.inputs, *joint.tangents],
        nodes=[*graph.nodes, *joint.nodes],
        outputs=[*joint.pieces, *(node for node in joint.gradients if node is not None)],
        sources=[*graph.sources, *[None] * len(joint.tangents)],
    )
    return apply_table({cached_cast: (_plain_cast,)})(made)


def _plain_cast(at: Rewriter, node: Node) -> Node | None:
    """A cast without a look-up in autocast's cache, which must hold casts with a history."""
    weight, dtype, _ = node.args
    return at.call(aten._to_copy.default, weight, dtype=dtype)


class _Division:
    """One division. `kept`: memory that autograd saves itself; `seen`: memory of results; `when`:
    of nodes in parts with a condition (`ir.trace.conditional`)."""

    def __init__(
        self,
        graph: Graph,
        whole: Graph,
        budget: float | None,
        needs: Needs,
        when: dict[Node, tuple[Any, ...]],
    ) -> None:
        self.when = when
        joint = graph.joint
        self.budget, self.trade, self.needs = budget, Trade(), needs
        n = len(joint.pieces)
        self.graph, self.joint, self.whole = graph, joint, whole
        self.results, self.gradients = whole.outputs[:n], whole.outputs[n:]
        self.tangents = whole.inputs[len(graph.inputs) :]
        self.kept_outputs = {at for at, node in enumerate(joint.pieces) if root(node) in joint.kept}
        self.kept = {node for node in joint.kept if node.op in ("input", "constant")}
        self.kept |= {root(self.results[at]) for at in self.kept_outputs}
        self.seen = {root(node) for node in self.results}
        # Memory that others can write, and that the backward reads as it is when it runs, as eager
        # mode does: what only regions and attributes of contexts read.
        again_read = {root(node.args[0]) for node in whole.nodes if node.target is again}
        self.current = {one for one in again_read if one.op == "input" or one in self.seen}
        self.current -= self.kept
        self.written = {root(target) for node in whole.nodes for target in writes(node)}
        # Memory that is read during the forward and may have other content later.
        self.changing = self.written | self.current | {graph.inputs[at] for at in graph.written}
        self.behind = self._behind()
        # Nodes of which no copy can be saved: the backward cannot compute with the copy's layout.
        self.never_copied: set[Node] = set()

    def _behind(self) -> set[Node]:
        """The nodes that depend on a gradient, or use memory that such a node writes."""
        behind: set[Node] = set(self.tangents)
        memory: set[Node] = set()
        while True:
            before = len(behind), len(memory)
            for node in self.whole.nodes:
                targets = {root(target) for target in writes(node)}
                if (
                    root(node) in memory
                    or node.target is again
                    or any(one in behind for one in reads(node))
                    or targets & memory
                ):
                    behind.add(node)
                    memory |= targets
            if before == (len(behind), len(memory)):
                return behind

    # -- the cut

    def halves(self) -> Halves:
        needed = self._needed()
        order = [*self.whole.inputs, *self.whole.nodes]
        while True:
            cut = self._within(needed, self._cut(needed))
            chosen = [node for node in order if node in cut]
            chosen.sort(key=self.current.__contains__)
            try:
                backward = self._backward(chosen)
                forward, saved = self._forward(chosen)
                break
            except _CannotCopy as error:
                self.never_copied.update(error.nodes)
        numbers = iter(range(len(self.gradients)))
        places = tuple(None if node is None else next(numbers) for node in self.joint.gradients)
        saved_outputs = {at for kind, at in saved if kind == "output"}
        witnesses = tuple(sorted(self.kept_outputs - saved_outputs))
        apart = tuple(map(self.needs.reads_apart, chosen))
        return Halves(forward, backward, tuple(saved), witnesses, places, self.trade, apart)

    def _needed(self) -> set[Node]:
        """The values of the forward that the backward reads."""
        live = set(self.gradients)
        for node in reversed(self.whole.nodes):
            if node in self.behind and (node in live or writes(node) or is_random(node)):
                live.update(reads(node))
        return live - self.behind

    def _cut(self, needed: set[Node]) -> set[Node]:
        """The values to save."""
        network = Network()
        pending, seen = list(needed), set(needed)
        edges: list[tuple[Node, Node]] = []
        while pending:
            node = pending.pop()
            network.vertex(node, self._cost(node))
            if self._again(node):
                for operand in dict.fromkeys(reads(node)):
                    edges.append((operand, node))
                    if operand not in seen:
                        seen.add(operand)
                        pending.append(operand)
            else:
                network.source(node)
        for before, after in edges:
            network.edge(before, after)
        for node in needed:
            network.sink(node)
        return network.cut()  # type: ignore[return-value]

    def _within(self, needed: set[Node], least: set[Node]) -> set[Node]:
        """The values to save under the budget; `least`: those of the minimum cut."""
        most = self._saved_bytes(least)
        limit = most if self.budget is None else limit_of(self.budget, most)
        if most <= limit:
            self.trade = Trade(most)
            return least
        order = [*self.whole.inputs, *self.whole.nodes]
        choices = Choices(needed, order, self._cost, self._again, self._repeatable)
        found = within(choices, limit, self._saved_bytes)
        more = set(self._to_run(found)) - set(self._to_run(least)) - self.behind
        again = [node for node in more if node.op == "call" and node.alias is None]
        saved = self._saved_bytes(found)
        self.trade = Trade(saved, most - saved, len(again), sum(map(seconds, again)))
        return found

    def _saved_bytes(self, nodes: Iterable[Node]) -> int:
        """Bytes that are kept for the backward alone."""
        return sum(nbytes_of(node) for node in nodes if self._cost(node))

    def _repeatable(self, node: Node) -> bool:
        """Whether a value may be computed a second time under a budget."""
        return node not in self.written and is_repeatable(node) and self._operands_stay(node)

    def _again(self, node: Node) -> bool:
        """Whether a value may be computed a second time from its operands."""
        if node.alias is not None:
            return True
        return is_cheap(node) and node not in self.written and self._operands_stay(node)

    def _operands_stay(self, node: Node) -> bool:
        """Whether the operands of a value have the same content in the backwards that need it, or
        autograd refuses these."""
        stay = not any(root(one) in self.changing for one in reads(node))
        return stay and self.needs.may_read(node)

    def _cost(self, node: Node) -> float:
        """The cost of saving a value, in bytes. A view is not saved; its base is."""
        if not isinstance(node.meta, Meta) or node.alias is not None:
            return float("inf")
        if node in self.kept or (node.op == "constant" and node.args == ("own",)):
            return 0.0
        if node in self.current:
            return 0.0
        if node in self.never_copied:
            return float("inf")
        return float(nbytes_of(node)) * (COPY if self._is_copied(node) else 1) + 1

    def _is_copied(self, node: Node) -> bool:
        """Whether the program may write to memory that autograd would not have saved."""
        outside = node.op in ("input", "constant") or node in self.seen
        return outside and node not in self.kept and node not in self.current

    # -- the two graphs

    def _forward(self, chosen: list[Node]) -> tuple[Graph, list[tuple[str, Any]]]:
        outputs = list(self.results)
        nodes = [node for node in self.whole.nodes if node not in self.behind]
        saved: list[tuple[str, Any]] = []
        for node in chosen:
            way = self._way(node)
            if way is not None:
                saved.append(way)
                continue
            if self._is_copied(node):
                options, meta = _copied(node)
                node = Node(
                    "call",
                    aten.clone.default,
                    (node,),
                    options,
                    meta,
                    f"{node.name}_kept",
                    node.where,
                )
                nodes.append(node)
            saved.append(("made", len(outputs) - len(self.results)))
            outputs.append(node)
        joined = frozenset(at for at, node in enumerate(self.results) if node.op != "input")
        changes = {"nodes": nodes, "outputs": outputs, "joined": joined, "symbols": self._symbols()}
        return _marked(drop_dead(_below(self.graph, **changes)), self.when), saved

    def _symbols(self) -> dict[Symbol, tuple[Any, ...]]:
        """The origins of the symbols, where numbers from tensor data are read from pieces."""
        graph, pieces = self.graph, self.joint.pieces
        return {
            symbol: ("data", pieces.index(graph.outputs[of[1]]), *of[2:]) if of[0] == "data" else of
            for symbol, of in graph.symbols.items()
        }

    def _way(self, node: Node) -> tuple[str, Any] | None:
        """How a value that exists anyway is saved; None if the forward has to output it."""
        if node.op == "constant" and (node in self.kept or node.args == ("own",)):
            return "constant", node.target
        if node in self.current:
            if node.op == "input":
                return "current", node.target
            at = next((at for at, one in enumerate(self.results) if one is node), None)
            return None if at is None else ("current", ~at)
        if node not in self.kept:
            return None
        if node.op == "input":
            return "input", node.target
        return next((("output", at) for at, one in enumerate(self.results) if one is node), None)

    def _backward(self, chosen: list[Node]) -> Graph:
        now: dict[Node, Node] = {}
        inputs: list[Node] = []
        copies = {node for node in chosen if self._way(node) is None and self._is_copied(node)}
        for node in (*chosen, *self.tangents):
            meta = _copied(node)[1] if node in copies else node.meta
            now[node] = Node("input", len(inputs), meta=meta, name=node.name, where=node.where)
            inputs.append(now[node])
        nodes: list[Node] = []
        when: dict[Node, tuple[Any, ...]] = {}
        saved = set(chosen)
        # copies with another layout
        other = {node for node in copies if now[node].meta != node.meta}
        for node in self._to_run(saved):
            # What an inner region reads of the outer one's copy stays apart from it, or passes
            # would merge the two copies, whose values would live on.
            if node.target in BORDERS and (node.target is not again or node.args[0] in saved):
                now[node] = now[node.args[0]]
                continue
            now[node] = moved(node, now.__getitem__)
            nodes.append(now[node])
            if node in self.when:
                when[now[node]] = self.when[node]
            if other and not other.isdisjoint(reads(node)):
                meta = _by_rule(now[node], copies)
                if meta != node.meta:
                    now[node].meta = meta
                    other.add(node)
        if not other.isdisjoint(node for node in self.gradients if node is not None):
            raise _CannotCopy(copies)
        graph, used = (
            self.graph,
            symbols_of([[n.meta, n.args, n.kwargs] for n in (*inputs, *nodes)]),
        )
        used |= symbols_of([*when.values(), self.joint.when, self.joint.tracked])
        numbers = sorted(used, key=lambda symbol: symbol.name)
        made = _below(
            graph,
            name=f"{graph.name}_backward",
            inputs=inputs,
            nodes=nodes,
            outputs=[now[node] for node in self.gradients],
            mutates=False,
            apart=False,
            consumes=True,
            own=frozenset(at for at, node in enumerate(chosen) if self._way(node) is None),
            random=any(map(is_random, nodes)),
            sources=[None] * len(inputs),
            overlaps=[],
            written=[],
            symbols={s: ("number", len(inputs) + k) for k, s in enumerate(numbers)},
            numbers=numbers,
            # The forward has checked those on other numbers.
            required=[one for one in graph.required if symbols_of((one.left, one.right)) <= used],
        )
        return _marked(drop_dead(made), when)

    def _to_run(self, cut: set[Node]) -> list[Node]:
        """The nodes of the backward in order, including those computed again."""
        wanted: set[Node] = set(self.gradients)
        found: list[Node] = []
        for node in reversed(self.whole.nodes):
            mine = node in self.behind
            if node in cut or not (node in wanted or (mine and (writes(node) or is_random(node)))):
                continue
            found.append(node)
            wanted.update(reads(node))
            if node.alias is not None:
                wanted.add(node.alias)
        found.reverse()
        if self.when:  # what a part computes again is computed where the backward has the part
            return on_demand(found, self.behind | {one for one in found if one not in self.when})
        return found if self.budget is None else on_demand(found, self.behind)


def _marked(graph: Graph, when: dict[Node, tuple[Any, ...]]) -> Graph:
    return replace(graph, nodes=marked(graph.nodes, when)) if when else graph


class _CannotCopy(Exception):
    """A copy of one of these nodes cannot be saved in its place."""

    def __init__(self, nodes: set[Node]) -> None:
        super().__init__()
        self.nodes = nodes


def nbytes_of(node: Node) -> int:
    return numel(tuple(map(hint_of, node.meta.shape))) * node.meta.dtype.itemsize


def _copied(node: Node) -> tuple[dict[str, Any], Meta]:
    """(options of clone, Meta of the copy), dense. With unknown strides the copy is contiguous."""
    clone, plain = aten.clone.default, {"memory_format": torch.contiguous_format}
    rule = OPS[str(clone)].rule
    try:
        return {}, rule(clone, node.meta)
    except Undecided:
        return plain, rule(clone, node.meta, **plain)


def _by_rule(node: Node, copies: set[Node]) -> Any:
    """Meta of a node over operands of another layout."""
    if node.op == "get":
        return node.args[0].meta[node.target]
    row = OPS.get(str(node.target))
    if row is None:
        raise _CannotCopy(copies)
    kwargs = {name: meta_args(value) for name, value in node.kwargs.items()}
    try:
        return row.rule(node.target, *meta_args(node.args), **kwargs)
    except (NoRule, Undecided, RuntimeError):
        raise _CannotCopy(copies) from None
