"""Memory effects of nodes: what they read, write and share.

A node names memory, and reads it when it runs. Memory that the graph made itself is known exactly
(`root`). Inputs and constants may overlap in ways that only a call knows, so a write to one of them
counts as a write to all. Passes, verifier and codegen use these facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..dataclass import dataclass, field
from ..symbolic.expr import is_symbolic
from .layout import is_dense
from .nodes import Graph, Node
from .schema import MESSAGES, plan_of

NESTED = frozenset((tuple, list, dict))


def operands(value: Any, kind: type = Node) -> Iterator[Any]:
    """The nodes, or values of another kind, in (nested) arguments."""
    if type(value) is kind:
        yield value
    elif type(value) in (tuple, list):
        for item in value:
            yield from operands(item, kind)
    elif type(value) is dict:
        for item in value.values():
            yield from operands(item, kind)
    elif type(value) is slice and kind is not Node:
        yield from operands((value.start, value.stop, value.step), kind)


def reads(node: Node) -> list[Node]:
    """The nodes among a node's operands, in order."""
    found: list[Node] = []
    for value in (*node.args, *node.kwargs.values()):
        if type(value) is Node:
            found.append(value)
        elif type(value) in NESTED:
            found.extend(operands(value))
    return found


def uses(node: Node) -> list[Node]:
    """The nodes that a node names: its operands, and the one whose memory its value shares."""
    return reads(node) if node.alias is None else [*reads(node), node.alias]


def root(node: Node) -> Node:
    """The node that made the memory of a node's value."""
    while node.alias is not None:
        node = node.alias
    return node


def is_fresh(node: Node) -> bool:
    """Whether the graph itself made the memory."""
    return root(node).op in ("call", "get")


def writes(node: Node) -> list[Node]:
    """The operands whose memory a node writes."""
    if node.op != "call":
        return []
    plan = plan_of(node.target)
    found: list[Node] = []
    if not plan.writes and (plan.row is None or plan.row.mutates is None):
        return found
    for at in plan.writes:
        value = node.kwargs.get(at) if isinstance(at, str) else _positional(plan, node, at)
        found.extend(operands(value))
    if plan.row is not None and plan.row.mutates is not None:
        for position in plan.row.mutates(node.args, node.kwargs):
            found.extend(operands(node.args[position]))
    return found


def written_memory(nodes: Iterable[Node]) -> set[Node]:
    """The nodes that made the memory that these nodes write."""
    return {root(target) for node in nodes for target in writes(node)}


def _positional(plan: Any, node: Node, at: int) -> Any:
    return node.args[at] if at < len(node.args) else node.kwargs.get(plan.arguments[at])


def is_random(node: Node) -> bool:
    """Whether the node reads (and advances) the random state."""
    return node.op == "call" and plan_of(node.target).random


def sends(node: Node) -> bool:
    """Whether the node sends messages to other processes, or waits for theirs: it counts as random,
    so that it runs once and in order."""
    return node.op == "call" and getattr(node.target, "namespace", "") == MESSAGES


def sends_any(nodes: Iterable[Node]) -> bool:
    """Whether one of these nodes sends messages."""
    return any(map(sends, nodes))


@dataclass(slots=True)
class Facts:
    """Memory facts of a graph. `written` and `returned` hold roots, `outputs` output nodes."""

    written: set[Node] = field(default_factory=set)
    returned: set[Node] = field(default_factory=set)
    outputs: set[Node] = field(default_factory=set)
    writes_outside: bool = False
    users: dict[Node, int] = field(default_factory=dict)

    def steady(self, node: Node) -> bool:
        """Whether a read of this memory gives the same value at any point of the graph."""
        origin = root(node)
        if origin.op in ("input", "constant"):
            return not self.writes_outside
        return origin not in self.written

    def private(self, node: Node) -> bool:
        """Whether the value may be in other memory: made here, never written, not returned."""
        origin = root(node)
        return origin not in self.returned and origin not in self.written and is_fresh(node)


def facts_of(graph: Graph) -> Facts:
    """Collect the facts."""
    facts = Facts(outputs=set(graph.outputs), returned={root(node) for node in graph.outputs})
    for node in graph.nodes:
        for operand in reads(node):
            facts.users[operand] = facts.users.get(operand, 0) + 1
        for target in writes(node):
            origin = root(target)
            facts.written.add(origin)
            if origin.op in ("input", "constant"):
                facts.writes_outside = True
    return facts


def can_wait(memory: Node) -> bool:
    """Whether a copy by the graph can replace this outside memory: it has the same layout."""
    if memory.op != "input":
        return False
    meta = memory.meta
    known = not is_symbolic((meta.shape, meta.stride)) and meta.offset == 0
    return known and is_dense(meta.shape, meta.stride)
