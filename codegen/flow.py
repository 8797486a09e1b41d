"""What a graph's nodes depend on beyond their operands, and which tensor stands behind a node.

`analyse(graph)` is the first step of code generation; `fuse` and `schedule` work on its result. A write keeps its
place among the readers and writers of the same storage (inputs and constants may overlap in ways that only a call
knows, so they are one storage here); what may raise, draws, or writes where others can see keeps its order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..ir.dataclass import dataclass, field
from ..ir.effects import is_fresh, is_random, may_raise, reads, root, writes
from ..ir.graph import Graph, Meta, Node


def base_of(node: Node) -> Node:
    """The node whose tensor a kernel is handed to reach this one's memory."""
    while is_plain_view(node) or (node.alias is not None and writes(node)):
        node = node.alias  # type: ignore[assignment]
    return node


def is_plain_view(node: Node) -> bool:
    """A view that metadata alone describes: same dtype as the storage's root, nothing written."""
    if node.alias is None or not isinstance(node.meta, Meta):
        return False
    if writes(node.args[0] if node.op == "get" else node):
        return False
    base = root(node)
    return isinstance(base.meta, Meta) and base.meta.dtype == node.meta.dtype


def memory_of(node: Node) -> tuple[Node, Any]:
    """The node whose tensor is handed over to read this one, and how many elements behind its first this one's is."""
    base = base_of(node) if is_plain_view(node) else node
    return base, node.meta.offset - base.meta.offset


def has_effect(node: Node) -> bool:
    """Must this node run though nobody reads its result?"""
    if node.op != "call":
        return False
    nothing = node.meta is None or node.meta == ()
    return (
        nothing or is_random(node) or bool(writes(node)) or (may_raise(node) and node.alias is None)
    )


@dataclass(slots=True)
class Flow:
    """nodes: the live calls and gets, in order; after: further nodes that a node has to follow; written: the roots of
    the graph's own memory that is written to after it was made; joins: the copies that make a cat (see `join`);
    whole: for each of these the cat."""

    graph: Graph
    joins: Mapping[Node, tuple[Node, ...]] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    after: dict[Node, list[Node]] = field(default_factory=dict)
    users: dict[Node, list[Node]] = field(default_factory=dict)
    written: set[Node] = field(default_factory=set)
    writes_memory: bool = False
    whole: dict[Node, Node] = field(default_factory=dict)

    def reads(self, node: Node) -> Sequence[Node]:
        """The nodes that a node needs: of a cat made of copies, these."""
        return self.joins.get(node) or reads(node)

    def memory(self, node: Node) -> Node:
        """The node whose tensor a stored value is written to."""
        return self.whole.get(node, node)


def analyse(graph: Graph, joins: Mapping[Node, tuple[Node, ...]] | None = None) -> Flow:
    """Live nodes, users, and the order that memory and effects ask for."""
    flow = Flow(graph, joins or {})
    live = _live(graph)
    for node in graph.nodes:
        if node in live and node.op in ("call", "get"):
            copies = flow.joins.get(node, ())
            flow.nodes += (*copies, node)
            flow.whole.update(dict.fromkeys(copies, node))
    flow.written = {root(target) for node in flow.nodes for target in writes(node)}
    flow.writes_memory = bool(flow.written)
    for node in flow.nodes:
        for operand in flow.reads(node):
            flow.users.setdefault(operand, []).append(node)
    _order(flow)
    return flow


def _live(graph: Graph) -> set[Node]:
    live: set[Node] = set()
    queue = [*graph.outputs, *(node for node in graph.nodes if has_effect(node))]
    while queue:
        node = queue.pop()
        if node not in live:
            live.add(node)
            queue.extend(reads(node))
            if node.alias is not None:
                queue.append(node.alias)
    return live


_OUTSIDE = "inputs and constants"


def _storage(node: Node) -> Any:
    return root(node) if is_fresh(node) else _OUTSIDE


def _order(flow: Flow) -> None:
    """Fill `after`: reads after writes, writes after reads and writes; effects in order."""
    readers: dict[Any, list[Node]] = {}
    writer: dict[Any, Node] = {}
    effect: Node | None = None
    for node in flow.nodes:
        if node.op == "get" or is_plain_view(node):
            continue  # touches no memory by itself
        written = {_storage(target) for target in writes(node)}
        follows: list[Node] = []
        touched = {_storage(operand) for operand in flow.reads(node)} | written
        for storage in touched:
            if storage in writer:
                follows.append(writer[storage])
        for storage in written:
            follows.extend(readers.get(storage, ()))
            readers[storage] = []
            writer[storage] = node
        for storage in touched - written:
            readers.setdefault(storage, []).append(node)
        if has_effect(node) and (not written or _OUTSIDE in written):
            if effect is not None:
                follows.append(effect)
            effect = node
        if follows:
            flow.after[node] = [other for other in dict.fromkeys(follows) if other is not node]
