"""The backward graph for results of which some have no gradient.

`without(graph, missing)` is the backward graph that computes the remaining gradients. A gradient
that depends only on missing ones is missing, and is not computed from zeros: zero times infinity
would be nan. Where a missing and a present gradient meet, a sum drops the missing one, and any
other operator gets zeros for it, as in autograd. `codegen.training` uses it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import torch

from ..graph.effects import reads, root, writes
from ..graph.interpreter import moved
from ..graph.layout import contiguous_strides, is_dense
from ..graph.nodes import Graph, Meta, Node
from ..ops.region_borders import NO_REGION, again
from ..passes.pipeline import drop_dead
from ..symbolic.expr import is_symbolic
from ..trace.conditional import marked, unmarked
from ..trace.joint_graph import Joint

aten = torch.ops.aten
SUMS = {aten.add.Tensor, aten.add_.Tensor}


def without(
    graph: Graph, missing: Collection[int], tangents: Collection[int]
) -> tuple[Graph, tuple[int | None, ...]]:
    """(the graph without the missing inputs; each old output's position, None if missing).

    `tangents`: the inputs that are gradients, including `missing`.
    """
    return _Part(graph, missing, tangents).made()


def dependences(nodes: Sequence[Node], tangents: Collection[Node]) -> dict[Node, frozenset[Node]]:
    """The tangents that each piece of memory depends on, at any time."""
    hangs = {node: frozenset([node]) for node in tangents}
    none: frozenset[Node] = frozenset()
    while True:
        before = dict(hangs)
        for node in nodes:
            mine = none.union(*(hangs.get(root(one), none) for one in reads(node)))
            if mine:
                for memory in {root(node), *(root(target) for target in writes(node))}:
                    hangs[memory] = hangs.get(memory, none) | mine
        if hangs == before:
            return hangs


def readers(graph: Graph, tangents: Sequence[int]) -> list[frozenset[int]]:
    """For each input of a backward graph the gradients of results, by position in `tangents`, whose
    backward reads it."""
    numbers = {graph.inputs[at]: number for number, at in enumerate(tangents)}
    depends = dependences(graph.nodes, set(numbers))
    found: dict[Node, set[int]] = {}
    for node in reversed(graph.nodes):
        memory = {node, root(node), *(root(target) for target in writes(node))}
        own = {numbers[one] for one in depends.get(root(node), ())}
        own = own or set().union(*(found.get(one, ()) for one in memory))
        for one in reads(node):
            found.setdefault(one, set()).update(own)
            found.setdefault(root(one), set()).update(own)
    return [frozenset(found.get(node, ())) for node in graph.inputs]


def users_of_regions(joint: Joint) -> dict[int, frozenset[int]]:
    """For each region that the backward computes again the results, by position, whose backward
    reads a value of it; for each custom function that unpacks tensors without a use, by ~position,
    those whose backward calls it."""
    depends = dependences(joint.nodes, joint.tangents)
    numbers = {node: at for at, node in enumerate(joint.tangents)}
    none: frozenset[int] = frozenset()
    # Memory that no gradient has reached -> the regions that it is computed from.
    within: dict[Node, frozenset[int]] = {}
    found: dict[int, frozenset[int]] = {}
    for node in joint.nodes:
        regions = none.union(*(within.get(root(one), none) for one in reads(node)))
        memory = {root(node), *(root(one) for one in writes(node))}
        results = frozenset(numbers[t] for one in memory for t in depends.get(one, ()))
        if not results:
            if node.target is again and node.args[1] != NO_REGION:
                regions |= {node.args[1]}
            within.update((one, within.get(one, none) | regions) for one in memory if regions)
        for region in regions if results else ():
            found[region] = found.get(region, none) | results
    for at, custom in enumerate(joint.custom):
        if custom.unused:
            reached = [one for node in custom.given for one in depends.get(root(node), ())]
            found[~at] = frozenset(map(numbers.__getitem__, reached))
    return found


def met_by_custom(joint: Joint) -> tuple[tuple[frozenset[int], ...], ...] | None:
    """For each backward of a custom function the results that each gradient that it is given
    depends on, without gradients that depend on none. None if it makes one of nothing: that exists
    only where autograd reaches the function."""
    depends = dependences(joint.nodes, joint.tangents)
    numbers = {node: at for at, node in enumerate(joint.tangents)}

    def results(node: Node) -> frozenset[int]:
        return frozenset(numbers[one] for one in depends.get(root(node), ()))

    found = []
    for custom in joint.custom:
        given = tuple(filter(None, map(results, custom.given)))
        if given and not all(map(results, custom.made)):
            return None
        found.append(given)
    return tuple(found)


class _Part:
    def __init__(self, graph: Graph, missing: Collection[int], tangents: Collection[int]) -> None:
        self.graph = graph
        self.missing = {graph.inputs[at] for at in missing}
        self.hangs = dependences(graph.nodes, {graph.inputs[at] for at in tangents})
        self.now: dict[Node, Node] = {}
        self.nodes: list[Node] = []
        self.zeros: list[Node] = []  # before the first part of the graph that data may skip

    def _none(self, node: Node) -> bool:
        hangs = self.hangs.get(root(node))
        return bool(hangs) and self.missing.issuperset(hangs)  # type: ignore[arg-type]

    def made(self) -> tuple[Graph, tuple[int | None, ...]]:
        graph = self.graph
        kept = [node for node in graph.inputs if node not in self.missing]
        for at, node in enumerate(kept):
            self.now[node] = replace(node, target=at)
        for node in graph.nodes:
            if not self._none(node):
                self._keep(node)
        given = [node for node in graph.outputs if not self._none(node)]
        numbers = iter(range(len(given)))
        places = tuple(None if self._none(node) else next(numbers) for node in graph.outputs)
        n = len(kept)
        part = replace(
            graph,
            inputs=[self.now[node] for node in kept],
            nodes=[*self.zeros, *self.nodes],
            outputs=[self.now[node] for node in given],
            sources=[None] * n,
            symbols={s: ("number", n + k) for k, s in enumerate(graph.numbers)},
        )
        return _dropped(part), places

    def _keep(self, node: Node) -> None:
        absent = [one for one in reads(node) if self._none(one)]
        if absent and node.target in SUMS:
            others = [one for one in node.args[:2] if one not in absent]
            if len(others) == 1 and others[0].meta == node.meta and self._plain(node, others[0]):
                self.now[node] = self.now[others[0]]
                return
        for one in absent:
            if one not in self.now:
                self.now[one] = self._zeros(one.meta)
        self.now[node] = moved(node, self.now.__getitem__)
        self.nodes.append(self.now[node])

    def _plain(self, node: Node, other: Node) -> bool:
        """Whether the sum without its missing operand is `other`."""
        return node.args[0] is other or (
            node.alias is None
            and node.kwargs.get("alpha", 1) == 1
            and node.target is aten.add.Tensor
        )

    def _zeros(self, meta: Meta) -> Node:
        """A zero tensor with the layout of the missing gradient: results keep their strides."""
        named = {"dtype": meta.dtype, "device": meta.device}
        order = _order(meta)
        shape = tuple(meta.shape[dim] for dim in order)
        lying = _dense(Meta(shape, shape, meta.dtype, meta.device))
        name = f"none_{len(self.zeros)}"
        made = Node("call", aten.zeros.default, (shape,), named, lying, name)
        self.zeros.append(made)
        if list(order) == sorted(order):
            return made
        back = [order.index(dim) for dim in range(len(order))]
        turned = Meta(meta.shape, tuple(lying.stride[at] for at in back), meta.dtype, meta.device)
        view = Node("call", aten.permute.default, (made, back), {}, turned, f"{name}_t", alias=made)
        self.zeros.append(view)
        return view


def _dropped(graph: Graph) -> Graph:
    """The graph without unused nodes; its parts keep their conditions."""
    nodes, when = unmarked(graph.nodes)
    made = drop_dead(replace(graph, nodes=nodes))
    return replace(made, nodes=marked(made.nodes, when))


def _order(meta: Meta) -> list[int]:
    """The dimensions in memory order, outermost first, if strides are known and dense."""
    dims = list(range(len(meta.shape)))
    if any(map(is_symbolic, (*meta.shape, *meta.stride))) or not is_dense(meta.shape, meta.stride):
        return dims
    return sorted(dims, key=lambda dim: (-meta.stride[dim], dim))


def _dense(meta: Meta) -> Meta:
    return Meta(meta.shape, contiguous_strides(meta.shape), meta.dtype, meta.device)
