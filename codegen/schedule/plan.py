"""The plan: from units to a program. It sets the order of steps, the memory of values between them,
views and frees.

`plan(graph)` analyses, fuses and builds the loop nests; `spec` makes the `ProgramSpec` once the
addresses of kernels are known. A tensor that only kernels access is in the program's workspace,
whose memory is reused when it is dead. Tensors that ATen or the caller sees are allocated with
eager's strides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from ...ir.dataclass import dataclass, field
from ...ir.graph.effects import reads, root, writes
from ...ir.graph.nodes import Graph, Meta, Node
from ...ir.ops.may_raise import may_raise
from ...runtime.program.program import (
    COMPUTES,
    Alloc,
    Aten,
    Launch,
    Otherwise,
    ProgramSpec,
    Scratch,
    Slot,
    Step,
    View,
)
from ..analysis.dataflow import Flow, analyse, base_of, is_plain_view
from ..fusion import epilogue, rowwise_nest
from ..fusion import input_mutations as stores
from ..fusion import nest_builder as nest
from ..fusion.concat import joins
from ..fusion.fuse import KINDS, Fusion, Kinds, Unit
from ..fusion.inline_producers import absorb
from ..fusion.input_mutations import Moves
from ..fusion.sink_into_consumers import sink
from ..fusion.spread import spread
from ..kernels.registry import Kernel as Replacement
from ..kernels.registry import replaced
from ..loops.extents import product
from ..loops.kernel import CPU, Kernel
from ..lower.builder import RULES, scatters
from ..programs import step_facts as facts
from . import inplace
from . import peak_memory as memory
from . import step_order as sequence
from .fallback import otherwise
from .frees import with_frees
from .workspace import ALIGNMENT, ON_DEVICE, Arena, settled

if TYPE_CHECKING:
    from ..triton.matmul_fusion import Hosts
    from .gpu_kernels import OnDevice

_DETACH = torch.ops.aten.detach.default
_UNSAFE_VIEW = torch.ops.aten._unsafe_view.default
SMALL = 1 << 16  # bytes that are ignored
GAIN = 1 / 32  # the part of the memory that another order of steps must save
NONE: frozenset[Node] = frozenset()
Numbers = Mapping[str, tuple[Any, ...]]
Launches = Mapping[str, "OnDevice"]


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


def plan(graph: Graph, fuse: bool = True, kinds: Kinds = KINDS) -> Plan:
    """Decide what runs, in which order, with which kernels, on devices of these types. fuse=False:
    ATen calls only.

    Fusion over long distances keeps more memory in use at a time. If the program would need more
    memory than eager at its best, fusion over short distances is tried, then pointwise work moves
    to its readers (`sink`). The first plan that needs no more is taken, or the one that needs
    least.
    """
    if not fuse or not kinds:
        return _best(_Task(graph, {}, frozenset()))
    graph, moves = stores.sunk(spread(graph))
    return _best(_Task(graph, moves, kinds))


def without(made: Plan, nodes: Iterable[Node]) -> Plan:
    """The plan in which these operators are calls of ATen, too."""
    fusion = made.fusion
    refused = fusion.refused | frozenset(nodes)
    return _best(_Task(made.graph, made.moves, fusion.kinds, refused, made.hosts))


def hosting(made: Plan, hosts: Hosts) -> Plan:
    """The plan in which the kernels of these products also compute the element-wise operators after
    them.
    """
    fusion = made.fusion
    return _best(_Task(made.graph, made.moves, fusion.kinds, fusion.refused, hosts))


@dataclass(frozen=True, slots=True)
class _Task:
    """What is planned: a graph, with the version steps of its writes (`moves`), for kernels on
    devices of these types, without operators that are `refused`. `hosts`: products on a GPU that a
    graftjit kernel computes together with their epilogues.
    """

    graph: Graph
    moves: Moves
    kinds: Kinds
    refused: frozenset[Node] = NONE
    hosts: Hosts = field(default_factory=dict)


def _best(task: _Task) -> Plan:
    """The first fusion that needs no more memory than eager, or the one that needs least."""
    fuse = bool(task.kinds)
    found: list[tuple[int, Plan]] = []
    for near, sunk in ((False, False), (True, False), (False, True)):
        made = _planned(task, near, sunk=sunk)
        eager = memory.peak_of_eager(made.flow)
        ways = [made]
        if fuse and eager > SMALL and len(made.steps) > 2:
            ways.append(replace(made, steps=sequence.put_off(made.steps, made.follows, made.flow)))
        for scratch in (_only_for_kernels(made), frozenset()):
            found.append(_least(ways, scratch))
            if found[-1][0] <= eager + SMALL or not fuse:
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
        needed = memory.peak(one.steps, one.flow, one.scratch, one.over)
        if least is None or needed < least[0] * (1 - GAIN):
            least = needed, one
    assert least is not None
    return least


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


def _planned(
    task: _Task,
    near: bool,
    alone: frozenset[Node] = NONE,
    apart: frozenset[Node] = NONE,
    sunk: bool = False,
) -> Plan:
    """Fuse and build the nests.

    near   see `Fusion`
    alone  the inputs that separate kernels write
    apart  the inputs into which ATen copies a kernel's result, because no kernel reads each
           element before it stores it
    sunk   a value that one other kernel reads is computed there (`sink`)
    """
    graph, fuse = task.graph, bool(task.kinds)
    copies: dict[Node, tuple[Node, ...]] = {}
    if fuse:
        copies = stores.copies(graph, apart)
    if fuse and not near:
        copies |= joins(graph)
    copies = {one: parts for one, parts in copies.items() if _may(one, task)}
    flow = analyse(graph, copies, task.moves, stores.is_apart(graph))
    fusion = Fusion(flow, task.kinds, near, alone, task.refused)
    fusion.run()
    if sunk:
        sink(fusion)
    if fuse and not near:
        absorb(fusion)
    units = fusion.finish()
    wanted = _wanted(flow, fusion)
    made = Plan(graph, flow, fusion, moves=task.moves, hosts=task.hosts)
    # the steps of a unit; if it has none, the steps that it follows
    stand: dict[Unit, set[int]] = {}
    kernels = 0
    for unit in sequence.in_order(flow, units):
        before = set().union(*(stand[other] for other in unit.before))
        step = _step(unit, kernels, made, wanted)
        stand[unit] = before if step is None else {len(made.steps)}
        if step is not None:
            kernels += isinstance(step, Kernel)
            made.steps.append(step)
            made.follows.append(before)
    if flow.writes_memory:
        lawless, made.steps = inplace.stored(made.steps)
        if lawless:
            apart |= lawless & alone
            return _planned(task, near, alone | lawless, apart)
    if fuse:
        made.replaced = replaced(step for step in made.steps if isinstance(step, Node))
        every: dict[Node, epilogue.Tiled] = {**made.replaced, **task.hosts}
        made.steps, made.follows = epilogue.hosted(made.steps, made.follows, flow, every)
    if task.hosts:
        from ..triton.prologue import absorbed  # lazy: programs on the CPU do not need it

        made.steps, made.follows = absorbed(made.steps, made.follows, flow, task.hosts)
    return made


def _may(node: Node, task: _Task) -> bool:
    """Whether a kernel may do this write, or this cat."""
    return node not in task.refused and node.meta.device.type in task.kinds


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
        return nest.build(fusion, unit, name, stored, wanted)
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


def _wanted(flow: Flow, fusion: Fusion) -> set[Node]:
    """The values that steps outside of their own kernel need in memory."""
    wanted = {fusion.source(node) for node in flow.graph.outputs}
    # An operator with several results has no result of its own to store: only its arguments can
    # make it fail.
    wanted |= {
        node
        for node in fusion.rules
        if may_raise(node) and type(node.meta) is Meta and _unread(node, flow, fusion)
    }
    copied: list[tuple[Node, Unit, bool]] = []
    moved: set[tuple[Node, int]] = set()
    seen: set[tuple[Node, Unit, bool]] = set()

    def need(operand: Node, unit: Unit, far: bool) -> None:
        source = fusion.source(operand)
        if source not in fusion.home or (fusion._inlined(source) and unit.is_kernel):
            return
        if unit.is_kernel and fusion.unit_of(source) is unit:
            if far and (source, unit.number) not in moved:  # computed again where it is read
                moved.add((source, unit.number))
                for other in reads(source):
                    need(other, unit, True)
            return
        if fusion.copied(operand, unit, far):
            if (source, unit, far) not in seen:
                seen.add((source, unit, far))
                copied.append((source, unit, far))
        else:
            wanted.add(source)

    for node in flow.nodes:
        if node.op != "get" and not is_plain_view(node) and not fusion.runs_elsewhere(node):
            far = fusion.far(node)
            for operand in flow.reads(node):
                if (
                    operand in far
                    and scatters(node)
                    and not fusion._inlined(fusion.source(operand))
                ):
                    if fusion.source(operand) in fusion.home:
                        wanted.add(fusion.source(operand))  # a copy of its memory is made
                    continue
                need(operand, fusion.unit_of(node), operand in far)
    while copied:  # the operands of a copied value are needed instead of it
        node, unit, moves = copied.pop()
        if node not in wanted:
            for operand in reads(node):
                need(operand, unit, moves)
    return wanted


def _unread(node: Node, flow: Flow, fusion: Fusion) -> bool:
    """Whether nothing computes with a node's elements: no other reader would make it run."""
    users = flow.users.get(node, ())
    return not any(is_plain_view(user) or not fusion._inlined(user) for user in users)


