"""The segments of a divided graph as joint graphs of their own.

`segment_graphs(graph, halves, segments)` gives for each segment what `codegen.training` needs to
make its node: its graph, its half of the backward, and its place in the whole. A segment's graph
has the whole graph's inputs, then pieces of other segments and views (`Place.foreign`): first those
that its results depend on, to which it adds a gradient, then those whose values its backward reads.
Its calls use these pieces where the whole graph's calls use what they computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..ir.autograd.partial_backward import users_of_regions
from ..ir.autograd.partition import Halves
from ..ir.autograd.segments import Part, Segments, last_assigned, parts_of, ref_of
from ..ir.dataclass import dataclass
from ..ir.graph.effects import root, writes
from ..ir.graph.interpreter import substitute
from ..ir.graph.nodes import Call, Graph, Node, Ref
from ..ir.symbolic.expr import Symbol, symbols_of
from ..ir.trace.joint_graph import HIDDEN, Joint, When
from ..runtime.autograd.segments import Place
from .programs.replay import refs_of


@dataclass(frozen=True, slots=True)
class SegmentGraph:
    """A segment's joint graph, its half of the backward, and its place in the whole."""

    graph: Graph
    halves: Halves
    place: Place


def segment_graphs(graph: Graph, halves: Halves, segments: Segments) -> list[SegmentGraph]:
    """The segments in the order of `segments`, in which their nodes must be made."""
    everywhere = range(len(segments.segments))
    current = [
        frozenset(everywhere) if kind == "current" else apart
        for (kind, _), apart in zip(halves.saved, halves.apart, strict=True)
    ]
    parts = parts_of(halves.backward, len(halves.saved), segments.segments, current)
    return [
        _Segment(graph, halves, segments, number, part).made() for number, part in enumerate(parts)
    ]


