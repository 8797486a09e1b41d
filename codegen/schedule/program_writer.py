"""The writer of programs: a plan's steps become the steps of a `ProgramSpec`.

It assigns slots, allocates tensors and the workspace, and adds views and frees. A tensor that only
kernels access is in the workspace, whose memory is reused when it is dead. Tensors that ATen or the
caller sees have eager's strides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from ...ir.graph.effects import root, writes
from ...ir.graph.nodes import Meta, Node
from ...ir.graph.schema import plan_of
from ...runtime.executor import promises
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
from ..analysis.dataflow import base_of, is_plain_view
from ..loops.extents import product
from ..loops.kernel import CPU, Kernel
from ..programs import step_facts
from . import inplace
from .fallback import otherwise
from .frees import with_frees
from .stages import Plan
from .workspace import ALIGNMENT, ON_DEVICE, Arena, settled

if TYPE_CHECKING:
    from .gpu_kernels import OnDevice

_DETACH = torch.ops.aten.detach.default
_UNSAFE_VIEW = torch.ops.aten._unsafe_view.default
Numbers = Mapping[str, tuple[Any, ...]]
Launches = Mapping[str, "OnDevice"]


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
        self.workspaces: dict[torch.device, Arena] = {}
        self.bases: dict[torch.device, int] = {}  # the slots of those that are on a device

    def _last_uses(self) -> dict[Node, int]:
        """The last step that loads a stored value from memory."""
        last: dict[Node, int] = {}
        for position, step in enumerate(self.plan.steps):
            if isinstance(step, Kernel):
                last.update(dict.fromkeys((*step.reads, *step.stores), position))
        return last

    def workspace(self, device: torch.device) -> Arena:
        """The workspace on a device. On a GPU it is a tensor, allocated at each call."""
        found = self.workspaces.get(device)
        if found is None:
            away = device.type != "cpu"
            found = Arena(self._last_uses(), ON_DEVICE if away else ALIGNMENT)
            self.workspaces[device] = found
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
        named = step_facts.names(self.plan.steps)
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
            for one in self.workspaces.values():
                one.free_after(position)
        outputs = tuple(self.slot(node) for node in self.graph.outputs)
        steps = with_frees(
            settled(self.steps, self.workspaces.values()),
            0 if self.graph.consumes else len(self.graph.inputs),
            outputs,
            self.constants,
            self.on_stack,
        )
        return ProgramSpec(
            self.graph.name, len(self.graph.inputs), self.count, tuple(steps), outputs,
            self.workspace(CPU).total, self.constants, dict(self.graph.symbols),
            len(self.graph.numbers),
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
                    self.workspace(node.meta.device).hand_over(below, node)
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
        place = self.workspace(device).take(owner, size)
        self.on_stack.add(number)
        self.steps.append(Scratch(number, place, size, self.bases.get(device, -1)))

    def on_device(self, kernel: Kernel) -> None:
        """The launches of one planned kernel; buffers between them are in the workspace while they
        run.
        """
        # loaded already, with the kernels on GPUs
        from ..triton.matmul_fusion import given

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
        promised = None
        if plan_of(node.target).kind == "library":
            metas = (node.meta,) if isinstance(node.meta, Meta) else node.meta
            promised = promises.of(metas or (), self.plan.flow.graph.symbols)
        self.steps.append(Aten(node.target, args, kwargs, results, promised))

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
