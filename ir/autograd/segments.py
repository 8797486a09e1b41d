"""Segments: results of a graph that are differentiated apart, or one by another.

In eager mode each result of a function has an autograd node of its own. Two results can be
differentiated one after the other if no node between them and the leaves has saved a value for
both. A gradient with respect to a result exists if another result's history passes through it.
`segments_of(graph)` finds both facts in the backward of a joint graph:

- the results that share saved values are one segment, as the first backward frees these values;
- where a segment depends on a result of another one, the gradient that it adds to that result is an
  output of its own (a contribution), which autograd adds to the result's gradient. The same holds
  for a result that is a view: torch makes it before the segment, and differentiates it.

`parts_of(backward, ...)` gives the backward of each segment. `codegen.segments` makes programs of
them. A graph with one segment is left as it is.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from graphlib import TopologicalSorter

import torch

from ..dataclass import dataclass
from ..graph.effects import operands, reads, root, uses, writes
from ..graph.interpreter import Replaced, moved
from ..graph.nodes import Graph, Node, Ref
from ..graph.opdef import OPS
from ..ops.region_borders import again
from ..trace.joint import memory_read
from ..trace.joint_graph import HIDDEN, Joint
from .partial_backward import dependences, without

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Segment:
    """Results that are differentiated together. Positions of results are those in
    `Joint.results`, and behind these those in `Joint.views_inside`.

    results        its results; no views
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


def not_divided(graph: Graph, segments: Segments | None) -> str:
    """Why a result with a history through another result of its own segment needs torch's own
    calls; empty if no result has one."""
    joint: Joint = graph.joint
    if segments is None and graph.spends and _before_a_backward(graph):
        return "a result depends on another one, which a backward of the frame may pass through"
    if joint.views_inside and segments is None:
        return "a result depends on another one, which is a view"
    if joint.inner if segments is None else segments.inner:
        return "a result depends on another one, and what they share is inside a torch function"
    return ""


def segments_of(graph: Graph) -> Segments | None:
    """The segments of a graph with a Joint; None if there is one only."""
    joint: Joint = graph.joint
    if len(joint.tangents) < 2 or (graph.spends and _before_a_backward(graph)):
        return None
    search = _Search(graph)
    if any(joint.arrived[at] is None for at in search.inner):
        return None
    return search.found()


def _before_a_backward(graph: Graph) -> bool:
    """Whether a backward among the calls may pass through a result that others depend on. A
    segment's calls take such a result as an input, without a history."""
    joint: Joint = graph.joint
    n = len(joint.results)
    inner = [*joint.inner, *range(n, n + len(joint.views_inside))]
    if not inner or graph.backward_end is None:
        return bool(inner)
    last = max(graph.backward_end - 1, 0)  # its own results have a history in any segment
    early, late = (
        {one for call in calls for one in operands(call.results, Ref)}
        for calls in (graph.calls[:last], graph.calls[last:])
    )
    made = [Ref(-1 if (ref := ref_of(graph, at)) is None else ref) for at in inner]
    return any(one in early or one not in late for one in made)


