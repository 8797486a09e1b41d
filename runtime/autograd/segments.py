"""A forward program with an autograd node for each segment of its backward.

`SegmentedProgram(...)` is called like any program. It runs the forward once, without gradients, and
then makes the nodes of the segments in order. The node of a segment gets as arguments the inputs
and the pieces of other segments to which it gives a gradient; autograd adds up what several
segments give. See `ir.autograd.segments` for the division.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from ...ir.dataclass import dataclass
from ..errors import Begun
from . import rng_state, saving_hooks
from .edge_order import arranged
from .held_inputs import Held, Holder, alias
from .joint_plan import Plan, chosen
from .joint_program import Backward, JointProgram, Tensors, Twin
from .rollback import begins, unless_marked


@dataclass(frozen=True, slots=True)
class Place:
    """A segment's place in the whole. Its inputs are those of the whole, then `foreign`.

    n_inputs  tensor inputs of the whole
    own       the pieces that its node returns
    inner     pieces of other segments to which it gives a gradient
    foreign   the pieces of other segments that it needs, `inner` first
    results   the results of the forward program that it takes: its pieces, then what it saves
    edges     the inputs of the whole to which it gives a gradient
    written   further inputs that it returns as results, which the graph has written
    used      the inputs that its calls read when they run again
    """

    n_inputs: int
    own: tuple[int, ...]
    inner: tuple[int, ...]
    foreign: tuple[int, ...]
    results: tuple[int, ...]
    edges: tuple[int, ...]
    written: tuple[int, ...]
    used: frozenset[int]


class _Run:
    """One call: its inputs, the forward's results, and the pieces as far as they have nodes."""

    __slots__ = ("before", "edges", "held", "inputs", "made", "pieces", "random")

    inputs: Sequence[Any]
    # the inputs with the histories that they have before the call
    edges: Sequence[Any]
    # the inputs before the forward writes to them; copies only where they are checked
    before: Sequence[Any]
    held: dict[Any, Held]
    random: Any
    made: Tensors
    pieces: list[Any]  # and the views that are made before other nodes


class Segment(JointProgram):
    """The program of one segment: a node whose forward takes what the whole forward has made."""

    def __init__(
        self,
        plan: Plan,
        place: Place,
        backward: Callable[[Sequence[int]], Backward],
        replay: Callable[..., Tensors],
        tell: Callable[[str], None],
        twin: Twin | None = None,
    ) -> None:
        super().__init__(plan, _never, backward, replay, tell, None, twin, late=True)
        n = place.n_inputs
        edges = arranged(place.edges, plan.leaves)
        self.place = place = replace(place, edges=edges)
        passed = *edges, *(at for at in plan.wanted if at >= n)
        self._edges = {at: number for number, at in enumerate(passed)}
        saved = {at for kind, at in plan.saved if kind == "input"}
        foreign = set(range(n, plan.n_tensors))
        before = [at for at in plan.before if at in place.used]
        own = plan.kept_beside(saved | foreign | (set(range(n)) - place.used))
        self._held = Holder(own, plan.parameters, before)
        others = plan.kept_beside(saved | set(range(n)))
        self._held_after = Holder(others, plan.parameters, ())
        self._holds_after = not self._held_after.is_empty
        # the places of the pieces that it leads back to among the node's arguments
        self._inner_begin = len(place.edges)
        self._inner_end = self._inner_begin + len(place.inner)
        self._others = place.foreign[len(place.inner) :]
        self.holds = not self._held.is_empty
        self.rewrites = frozenset(plan.dirty.values())
        self._edges_of, self._inner_of = chosen(place.edges), chosen(place.inner)
        self._results_of, self._written_of = chosen(place.results), chosen(place.written)

    def begin(self, run: _Run) -> None:
        """Before the forward: keep the inputs for a backward that is itself differentiated."""
        run.held[self._held] = self._held(run.inputs)

    def node_of(self, run: _Run) -> Tensors:
        """The segment's pieces, with its node as their history."""
        edges, inner = self._edges_of(run.edges), self._inner_of(run.pieces)
        if self.rewrites:
            pairs = zip(self.place.edges, edges, strict=True)
            edges = tuple([run.inputs[at] if at in self.rewrites else one for at, one in pairs])
        if self.place.written:
            inner = (*inner, *self._written_of(run.inputs))
        pieces = self._joined(*edges, *inner, run)
        return pieces if self._apart is None else self._apart(pieces)

    def forwards(self, node: Any, *arguments: Any) -> Tensors:
        run = arguments[-1]
        held = run.held[self._held] if self.holds else []
        inputs, n = run.inputs, self.place.n_inputs
        if self.place.foreign:
            others = [run.made[at].detach() for at in self._others]
            inputs = (
                *inputs[:n],
                *arguments[self._inner_begin : self._inner_end],
                *others,
                *inputs[n:],
            )
            if self._holds_after:
                held = held + self._held_after(inputs)
        if self.plan.random:
            node.random = run.random
        if self._twin is not None:
            node.begun = self._begun(run, (*run.before[:n], *inputs[n:]))
        return self._rest(node, inputs, held, self._results_of(run.made), run.made)

    def _begun(self, run: _Run, inputs: Sequence[Any]) -> Any:
        """The comparison with eager, with the random numbers of the forward."""
        assert self._twin is not None
        if not self.plan.random:
            return saving_hooks.without(self._twin.begin, inputs)
        with rng_state.replayed(run.random):
            return saving_hooks.without(self._twin.begin, inputs)


