"""The gradients of a graph as a graph of their own, which may be differentiated itself.

In: a graph with its `joint`, tensors like its inputs and like the gradients of its results, and the
inputs to differentiate by. Out: a graph from these inputs and gradients to the gradients of the
inputs. It is traced from the recorded calls: they run over ghosts, and torch's own autograd
differentiates them, where asked with `create_graph=True`, so that the gradients have the history that
eager mode gives them, and under the autocast of the running backward. What only the values of the
results need is dead code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..errors import CannotTrace
from ..graph.interpreter import bind_results, changes_state, substitute
from ..graph.nodes import Graph, Ref
from ..symbolic.expr import evaluate
from .ghost import Ghost
from .joint import Joint
from .output_views import Found, pieces_of
from .tracer import Tracer

# autocast: (device type, dtype) where it is on
Casts = tuple[tuple[str, torch.dtype], ...]


class NoGradientTrace(Exception):
    """Why the gradients cannot be traced."""


def gradient_trace(
    graph: Graph,
    inputs: Sequence[torch.Tensor | None],
    numbers: Sequence[Any],
    tangents: Sequence[torch.Tensor | None],
    wanted: Sequence[int],
    taped: bool = True,
    casts: Casts = (),
) -> tuple[Graph, tuple[int | None, ...]]:
    """(the graph, for each of `wanted` the position of its gradient among the results, or None).

    inputs    tensors like the graph's inputs; None for one that the calls do not read
    numbers   the numbers that follow the inputs; they and all sizes are constants of the new graph
    tangents  tensors like the gradients of `joint.results`; None for a missing one
    wanted    positions of inputs
    taped     whether the gradients have a history
    casts     autocast around the backward

    The new graph takes the inputs and the tangents that are not None. Raises NoGradientTrace.
    """
    trace = _Trace(graph, inputs, numbers, tangents, wanted)
    trace.taped, trace.casts = taped, casts
    grad, entered = torch.is_grad_enabled(), trace.entered
    try:
        return trace.made()
    except (CannotTrace, RuntimeError) as error:
        raise NoGradientTrace(str(error).splitlines()[0]) from error
    finally:
        for context in reversed(entered):
            context.__exit__(None, None, None)
        torch._C._set_grad_enabled(grad)


def differentiated(
    outputs: tuple[Any, ...],
    given: tuple[Any, ...],
    points: tuple[Any, ...],
    tangents: tuple[Any, ...],
    found: tuple[Found, ...],
    taped: bool,
) -> tuple[Any, ...]:
    """The gradients at `points`, with a history if `taped`. Graphs record calls of this function."""
    # As torch.autograd.grad, without its check of shapes, which imports sympy (a second).
    return torch.autograd.graph._engine_run_backward(  # type: ignore[return-value]
        tuple(pieces_of(found, outputs, given)),
        tangents,
        True,
        taped,
        points,
        True,
        accumulate_grad=False,
    )


class _Trace:
    """One trace. `entered`: the contexts that the calls have entered and not left."""

    taped: bool
    casts: Casts

    def __init__(
        self,
        graph: Graph,
        inputs: Sequence[torch.Tensor | None],
        numbers: Sequence[Any],
        tangents: Sequence[torch.Tensor | None],
        wanted: Sequence[int],
    ) -> None:
        self.graph, self.wanted = graph, wanted
        self.tracer = Tracer(f"{graph.name}_gradient")
        self.entered: list[Any] = []
        self.points = [self._entered(one) for one in inputs]
        self.tangents = [self._entered(one) for one in tangents]
        self.sizes = _numbers_of(graph, inputs, numbers)

    def _entered(self, tensor: torch.Tensor | None) -> Ghost | None:
        """A leaf of its own, also where one tensor is given twice."""
        if tensor is None:
            return None
        return self.tracer.input(tensor.detach().requires_grad_(tensor.requires_grad))

    def made(self) -> tuple[Graph, tuple[int | None, ...]]:
        joint: Joint = self.graph.joint
        outputs, given = self._called()
        pairs = [
            (joint.found[at], tangent)
            for at, tangent in zip(joint.results, self.tangents, strict=True)
            if tangent is not None
        ]
        points = tuple(self.points[at] for at in self.wanted)
        self.tracer.spends = True
        around = self._cast(self.casts)
        gradients = self.tracer.run(
            differentiated,
            (
                outputs,
                given,
                points,
                tuple(tangent for _, tangent in pairs),
                tuple(found for found, _ in pairs),
                self.taped,
            ),
        )
        self._uncast(around)
        results = [one for one in gradients if one is not None]
        graph = self.tracer.finish(results, backward=True)
        if graph.mutates:
            raise NoGradientTrace("it writes to a tensor")
        graph.sources = [None] * len(graph.inputs)
        numbers = iter(range(len(results)))
        return graph, tuple(None if one is None else next(numbers) for one in gradients)

    def _called(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """(outputs of the calls, their inputs), after the calls have run over ghosts."""
        tracer, graph = self.tracer, self.graph
        given = tuple(
            tracer.run(torch.clone, (one,)) if at in graph.written and one is not None else one
            for at, one in enumerate(self.points)
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
                bind_results(call.results, result, values)
                values.update(graph.constants)
        self._uncast(around)
        return tuple(values[ref.index] for ref in graph.call_outputs), given

    def _cast(self, casts: Casts) -> list[torch.autocast]:
        """Enter autocast."""
        around = [torch.autocast(kind, dtype) for kind, dtype in casts]
        for cast in around:
            self.tracer.state_call(cast.__enter__)
            self.entered.append(cast)
        return around

    def _uncast(self, around: Sequence[torch.autocast]) -> None:
        """Leave autocast."""
        for cast in reversed(around):
            self.entered.pop()
            self.tracer.state_call(cast.__exit__, None, None, None)

    def _read(self, value: Any, values: dict[int, Any]) -> Any:
        read = substitute(value, lambda ref: values[ref.index], Ref)
        return evaluate(read, self.sizes) if self.sizes else read

    def _note(self, target: Any) -> None:
        name = getattr(target, "__name__", "")
        if name == "__enter__":
            self.entered.append(target.__self__)
        elif name == "__exit__":
            self.entered.pop()


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
