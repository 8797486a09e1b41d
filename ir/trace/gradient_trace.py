"""The gradients of a graph as a graph of their own, which may be differentiated itself.

In: a graph with its `joint`, tensors like its inputs and like the gradients of its results, and the
inputs to differentiate by. Out: a graph from these inputs and gradients to the gradients of the
inputs. It is traced from the recorded calls: they run over ghosts, and torch's own autograd
differentiates them, where asked with `create_graph=True`, so that the gradients have the history
that eager mode gives them (`ir.trace.gradient_history`), and under the autocast of the running
backward. What only the values of the results need is dead code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..dataclass import dataclass
from ..errors import CannotTrace
from ..graph.interpreter import bind_results, changes_state, substitute
from ..graph.nodes import Graph, Ref
from ..symbolic.expr import evaluate
from .autocast_cache import Casts
from .ghost import Ghost
from .gradient_history import Earlier, History, Run, differentiated, entered, history
from .joint_graph import Joint
from .output_views import pieces_of
from .tracer import Tracer


class NoGradientTrace(Exception):
    """Why the gradients cannot be traced."""


@dataclass(frozen=True, slots=True)
class GradientTrace:
    """The gradients as a graph.

    graph    it takes the inputs and the tangents that are not None, then `results`
    places   for each wanted input the position of its gradient among the outputs, or None
    results  the results that the gradients lead to as saved values, by position
    history  what the gradients of the wanted inputs lead to
    """

    graph: Graph
    places: tuple[int | None, ...]
    results: tuple[int, ...]
    history: History


def gradient_trace(
    graph: Graph,
    inputs: Sequence[torch.Tensor | None],
    numbers: Sequence[Any],
    tangents: Sequence[torch.Tensor | None],
    wanted: Sequence[int],
    results: Sequence[torch.Tensor | None],
    taped: bool = True,
    casts: Casts = (),
) -> GradientTrace:
    """The gradients of the inputs `wanted` (positions). Raises NoGradientTrace.

    inputs    tensors like the graph's inputs; None for one that the calls do not read
    numbers   the numbers that follow the inputs; they and all sizes are constants of the new graph
    tangents  tensors like the gradients of `joint.results`; None for a missing one
    results   those of `joint.results` that autograd has saved; None for others
    taped     whether the gradients have a history
    casts     autocast around the backward
    """
    saved = [at for at, one in enumerate(results) if one is not None]
    earlier: Earlier = ()
    while True:
        known = tuple([results[at] for at, _ in earlier])
        trace = _Trace(graph, inputs, numbers, tangents, known)
        trace.taped, trace.casts = taped, casts
        grad, left = torch.is_grad_enabled(), trace.left
        try:
            made, gradients, found = trace.made(wanted, earlier, saved)
        except (CannotTrace, RuntimeError) as error:
            raise NoGradientTrace(str(error).splitlines()[0]) from error
        finally:
            for context in reversed(left):
                context.__exit__(None, None, None)
            torch._C._set_grad_enabled(grad)
        if earlier == found.reached():
            places = iter(range(len(made.outputs)))
            return GradientTrace(
                made,
                tuple(None if one is None else next(places) for one in gradients),
                tuple([at for at, _ in earlier]),
                found,
            )
        earlier = found.reached()


class _Trace:
    """One trace. `left`: the contexts that the calls have entered and not left; `runs`: what they
    have differentiated."""

    taped: bool
    casts: Casts

    def __init__(
        self,
        graph: Graph,
        inputs: Sequence[torch.Tensor | None],
        numbers: Sequence[Any],
        tangents: Sequence[torch.Tensor | None],
        results: Sequence[torch.Tensor | None],
    ) -> None:
        self.graph = graph
        self.tracer = Tracer(f"{graph.name}_gradient")
        self.tracer.of_gradients = True
        self.left: list[Any] = []
        self.runs: list[Run] = []
        self.inputs = tuple(map(self._leaf, inputs))
        self.tangents = tuple(map(self._leaf, tangents))
        self.results = tuple(map(self._leaf, results))
        self.sizes = _numbers_of(graph, inputs, numbers)

    def _leaf(self, tensor: torch.Tensor | None) -> Ghost | None:
        """A leaf of its own, also where one tensor is given twice."""
        if tensor is None:
            return None
        return self.tracer.input(tensor.detach().requires_grad_(tensor.requires_grad))

    def made(
        self, wanted: Sequence[int], earlier: Earlier, saved: Sequence[int]
    ) -> tuple[Graph, Sequence[Ghost | None], History]:
        """(the graph, the gradients, what they lead to)."""
        joint: Joint = self.graph.joint
        points = self.tracer.run(entered, (self.inputs, self.results, earlier))
        outputs, given = self._called(points)
        self.tracer.spends = True
        found = tuple(joint.found[at] for at in joint.results)
        arguments = outputs, given, points, tuple(wanted), self.tangents, found, earlier, self.taped
        around = self._cast(self.casts)
        gradients = self.tracer.run(differentiated, arguments)
        self._uncast(around)
        self._note_run(*arguments)
        past = history(gradients, self.runs, saved)
        graph = self.tracer.finish((one for one in gradients if one is not None), True)
        if graph.mutates:
            raise NoGradientTrace("it writes to a tensor")
        graph.sources = [None] * len(graph.inputs)
        return graph, gradients, past

    def _called(self, points: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """(outputs of the calls, their inputs), after the calls have run over ghosts."""
        tracer, graph = self.tracer, self.graph
        given = tuple(
            tracer.run(torch.clone, (one,)) if at in graph.written and one is not None else one
            for at, one in enumerate(points)
        )
        values: dict[int, Any] = {**graph.constants, **dict(enumerate(given))}
        around = self._cast(graph.joint.casts)
        for call in graph.calls:
            args, kwargs = self._read(call.args, values), self._read(call.kwargs, values)
            if changes_state(call):
                self._note(call.target)
                tracer.state_call(call.target, *args, where=call.where)
            else:
                result = tracer.run(call.target, args, kwargs, call.where)
                if call.target is differentiated:
                    self._note_run(*args)
                bind_results(call.results, result, values)
                values.update(graph.constants)
        self._uncast(around)
        return tuple(values[ref.index] for ref in graph.call_outputs), given

    def _cast(self, casts: Casts) -> list[torch.autocast]:
        """Enter autocast."""
        around = [torch.autocast(kind, dtype) for kind, dtype in casts]
        for cast in around:
            self.tracer.state_call(cast.__enter__)
            self.left.append(cast)
        return around

    def _uncast(self, around: Sequence[torch.autocast]) -> None:
        """Leave autocast."""
        for cast in reversed(around):
            self.left.pop()
            self.tracer.state_call(cast.__exit__, None, None, None)

    def _read(self, value: Any, values: dict[int, Any]) -> Any:
        read = substitute(value, lambda ref: values[ref.index], Ref)
        return evaluate(read, self.sizes) if self.sizes else read

    def _note(self, target: Any) -> None:
        name = getattr(target, "__name__", "")
        if name == "__enter__":
            self.left.append(target.__self__)
        elif name == "__exit__":
            self.left.pop()

    def _note_run(
        self, outputs: Any, given: Any, points: Any, _wanted: Any, _tangents: Any, *rest: Any
    ) -> None:
        found, earlier = rest[:2]
        self.runs.append(Run(pieces_of(found, outputs, given), points, earlier))


def _numbers_of(
    graph: Graph, inputs: Sequence[torch.Tensor | None], numbers: Sequence[Any]
) -> dict[str, Any]:
    """The number of each symbol of the graph, by name."""
    found = {}
    for symbol, (what, at, *dim) in graph.symbols.items():
        if what == "number":
            found[symbol.name] = numbers[at - len(inputs)]
            continue
        tensor = inputs[at]
        if tensor is not None:
            found[symbol.name] = tensor.size(*dim) if what == "size" else tensor.stride(*dim)
    return found
