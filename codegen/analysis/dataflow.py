"""Data flow: what the nodes of a graph depend on beyond their operands, and the tensor behind a
node.

`analyse(graph)` is the first step of code generation; `fuse` and `schedule` work on its result. A
write keeps its order among the readers and writers of the same storage. Inputs and constants count
as one storage here, because they may overlap in ways that only a call knows. Nodes that may raise,
draw random numbers, or write where others can see it keep their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...ir.dataclass import dataclass, field
from ...ir.graph.effects import is_fresh, is_random, reads, root, writes
from ...ir.graph.nodes import Graph, Meta, Node
from ...ir.ops.may_raise import may_raise
from ...ir.passes.defer_writes import put_back


def base_of(node: Node) -> Node:
    """The node whose tensor a kernel gets as the pointer to this node's memory."""
    plain = False
    while node.alias is not None:
        here = is_plain_view(node)
        plain = plain or here
        if not (here or writes(node) or (plain and _is_recast(node))):
            break
        node = node.alias
    return node


def is_plain_view(node: Node) -> bool:
    """Whether metadata alone describes the view: the dtype of the storage's root, nothing
    written.
    """
    if node.alias is None or not isinstance(node.meta, Meta):
        return False
    if writes(node.args[0] if node.op == "get" else node):
        return False
    base = root(node)
    return isinstance(base.meta, Meta) and base.meta.dtype == node.meta.dtype


def _is_recast(node: Node) -> bool:
    """Whether this is a view of another dtype than its memory, as `view_as_complex`. A plain view
    of one (`view_as_complex(x).real`) is a view of the memory itself.
    """
    return isinstance(node.meta, Meta) and node.meta.dtype != root(node).meta.dtype


def memory_of(node: Node) -> tuple[Node, Any]:
    """The node whose tensor a kernel gets to read this one, and the distance of the two first
    elements, in elements.
    """
    base = base_of(node) if is_plain_view(node) else node
    return base, node.meta.offset - base.meta.offset


def has_effect(node: Node) -> bool:
    """Whether this node must run even if nothing reads its result."""
    if node.op != "call":
        return False
    nothing = node.meta is None or node.meta == ()
    return (
        nothing or is_random(node) or bool(writes(node)) or (may_raise(node) and node.alias is None)
    )


@dataclass(slots=True)
class Flow:
    """The data flow of a graph.

    joins          the copies that make a cat (`fusion.concat`) or do a write
                   (`fusion.input_mutations`)
    nodes          the live calls and gets, in order
    after          further nodes that a node must follow
    users          the readers of each node
    written        the roots of the graph's own memory that is written to after it was made
    writes_memory  whether anything is written
    whole          for each copy of `joins` its cat or write
    moves          by how much a write raises the version of its target, where that is not 1
    apart          whether each input has memory of its own
    """

    graph: Graph
    joins: Mapping[Node, tuple[Node, ...]] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    after: dict[Node, list[Node]] = field(default_factory=dict)
    users: dict[Node, list[Node]] = field(default_factory=dict)
    written: set[Node] = field(default_factory=set)
    writes_memory: bool = False
    whole: dict[Node, Node] = field(default_factory=dict)
    moves: Mapping[Node, int] = field(default_factory=dict)
    apart: bool = False

    def reads(self, node: Node) -> Sequence[Node]:
        """The nodes that a node needs; for a cat made of copies: the copies."""
        return self.joins.get(node) or reads(node)

    def memory(self, node: Node) -> Node:
        """The node whose tensor a stored value is written to."""
        return base_of(self.whole.get(node, node))

    def call(self, node: Node) -> Node:
        """The operator of the program that a node is, or does a part of."""
        return self.whole.get(node, node)

    def moved_by(self, write: Node) -> int:
        """By how much a write raises the version of its target."""
        return 0 if write.target is put_back else self.moves.get(write, 1)

    def is_store(self, node: Node) -> bool:
        """Whether the node is a copy that writes into an input."""
        return node in self.whole and self.whole[node].alias is not None


def analyse(
    graph: Graph,
    joins: Mapping[Node, tuple[Node, ...]] | None = None,
    moves: Mapping[Node, int] | None = None,
    apart: bool = False,
) -> Flow:
    """Live nodes, users, and the order that memory and effects require."""
    flow = Flow(graph, joins or {}, moves=moves or {}, apart=apart)
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


class _Order:
    """The readers, writers and effects met so far while nodes are taken in order."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.readers: dict[Any, list[Node]] = {}
        self.writer: dict[Any, Node] = {}
        self.effect: Node | None = None  # the last one that is not a store
        # The stores after that effect. Their order is free, because none of them raises.
        self.stores: list[Node] = []

    def storage(self, node: Node) -> Any:
        base = root(node)
        own = is_fresh(node) or (self.flow.apart and base.op == "input")
        return base if own else _OUTSIDE

    def follows(self, node: Node) -> list[Node]:
        """The nodes that this one, the next in order, must follow."""
        written = {self.storage(target) for target in writes(self.flow.call(node))}
        touched = {self.storage(operand) for operand in self.flow.reads(node)} | written
        found = [self.writer[storage] for storage in touched if storage in self.writer]
        for storage in written:
            found.extend(self.readers.get(storage, ()))
            self.readers[storage] = []
            self.writer[storage] = node
        for storage in touched - written:
            self.readers.setdefault(storage, []).append(node)
        if self.flow.is_store(node):
            found += [] if self.effect is None else [self.effect]
            self.stores.append(node)
        # Draws follow each other, also those that fill memory of the graph's own.
        elif has_effect(node) and (
            not written or is_random(node) or may_raise(node) or any(map(_is_outside, written))
        ):
            found += self.stores if self.effect is None else [self.effect, *self.stores]
            self.effect, self.stores = node, []
        return [other for other in dict.fromkeys(found) if other is not node]

    def done(self, write: Node) -> None:
        """Record a write that copies did: later nodes follow it."""
        for target in writes(write):
            self.writer[self.storage(target)] = write


def _is_outside(storage: Any) -> bool:
    return storage == _OUTSIDE or storage.op == "input"


def _order(flow: Flow) -> None:
    """Fill `after`: reads after writes, writes after reads and writes, effects in order."""
    order = _Order(flow)
    for node in flow.nodes:
        if node.op == "get" or is_plain_view(node):
            continue  # it reads and writes no memory itself
        if node in flow.joins and writes(node):
            order.done(node)
            continue
        follows = order.follows(node)
        if follows:
            flow.after[node] = follows
