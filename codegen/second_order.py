"""The programs of backwards that are themselves differentiated, or run under autocast.

In: a graph with a Joint. Out: what `runtime.autograd.second_order` builds programs with, when
autograd first needs one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..ir.graph.nodes import Graph
from ..ir.trace.gradient_trace import Casts, NoGradientTrace, gradient_trace
from ..ir.trace.joint import Joint
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
        taped: bool,
        casts: Casts,
    ) -> Made | str | None:
        arguments = graph, inputs, numbers, tangents, wanted, taped
        try:
            made, places = gradient_trace(*arguments, casts)
            if casts and not taped and _steps(made) == _steps(gradient_trace(*arguments)[0]):
                return None
        except NoGradientTrace as error:
            return f"its gradients cannot be traced: {error}"
        if made.needs_grad and not isinstance(made.joint, Joint):
            return f"its gradients have no backward: {made.joint and made.joint.reason}"
        program = compile_whole(made)
        if isinstance(program, str):
            return program
        return (program if made.needs_grad else _without_history(program)), places

    return SecondOrder(build)


def _steps(graph: Graph) -> list[Any]:
    """The operators of a graph and what they give: autocast adds casts."""
    return [(node.op, node.target, node.meta) for node in graph.nodes]


def _without_history(program: Callable[..., Any]) -> Callable[..., Any]:
    def run(*inputs: Any) -> Any:
        with torch.no_grad():
            return program(*inputs)

    return run
