"""The plan: what runs, in which order, with which kernels, within the memory that eager needs.

`plan(graph)` runs the stages (`stages.STAGES`) and chooses the first way of fusion, order of steps
and workspace (all values between kernels, the small ones, none) that need no more memory than eager
does. `program_writer.spec` turns the plan into a program.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from ...ir.graph.effects import reads, root
from ...ir.graph.nodes import Graph, Node
from ..fusion import input_mutations
from ..fusion.fuse import KINDS, Kinds
from ..fusion.spread import spread
from . import inplace, peak_memory, step_order
from .stages import Plan, Task, drafted

if TYPE_CHECKING:
    from ..triton.matmul_fusion import Hosts


SMALL = 1 << 16  # bytes that are ignored
GAIN = 1 / 32  # the part of the memory that another order of steps must save


def plan(graph: Graph, fuse: bool = True, kinds: Kinds = KINDS) -> Plan:
    """Decide what runs, in which order, with which kernels, on devices of these types. fuse=False:
    ATen calls only.

    Fusion over long distances keeps more memory in use at a time. If the program would need more
    memory than eager at its best, fusion over short distances is tried, then pointwise work moves
    to its readers (`sink`). The first plan that needs no more is taken, or the one that needs
    least.
    """
    if not fuse or not kinds:
        return _best(Task(graph, {}, frozenset()))
    graph, moves = input_mutations.sunk(spread(graph))
    return _best(Task(graph, moves, kinds))


def without(made: Plan, nodes: Iterable[Node]) -> Plan:
    """The plan in which these operators are calls of ATen, too."""
    fusion = made.fusion
    refused = fusion.refused | frozenset(nodes)
    return _best(Task(made.graph, made.moves, fusion.kinds, refused, made.hosts))


def hosting(made: Plan, hosts: Hosts) -> Plan:
    """The plan in which the kernels of these products also compute the element-wise operators after
    them.
    """
    fusion = made.fusion
    return _best(Task(made.graph, made.moves, fusion.kinds, fusion.refused, hosts))


def _best(task: Task) -> Plan:
    """The first fusion that needs no more memory than eager, or the one that needs least."""
    fuse = bool(task.kinds)
    found: list[tuple[int, Plan]] = []
    for near, sunk in ((False, False), (True, False), (False, True)):
        made = drafted(task, near, sunk)
        eager = peak_memory.peak_of_eager(made.flow)
        ways = [made]
        if fuse and eager > SMALL and len(made.steps) > 2:
            ways.append(
                replace(made, steps=step_order.put_off(made.steps, made.follows, made.flow))
            )
        whole = _only_for_kernels(made)
        some = _small(whole)
        for scratch in dict.fromkeys((whole, some, frozenset[Node]())):
            found.append(_least(ways, scratch))
            # a thread keeps the workspace of a forward while the backward runs
            ignored = 0 if scratch is some is not whole else SMALL
            if found[-1][0] <= eager + ignored or not fuse:
                return found[-1][1]
    return min(found, key=lambda one: one[0])[1]


def _least(ways: list[Plan], scratch: frozenset[Node]) -> tuple[int, Plan]:
    """The order that needs least memory, and how much; the first one if the others save little."""
    least: tuple[int, Plan] | None = None
    answers: inplace.Answers = {}
    for made in ways:
        if least is not None and made.steps == ways[0].steps:
            continue
        one = _in_place(made, scratch, answers)
        needed = peak_memory.peak(one.steps, one.flow, one.scratch, one.over)
        if least is None or needed < least[0] * (1 - GAIN):
            least = needed, one
    assert least is not None
    return least


def _small(scratch: frozenset[Node]) -> frozenset[Node]:
    """The small values of a workspace. The large ones then share the allocator's memory with what
    operators and callers see: the workspace stays until the program ends, so a large value in it
    takes memory of its own even where the program needs most elsewhere.
    """
    return frozenset(node for node in scratch if peak_memory.size_of(node) <= SMALL)


def _in_place(made: Plan, scratch: frozenset[Node], answers: inplace.Answers) -> Plan:
    """The plan with this workspace, and with results written over dead operands."""
    steps, over = inplace.chosen(made.steps, made.flow, scratch, answers)
    freed = {node for node, given in over.items() if given not in scratch}
    return replace(made, steps=steps, scratch=scratch - freed, over=over)


def _only_for_kernels(made: Plan) -> frozenset[Node]:
    """Stored values that no ATen call, view or caller sees."""
    stored = {node for kernel in made.kernels for node in kernel.stores if node.op != "input"}
    seen = {root(node) for node in made.graph.outputs}
    for step in made.steps:
        call = step if isinstance(step, Node) else step.host
        if call is not None:
            seen.update(root(operand) for operand in reads(call))
        if isinstance(step, Node):
            continue
        if step.nest.may_fail and made.flow.writes_memory:
            seen.update(
                step.reads
            )  # they cannot be computed again if the kernel fails: their operands may have changed
    return frozenset(stored - seen)
