"""The stages of a plan: from a graph to units, kernels and their order. `STAGES` is the whole list.

Each stage is a function that reads and extends a `Draft`. `drafted` runs them, times them, and logs
the times with the passes. `schedule.plan` chooses between drafts by the memory that they need.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ...ir.dataclass import dataclass, field
from ...ir.graph.nodes import Graph, Node
from ..analysis.dataflow import Flow, analyse
from ..fusion import epilogue, input_mutations, nest_builder, rowwise_nest
from ..fusion.concat import joins
from ..fusion.fuse import Fusion, Kinds, Unit
from ..fusion.inline_producers import absorb
from ..fusion.input_mutations import Moves
from ..fusion.sink_into_consumers import is_layout_copy, sink
from ..kernels.registry import Kernel as Replacement
from ..kernels.registry import replaced
from ..loops.kernel import Kernel
from ..lower.builder import RULES
from ..programs.compiled import show
from . import inplace, step_order
from .stored_values import wanted_in_memory

if TYPE_CHECKING:
    from ..triton.matmul_fusion import Hosts

NONE: frozenset[Node] = frozenset()


@dataclass(slots=True)
class Plan:
    """Units in order, each a Kernel or an ATen node."""

    graph: Graph
    flow: Flow
    fusion: Fusion
    steps: list[Kernel | Node] = field(default_factory=list)
    scratch: frozenset[Node] = frozenset()  # values in the workspace
    # calls of ATen -> the kernels that replace them
    replaced: Mapping[Node, Replacement] = field(default_factory=dict)
    # result -> the operand whose memory it takes
    over: Mapping[Node, Node] = field(default_factory=dict)
    # a write of the graph -> by how much it raises the version
    moves: Moves = field(default_factory=dict)
    follows: list[set[int]] = field(default_factory=list)  # for each step those that it follows
    hosts: Hosts = field(default_factory=dict)  # products that a kernel on a GPU may compute

    @property
    def kernels(self) -> list[Kernel]:
        return [step for step in self.steps if isinstance(step, Kernel)]


@dataclass(frozen=True, slots=True)
class Task:
    """What is planned: a graph, with the version steps of its writes (`moves`), for kernels on
    devices of these types, without operators that are `refused`. `hosts`: products on a GPU that a
    graftjit kernel computes together with their epilogues. `begun`: see `Fusion`.
    """

    graph: Graph
    moves: Moves
    kinds: Kinds
    refused: frozenset[Node] = NONE
    hosts: Hosts = field(default_factory=dict)
    begun: frozenset[Node] = NONE


@dataclass(slots=True)
class Draft:
    """A plan in the making.

    task    what is planned
    near    see `Fusion`
    sunk    a value that one other kernel reads is computed there (`sink`)
    alone   the inputs that separate kernels write
    apart   the inputs into which ATen copies a kernel's result, because no kernel reads each
            element before it stores it
    again   whether `alone` and `apart` have changed, so that the stages run again
    copies  a copy or a cat that kernels do -> its parts
    wanted  the values that must be in memory
    """

    task: Task
    near: bool
    sunk: bool
    alone: frozenset[Node] = NONE
    apart: frozenset[Node] = NONE
    again: bool = False
    copies: dict[Node, tuple[Node, ...]] = field(default_factory=dict)
    flow: Flow = field(default=None)  # type: ignore[assignment]
    fusion: Fusion = field(default=None)  # type: ignore[assignment]
    units: list[Unit] = field(default_factory=list)
    wanted: set[Node] = field(default_factory=set)
    plan: Plan = field(default=None)  # type: ignore[assignment]

    @property
    def fuses(self) -> bool:
        return bool(self.task.kinds)


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage and the reason for it."""

    name: str
    run: Callable[[Draft], None]
    why: str


def _copies(draft: Draft) -> None:
    task = draft.task
    copies = input_mutations.copies(task.graph, draft.apart) if draft.fuses else {}
    if draft.fuses and not draft.near:
        copies |= joins(task.graph)
    draft.copies = {one: parts for one, parts in copies.items() if _may(one, task)}


def _may(node: Node, task: Task) -> bool:
    """Whether a kernel may do this write, or this cat."""
    return node not in task.refused and node.meta.device.type in task.kinds


def _dataflow(draft: Draft) -> None:
    task = draft.task
    draft.flow = analyse(task.graph, draft.copies, task.moves, input_mutations.is_apart(task.graph))


def _fuse(draft: Draft) -> None:
    task = draft.task
    draft.fusion = Fusion(draft.flow, task.kinds, draft.near, draft.alone, task.refused, task.begun)
    draft.fusion.run()


def _sink(draft: Draft) -> None:
    if draft.sunk:
        sink(draft.fusion)
    elif "cuda" in draft.task.kinds:
        sink(draft.fusion, is_layout_copy)