class SegmentedProgram:
    """The callable for one graph with several segments. It takes the graph's tensors and numbers
    and returns its outputs. `tells_begun`, `packs`: as those of a `JointProgram`.
    """

    tells_begun = packs = True

    def __init__(
        self,
        n_inputs: int,
        n_pieces: int,
        forward: Callable[..., Tensors],
        segments: Sequence[Segment],
        tail: Callable[..., Tensors] | None,
        early: Sequence[tuple[tuple[int, ...], Callable[..., Tensors]] | None],
        random: tuple[torch.device, ...],
        written: Sequence[int],
        late: bool,
    ) -> None:
        """`tail(*inputs, *pieces, *views, *numbers)` computes the results; None if they are the
        pieces. `early`: for each segment the views to make before its node (their positions behind
        the pieces, a function of the same arguments as `tail`), or None.
        `late`: if the forward raises, it has not written anything."""
        self.n_inputs, self._n_pieces, self.segments = n_inputs, n_pieces, segments
        self._forward, self._tail, self._random = forward, tail, random
        owned = [segment.place.own for segment in segments]
        self._steps = tuple(zip(segments, early, owned, strict=True))
        self._no_views = [None] * sum(len(one[0]) for one in early if one)
        self._holding = [segment for segment in segments if segment.holds]
        self._written = tuple(written)
        self._nodes: Callable[[_Run], Any] = self._made
        # pieces that are inputs which the graph writes, and those that other segments lead back to
        self._rewritten = {
            segment.place.own[at]: position
            for segment in segments
            for at, position in segment.plan.dirty.items()
        }
        self._read_before = {
            at
            for segment in segments
            for at in segment.place.edges
            if at in self._rewritten.values() and at not in segment.rewrites
        }
        self._checked = any(segment._twin is not None for segment in segments)
        if written:
            self._forward = forward if late else unless_marked(forward)
            self._nodes = begins(self._made)

    def __call__(self, *inputs: Any) -> Any:
        if not torch.is_grad_enabled():
            with torch.enable_grad():
                return self(*inputs)
        run = _Run()
        run.inputs = run.before = run.edges = inputs
        run.held = {}
        if self._read_before:
            run.edges = [
                alias(one) if at in self._read_before and one.requires_grad else one
                for at, one in enumerate(inputs)
            ]
        torch._C._set_grad_enabled(False)
        try:
            if self._random:
                run.random = rng_state.states(self._random)
            for segment in self._holding:
                segment.begin(run)
            if self._checked and self._written:
                run.before = [
                    one.clone().requires_grad_(one.requires_grad) if at in self._written else one
                    for at, one in enumerate(inputs)
                ]
            run.made = self._forward(*inputs)
            if self._rewritten:
                found = enumerate(run.made)
                run.made = tuple(
                    [
                        inputs[to] if (to := self._rewritten.get(at)) is not None else one
                        for at, one in found
                    ]
                )
        finally:
            torch._C._set_grad_enabled(True)
        try:
            return self._nodes(run)
        except Exception as error:
            if saving_hooks.active() is not None:
                raise Begun(error) from None
            raise

    def _made(self, run: _Run) -> Any:
        """The outputs, after the forward has run."""
        n, inputs = self.n_inputs, run.inputs
        run.pieces = [*run.made[: self._n_pieces], *self._no_views]
        for segment, early, own in self._steps:
            if early is not None:
                views = early[1](*inputs[:n], *run.pieces, *inputs[n:])
                for at, view in zip(early[0], views, strict=True):
                    run.pieces[at] = view
            made = segment.node_of(run)
            if len(own) == 1:
                run.pieces[own[0]] = made[0]
                continue
            for at, piece in zip(own, made, strict=True):
                run.pieces[at] = piece
        if self._tail is None:
            return tuple(run.pieces)
        return self._tail(*inputs[:n], *run.pieces, *inputs[n:])


def _never(*_inputs: Any) -> Tensors:
    raise AssertionError("a segment has no forward of its own")
