"""Segments: results of a graph that are differentiated apart, or one by another.

In eager mode each result of a function has an autograd node of its own. Two results can be
differentiated one after the other if no node between them and the leaves has saved a value for
both. A gradient with respect to a result exists if another result's history passes through it.
`segments_of(graph)` finds both facts in the backward of a joint graph:

- the results that share saved values are one segment, as the first backward frees these values;
- where a segment depends on a result of another one, the gradient that it adds to that result is an
  output of its own (a contribution), which autograd adds to the result's gradient.

`parts_of(backward, ...)` gives the backward of each segment. `codegen.segments` makes programs of
them. A graph with one segment is left as it is.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from graphlib import TopologicalSorter

import torch

from ..dataclass import dataclass
from ..graph.effects import operands, reads, root, writes
from ..graph.nodes import Call, Graph, Node, Ref
from ..trace.joint import Joint
from .partial_backward import dependences, without
from .partition import moved

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Segment:
    """Results that are differentiated together. Positions of results are those in
    `Joint.results`.

    results        its results
    contributions  (result of another segment, position in `Segments.joint.gradients`) of each
                   gradient that this segment adds to that result's gradient
    kept           memory of the graph (roots) that autograd itself saves for this segment
    """

    results: tuple[int, ...]
    contributions: tuple[tuple[int, int], ...]
    kept: frozenset[Node]


@dataclass(frozen=True, slots=True)
class Segments:
    """The joint graph whose `gradients` end with the contributions, and its segments. A segment
    comes after those whose results it depends on."""

    joint: Joint
    segments: tuple[Segment, ...]
    inner: frozenset[int]  # results that other results of their own segment depend on


def segments_of(graph: Graph) -> Segments | None:
    """The segments of a graph with a Joint; None if there is one only."""
    joint: Joint = graph.joint
    if len(joint.results) < 2 or not _is_plain(graph):
        return None
    search = _Search(graph)
    if any(joint.arrived[at] is None for at in search.inner):
        return None
    return search.found()


def _is_plain(graph: Graph) -> bool:
    """Whether no result is an input, or a view that another result depends on. A segment's calls
    take a result that another depends on as an input, without the history of a backward's."""
    joint = graph.joint
    pieces = set(joint.pieces)
    if (graph.spends and joint.inner) or any(node.op == "input" for node in joint.pieces):
        return False
    return all(joint.given[at] in pieces for at in joint.inner)


