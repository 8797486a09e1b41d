"""Regions: parts of a trace whose values the backward computes again (`torch.utils.checkpoint`).

Capture marks a region while it walks the function of a checkpoint (`Regions.begin`, `Regions.end`).
`Regions.expanded(graph)` then gives the backward its own copy of what it reads of each region: the
copy is computed from what the region reads from outside, before the first node of the backward that
belongs to the region. A value from outside reaches the copy through `graftjit::again`, an operator
that is its operand, so no pass can merge the copy with the region. Without the copies, the values
of the region are dead at the end of the forward. `ir.autograd.partition` and
`ir.ops.region_borders` remove the operator when all passes have run.

A value that the backward of an operator outside the region reads (the region's result, mostly) is
saved as usual. In eager mode autograd's nodes tell the same: a node belongs to the region in which
it was made. Regions nest; the copy of an inner region is computed from the copy of the outer one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from ..dataclass import dataclass, field
from ..graph.effects import is_random, reads, root, uses, writes
from ..graph.interpreter import Replaced, moved
from ..graph.nodes import Graph, Meta, Node
from ..graph.opdef import OPS, OpDef
from ..ops.region_borders import again
from .joint import memory_read
from .joint_graph import Joint

if TYPE_CHECKING:
    from .ghost import Ghost
    from .tracer import Tracer

_LIBRARY = torch.library.Library("graftjit", "FRAGMENT")
aten = torch.ops.aten

# States of the processor's generator: the forward keeps that at the beginning of a region that
# draws random numbers, and the copy draws from it and puts back the one before. Each counts as a
# random operator, so they keep their places among the draws.
for schema in ("state(int region)", "swap_state(Tensor state)", "put_state(Tensor state)"):
    _LIBRARY.define(f"{schema} -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))
state, swap_state, put_state = (
    getattr(torch.ops.graftjit, name).default for name in ("state", "swap_state", "put_state")
)


def _swap(given: torch.Tensor) -> torch.Tensor:
    before = torch.get_rng_state()
    torch.set_rng_state(given)
    return before


_BODIES = {
    "state": lambda region: torch.get_rng_state(),
    "swap_state": _swap,
    "put_state": lambda given: (torch.set_rng_state(given), given.new_empty(0))[1],
}
for name, body in _BODIES.items():
    _LIBRARY.impl(name, body, "CompositeExplicitAutograd")
_CPU = torch.device("cpu")
_STATE = Meta((torch.get_rng_state().numel(),), (1,), torch.uint8, _CPU)
OPS[str(state)] = OpDef(str(state), "barrier", lambda op, region: _STATE)
OPS[str(swap_state)] = OpDef(str(swap_state), "barrier", lambda op, given: given)
OPS[str(put_state)] = OpDef(
    str(put_state), "barrier", lambda op, given: Meta((0,), (1,), torch.uint8, _CPU)
)

_made = torch._C._autograd._get_sequence_nr  # type: ignore[attr-defined]
_running = torch._C._current_autograd_node


@dataclass(eq=False, slots=True)
class Region:
    """A checkpointed function. Positions are those of the trace's nodes; numbers are those that
    autograd gives to the nodes that it makes, in order.

    arguments   memory of the tensors that the function got: autograd saves them
    need        what the copy must have of the region
    saved       memory that a policy saves: the copy reads it
    reentrant   of a checkpoint with `use_reentrant=True`: eager's forward has no history
    check       raises if the graph of the whole trace cannot contain the region
    """

    number: int
    outer: Region | None
    arguments: tuple[Node, ...]
    start: int
    first: int
    end: int = -1
    last: int = -1
    need: dict[Node, None] = field(default_factory=dict)
    saved: set[Node] = field(default_factory=set)
    reentrant: bool = False
    check: Callable[[Graph], None] | None = None

    def has(self, position: int) -> bool:
        return self.start <= position < self.end


class _Noted(list[Node]):
    """The nodes of a trace. `numbers`: autograd's number of the node whose backward made each."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        super().__init__(nodes)
        self.numbers: dict[Node, int] = {}

    def append(self, node: Node) -> None:
        running = _running()
        if running is not None:
            self.numbers[node] = running._sequence_nr()
        super().append(node)


