"""The plan: what runs, in which order, with which kernels, within the memory that eager needs.

`plan(graph)` runs the stages (`stages.STAGES`) and chooses the first way of fusion, order of steps
and workspace (all values between kernels, the small ones, none) that need no more memory than eager
does. `program_writer.spec` turns the plan into a program.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from ...ir.dataclass import dataclass
from ...ir.graph.effects import reads, root
from ...ir.graph.nodes import Graph, Node
from ..fusion import input_mutations
from ..fusion.fuse import KINDS, Kinds
from ..fusion.row_sums import row_sums
from ..fusion.spread import spread
from ..loops.kernel import Kernel
from . import inplace, peak_memory, step_order
from .stages import Plan, Task, drafted

if TYPE_CHECKING:
    from ..triton.matmul_fusion import Hosts


SMALL = 1 << 16  # bytes that are ignored
DIVISIONS = 3  # kernels at the peak that are divided to need less
# the part of the memory that another order of steps must save, if the first one needs no more than
# eager
GAIN = 1 / 32


def plan(graph: Graph, fuse: bool = True, kinds: Kinds = KINDS) -> Plan:
    """Decide what runs, in which order, with which kernels, on devices of these types. fuse=False:
    ATen calls only.

    Fusion over long distances keeps more memory in use at a time. If the program would need more
    memory than eager at its best, fusion over short distances is tried, then pointwise work moves
    to its readers (`sink`), then the kernel at the peak is divided. The first plan that needs no
    more is taken, or the one that needs least.
    """
    if not fuse or not kinds:
        return _best(Task(graph, {}, frozenset()))
    graph = spread(graph)
    graph = row_sums(graph) if "cuda" in kinds else graph
    graph, moves = input_mutations.sunk(graph)
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
    found: list[_Way] = []
    for near, sunk in ((False, False), (True, False), (False, True)):
        found.append(_way(task, near, sunk))
        if found[-1].fits:
            return found[-1].plan
    least = min(found, key=lambda one: one.needed)
    for _ in range(DIVISIONS):
        task = replace(task, begun=task.begun | _grown_at_peak(least.plan))
        if task.begun == least.task.begun:
            break
        divided = _way(task, least.near, least.sunk)
        if divided.needed >= least.needed:
            break
        least = divided
        if least.fits:
            break
    return least.plan


@dataclass(frozen=True, slots=True)
class _Way:
    """The best plan of one way of fusion: `task`, `near`, `sunk`, as `drafted` takes them.

    needed  bytes at its peak
    fits    whether these are at most eager's
    """

    task: Task
    near: bool
    sunk: bool
    needed: int
    fits: bool
    plan: Plan


def _way(task: Task, near: bool, sunk: bool) -> _Way:
    """The first workspace with which this way of fusion needs no more than eager, or the best."""
    fuse = bool(task.kinds)
    found: list[tuple[int, Plan]] = []
    made = drafted(task, near, sunk)
    eager = peak_memory.peak_of_eager(made.flow)
    ways = [made]
    if fuse and len(made.steps) > 2:
        for order in (step_order.put_off, step_order.bring_forward):
            ways.append(replace(made, steps=order(made.steps, made.follows, made.flow)))
    whole = _only_for_kernels(made)
    some = _small(whole)
    for scratch in dict.fromkeys((whole, some, frozenset[Node]())):
        found.append(_least(ways, scratch, eager))
        # a thread keeps the workspace of a forward while the backward runs
        ignored = 0 if scratch is some is not whole else SMALL
        if found[-1][0] <= eager + ignored or not fuse:
            return _Way(task, near, sunk, found[-1][0], True, found[-1][1])
    needed, plan = min(found, key=lambda one: one[0])
    return _Way(task, near, sunk, needed, False, plan)


def _grown_at_peak(made: Plan) -> frozenset[Node]:
    """What the kernel at the peak of a plan makes in new memory, while it reads what dies there. A
    kernel of its own may read less: the operands that this one combines are in memory together.
    """
    step = made.steps[peak_memory.fullest(made.steps, made.flow, made.over)]
    if not isinstance(step, Kernel) or step.host is not None:
        return frozenset()
    return frozenset(one for one in step.stores if one.op == "call" and one not in made.over)


def _least(ways: list[Plan], scratch: frozenset[Node], eager: int) -> tuple[int, Plan]:
    """The order that needs least memory, and how much; the first one if it needs no more than eager
    and the others save little.
    """
    least: tuple[int, Plan] | None = None
    answers: inplace.Answers = {}
    for number, made in enumerate(ways):
        if least is not None and (
            (least[0] <= eager and eager <= SMALL)
            or any(made.steps == other.steps for other in ways[:number])
        ):
            continue
        one = _in_place(made, scratch, answers)
        needed = peak_memory.peak(one.steps, one.flow, one.scratch, one.over)
        if least is None or needed < least[0] * (1 - GAIN if least[0] <= eager else 1):
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
