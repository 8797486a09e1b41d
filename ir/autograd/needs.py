"""Which segments of a backward need which values, where autograd saves some memory for a part of
them only.

Inputs, constants and results can be written to between forward and backward. Then those segments
raise for which eager's autograd has saved the memory; for others the write is none of their
business. So they compute nothing again from such memory (`Needs.may_read`), read it as it is when
the backward runs, if their checkpoints do (`Needs.reads_apart`), and get a copy of it where passes
have put it in the place of a copy (`with_copies`). So does a checkpoint that reads such a copy.
`ir.autograd.partition` uses this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from ..graph.effects import reads, root, uses, writes
from ..graph.interpreter import Replaced, moved
from ..graph.nodes import Graph, Node
from ..graph.opdef import OPS
from ..ops.region_borders import again
from ..trace.joint_graph import Joint
from .partial_backward import dependences
from .segments import Segment

_clone = torch.ops.aten.clone.default


class Needs:
    """The needs of the segments in `whole`, forward and backward of a graph in one graph. Segments
    have their positions as numbers; without segments, everything may be read."""

    def __init__(self, whole: Graph, joint: Joint, segments: Sequence[Segment]) -> None:
        n = len(whole.inputs) - len(joint.tangents)
        tangents = whole.inputs[n:]
        self._owners = {
            tangents[at]: number
            for number, segment in enumerate(segments)
            for at in segment.results
        }
        self._depends = dependences(whole.nodes, set(self._owners)) if segments else {}
        # for memory the segments for which autograd saves it
        self._kept_for: dict[Node, set[int]] = {}
        pieces = zip(map(root, joint.pieces), map(root, whole.outputs), strict=False)
        now = Replaced(pieces)
        for number, segment in enumerate(segments):
            for node in segment.kept:
                self._kept_for.setdefault(now[node], set()).add(number)
        # for each value the segments that need it
        self._needed_by: dict[Node, set[int]] = {}
        # of these, the ones in which an operator on gradients reads it
        self._read_by: dict[Node, set[int]] = {}
        for node in reversed(whole.nodes) if segments else ():
            self._follow(node)

    def _follow(self, node: Node) -> None:
        own = self.segments_of(node)
        if not own:
            memory = {node, root(node), *(root(target) for target in writes(node))}
            own = set().union(*(self._needed_by.get(one, ()) for one in memory))
        for one in reads(node):
            for value in {one, root(one)}:
                self._needed_by.setdefault(value, set()).update(own)
                if self.segments_of(node):
                    self._read_by.setdefault(value, set()).update(own)

    def segments_of(self, node: Node) -> set[int]:
        """The segments with a gradient that a node depends on."""
        return {self._owners[one] for one in self._depends.get(root(node), ())}

    def is_kept(self, memory: Node, segments: set[int]) -> bool:
        """Whether autograd saves this memory for all these segments; True for memory that it saves
        for none."""
        found = self._kept_for.get(memory)
        return found is None or segments <= found

    def may_read(self, node: Node) -> bool:
        """Whether the backwards that need a value may compute it again from its operands."""
        own = self._needed_by.get(node, set())
        return all(self.is_kept(root(one), own) for one in reads(node))

    def reads_apart(self, memory: Node) -> frozenset[int]:
        """The segments that read this memory as it is when the backward runs, though autograd saves
        it for others."""
        found = self._kept_for.get(memory)
        if found is None:
            return frozenset()
        needed = self._needed_by.get(memory, set())
        return frozenset(needed - found - self._read_by.get(memory, set()))


def with_copies(whole: Graph, joint: Joint, segments: Sequence[Segment]) -> Graph:
    """The graph in which the backward reads copies of what can be written to, where passes have put
    such memory in the place of a copy: what a region reads when the backward runs, and what
    autograd saves for other segments only."""
    copies = _Copies(whole, joint, segments)
    if not segments and not copies.read_again:
        return whole
    for node in whole.nodes:
        copies.add(node)
    return copies.graph() if copies.made else whole


class _Copies:
    def __init__(self, whole: Graph, joint: Joint, segments: Sequence[Segment]) -> None:
        self._whole, self._needs = whole, Needs(whole, joint, segments)
        pieces = dict(zip(map(root, joint.pieces), map(root, whole.outputs), strict=False))
        self._visible = {*whole.inputs, *pieces.values()}
        now = Replaced(pieces)
        # the memory that each of these operators reads in the trace
        self.read_again = {
            node.name: now[root(node.args[0])] for node in joint.nodes if node.target is again
        }
        self._nodes: list[Node] = []
        self._now = Replaced()
        self.made: dict[Node, Node] = {}

    def add(self, node: Node) -> None:
        read = Replaced(self._now)
        for one in self._instead(node):
            read[one] = self._copy(one)
        if any(one in read for one in uses(node)):
            self._now[node] = moved(node, read.__getitem__)
        self._nodes.append(self._now[node])

    def _copy(self, value: Node) -> Node:
        """A copy with the same layout: of a view with gaps, the view of a copy. A value whose
        layout no copy has, is itself: no pass has put it in the place of a copy."""
        if value not in self.made:
            name = f"{value.name}_apart"
            if OPS[str(_clone)].rule(_clone, value.meta) == value.meta:
                made = Node("call", _clone, (value,), {}, value.meta, name, value.where)
            elif value.alias is None or self._copy(value.alias) is value.alias:
                return value
            else:
                made = moved(value, Replaced(self.made).__getitem__, name)
            self.made[value] = made
        return self.made[value]

    def _instead(self, node: Node) -> list[Node]:
        """The operands of which the node must read copies."""
        if node.target is again:
            memory = root(node.args[0])
            was = self.read_again.get(node.name, memory)
            return [node.args[0]] if memory in self._visible and memory is not was else []
        own = self._needs.segments_of(node)
        if not own or writes(node):
            return []
        return [one for one in reads(node) if not self._needs.is_kept(root(one), own)]

    def graph(self) -> Graph:
        """The graph with the copies, each after what it copies."""
        first = [self.made[one] for one in self._whole.inputs if one in self.made]
        nodes: list[Node] = []
        for old, node in zip(self._whole.nodes, self._nodes, strict=True):
            nodes.append(node)
            if old in self.made:
                nodes.append(self.made[old])
        outputs = [self._now[one] for one in self._whole.outputs]
        return replace(self._whole, nodes=[*first, *nodes], outputs=outputs)