class _Segment:
    """One segment. Positions of pieces are those in the whole graph; behind them are the views that
    other results depend on.

    own      its pieces
    inner    pieces of other segments, and views, to which it adds a gradient
    foreign  all pieces of other segments that it needs, `inner` first
    """

    def __init__(
        self, graph: Graph, halves: Halves, segments: Segments, number: int, part: Part
    ) -> None:
        joint: Joint = graph.joint
        self.graph, self.joint, self.halves, self.part = graph, joint, halves, part
        self.segment = segment = segments.segments[number]
        self.own = [joint.results[at] for at in segment.results]
        given = [at for at, _ in segment.contributions]
        n = len(joint.results)
        self.inner = [joint.results[at] if at < n else len(joint.pieces) + at - n for at in given]
        # the numbers of the torch-level values that they are
        self.inner_refs: list[int] = [ref for at in given if (ref := ref_of(graph, at)) is not None]
        self.saved = [
            _current(halves.saved[at]) if number in halves.apart[at] else halves.saved[at]
            for at in part.saved
        ]
        read = {at for kind, at in self.saved if kind == "output"}
        read |= {~at for kind, at in self.saved if kind == "current" and at < 0}
        kept = {at for at, node in enumerate(joint.pieces) if root(node) in segment.kept}
        self.witnesses = sorted(kept - read)
        self.foreign = [*self.inner, *sorted((read | kept) - {*self.own, *self.inner})]
        self.made_saved = [at for kind, at in self.saved if kind == "made"]

    def made(self) -> SegmentGraph:
        n = len(self.graph.inputs)
        wanted, gradients = self._wanted()
        graph = self._graph(wanted)
        used = _inputs_of(graph)
        halves = Halves(
            self.halves.forward,
            self.part.graph,
            tuple(map(self._origin, self.saved)),
            tuple(map(self._witness, self.witnesses)),
            gradients,
        )
        n_pieces = len(self.joint.pieces)
        place = Place(
            n_inputs=n,
            own=tuple(self.own),
            inner=tuple(self.inner),
            foreign=tuple(self.foreign),
            results=(*self.own, *(n_pieces + at for at in self.made_saved)),
            edges=tuple(at for at in wanted if at < n),
            written=tuple(at for at in self._written() if at not in wanted),
            used=frozenset(used) | {at for at in wanted if at < n},
        )
        return SegmentGraph(graph, halves, place)

    def _written(self) -> list[int]:
        """The inputs that its results are."""
        pieces = [self.joint.pieces[at] for at in self.own]
        return [node.target for node in pieces if node.op == "input"]

    def _wanted(self) -> tuple[tuple[int, ...], tuple[int | None, ...]]:
        """The inputs of the segment that its backward gives a gradient, and for each of them the
        gradient's position."""
        n = len(self.graph.inputs)
        places = [None if at is None else self.part.places[at] for at in self.halves.gradients]
        pairs: list[tuple[int, int | None]] = [
            (at, place)
            for at, place in zip(self.joint.wanted, places, strict=False)
            if place is not None
        ]
        contributions = enumerate(self.segment.contributions)
        pairs += [(n + number, places[at]) for number, (_, at) in contributions]
        return tuple(at for at, _ in pairs), tuple(place for _, place in pairs)

    def _gradients(self, wanted: Sequence[int]) -> tuple[Node | None, ...]:
        """The gradients of `wanted`, with what other segments add."""
        whole = dict(zip(self.joint.wanted, self.joint.gradients, strict=False))
        n = len(self.graph.inputs)
        added = [self.joint.gradients[at] for _, at in self.segment.contributions]
        return tuple(whole[at] if at < n else added[at - n] for at in wanted)

    # -- what is saved

    def _origin(self, saved: tuple[str, Any]) -> tuple[str, Any]:
        kind, at = saved
        if kind == "current" and at < 0:
            return kind, ~self.own.index(~at) if ~at in self.own else self._input(~at)
        if kind == "made":
            return "made", self.made_saved.index(at)
        if kind == "output" and at in self.own:
            return "output", self.own.index(at)
        return ("input", self._input(at)) if kind == "output" else saved

    def _input(self, at: int) -> int:
        """The position of a foreign piece among the segment's inputs."""
        return len(self.graph.inputs) + self.foreign.index(at)

    def _witness(self, at: int) -> int:
        """The position of a piece in the sequence of the forward's results, constants and inputs
        (see `runtime.autograd.joint_program.Plan`)."""
        if at in self.own:
            return self.own.index(at)
        constants = sum(kind == "constant" for kind, _ in self.saved)
        return len(self.own) + len(self.made_saved) + constants + self._input(at)

    # -- its graph

    def _graph(self, wanted: tuple[int, ...]) -> Graph:
        graph, n, further = self.graph, len(self.graph.inputs), len(self.foreign)
        calls = self._calls()
        views = [self.joint.given[at] for at in self.joint.views_inside]
        pieces = [*self.joint.pieces, *views]
        inputs = [
            replace(pieces[at], op="input", target=n + number, args=(), alias=None)
            for number, at in enumerate(self.foreign)
        ]
        symbols = {
            symbol: (what, at + further, *rest) if what == "number" else (what, at, *rest)
            for symbol, (what, at, *rest) in graph.symbols.items()
        }
        return replace(
            graph,
            inputs=[*graph.inputs, *inputs],
            sources=[*graph.sources, *[None] * further],
            calls=calls,
            call_outputs=[Ref(_shifted(self._ref(at), n, further)) for at in self.own],
            constants={_shifted(at, n, further): one for at, one in graph.constants.items()},
            symbols=symbols,
            joint=self._joint(wanted),
        )

    def _ref(self, at: int) -> int:
        """The number of the torch-level value that a piece is found by."""
        found = self.joint.found[at]
        assert found is not None
        if found == HIDDEN:
            ref = ref_of(self.graph, self.joint.results.index(at))
            assert ref is not None
            return ref
        return found[1] if found[0] == "input" else self.graph.call_outputs[found[1]].index

    def _joint(self, wanted: tuple[int, ...]) -> Joint:
        joint = self.joint
        found = [joint.found[at] for at in self.own]
        owners = [joint.owners[at] for at in self.segment.results]
        results = list(enumerate(self.segment.results))
        return replace(
            joint,
            pieces=tuple(joint.pieces[at] for at in self.own),
            found=tuple(
                one if one[0] == "input" else ("base" if one[0] == "base" else "output", number)
                for number, one in enumerate(found)
                if one is not None
            ),
            views=(),
            results=tuple(range(len(self.own))),
            tangents=tuple(joint.tangents[at] for at in self.segment.results),
            wanted=wanted,
            gradients=self._gradients(wanted),
            users={
                region: frozenset(at for at, whole in results if whole in some)
                for region, some in users_of_regions(joint).items()
            },
            names=tuple(joint.names[at] for at in self.segment.results),
            owners=tuple(map(owners.index, owners)),
            ages=tuple(joint.ages[at] for at in self.segment.results),
            inner=(),
            frees=tuple(
                (by, self._before(before))
                for mask, before in joint.frees
                if (by := sum((mask >> at & 1) << number for number, at in results))
            ),
            views_inside=(),
            when=self._when(wanted),
            parted=(),
            tracked=tuple(joint.tracked[at] for at in self.segment.results if joint.tracked),
        )

    def _when(self, wanted: tuple[int, ...]) -> tuple[When, ...]:
        """When the gradients of `wanted` exist. What arrives at a result depends on no other."""
        joint, results = self.joint, self.segment.results
        if not joint.parted:
            return ()
        whole = dict(zip(joint.wanted, joint.parted, strict=True))
        found = []
        for at in wanted:
            terms = []
            for term in whole.get(at, ((),)):
                given = [one for one in term if type(one) is int]
                if set(given) <= set(results):
                    own = [results.index(one) if type(one) is int else one for one in term]
                    terms.append(tuple(own))
            found.append(tuple(terms))
        return tuple(found)

    def _before(self, bits: int) -> int:
        """The inputs and results of the segment among those of the whole, as bits as in
        `Joint.frees`."""
        n, places = len(self.graph.inputs), [at for at, _ in self.segment.contributions]
        inputs = bits & (1 << n) - 1
        places += [-1] * (len(self.foreign) - len(places)) + [*self.segment.results]
        others = (bits >> n + at & 1 if at >= 0 else 0 for at in places)
        return inputs | sum(bit << n + number for number, bit in enumerate(others))

    def _calls(self) -> list[Call]:
        """The calls that the segment's results need. They read the pieces in `inner` as inputs. If
        calls draw random numbers or write, all of them stay, as one may change what another gives.
        """
        graph, n, further = self.graph, len(self.graph.inputs), len(self.foreign)
        fresh = 1 + max([n, *refs_of([(one.args, one.results) for one in graph.calls])])
        read = {ref: n + number for number, ref in enumerate(self.inner_refs)}
        left = {
            ref: ref if ref < n else fresh + further + number for number, ref in enumerate(read)
        }
        last = {ref: last_assigned(graph, ref) for ref in read}

        def made(position: int) -> Callable[[Ref], Ref]:
            """The values of the calls up to this one."""
            now = {ref: left[ref] if position <= last[ref] else at for ref, at in read.items()}
            return lambda ref: Ref(now.get(ref.index, _shifted(ref.index, n, further)))

        calls = [
            replace(
                call,
                args=substitute(call.args, made(position), Ref),
                kwargs=substitute(call.kwargs, made(position), Ref),
                results=substitute(call.results, made(position), Ref),
                writes=substitute(call.writes, made(position), Ref),
            )
            for position, call in enumerate(graph.calls)
        ]
        if graph.random or any(call.writes for call in calls) or any(map(writes, graph.nodes)):
            return calls
        live = {_shifted(self._ref(at), n, further) for at in self.own}
        kept = []
        for call in reversed(calls):
            number = call.results is None or isinstance(call.results, Symbol)
            if number or not live.isdisjoint(refs_of(call.results)):
                kept.append(call)
                live.update(refs_of((call.args, call.kwargs)))
        return kept[::-1]


def _current(saved: tuple[str, Any]) -> tuple[str, int]:
    """A saved input or piece, as it is when the backward runs."""
    kind, at = saved
    return "current", at if kind == "input" else ~at


def _shifted(ref: int, n: int, further: int) -> int:
    """The number of a value after `further` inputs were added to `n`."""
    return ref if ref < n else ref + further


def _inputs_of(graph: Graph) -> set[int]:
    """The inputs that the calls read, or whose sizes they use."""
    n = len(graph.inputs)
    arguments = [(call.args, call.kwargs) for call in graph.calls]
    used = {at for at in refs_of([*arguments, graph.call_outputs]) if at < n}
    symbols = symbols_of(arguments)
    return used | {
        at
        for symbol, (what, at, *_) in graph.symbols.items()
        if what != "number" and symbol in symbols
    }
