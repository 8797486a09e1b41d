"""What a graph's nodes read, write and depend on: storage roots, live nodes, order between memory effects.

`analyse(graph)` is the first step of code generation; `fuse` and `schedule` work on its result. Dependencies
are what data flow does not say: a write keeps its place among the readers and writers of the same storage, and
random operators keep their order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from ..ir.graph import Graph, Meta, Node
from ..ir.schema import plan_of
from .lowering import operands


def root(node: Node) -> Node:
    """The node whose storage this one shares, at the end of the chain."""
    while node.alias is not None:
        node = node.alias
    return node


def base_of(node: Node) -> Node:
    """The node whose tensor a kernel is handed to reach this one's memory."""
    while is_plain_view(node) or (node.alias is not None and writes(node)):
        node = node.alias  # type: ignore[assignment]
    return node


def is_plain_view(node: Node) -> bool:
    """A view that metadata alone describes: same dtype as the storage's root, nothing written."""
    if node.alias is None or not isinstance(node.meta, Meta):
        return False
    if node.op == "call" and (not isinstance(node.target, torch._ops.OpOverload) or writes(node)):
        return False
    if node.op == "get" and writes(node.args[0]):
        return False
    base = root(node)
    return isinstance(base.meta, Meta) and base.meta.dtype == node.meta.dtype


def writes(node: Node) -> list[Node]:
    """The operands that a call writes."""
    if node.op != "call":
        return []
    plan = plan_of(node.target)
    found = [
        node.kwargs.get(at) if isinstance(at, str) else node.args[at]
        for at in plan.writes
        if isinstance(at, str) or at < len(node.args)
    ]
    if plan.row is not None and plan.row.mutates is not None:
        found += [node.args[at] for at in plan.row.mutates(node.args, node.kwargs)]
    flat: list[Node] = []
    for item in found:
        flat.extend(item if isinstance(item, (tuple, list)) else [item])
    return [item for item in flat if isinstance(item, Node)]


def is_random(node: Node) -> bool:
    return node.op == "call" and plan_of(node.target).random


def has_effect(node: Node) -> bool:
    """Must this node run though nobody reads its result?"""
    if node.op != "call":
        return False
    return bool(node.meta is None or node.meta == ()) or is_random(node) or bool(writes(node))


@dataclass(slots=True)
class Flow:
    """nodes: the live calls and gets, in order; after: further nodes that a node has to follow."""

    graph: Graph
    nodes: list[Node] = field(default_factory=list)
    after: dict[Node, list[Node]] = field(default_factory=dict)
    users: dict[Node, list[Node]] = field(default_factory=dict)
    writes_memory: bool = False


def analyse(graph: Graph) -> Flow:
    """Live nodes, users, and the order that memory and random numbers ask for."""
    flow = Flow(graph)
    live = _live(graph)
    flow.nodes = [node for node in graph.nodes if node in live and node.op in ("call", "get")]
    flow.writes_memory = any(writes(node) for node in flow.nodes)
    for node in flow.nodes:
        for operand in operands(node):
            flow.users.setdefault(operand, []).append(node)
    _order(flow, _classes(graph))
    return flow


def _live(graph: Graph) -> set[Node]:
    live: set[Node] = set()
    queue = list(graph.outputs) + [node for node in graph.nodes if has_effect(node)]
    while queue:
        node = queue.pop()
        if node in live:
            continue
        live.add(node)
        queue.extend(operands(node))
        if node.alias is not None:
            queue.append(node.alias)
    return live


def _classes(graph: Graph) -> dict[Node, Any]:
    """Root -> the class of storages that may be the same memory: inputs that overlap are one class."""
    found: dict[Node, Any] = {node: node for node in graph.inputs}
    for group in graph.overlaps:
        for position in group:
            found[graph.inputs[position]] = graph.inputs[group[0]]
    keys: dict[int, Node] = {}
    for node in graph.nodes:
        if node.op == "constant":
            key = node.target.untyped_storage()._cdata
            found[node] = keys.setdefault(key, node)
    return found


def _order(flow: Flow, classes: dict[Node, Any]) -> None:
    """Fill `after`: reads after writes, writes after reads and writes, of one class of storage."""
    readers: dict[Any, list[Node]] = {}
    writer: dict[Any, Node] = {}
    effect: Node | None = None
    for node in flow.nodes:
        if node.op == "get" or is_plain_view(node):
            continue  # touches no memory by itself
        written = {_class(target, classes) for target in writes(node)}
        follows: list[Node] = []
        touched = {_class(operand, classes) for operand in operands(node)} | written
        for storage in touched:
            if storage in writer:
                follows.append(writer[storage])
        for storage in written:
            follows.extend(readers.get(storage, ()))
            readers[storage] = []
            writer[storage] = node
        for storage in touched - written:
            readers.setdefault(storage, []).append(node)
        if is_random(node) or node.meta is None or node.meta == ():
            if effect is not None:
                follows.append(effect)
            effect = node
        if follows:
            flow.after[node] = [other for other in dict.fromkeys(follows) if other is not node]


def _class(node: Node, classes: dict[Node, Any]) -> Any:
    base = root(node)
    return classes.get(base, base)