class _Search:
    """The search for segments. `cut` holds the results whose contributions are parted from them."""

    def __init__(self, graph: Graph) -> None:
        self.joint = joint = graph.joint
        self.users: dict[Node, int] = {}
        for node in joint.nodes:
            for one in reads(node):
                self.users[one] = self.users.get(one, 0) + 1
        self.numbers = {node: at for at, node in enumerate(joint.tangents)}
        pieces = {joint.given[at] for at in joint.inner}
        self.inner = {at for at, one in enumerate(joint.results) if joint.pieces[one] in pieces}
        self.terms: dict[int, list[Node]] = {}
        nodes = (*graph.nodes, *joint.nodes)
        written = {root(target) for node in nodes for target in writes(node)}
        for at in self.inner:
            piece = joint.results[at]
            found = joint.found[piece]
            if found is None or found[0] != "output" or root(joint.pieces[piece]) in written:
                continue
            terms = self._terms(at)
            if terms:
                self.terms[at] = terms

    def _terms(self, at: int) -> list[Node]:
        """What other results add to the gradient of this one; empty if that is not clear."""
        tangent, whole = self.joint.tangents[at], self.joint.arrived[at]
        terms: list[Node] = []
        pending = [] if whole is None else [whole]
        while pending:
            node = pending.pop()
            inside = self.users.get(node) == 1 and node not in self.joint.arrived
            if _is_sum(node) and (inside or node is whole):
                pending += node.args
            else:
                terms.append(node)
        if terms.count(tangent) != 1 or self.users.get(tangent) != 1:
            return []
        return [node for node in terms if node is not tangent]

    def found(self) -> Segments | None:
        """The segments for the most results that can be parted."""
        cut = set(self.terms)
        while True:
            nodes, now = self._without_sums(cut)
            depends = dependences(nodes, set(self.joint.tangents))
            groups = self._groups(cut, nodes, now, depends)
            edges = self._edges(cut, now, depends)
            groups = _merged_circles(groups, edges)
            inside = {at for by, at in edges if _find(groups, by) == _find(groups, at)} & cut
            if not inside:
                break
            cut -= inside
        if len({_find(groups, at) for at in groups}) < 2:
            return None
        return self._segments(cut, nodes, now, depends, groups)

    def _without_sums(self, cut: set[int]) -> tuple[list[Node], dict[Node, Node]]:
        """The backward's nodes where these results' tangents are their whole gradients, and what
        replaces each old node."""
        joint = self.joint
        now: dict[Node, Node] = {}
        for at in cut:
            whole = joint.arrived[at]
            assert whole is not None
            now[whole] = joint.tangents[at]
        if not now:
            return list(joint.nodes), now
        nodes = []
        for node in joint.nodes:
            if node in now:
                continue
            if any(one in now for one in (*reads(node), *([node.alias] if node.alias else ()))):
                now[node] = moved(node, _Same(now))
                nodes.append(now[node])
            else:
                nodes.append(node)
        return nodes, now

    def _groups(
        self,
        cut: set[int],
        nodes: Sequence[Node],
        now: dict[Node, Node],
        depends: dict[Node, frozenset[Node]],
    ) -> dict[int, int]:
        """Union-find over the results. Those whose gradients meet in a node that reads a saved
        value, or in the backward of a custom function, belong together, and those that an inner
        result's gradient comes from."""
        groups = {at: at for at in range(len(self.joint.tangents))}
        # nodes of the backward that depend neither on a gradient nor on a value of the forward
        own: set[Node] = set()
        for node in nodes:
            operands = reads(node)
            mine = depends.get(root(node), frozenset())
            values = [one for one in operands if not depends.get(root(one)) and one not in own]
            if len(mine) > 1 and values:
                self._unite(groups, mine)
            elif not mine and not values:
                own.add(node)
        for given in self.joint.custom:
            met = [depends.get(root(now.get(one, one)), ()) for one in given]
            self._unite(groups, itertools.chain(*met))
        for at in self.inner - cut:
            whole = self.joint.arrived[at]
            self._unite(
                groups, [] if whole is None else depends.get(root(now.get(whole, whole)), ())
            )
        return groups

    def _unite(self, groups: dict[int, int], tangents: Iterable[Node]) -> None:
        first, *others = [_find(groups, self.numbers[one]) for one in tangents] or [0]
        for at in others:
            groups[_find(groups, at)] = _find(groups, first)

    def _edges(
        self,
        cut: set[int],
        now: dict[Node, Node],
        depends: dict[Node, frozenset[Node]],
    ) -> set[tuple[int, int]]:
        """(result, result that it depends on) pairs, for results that are parted."""
        return {
            (self.numbers[tangent], at)
            for at in cut
            for term in self.terms[at]
            for tangent in depends.get(root(now.get(term, term)), ())
        }

    def _segments(
        self,
        cut: set[int],
        nodes: list[Node],
        now: dict[Node, Node],
        depends: dict[Node, frozenset[Node]],
        groups: dict[int, int],
    ) -> Segments:
        joint = self.joint
        gradients = [None if node is None else now.get(node, node) for node in joint.gradients]
        members: dict[int, list[int]] = {}
        for at in groups:
            members.setdefault(_find(groups, at), []).append(at)
        given: dict[int, list[tuple[int, int]]] = {first: [] for first in members}
        nodes = list(nodes)
        for at in sorted(cut):
            sums: dict[int, Node] = {}
            for term in self.terms[at]:
                one = now.get(term, term)
                tangents = depends.get(root(one), ())
                for owner in {_find(groups, self.numbers[tangent]) for tangent in tangents}:
                    if owner in sums:
                        sums[owner] = _sum(f"sum{len(nodes)}", sums[owner], one)
                        nodes.append(sums[owner])
                    else:
                        sums[owner] = one
            for owner, total in sums.items():
                given[owner].append((at, len(gradients)))
                gradients.append(total)
        order = _in_order(members, given, groups)
        found = tuple(
            Segment(
                tuple(members[first]),
                tuple(given[first]),
                self._kept(nodes, depends, set(members[first])),
            )
            for first in order
        )
        changed = replace(joint, nodes=tuple(nodes), gradients=tuple(gradients))
        return Segments(changed, found, frozenset(self.inner - cut))

    def _kept(
        self,
        nodes: Sequence[Node],
        depends: dict[Node, frozenset[Node]],
        members: set[int],
    ) -> frozenset[Node]:
        return frozenset(
            origin
            for node in nodes
            if any(self.numbers[one] in members for one in depends.get(root(node), ()))
            for operand in reads(node)
            if (origin := root(operand)) in self.joint.kept
        )