class _Writer:
    """The writer of a program: turns planned steps into program steps."""

    def __init__(
        self,
        made: Plan,
        addresses: Mapping[str, int],
        keep: Any,
        numbers: Numbers,
        launches: Launches,
    ) -> None:
        self.plan, self.addresses, self.keep, self.numbers = made, addresses, keep, numbers
        self.launches = launches
        self.graph = made.graph
        self.slots: dict[Node, int] = {node: i for i, node in enumerate(self.graph.inputs)}
        self.given = {
            node for at, node in enumerate(self.graph.outputs) if at not in self.graph.joined
        }
        self.count = len(self.graph.inputs)
        self.steps: list[Step] = []
        self.detaches: set[int] = set()  # steps that only make a view
        self.constants: dict[int, Any] = {}
        self.on_stack: set[int] = set()  # slots in a workspace
        self.gone: set[Node] = set()  # operands whose memory another value took
        self.rooms: dict[torch.device, Arena] = {}  # workspaces
        self.bases: dict[torch.device, int] = {}  # the slots of those that are on a device

    def _last_uses(self) -> dict[Node, int]:
        """The last step that loads a stored value from memory."""
        last: dict[Node, int] = {}
        for position, step in enumerate(self.plan.steps):
            if isinstance(step, Kernel):
                last.update(dict.fromkeys((*step.reads, *step.stores), position))
        return last

    def room(self, device: torch.device) -> Arena:
        """The workspace on a device. On a GPU it is a tensor, allocated at each call."""
        found = self.rooms.get(device)
        if found is None:
            away = device.type != "cpu"
            found = Arena(self._last_uses(), ON_DEVICE if away else ALIGNMENT)
            self.rooms[device] = found
            if away:
                self.bases[device] = number = self.new()
                size: Any = found  # a placeholder until the size is known (`workspace.settled`)
                self.steps.append(Alloc(number, (size,), (1,), torch.uint8, device))
        return found

    def new(self) -> int:
        self.count += 1
        return self.count - 1

    def slot(self, node: Node) -> int:
        """The slot that holds a node's tensor; adds a view of its storage if needed."""
        known = self.slots.get(node)
        if known is not None:
            return known
        if node.op == "constant":
            self.slots[node] = number = self.new()
            self.constants[number] = node.target
            return number
        if is_plain_view(node):
            base = self._base(node)
            source = self.slot(base)
            if base is node:
                return source
            self.slots[node] = number = self.new()
            meta, offset = node.meta, node.meta.offset - base.meta.offset
            self.steps.append(View(number, source, meta.shape, meta.stride, offset))
            return number
        if node.alias is not None:  # a write returns the tensor that it wrote
            return self.slot(node.alias)
        raise AssertionError(f"{node} has no value yet")

    def _copies(self) -> set[int]:
        """Positions of outputs that are not views in eager: a reshape that copies made
        their memory.
        """
        roots = Counter(map(root, self.graph.outputs))
        return {
            at
            for at, node in enumerate(self.graph.outputs)
            if node.target is _UNSAFE_VIEW and roots[root(node)] == 1
        }

    def _base(self, node: Node) -> Node:
        """The base of a view: the tensor whose memory it has.

        A result that was detached, or is a view of a detached tensor, is for autograd no view of
        that memory: the detached tensor is made for it.
        """
        if node not in self.given:
            return base_of(node)
        detached = node
        while detached.alias is not None and detached.target is not _DETACH:
            detached = detached.alias
        if detached.alias is None:
            return base_of(node)
        if detached not in self.slots:
            source = Slot(self.slot(detached.alias))
            self.detaches.add(len(self.steps))
            self.steps.append(Aten(_DETACH, (source,), {}, (self._result(detached),)))
        return detached

    def value(self, argument: Any) -> Any:
        """An argument of an ATen call, with Slots for nodes."""
        if isinstance(argument, Node):
            return Slot(self.slot(argument))
        if isinstance(argument, (tuple, list)):
            return type(argument)(self.value(item) for item in argument)
        return argument

    def write(self) -> ProgramSpec:
        names: list[str] = []
        named = facts.names(self.plan.steps)
        for position, step in enumerate(self.plan.steps):
            began = len(self.steps)
            if isinstance(step, Kernel):
                self.kernel(step, position)
            elif step in self.plan.replaced:
                self.replacement(step)
            else:
                self.call(step)
            names += [
                "" if at in self.detaches else named[position]
                for at in range(began, len(self.steps))
                if type(self.steps[at]) in COMPUTES
            ]
            for room in self.rooms.values():
                room.free_after(position)
        outputs = tuple(self.slot(node) for node in self.graph.outputs)
        steps = with_frees(
            settled(self.steps, self.rooms.values()),
            0 if self.graph.consumes else len(self.graph.inputs),
            outputs,
            self.constants,
            self.on_stack,
        )
        return ProgramSpec(
            self.graph.name, len(self.graph.inputs), self.count, tuple(steps), outputs,
            self.room(CPU).total, self.constants, dict(self.graph.symbols), len(self.graph.numbers),
            self.graph.joined | self._copies(), tuple(names),
        )  # fmt: skip

    def kernel(self, kernel: Kernel, position: int) -> None:
        before = self.slots.keys() - self.plan.scratch - self.gone
        for node in kernel.stores:
            if node in self.slots:
                continue  # a part of memory that an earlier kernel allocated
            below = self.plan.over.get(node)
            if below is not None:
                self.gone.add(below)
                if node in self.plan.scratch:
                    self.room(node.meta.device).hand_on(below, node)
                self.over(node, below)
                continue
            self.slots[node] = number = self.new()
            meta = node.meta
            if node in self.plan.scratch:
                self.scratch(number, node, product(meta.shape) * meta.dtype.itemsize)
            else:
                self.steps.append(Alloc(number, meta.shape, meta.stride, meta.dtype, meta.device))
        if kernel.device.type != "cpu":
            self.on_device(kernel)
            return
        if kernel.host is not None:
            self.hosted(kernel, kernel.host)
            return
        slots = tuple(self.slot(node) for node in (*kernel.reads, *kernel.stores))
        name = kernel.nest.name
        numbers = self.numbers.get(name, ())
        writes = tuple(self.slot(node) for node in kernel.writes)
        self.steps.append(Launch(name, self.addresses[name], slots, self.keep, writes, numbers))
        if kernel.nest.may_fail:
            call, given, symbols = otherwise(
                kernel, lambda node: node in before or node.op == "constant"
            )
            slots = tuple(self.slot(node) for node in given)
            self.steps.append(Otherwise(call, slots, symbols))

    def scratch(
        self, number: int, owner: Any, size: Any, device: torch.device | None = None
    ) -> None:
        """Memory in a workspace for the tensor of this slot."""
        device = owner.meta.device if device is None else device
        place = self.room(device).take(owner, size)
        self.on_stack.add(number)
        self.steps.append(Scratch(number, place, size, self.bases.get(device, -1)))

    def on_device(self, kernel: Kernel) -> None:
        """The launches of one planned kernel; buffers between them are in the workspace while they
        run.
        """
        from ..triton.matmul_fusion import given  # lazy: programs on the CPU do not need it

        launches, device = self.launches[kernel.nest.name], kernel.device
        slots = tuple(self.slot(node) for node in given(kernel))
        writes = tuple(self.slot(node) for node in kernel.writes)
        for size in launches.partial:
            number, owner = self.new(), object()
            self.scratch(number, owner, size, device)
            slots = (*slots, number)
        last = launches.parts[-1]
        for part in launches.parts:
            self.steps.append(part.step(slots, device, writes if part is last else ()))

    def over(self, node: Node, given: Node) -> None:
        """The slot of a result that takes this operand's memory."""
        meta, slot = node.meta, self.slots[given]
        if inplace.same_layout(meta, given.meta) or node in self.plan.scratch:
            self.slots[node] = slot
            return
        self.slots[node] = number = self.new()
        self.steps.append(View(number, slot, meta.shape, meta.stride))

    def replacement(self, node: Node) -> None:
        slots, numbers = self._launched(node)
        number, meta = self._result(node), node.meta
        self.steps.append(Alloc(number, meta.shape, meta.stride, meta.dtype, meta.device))
        self._launch(node, (*slots, number), (*numbers, 0))

    def hosted(self, kernel: Kernel, host: Node) -> None:
        """The launch of a host: its own operands (its result is replaced by the first of them,
        which it ignores), its numbers, and then its epilogue's address, operands and numbers.
        """
        slots, numbers = self._launched(host)
        nowhere, name = slots[0], kernel.nest.name
        own = [nowhere if node is host else self.slot(node) for node in kernel.reads]
        own += [self.slot(node) for node in kernel.stores]
        more = (self.addresses[name], *self.numbers.get(name, ()))
        self._launch(host, (*slots, nowhere, *own), (*numbers, *more))

    def _launched(self, node: Node) -> tuple[list[int], tuple[Any, ...]]:
        operands, numbers = self.plan.replaced[node].launch(node)
        return [self.slot(one) for one in operands], numbers

    def _launch(self, node: Node, slots: tuple[int, ...], numbers: tuple[Any, ...]) -> None:
        name = self.plan.replaced[node].SYMBOL
        self.steps.append(Launch(name, self.addresses[name], slots, self.keep, (), numbers))

    def call(self, node: Node) -> None:
        args = self.value(node.args)
        kwargs = {name: self.value(argument) for name, argument in node.kwargs.items()}
        written = bool(writes(node))
        results: tuple[int | None, ...]
        if isinstance(node.meta, Meta):
            own = not (written and node.alias is not None)
            results = (self._result(node) if own else None,)
        else:
            gets = {
                user.target: user for user in self.plan.flow.users.get(node, ()) if user.op == "get"
            }
            results = tuple(
                self._result(gets[i]) if i in gets and not is_plain_view(gets[i]) else None
                for i in range(len(node.meta or ()))
            )
        self.steps.append(Aten(node.target, args, kwargs, results))

    def _result(self, node: Node) -> int:
        self.slots[node] = number = self.new()
        return number


def spec(
    made: Plan,
    addresses: Mapping[str, int],
    keep: Any = None,
    numbers: Numbers | None = None,
    launches: Launches | None = None,
) -> ProgramSpec:
    """The program.

    `addresses`: kernel name -> address; `keep`: the owner of the loaded kernels; `numbers`: kernel
    name -> the expressions that it takes; `launches`: kernel name -> its launches on a GPU.
    """
    return _Writer(made, addresses, keep, numbers or {}, launches or {}).write()