class Regions:
    """The regions of a trace, in order of their beginnings."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._outside: set[Node] = set()  # memory that regions have read from outside
        self._nodes = tracer._recorder.nodes = _Noted(tracer._recorder.nodes)
        self._open: list[Region] = []
        self.all: list[Region] = []

    @staticmethod
    def of(tracer: Tracer) -> Regions:
        """The regions of a trace."""
        if tracer.regions is None:
            tracer.regions = Regions(tracer)
        return tracer.regions  # type: ignore[no-any-return]

    def begin(self, arguments: Sequence[Ghost], reentrant: bool = False) -> Region:
        """Begin a region within the current one."""
        outer = self._open[-1] if self._open else None
        memory = tuple(root(one._node) for one in arguments)
        region = Region(len(self.all), outer, memory, len(self._nodes), _made())
        region.reentrant = reentrant
        self.all.append(region)
        self._open.append(region)
        return region

    def end(self, region: Region) -> None:
        """End the current region."""
        self._open.pop()
        region.end, region.last = len(self._nodes), _made()
        inside = self._nodes[region.start : region.end]
        self._outside.update(root(one) for node in inside for one in reads(node))
        self._outside.difference_update(inside)

    @property
    def within(self) -> bool:
        """Whether the trace is within a region now."""
        return bool(self._open)

    def without_history(self, node: Node | None = None) -> bool:
        """Whether eager's forward has no history here: within a region of a reentrant checkpoint,
        which has made `node`."""
        starts = [one.start for one in self._open if one.reentrant]
        return bool(starts) and (node is None or node in self._nodes[starts[0] :])

    def made(self, region: Region, memory: Node) -> bool:
        """Whether the region has made this memory."""
        return memory in self._nodes[region.start : region.end]

    def operators(self, region: Region) -> list[Any]:
        """The operators of the current region so far, each once."""
        calls = [node.target for node in self._nodes[region.start :] if node.op == "call"]
        return list(dict.fromkeys(op for op in calls if op is not aten.detach.default))

    def save(self, region: Region, operators: set[Any]) -> None:
        """Save the results of these operators. Memory that the region writes is computed again."""
        inside = self._nodes[region.start :]
        written = {root(one) for node in inside for one in writes(node)}
        for node in inside:
            origin = node.args[0] if node.op == "get" else node
            if origin.target in operators and node.alias is None and node not in written:
                region.saved.add(node)

    def draws(self, region: Region) -> bool:
        """Whether an operator of the region draws random numbers."""
        return any(map(is_random, self._nodes[region.start : region.end]))

    def writes_outside(self, region: Region) -> bool:
        """Whether an operator of the region writes to memory from outside of it."""
        inside = self._nodes[region.start : region.end]
        own = set(inside)
        return any(root(one) not in own for node in inside for one in writes(node))

    def written_since(self, start: int) -> bool:
        """Whether the latest call, whose nodes begin at `start`, wrote to what a region has read
        from outside: eager mode reads it again during the backward."""
        if self._tracer.spends:
            return False
        log = self._tracer._recorder._log
        written = [root(one) for node in self._nodes[start:] for one in writes(node)]
        written += [root(node) for _, node, _ in log]
        return not self._outside.isdisjoint(written)

    # -- the graph

    def expanded(self, graph: Graph) -> Graph:
        """The graph whose backward, within it or in its `joint`, computes the regions again."""
        joint = graph.joint
        for region in self.all:
            if region.check is not None:
                region.check(graph)
        if isinstance(joint, Joint):
            copies = _Copies(self.all, graph.nodes, self._nodes.numbers)
            nodes = copies.over(joint.nodes)
            forward = copies.with_states(graph.nodes)
            return replace(graph, nodes=forward, joint=_joint(joint, nodes, copies, self.all))
        if graph.spends and not graph.needs_grad:
            copies = _Copies(self.all, graph.nodes, self._nodes.numbers)
            nodes = copies.with_states(copies.over(graph.nodes))
            outputs = [copies.now[node] for node in graph.outputs]
            return replace(graph, nodes=nodes, outputs=outputs, forward_end=None)
        return graph


def _joint(joint: Joint, nodes: list[Node], copies: _Copies, regions: Sequence[Region]) -> Joint:
    """The joint with these nodes. Memory that regions alone read is not saved by autograd, but the
    arguments of their functions are: those of a region inside another one only when that runs
    again.
    """
    now = copies.now
    arguments = tuple(
        frozenset(region.arguments if region.outer is None else ()) for region in regions
    )
    return replace(
        joint,
        nodes=tuple(nodes),
        gradients=tuple(None if one is None else now[one] for one in joint.gradients),
        arrived=tuple(None if one is None else now[one] for one in joint.arrived),
        custom=tuple(one.replaced(now) for one in joint.custom),
        kept=memory_read(nodes, joint.pieces, joint.tangents, arguments),
        arguments=arguments,
    )


class _Copies:
    """The copies of regions. `now`: what replaces a node of the backward."""

    def __init__(
        self, regions: Sequence[Region], nodes: Sequence[Node], numbers: dict[Node, int]
    ) -> None:
        self._regions, self._nodes, self._numbers = regions, nodes, numbers
        self._at = {node: position for position, node in enumerate(nodes)}
        self._copied: dict[tuple[int, Node], Node] = {}
        self._borders: dict[tuple[int, Node], Node] = {}
        self._emitted: set[int] = set()
        self._made: list[Node] = []
        self.now = Replaced()
        self._drawn = {root(node) for node in nodes if is_random(node)}
        self._draws = {one.number: self._draws_of(one) for one in regions}
        self._states: dict[int, Node] = {}
        for region in regions:
            region.need.clear()

    def _draws_of(self, region: Region) -> list[Node]:
        """The region's random operators, if the copy can draw their numbers again."""
        inside = self._nodes[region.start : region.end]
        draws = [node for node in inside if is_random(node)]
        fed: set[Node] = set()  # that depend on a value from outside, as the copy will
        for node in inside:
            operands = list(uses(node))
            if any(not self._inside(region, one) or one in fed for one in operands):
                fed.add(node)
        again = all(
            node in fed and isinstance(node.meta, Meta) and node.meta.device == _CPU
            for node in draws
        )
        return draws if again else []

    def with_states(self, nodes: Sequence[Node]) -> list[Node]:
        """The nodes, and those that keep the generator's state at the beginning of a region."""
        before: dict[Node, list[Node]] = {}
        for at, one in self._states.items():  # nested regions may begin with the same node
            before.setdefault(self._nodes[self._regions[at].start], []).append(one)
        made: list[Node] = []
        for node in nodes:
            made += before.get(node, [])
            made.append(node)
        return made

    def over(self, nodes: Sequence[Node]) -> list[Node]:
        """The nodes, of which those of the backward read copies."""
        for node in nodes:
            region = self._region_of(node)
            for one in uses(node) if region else ():
                self._need(region, one)
        self._made = []
        for node in nodes:
            region = self._region_of(node)
            read = self.now
            if region is not None:
                read = Replaced({one: self._seen(region, one) for one in uses(node)})
            if any(read[one] is not one for one in uses(node)):
                self.now[node] = moved(node, read.__getitem__)
                node = self.now[node]
            self._made.append(node)
        return self._made

    def _region_of(self, node: Node) -> Region | None:
        """The innermost region of the operator of which this node is the backward."""
        number = self._numbers.get(node)
        if number is None:
            return None
        found = [one for one in self._regions if one.first <= number < one.last]
        return found[-1] if found else None

    def _inside(self, region: Region, node: Node) -> bool:
        at = self._at.get(node)
        return at is not None and region.has(at) and node not in self._numbers

    def _again(self, region: Region, node: Node) -> bool:
        """Whether the region's copy has a copy of this node."""
        if not self._inside(region, node):
            return False
        if root(node) in region.saved:
            return False
        return root(node) not in self._drawn or bool(self._draws[region.number])

    def _need(self, region: Region | None, node: Node) -> None:
        """Note that the copy of the region must give this value."""
        pending = [(region, node)]
        while pending:
            region, node = pending.pop()
            if region is None or node in region.need:
                continue
            if not self._again(region, node):
                if not self._inside(region, node):
                    pending.append((region.outer, node))
                continue
            region.need[node] = None
            if root(node) in self._drawn:  # those before advance the generator
                pending += [(region, one) for one in self._draws[region.number]]
            pending += [(region, one) for one in uses(node)]
            memory = root(node)
            for other in self._nodes[region.start : region.end]:
                if any(root(one) is memory for one in writes(other)):
                    pending.append((region, other))

    def _seen(self, region: Region | None, node: Node) -> Node:
        """A value as the backward of the region sees it."""
        if region is None or node.meta is None or node in self._numbers:
            return self.now[node]
        if self._at.get(node) is None and node.op == "call":
            return self.now[node]  # of the backward
        if self._again(region, node):
            self._emit(region)
            return self._copied[region.number, node]
        key = region.number, node
        if key not in self._borders:
            outside = None if self._inside(region, node) else region.outer
            self._borders[key] = self._border(region, node, self._seen(outside, node))
        return self._borders[key]

    def _border(self, region: Region, node: Node, seen: Node) -> Node:
        if not isinstance(node.meta, Meta):
            return seen
        name = f"{node.name}_of{region.number}"
        made = Node("call", again, (seen, region.number), {}, node.meta, name, node.where)
        self._made.append(made)
        return made

    def _emit(self, region: Region) -> None:
        """Compute the region's copy here."""
        if region.number in self._emitted:
            return
        self._emitted.add(region.number)
        draws = [node for node in self._draws[region.number] if node in region.need]
        before: Node | None = None
        for node in self._nodes[region.start : region.end]:
            if node not in region.need:
                continue
            if draws and node is draws[0]:
                before = self._drawing(region)
            read = {
                one: self._copied.get((region.number, one)) or self._seen(region, one)
                for one in uses(node)
            }
            copy = moved(node, read.__getitem__, f"{node.name}_again{region.number}")
            self._copied[region.number, node] = copy
            self._made.append(copy)
            if before is not None and node is draws[-1]:
                self._call(put_state, before, f"put{region.number}")

    def _drawing(self, region: Region) -> Node:
        """Begin to draw the region's numbers: the generator's state before."""
        name = f"state{region.number}"
        kept = Node("call", state, (region.number,), {}, _STATE, name)
        self._states[region.number] = kept
        return self._call(swap_state, self._border(region, kept, kept), f"swap{region.number}")

    def _call(self, op: Any, operand: Node, name: str) -> Node:
        made = Node("call", op, (operand,), {}, OPS[str(op)].rule(op, operand.meta), name)
        self._made.append(made)
        return made