class _Search:
    """The search for segments. `cut` holds the results whose contributions are parted from them."""

    def __init__(self, graph: Graph) -> None:
        self.joint = joint = graph.joint
        self.users: dict[Node, int] = {}
        for node in joint.nodes:
            for one in reads(node):
                self.users[one] = self.users.get(one, 0) + 1
        self.numbers = {node: at for at, node in enumerate(joint.tangents)}
        self.views = range(len(joint.results), len(joint.tangents))
        hidden = (at for at, one in enumerate(joint.results) if joint.found[one] == HIDDEN)
        self.ages = *joint.ages, *(0 for _ in self.views)
        # those that get another gradient than what arrives
        self.replaced = {*self.views, *hidden}
        self.inner = {*joint.inner, *self.views}
        self.terms: dict[int, list[Node]] = {}
        refs = {at: ref_of(graph, at) for at in self.inner}
        read_inside = _read_inside(graph, [ref for ref in refs.values() if ref is not None])
        for at, ref in refs.items():
            terms = self._terms(at)
            if not terms or ref is None or ref in read_inside:
                continue
            if not _read_by_older_views(graph, ref, refs.values()):
                self.terms[at] = terms

    def _terms(self, at: int) -> list[Node]:
        """What other results add to the gradient of this one; empty if that is not clear."""
        tangent, whole = self.joint.tangents[at], self.joint.arrived[at]
        terms: list[Node] = []
        pending = [] if whole is None else [whole]
        # Another result may pass its whole gradient on to this one: then that is the only term.
        passed_on = at in self.replaced and any(
            one is whole and other not in self.replaced
            for other, one in enumerate(self.joint.arrived)
        )
        while pending:
            node = pending.pop()
            inside = self.users.get(node) == 1 and node not in self.joint.arrived
            if _is_sum(node) and (inside or (node is whole and not passed_on)):
                pending += node.args
            else:
                terms.append(node)
        if at in self.replaced:
            return terms
        own = [node for node in terms if _before_border(node) is tangent]
        if len(own) != 1 or self.users.get(tangent) != 1:
            return []
        return [node for node in terms if node is not own[0]]

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
        alone = {_find(groups, at) for at in groups}
        if len(alone) < 2 or not cut.issuperset(self.replaced):
            return None
        return self._segments(cut, nodes, now, depends, groups)

    def _without_sums(self, cut: set[int]) -> tuple[list[Node], Replaced]:
        """The backward's nodes where these results' tangents are their whole gradients, and what
        replaces each old node."""
        joint = self.joint
        now = Replaced()
        for at in cut.difference(self.replaced):
            whole = joint.arrived[at]
            assert whole is not None
            now[whole] = joint.tangents[at]
        if not now:
            return list(joint.nodes), now
        nodes = []
        for node in joint.nodes:
            if node in now:
                continue
            if any(one in now for one in uses(node)):
                now[node] = moved(node, Replaced(now).__getitem__)
                nodes.append(now[node])
            else:
                nodes.append(node)
        return nodes, now

    def _groups(
        self,
        cut: set[int],
        nodes: Sequence[Node],
        now: Replaced,
        depends: dict[Node, frozenset[Node]],
    ) -> dict[int, int]:
        """Union-find over the results. Those whose gradients meet in a node that reads a saved
        value, or in the backward of a custom function, belong together, and those that an inner
        result's gradient comes from, and the results of one operator."""
        groups = {at: at for at in range(len(self.joint.tangents))}
        for at, owner in enumerate(self.joint.owners):
            groups[at] = owner
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
        for one in self.joint.custom:
            met = [depends.get(root(given), ()) for given in one.replaced(now).given]
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
        now: Replaced,
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
        now: Replaced,
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
        in_order = self._in_order(members, given, groups)
        unused = _unused(nodes, depends)
        order = [first for first in in_order if first not in self.views]
        found = tuple(
            Segment(
                tuple(members[first]),
                tuple(given[first]),
                self._kept(nodes, depends, unused, set(members[first])),
            )
            for first in order
        )
        changed = replace(
            joint,
            nodes=tuple(nodes),
            gradients=tuple(gradients),
            custom=tuple(one.replaced(now) for one in joint.custom),
        )
        return Segments(changed, found, frozenset(self.inner - cut))

    def _in_order(
        self,
        members: dict[int, list[int]],
        given: dict[int, list[tuple[int, int]]],
        groups: dict[int, int],
    ) -> Iterator[int]:
        """The segments, each after those whose results it depends on. Among others the one comes
        first whose last operator comes first: autograd runs the node first that was made last."""
        before = {first: {_find(groups, at) for at, _ in given[first]} for first in members}
        ages = {first: max(self.ages[at] for at in own) for first, own in members.items()}
        order = TopologicalSorter(before)
        order.prepare()
        ready = list(order.get_ready())
        while ready:
            first = min(ready, key=ages.__getitem__)
            ready.remove(first)
            yield first
            order.done(first)
            ready += order.get_ready()

    def _kept(
        self,
        nodes: Sequence[Node],
        depends: dict[Node, frozenset[Node]],
        unused: dict[Node, frozenset[Node]],
        members: set[int],
    ) -> frozenset[Node]:
        mine: list[Node] = []
        wanted: set[Node] = set()
        for node in reversed(nodes):
            tangents = depends.get(root(node)) or unused.get(node, frozenset())
            # what depends on no gradient belongs to those that read it
            if (
                any(self.numbers[one] in members for one in tangents)
                if tangents
                else not wanted.isdisjoint(map(root, (node, *writes(node))))
            ):
                mine.append(node)
                wanted.update(map(root, reads(node)))
        joint = self.joint
        return memory_read(reversed(mine), joint.pieces, joint.tangents, joint.arguments)


def _unused(
    nodes: Sequence[Node], depends: dict[Node, frozenset[Node]]
) -> dict[Node, frozenset[Node]]:
    """The nodes that compute nothing for a gradient -> the tangents of the first node after them
    that depends on some: that of the formula which has read what autograd saves for it."""
    found: dict[Node, frozenset[Node]] = {}
    wanted: set[Node] = set()
    tangents: frozenset[Node] = frozenset()
    for node in reversed(nodes):
        mine = depends.get(root(node), frozenset())
        tangents = mine or tangents
        if mine or not wanted.isdisjoint(map(root, (node, *writes(node)))):
            wanted.update(map(root, reads(node)))
        else:
            found[node] = tangents
    return found


def _before_border(node: Node) -> Node:
    """What comes into a region here, and into those inside it, or the node itself."""
    while node.target is again:
        node = node.args[0]
    return node


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
    meta = OPS[str(aten.add.Tensor)].rule(aten.add.Tensor, one.meta, other.meta)
    return Node("call", aten.add.Tensor, (one, other), {}, meta, name, other.where)


