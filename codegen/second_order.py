"""The programs of backwards that are themselves differentiated, or run under autocast.

In: a graph with a Joint. Out: what `runtime.autograd.second_order` builds programs with, when
autograd first needs one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..ir.graph.effects import reads, root
from ..ir.graph.nodes import Graph
from ..ir.passes.pipeline import drop_dead
from ..ir.trace.autocast_cache import Casts
from ..ir.trace.gradient_trace import NoGradientTrace, gradient_trace
from ..ir.trace.joint_graph import Joint
from ..runtime.autograd.second_order import Made, SecondOrder

# Compiles a graph, with its own backward where it has one; a text says why it cannot.
CompileWhole = Callable[[Graph], Any | str]


def second_order(graph: Graph, compile_whole: CompileWhole) -> SecondOrder:
    """The gradients of the graph as programs, made at first use."""

    def build(
        inputs: Sequence[Any],
        numbers: Sequence[Any],
        tangents: Sequence[Any],
        wanted: Sequence[int],
        results: Sequence[Any],
        taped: bool,
        casts: Casts,
    ) -> Made | str | None:
        arguments = graph, inputs, numbers, tangents, wanted, results, taped
        try:
            trace = gradient_trace(*arguments, casts)
            plain = gradient_trace(*arguments) if casts and not taped else None
            if plain is not None and _steps(trace.graph) == _steps(plain.graph):
                return None
        except NoGradientTrace as error:
            return f"its gradients cannot be traced: {error}"
        made = trace.graph
        if made.needs_grad and not isinstance(made.joint, Joint):
            return f"its gradients have no backward: {made.joint and made.joint.reason}"
        program = compile_whole(made)
        if isinstance(program, str):
            return program
        if not made.needs_grad:
            program = _without_history(program)
        given = [at for at, one in enumerate(inputs) if one is not None]
        read = frozenset(given[at] for at in _read(made) if at < len(given))
        return Made(program, trace.places, trace.results, trace.history, read)

    return SecondOrder(build)


def _read(graph: Graph) -> list[int]:
    """The positions of the inputs whose memory the outputs depend on."""
    live = drop_dead(graph)
    memory = {root(one) for node in live.nodes for one in reads(node)} | set(
        map(root, live.outputs)
    )
    return [at for at, node in enumerate(graph.inputs) if node in memory]


def _steps(graph: Graph) -> list[Any]:
    """The operators of a graph and what they give: autocast adds casts."""
    return [(node.op, node.target, node.meta) for node in graph.nodes]


def _without_history(program: Callable[..., Any]) -> Callable[..., Any]:
    def run(*inputs: Any) -> Any:
        with torch.no_grad():
            return program(*inputs)

    return run
