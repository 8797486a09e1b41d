"""Graphs that need a gradient: a forward program and a backward program, joined to autograd by one node.

`compile_joint(graph, ...)` divides the graph (`ir.halves`), compiles the forward now and the backward when it is first
asked for, and gives a `runtime.joint_program.JointProgram`. Used by `codegen.backend`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from ..ir.graph import Graph, Meta
from ..ir.halves import Halves, divide
from ..ir.symbols import hint_of
from ..runtime.errors import CheckError
from ..runtime.events import Fallback
from ..runtime.joint_program import JointProgram, Plan
from ..runtime.session import SESSION
from . import lower_backward
from .replay import compile_replay
from .shadow import differs, tolerance

# imported to fill the table of rules, by programs that are trained alone
_TABLES = (lower_backward,)
Build = Callable[[Graph], Any]


def compile_joint(
    graph: Graph, build: Build, check: bool = False, show: Callable[[str], None] | None = None
) -> tuple[JointProgram, Any]:
    """(program, the compiled forward). `build` compiles a graph without gradients."""
    halves = divide(graph, check=check, show=show)
    forward = build(halves.forward)

    def backward() -> Any:
        return build(halves.backward).program

    owner = SESSION.owner

    def tell(reason: str) -> None:
        with SESSION.working_for(*owner):
            SESSION.emit(Fallback(code="FB317", reason=reason))

    replay = compile_replay(graph)
    twin = Twin(graph, replay) if check else None
    plan = _plan(graph, halves)
    return JointProgram(plan, forward.program, backward, replay, tell, twin), forward


def _plan(graph: Graph, halves: Halves) -> Plan:
    joint = graph.joint
    inputs = set(graph.inputs)
    return Plan(
        name=graph.name,
        node=joint.name,
        n_tensors=len(graph.inputs),
        n_outputs=len(graph.outputs),
        results=joint.results,
        orders=tuple(_order(node.meta) for node in joint.tangents),
        wanted=joint.wanted,
        gradients=halves.gradients,
        saved=halves.saved,
        witnesses=halves.witnesses,
        passed={at: node.target for at, node in enumerate(graph.outputs) if node in inputs},
        parameters=joint.parameters,
        numbers=tuple(graph.symbols[symbol] for symbol in halves.backward.numbers),
        random=graph.random,
        written=tuple(graph.written),
    )


def _order(meta: Meta) -> tuple[int, ...] | None:
    """The dimensions by stride, None where they are in order."""
    dims = sorted(range(len(meta.shape)), key=lambda dim: -hint_of(meta.stride[dim]))
    return None if dims == list(range(len(dims))) else tuple(dims)


class Twin:
    """The calls under autograd beside the programs: see `runtime.joint_program.Twin`."""

    def __init__(self, graph: Graph, replay: Callable[..., Any]) -> None:
        self._graph, self._replay = graph, replay
        self._allowed = max(
            tolerance(graph), tolerance(replace(graph, nodes=list(graph.joint.nodes)))
        )

    def begin(self, inputs: Sequence[Any]) -> Any:
        graph, n = self._graph, len(self._graph.inputs)
        state = torch.get_rng_state() if graph.random else None
        with torch.enable_grad():
            twins = [t.detach().requires_grad_(t.requires_grad) for t in inputs[:n]]
            twins = [t.view_as(t) if t.requires_grad else t for t in twins]
            for at in graph.written:
                twins[at] = twins[at].clone()
            found = self._replay(*twins, *inputs[n:])
        if state is not None:
            torch.set_rng_state(state)
        return twins, found

    def compare(self, begun: Any, given: Sequence[Any], found: Sequence[Any]) -> None:
        twins, outputs = begun
        joint = self._graph.joint
        wanted = [at for at in joint.wanted if found[at] is not None]
        if not wanted:
            return
        eager = torch.autograd.grad(
            [outputs[at] for at in joint.results], [twins[at] for at in wanted], list(given),
            retain_graph=True, allow_unused=True,
        )  # fmt: skip
        # Gradients that cancel to nothing have errors of the size of what cancelled.
        scale = max(float(one.abs().max()) if one is not None and one.numel() and one.isfinite().all() else 0.0
                    for one in (*eager, *given))  # fmt: skip
        for at, theirs in zip(wanted, eager, strict=True):
            expected = torch.zeros_like(found[at]) if theirs is None else theirs
            difference = differs(
                found[at].contiguous(), expected.contiguous(), self._allowed, scale
            )
            if difference:
                raise CheckError(
                    f"the gradient of input {at} of the compiled graph {self._graph.name} is not what eager gives",
                    expected="eager's gradient",
                    found=difference,
                )