def _inline(draft: Draft) -> None:
    if draft.fuses and not draft.near:
        absorb(draft.fusion)


def _units(draft: Draft) -> None:
    draft.units = draft.fusion.finish()
    draft.wanted = wanted_in_memory(draft.flow, draft.fusion)


def _nests(draft: Draft) -> None:
    task, flow = draft.task, draft.flow
    made = Plan(task.graph, flow, draft.fusion, moves=task.moves, hosts=task.hosts)
    # the steps of a unit; if it has none, the steps that it follows
    stand: dict[Unit, set[int]] = {}
    kernels = 0
    for unit in step_order.in_order(flow, draft.units):
        before = set().union(*(stand[other] for other in unit.before))
        step = _step(unit, kernels, made, draft.wanted)
        stand[unit] = before if step is None else {len(made.steps)}
        if step is not None:
            kernels += isinstance(step, Kernel)
            made.steps.append(step)
            made.follows.append(before)
    draft.plan = made


def _step(unit: Unit, number: int, made: Plan, wanted: set[Node]) -> Kernel | Node | None:
    flow, fusion = made.flow, made.fusion
    if not unit.is_kernel:
        node = unit.nodes[0]
        runs = node not in flow.joins and (not fusion._inlined(node) or node in wanted)
        return node if runs else None
    stored = [node for node in unit.nodes if node in wanted]
    if not stored:
        return None
    name = _name(number, unit, flow)
    if unit.rows is None:
        return nest_builder.build(fusion, unit, name, stored, wanted)
    return rowwise_nest.build(fusion, unit, name, stored)


def _name(number: int, unit: Unit, flow: Flow) -> str:
    """`k3_layer_norm`: the heaviest operator, for profiles and readers."""
    calls = [flow.call(node) for node in unit.nodes if node.op == "call"]
    name = calls[-1].target._schema.name.split("::")[1].strip("_")
    kinds = ("fold", "normalize", "product")
    folds = [node for node in calls if (rule := RULES.get(node.target)) and rule.kind in kinds]
    if folds:
        name = folds[0].target._schema.name.split("::")[1].strip("_")
    return f"k{number}_{name}"


def _input_stores(draft: Draft) -> None:
    if not draft.flow.writes_memory:
        return
    lawless, draft.plan.steps = inplace.stored(draft.plan.steps)
    if lawless:
        draft.apart |= lawless & draft.alone
        draft.alone |= lawless
        draft.again, draft.sunk = True, False


def _own_kernels(draft: Draft) -> None:
    if draft.fuses:
        calls = (step for step in draft.plan.steps if isinstance(step, Node))
        draft.plan.replaced = replaced(calls)


def _epilogues(draft: Draft) -> None:
    made, task = draft.plan, draft.task
    if draft.fuses:
        every: dict[Node, epilogue.Tiled] = {**made.replaced, **task.hosts}
        made.steps, made.follows = epilogue.hosted(made.steps, made.follows, draft.flow, every)


def _prologues(draft: Draft) -> None:
    made, task = draft.plan, draft.task
    if task.hosts:
        # loaded for graphs with products on GPUs only
        from ..triton.prologue import absorbed

        made.steps, made.follows = absorbed(made.steps, made.follows, draft.flow, task.hosts)


STAGES = (
    Stage("copies", _copies, "copies and cats that kernels do part by part"),
    Stage("dataflow", _dataflow, "dependences, and the readers of each value"),
    Stage("fuse", _fuse, "operators join, those that save most bytes first"),
    Stage("sink", _sink, "copies, or if memory is short any value, move to their one reader"),
    Stage("inline", _inline, "a cheap producer is computed where it is read"),
    Stage("units", _units, "the fused units, and the values that they need in memory"),
    Stage("nests", _nests, "each unit in order: a loop nest, or a call of ATen"),
    Stage("input stores", _input_stores, "kernels that write inputs read each element first"),
    Stage("own kernels", _own_kernels, "products and convolutions of graftjit in place of ATen's"),
    Stage("epilogues", _epilogues, "the kernel of a product computes what follows it"),
    Stage("prologues", _prologues, "the kernel of a product on a GPU computes its operand"),
)


def drafted(task: Task, near: bool = False, sunk: bool = False) -> Plan:
    """The plan that the stages give."""
    draft = Draft(task, near, sunk)
    times = dict.fromkeys([one.name for one in STAGES], 0.0)
    while True:
        draft.again = False
        for one in STAGES:
            start = time.perf_counter()
            one.run(draft)
            times[one.name] += time.perf_counter() - start
            if draft.again:
                break
        else:
            break
    log = show()
    if log is not None:
        rows = [f"{one.name} ({one.why}; {times[one.name] * 1e3:.1f} ms)" for one in STAGES]
        log("\n".join([f"planned {task.graph.name}, near={near}, sunk={sunk}", *rows]))
    return draft.plan
