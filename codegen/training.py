"""Training: graphs that need a gradient become a forward program and a backward program for each
segment (`ir.autograd.segments`), joined to autograd by one node a segment.

`compile_joint(graph, ...)` divides the graph (`ir.autograd.partition`), compiles the forward now
and a backward when autograd first needs it, and returns a
`runtime.autograd.joint_program.JointProgram`, or a `runtime.autograd.segments.SegmentedProgram` for
several segments.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from ..ir.autograd.budget_inside import within_budget  # noqa: F401 (the backend calls it)
from ..ir.autograd.partial_backward import without
from ..ir.autograd.partition import Halves, divide, joined
from ..ir.autograd.segments import not_divided, segments_of
from ..ir.errors import NotDivided
from ..ir.graph.effects import sends_any
from ..ir.graph.nodes import Graph
from ..ir.passes.pipeline import PassRecord
from ..ir.symbolic.expr import symbols_of
from ..runtime.autograd import divided, leaf_order, rng_state
from ..runtime.autograd.joint_plan import Plan
from ..runtime.autograd.joint_program import JointProgram
from ..runtime.autograd.segments import Segment, SegmentedProgram
from ..runtime.errors import CheckError
from ..runtime.events import observers
from ..runtime.events.events import BackwardDivided, Fallback
from ..runtime.process.session import SESSION
from .joint_plan import joint_plan
from .lower import backward as lower_backward
from .output_views import early_views, tail_of
from .programs.compiled import Divided
from .programs.replay import compile_replay
from .programs.shadow import arbitrary, differs, has_effects, largest, not_compared, tolerance
from .second_order import CompileWhole, second_order
from .segments import segment_graphs

# imported to fill the table of rules; only programs that are trained need them
_TABLES = (lower_backward,)
Build = Callable[[Graph], Any]


def compile_joint(
    graph: Graph,
    build: Build,
    options: Any,
    check: bool = False,
    show: Callable[[str], None] | None = None,
    whole: CompileWhole | None = None,
) -> tuple[Any, Any]:
    """(program, the compiled forward). `build` compiles a graph without gradients, `whole` one with
    its backward, where it has one: the gradients, if they are themselves differentiated. Of
    `options`, a `JitConfig` or None, this reads `memory_budget` and `segments`."""
    budget, parts = getattr(options, "memory_budget", None), getattr(options, "segments", None)
    started, passes = time.perf_counter(), list[PassRecord]()
    watched = observers.is_observed()
    segments = segments_of(graph)
    if segments is not None:
        graph = replace(graph, joint=segments.joint)
    reason = not_divided(graph, segments) or _reads(graph, segments)
    if reason:
        raise NotDivided(reason)
    records = passes if watched else None
    own = () if segments is None else segments.segments
    halves = divide(graph, budget=budget, check=check, show=show, records=records, segments=own)
    spent = time.perf_counter() - started
    observers.publish(
        lambda: Divided(joined(graph), tuple(passes), halves.forward, halves.backward, spent)
    )
    forward = build(halves.forward)
    forward.trade = halves.trade
    make = _Maker(build, whole, parts, check, SESSION.owner, watched)
    if segments is None:
        plan, backward, replay, twin = make.parts(graph, halves)
        program = JointProgram(
            plan, forward.program, backward, replay, make.tell, tail_of(graph), twin, graph.late
        )
        make.complete(program, graph)
        return program, forward
    made = []
    for one in segment_graphs(graph, halves, segments):
        plan, backward, replay, twin = make.parts(one.graph, one.halves)
        made.append(Segment(plan, one.place, backward, replay, make.tell, twin))
        make.complete(made[-1], one.graph)
    places = [one.place for one in made]
    early = early_views(graph, [place.inner for place in places])
    segmented = SegmentedProgram(
        len(graph.inputs),
        len(graph.joint.pieces),
        forward.program,
        made,
        tail_of(graph),
        early,
        rng_state.drawn_from(graph),
        graph.written,
        graph.late,
    )
    return segmented, forward


def _data_symbols(graph: Graph) -> set[Any]:
    return {symbol for symbol, origin in graph.symbols.items() if origin[0] == "data"}


def _reads(graph: Graph, segments: Any) -> str:
    """Why numbers that the graph reads from tensors leave it whole; empty if they do not."""
    read = _data_symbols(graph)
    if segments is not None and segments.joint.parted and segments.inner:
        return "parts that data skip, and results that depend on each other"
    views = [(view.meta, view.args, view.kwargs) for view, _ in graph.joint.views]
    if read & symbols_of(views):
        return "a view by a number from tensor data"
    return ""


def _not_sent_again(*_: Any) -> Any:
    """Takes the place of the calls where they must not run a second time."""
    raise NotImplementedError(
        "graftjit: a second derivative, or a batched one, through compiled code that sends messages"
        " to other processes would send them again: put torch.compiler.disable on that function"
    )


class _Maker:
    """Makes what a program with a backward consists of."""

    def __init__(
        self,
        build: Build,
        whole: CompileWhole | None,
        parts: divided.Segments,
        check: bool,
        owner: Any,
        watched: bool,
    ) -> None:
        self._build, self._whole, self._parts = build, whole, parts
        self._check, self._owner, self._watched = check, owner, watched

    def complete(self, program: JointProgram, graph: Graph) -> None:
        """Give the program of a graph what it has beside forward and backward: the programs of its
        second derivatives, its nodes for leaves with hooks, and the division of its backward."""
        if self._whole is not None and not (_data_symbols(graph) or sends_any(graph.nodes)):
            program.second = second_order(graph, self._whole)
        leaf_order.watch(program)
        divided.watch(program, self._parts, self.tell_divided)

    def parts(
        self, graph: Graph, halves: Halves
    ) -> tuple[Plan, Callable[[Sequence[int]], Any], Callable[..., Any], Twin | None]:
        """(plan, the function that builds the backward when autograd first needs it, the calls as
        a function, the comparison with eager)."""
        plan, replay = joint_plan(graph, halves), compile_replay(graph)
        if sends_any(graph.nodes):
            replay = _not_sent_again
        backward = self._backward(halves, len(graph.joint.results))
        if self._watched:  # an observer wants to see it before autograd needs it
            backward(())
        beside = self._check and not has_effects(graph)
        return plan, backward, replay, Twin(graph, plan, replay) if beside else None

    def _backward(self, halves: Halves, n_results: int) -> Callable[[Sequence[int]], Any]:
        def backward(missing: Sequence[int]) -> tuple[Any, Any]:
            if not missing:
                return self._build(halves.backward).program, halves.gradients
            n = len(halves.saved)
            results = range(n, n + n_results)
            part, places = without(halves.backward, [n + at for at in missing], results)
            places = tuple(None if at is None else places[at] for at in halves.gradients)
            return self._build(part).program, places

        return backward

    def tell_divided(self, name: str, n: int) -> None:
        with SESSION.working_for(*self._owner):
            SESSION.emit(BackwardDivided(graph=name, segments=n))

    def tell(self, reason: str) -> None:
        with SESSION.working_for(*self._owner):
            SESSION.emit(Fallback(code="FB317", reason=reason))


class Twin:
    """The calls under autograd, run beside the programs for comparison: see
    `runtime.autograd.joint_program.Twin`.
    """

    def __init__(self, graph: Graph, plan: Plan, replay: Callable[..., Any]) -> None:
        self._graph, self._plan, self._replay = graph, plan, replay
        self._allowed = max(
            tolerance(graph), tolerance(replace(graph, nodes=list(graph.joint.nodes)))
        )
        # (position among the pieces, position among the results) of pieces without a gradient
        with_history, unknown = set(plan.results), arbitrary(graph)
        self._others = [
            (at, graph.outputs.index(node))
            for at, node in enumerate(graph.joint.pieces)
            if at not in with_history and node in graph.outputs and node not in unknown
        ]

    def begin(self, inputs: Sequence[Any]) -> Any:
        graph, n = self._graph, len(self._graph.inputs)
        before = rng_state.states(rng_state.drawn_from(graph))
        with torch.enable_grad():
            # copies of the inputs that the program writes to later
            bare = [
                t.detach().clone() if at in graph.written else t.detach()
                for at, t in enumerate(inputs[:n])
            ]
            leaves = [
                t.requires_grad_(given.requires_grad)
                for t, given in zip(bare, inputs[:n], strict=True)
            ]
            twins = [t.view_as(t) if t.requires_grad else t for t in leaves]
            twins = [t.clone() if at in graph.written else t for at, t in enumerate(twins)]
            results = self._replay(*twins, *inputs[n:])
            found = self._plan.pieces_of(results, twins)
        rng_state.put_back(before)
        others = [results[number].detach() for _, number in self._others]
        return leaves, found, twins, others, []

    def values(self, begun: Any, inputs: Sequence[Any], made: Sequence[Any]) -> None:
        _, pieces, twins, others, before = begun
        scale = largest(inputs)
        given = [made[at] for at in self._plan.results]
        before += [(one.detach(), one.detach().clone()) for one in given]
        pairs = [(f"result {at}", *pair) for at, pair in enumerate(zip(given, pieces, strict=True))]
        pairs += [
            (f"result {number}, which has no gradient,", made[at], theirs)
            for (at, number), theirs in zip(self._others, others, strict=True)
        ]
        pairs += [
            (f"input {at}, which is written to by a call", inputs[at], twins[at])
            for at in self._graph.written
        ]
        for what, ours, theirs in pairs:
            difference = differs(ours.detach(), theirs.detach(), self._allowed, scale)
            if difference:
                raise CheckError(
                    f"{what} of the compiled graph {self._graph.name} is not what eager gives",
                    expected="eager's value",
                    found=difference,
                )

    def compare(self, begun: Any, given: Sequence[Any], found: Sequence[Any]) -> None:
        leaves, pieces, *_, before = begun
        # Writes through `.data` reach the results that the program saves for its backward, but not
        # the results of eager's twin.
        if any(differs(now, then) for now, then in before):
            not_compared(self._graph, "a result was written to, and autograd has not seen it")
            return
        joint = self._graph.joint
        wanted = [at for at in joint.wanted if found[at] is not None]
        if not wanted:
            return
        pairs = [pair for pair in zip(pieces, given, strict=True) if pair[1] is not None]
        with torch.autocast(leaves[wanted[0]].device.type, enabled=False):  # as the program runs
            eager = torch.autograd.grad(
                [piece for piece, _ in pairs],
                [leaves[at] for at in wanted],
                [one for _, one in pairs],
                retain_graph=True,
                allow_unused=True,
            )
        # Gradients that cancel to nothing have errors of the size of the terms that cancelled.
        scale = max(
            float(one.abs().max())
            if one is not None and one.numel() and one.isfinite().all()
            else 0.0
            for one in (*eager, *given)
        )
        for at, theirs in zip(wanted, eager, strict=True):
            expected = torch.zeros_like(found[at]) if theirs is None else theirs
            difference = differs(
                found[at].contiguous(), expected.contiguous(), self._allowed, scale
            )
            if difference:
                raise CheckError(
                    f"the gradient of input {at} of the compiled graph {self._graph.name}"
                    " is not what eager gives",
                    expected="eager's gradient",
                    found=difference,
                )