def _is_sum(node: Node) -> bool:
    """Whether autograd adds two gradients of one layout."""
    return (
        node.op == "call"
        and node.target is aten.add.Tensor
        and not node.kwargs
        and len(node.args) == 2
        and all(type(one) is Node and one.meta.shape == node.meta.shape for one in node.args)
    )


def _sum(name: str, one: Node, other: Node) -> Node:
    return Node("call", aten.add.Tensor, (one, other), {}, one.meta, name, other.where)


def last_assigned(calls: Sequence[Call], ref: Ref) -> int:
    """The position of the last call that makes or writes this value."""
    made = next(at for at, call in enumerate(calls) if ref in operands(call.results, Ref))
    return max([made, *(at for at, call in enumerate(calls) if ref in call.writes)])


class _Same(dict[Node, Node]):
    """Replacements of nodes; a node that has none is its own."""

    def __missing__(self, node: Node) -> Node:
        return node


def _find(groups: dict[int, int], at: int) -> int:
    while groups[at] != at:
        at = groups[at]
    return at


def _merged_circles(groups: dict[int, int], edges: Iterable[tuple[int, int]]) -> dict[int, int]:
    """The groups, with those that depend on each other made one."""
    behind: dict[int, set[int]] = {}
    for by, at in edges:
        behind.setdefault(_find(groups, by), set()).add(_find(groups, at))
    reach: dict[int, set[int]] = {}
    for start, firsts in behind.items():
        seen: set[int] = set()
        pending = list(firsts)
        while pending:
            one = pending.pop()
            if one not in seen:
                seen.add(one)
                pending += behind.get(one, ())
        reach[start] = seen
    merged = dict(groups)
    for start, seen in reach.items():
        for other in seen:
            if start in reach.get(other, ()):
                merged[_find(merged, other)] = _find(merged, start)
    return merged


def _in_order(
    members: dict[int, list[int]],
    given: dict[int, list[tuple[int, int]]],
    groups: dict[int, int],
) -> list[int]:
    """The segments, each after those whose results it depends on."""
    before = {first: {_find(groups, at) for at, _ in given[first]} for first in members}
    return list(TopologicalSorter(before).static_order())


@dataclass(frozen=True, slots=True)
class Part:
    """The backward of one segment. Its outputs are those of the whole that it computes.

    saved   the positions of its saved values among those of the whole
    places  for each output of the whole, its position here, or None
    """

    graph: Graph
    saved: tuple[int, ...]
    places: tuple[int | None, ...]


def parts_of(backward: Graph, n_saved: int, segments: Sequence[Segment]) -> list[Part]:
    """The backwards of the segments. The first `n_saved` inputs of the whole backward are saved
    values; the gradients of the results follow."""
    n = sum(len(segment.results) for segment in segments)
    tangents = range(n_saved, n_saved + n)
    parts = []
    for number, segment in enumerate(segments):
        missing = [n_saved + at for at in range(n) if at not in segment.results]
        graph, places = without(backward, missing, tangents)
        name = f"{graph.name}_{number}"
        parts.append(Part(*_of_used(replace(graph, name=name), n_saved), places))
    counts = Counter(at for part in parts for at in part.saved)
    return [
        replace(part, graph=_owning(part, {at for at, n in counts.items() if n == 1}))
        for part in parts
    ]


def _of_used(graph: Graph, n_saved: int) -> tuple[Graph, tuple[int, ...]]:
    """The graph without the saved values that it does not read, and the positions of the others."""
    used = {*graph.outputs, *(one for node in graph.nodes for one in reads(node))}
    used |= {root(one) for one in used}
    saved = tuple(at for at in range(n_saved) if graph.inputs[at] in used)
    kept = [*(graph.inputs[at] for at in saved), *graph.inputs[n_saved:]]
    now = _Same({node: replace(node, target=at) for at, node in enumerate(kept)})
    for node in graph.nodes:
        now[node] = moved(node, now)
    n = len(kept)
    made = replace(
        graph,
        inputs=[now[node] for node in kept],
        nodes=[now[node] for node in graph.nodes],
        outputs=[now[node] for node in graph.outputs],
        sources=[None] * n,
        symbols={symbol: ("number", n + k) for k, symbol in enumerate(graph.numbers)},
    )
    return made, saved


def _owning(part: Part, alone: set[int]) -> Graph:
    """The part's graph, which owns saved values that no other segment reads."""
    own = {place for place, at in enumerate(part.saved) if at in part.graph.own and at in alone}
    return replace(part.graph, own=frozenset(own))
