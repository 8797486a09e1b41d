"""Prologues: light element-wise operators before a product are computed while the product loads its
factor.

In: the steps of a plan whose products on a GPU have kernels of graftjit (`matmul_fusion`). Out: the
same steps. A light pointwise kernel (a cast, a scale) that makes a factor for only that product
becomes a part of its kernel: the factor is never in memory. It is computed once for each tile that
reads it, so long computations are not taken in. `codegen.schedule.plan` uses this after `epilogue`;
measurement decides whether the product is worth it as a whole (`codegen.tuning.gpu`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import accumulate

from ...ir.graph.effects import reads, root
from ...ir.graph.nodes import Node
from ..analysis.dataflow import Flow, memory_of
from ..fusion.epilogue import Follows, Steps, moved_along, writes_memory
from ..kernels.matmul_f32 import operands
from ..loops import operators
from ..loops.kernel import Kernel, Prologue
from . import matmul_fusion

LIGHT = 8  # the most light operations per element: `operators.Op.cost`


def absorbed(
    steps: Steps, follows: Follows, flow: Flow, hosts: Collection[Node]
) -> tuple[list[Kernel | Node], Follows]:
    """The steps with prologues in their products' kernels, and which of them each follows."""
    found: list[Kernel | Node | None] = list(steps)
    moved: dict[int, int] = {}
    outputs = {root(node) for node in flow.graph.outputs}
    writing = [0, *accumulate(map(writes_memory, steps))]
    maker, readers = _places(steps)
    for number, step in enumerate(steps):
        if not isinstance(step, Kernel) or step.host not in hosts:
            continue
        assert step.host is not None
        for place, operand in enumerate(operands(step.host)[:2]):
            assert operand is not None
            base = memory_of(operand)[0]
            at = maker.get(base)
            made = None if at is None else steps[at]
            if at is None or not isinstance(made, Kernel) or readers.get(base) != [number]:
                continue
            if base in outputs or base in flow.written or writing[at] != writing[number]:
                continue  # another step needs it, or its operands may have changed by then
            grown = _with(found[number], place, operand, made)
            if grown is not None:
                found[number], found[at], moved[at] = grown, None, number
    return moved_along(found, follows, moved)


def _places(steps: Steps) -> tuple[dict[Node, int], dict[Node, list[int]]]:
    """For each memory the step that makes it, and the steps that read it, one entry per read."""
    maker: dict[Node, int] = {}
    readers: dict[Node, list[int]] = {}
    for number, step in enumerate(steps):
        if isinstance(step, Kernel):
            maker |= {node: number for node in step.stores if node.op != "input"}
            read = [*step.reads, *(() if step.host is None else reads(step.host))]
        else:
            read = list(reads(step))
        for one in read:
            readers.setdefault(root(one), []).append(number)
    return maker, readers


def _with(step: Kernel | Node | None, place: int, operand: Node, made: Kernel) -> Kernel | None:
    """The product's kernel with this one as the prologue of a factor; None if it cannot be."""
    assert isinstance(step, Kernel) and step.host is not None
    if made.host is not None or made.device != step.device or len(made.stores) != 1:
        return None
    nest = made.nest
    if nest.has_reduction or nest.scatters or nest.may_fail or nest.outer or made.writes:
        return None
    if any(value.args and value.op in ("load", "load_if") for value in nest.values):
        return None
    known = [value for value in nest.values if value.op in operators.OPS]
    if sum(operators.OPS[value.op].cost for value in known) > LIGHT:
        return None
    one = Prologue(place, made)
    if matmul_fusion.factor(step.host, one) is None:
        return None
    # The product's kernel reads the prologue's operands: they follow those of the epilogue, which
    # loads none of them.
    more, count = nest.buffers[: len(made.reads)], len(step.reads)
    buffers = (*step.nest.buffers[:count], *more, *step.nest.buffers[count:])
    stores = tuple(replace(each, buffer=each.buffer + len(more)) for each in step.nest.stores)
    grown = replace(
        step.nest, buffers=buffers, stores=stores, covers=(*nest.covers, *step.nest.covers)
    )
    return replace(
        step, nest=grown, reads=(*step.reads, *made.reads), nodes=(*made.nodes, *step.nodes),
        prologues=(*step.prologues, one),
    )  # fmt: skip