def ref_of(graph: Graph, at: int) -> int | None:
    """The number of the torch-level value that is this result or view; None if no call gives it."""
    joint: Joint = graph.joint
    n = len(joint.results)
    if at >= n:
        return graph.call_outputs[joint.views_inside[at - n]].index
    piece = joint.results[at]
    found = joint.found[piece]
    if found is not None and found[0] in ("output", "input"):
        return graph.call_outputs[found[1]].index if found[0] == "output" else found[1]
    memory = root(joint.pieces[piece])
    ref = next((ref for ref, node in enumerate(graph.values) if node is memory), None)
    # A call that writes to it replaces the value at which gradients meet.
    return None if any(Ref(ref) in call.writes for call in graph.calls if ref is not None) else ref


def last_assigned(graph: Graph, ref: int) -> int:
    """The position of the last call that makes this value or writes to its memory."""
    written = [at for at, call in enumerate(graph.calls) if Ref(ref) in call.writes]
    # a later call may return the same tensor
    made = (at for at, one in enumerate(graph.calls) if Ref(ref) in operands(one.results, Ref))
    return max([next(made) if ref >= len(graph.inputs) else -1, *written])


def _read_inside(graph: Graph, refs: Iterable[int]) -> set[int]:
    """Those of these values that another result of the call that makes them is computed from: its
    gradient passes through them inside of the call, where calls that run again read no input for
    them.
    """
    beside: dict[int, list[Node]] = {}
    for call in graph.calls:
        made = {one.index: graph.values[one.index] for one in operands(call.results, Ref)}
        for ref in made if len(made) > 1 else ():
            beside.setdefault(ref, [node for one, node in made.items() if one != ref])
    several = [ref for ref in refs if ref >= len(graph.inputs) and ref in beside]
    if not several:
        return set()
    depends = dependences(graph.nodes, {root(graph.values[ref]) for ref in several})
    return {
        ref
        for ref in several
        if any(_is_behind(graph.values[ref], one, depends) for one in beside[ref])
    }


def _is_behind(value: Node, other: Node, depends: dict[Node, frozenset[Node]]) -> bool:
    """Whether `other` is a view of the value, or is computed from its memory."""
    memory = root(value)
    if root(other) is not memory:
        return memory in depends.get(root(other), ())
    while other.alias is not None and other is not value:
        other = other.alias
    return other is value


def _read_by_older_views(graph: Graph, ref: int, inner: Collection[int | None]) -> bool:
    """Whether calls read this value after its last write through older views that are not `inner`
    results: autograd leads their gradients through the value, where calls that run again do not.
    """
    last = last_assigned(graph, ref)
    if last < 0 or Ref(ref) not in graph.calls[last].writes:
        return False
    memory = root(graph.values[ref])
    older = {
        one.index
        for call in graph.calls[: last + 1]
        for one in operands(call.results, Ref)
        if one.index not in inner and root(graph.values[one.index]) is memory
    }
    return any(
        one.index in older
        for call in graph.calls[last + 1 :]
        for one in operands((call.args, call.kwargs), Ref)
    )


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


@dataclass(frozen=True, slots=True)
class Part:
    """The backward of one segment. Its outputs are those of the whole that it computes.

    saved   the positions of its saved values among those of the whole
    places  for each output of the whole, its position here, or None
    """

    graph: Graph
    saved: tuple[int, ...]
    places: tuple[int | None, ...]


def parts_of(
    backward: Graph,
    n_saved: int,
    segments: Sequence[Segment],
    current: Sequence[Collection[int]],
) -> list[Part]:
    """The backwards of the segments. The first `n_saved` inputs of the whole backward are saved
    values; the gradients of the results follow. `current`: for each saved value the segments that
    read it as it is when the backward runs; those values come last in the segment."""
    n = len(backward.inputs) - n_saved
    tangents = range(n_saved, n_saved + n)
    parts = []
    for number, segment in enumerate(segments):
        missing = [n_saved + at for at in range(n) if at not in segment.results]
        graph, places = without(backward, missing, tangents)
        name = f"{graph.name}_{number}"
        last = [at for at in range(n_saved) if number in current[at]]
        order = [*(at for at in range(n_saved) if at not in last), *last]
        parts.append(Part(*_of_used(replace(graph, name=name), order), places))
    counts = Counter(at for part in parts for at in part.saved)
    return [
        replace(part, graph=_owning(part, {at for at, n in counts.items() if n == 1}))
        for part in parts
    ]


def _of_used(graph: Graph, order: Sequence[int]) -> tuple[Graph, tuple[int, ...]]:
    """The graph without the saved values that it does not read, and the positions of the others, in
    this order."""
    used = {*graph.outputs, *(one for node in graph.nodes for one in reads(node))}
    used |= {root(one) for one in used}
    saved = tuple(at for at in order if graph.inputs[at] in used)
    kept = [*(graph.inputs[at] for at in saved), *graph.inputs[len(order) :]]
    now = Replaced({node: replace(node, target=at) for at, node in enumerate(kept)})
    for node in graph.nodes:
        now[node] = moved(node, now.__getitem__)
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
