"""Defer writes into inputs until no operator may raise any more.

In: a graph whose frame Python runs again if the program raises (`Graph.late`). Out: `late(graph)`,
which computes the same, but writes nothing outside before the last operator that may raise. Until
then a written value stays a value, or goes into a copy of the input. The usual case is batch norm's
running statistics with a loss that checks its targets. `codegen.backend` calls it before the
passes; capture ends a graph before a write that cannot be deferred (`Recorder.fixed`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from ..graph.effects import can_wait, facts_of, is_fresh, root, writes
from ..graph.interpreter import substitute
from ..graph.nodes import Graph, Meta, Node
from ..graph.opdef import OPS, OpDef
from ..graph.schema import plan_of
from ..ops.may_raise import may_raise
from ..symbolic.expr import symbols_of

aten = torch.ops.aten
# The operators live as long as this object.
_LIBRARY = torch.library.Library("graftjit", "FRAGMENT")
_LIBRARY.define("put_back_(Tensor(a!) self, Tensor src) -> Tensor(a!)")


def _put_back(self: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
    """self.copy_(src) without a change of self's version, as batch norm writes its statistics."""
    if self.is_inference():
        return self.copy_(src)
    with (
        torch.no_grad(),
        torch.autograd._unsafe_preserve_version_counter(self),  # type: ignore[attr-defined]
    ):
        return self.copy_(src)


_LIBRARY.impl("put_back_", _put_back, "CompositeExplicitAutograd")
put_back = torch.ops.graftjit.put_back_.default
OPS[str(put_back)] = OpDef(str(put_back), "copy", lambda op, self, src: self)


def early(graph: Graph) -> list[int]:
    """Positions of the inputs that the graph writes until the last operator that may raise."""
    found = {
        root(target).target
        for node in graph.nodes[: _last(graph) + 1]
        for target in writes(node)
        if root(target).op == "input"
    }
    return sorted(found)


def deferred(graph: Graph) -> Graph:
    """The graph with its writes into inputs deferred, see the module's docstring.

    Where indices alone may be wrong, they are checked in front of the first write instead. Raises
    ValueError if a write cannot wait.
    """
    positions = early(graph)
    if not positions:
        return graph
    if not graph.needs_grad:
        found = check_first().checked(graph, held_numbers(graph))
        if found is not None:
            return found  # type: ignore[no-any-return]
    if not all(can_wait(graph.inputs[at]) for at in positions):
        raise ValueError("an input is written that no copy can replace")
    return _Late(graph).made()


def check_first() -> Any:
    # loaded at first use: few graphs write inputs and may raise
    from . import check_first

    return check_first


def _last(graph: Graph) -> int:
    """The position of the last node that may raise, or gives a number that is checked; -1: there is
    none."""
    checked = held_numbers(graph)
    return max(
        (at for at, node in enumerate(graph.nodes) if node in checked or may_raise(node)),
        default=-1,
    )


def held_numbers(graph: Graph) -> set[Node]:
    """The nodes of the numbers from tensor data that the program checks."""
    if not graph.required:
        return set()
    used = symbols_of([(one.left, one.right) for one in graph.required])
    origins = {symbol: graph.symbols[symbol] for symbol in used}
    return {graph.outputs[of[1]] for of in origins.values() if of[0] == "data"}


class _Late:
    """One walk over a graph that defers its writes.

    `substitutes`: the current one for an input's memory; `own`: those of them that are copies
    to be written; `count`: by how much eager would raise each input's version.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.written = facts_of(graph).written
        self.substitutes: dict[Node, Node] = {}
        self.own: set[Node] = set()
        self.count: dict[Node, int] = {}
        self.now: dict[Node, Node] = {}  # changed nodes of the graph's own memory
        # (view of an input, substitute of the input)
        self.views: dict[tuple[Node, Node], Node] = {}
        self.nodes: list[Node] = []

    def made(self) -> Graph:
        end = _last(self.graph) + 1
        for node in self.graph.nodes[:end]:
            self._step(node)
        for memory, times in self.count.items():
            # Of several writes, `codegen.fusion.input_mutations` makes one that raises the version
            # as often.
            for number in range(times):
                self._write(aten.copy_.default, memory, f"{memory.name}_late_{number}")
            if not times:
                self._write(put_back, memory, f"{memory.name}_late")
        self.substitutes.clear()
        for node in self.graph.nodes[end:]:
            self._carry(node)
        return replace(
            self.graph, nodes=self.nodes, outputs=[self._at(one) for one in self.graph.outputs]
        )

    def _step(self, node: Node) -> None:
        """Process a node before or at the last one that may raise."""
        memories = dict.fromkeys(
            root(target) for target in writes(node) if root(target).op == "input"
        )
        counts = (
            node.target is not put_back and bool(memories) and bool(plan_of(node.target).writes)
        )
        for memory in memories:
            self.count[memory] = self.count.get(memory, 0) + counts
        if memories and self._is_value(node):
            (memory,) = memories
            self.substitutes[memory] = self._at(node.args[1])
            return
        for memory in memories:
            self._copied(memory)
        if not memories and node.alias is not None and root(node).op == "input":
            # A view of the input; a reader of it gets a view of the substitute.
            self.nodes.append(node)
        else:
            self._carry(node)

    def _is_value(self, write: Node) -> bool:
        """Whether the write fills a whole input with an equal-layout, never written value."""
        if write.target is not aten.copy_.default or write.args[0] is not root(write):
            return False
        value = write.args[1]
        if type(value) is not Node or type(value.meta) is not Meta:
            return False
        same = value.meta == write.args[0].meta
        return same and is_fresh(value) and root(value) not in self.written

    def _copied(self, memory: Node) -> None:
        """From here on a copy replaces the input, or its previous substitute."""
        value = self._at(memory)
        if value in self.own:
            return
        name = f"{memory.name}_meanwhile_{len(self.nodes)}"
        copy = Node("call", aten.clone.default, (value,), {}, memory.meta, name)
        self.nodes.append(copy)
        self.own.add(copy)
        self.substitutes[memory] = copy

    def _write(self, target: Any, memory: Node, name: str) -> None:
        operands = (memory, self.substitutes[memory])
        self.nodes.append(Node("call", target, operands, {}, memory.meta, name, alias=memory))

    def _carry(self, node: Node) -> None:
        """Append the node over the current substitutes of its operands."""
        args, kwargs = substitute((node.args, node.kwargs), self._at, Node)
        alias = None if node.alias is None else self._at(node.alias)
        if (args, kwargs) != (node.args, node.kwargs) or alias is not node.alias:
            self.now[node] = node = replace(node, args=args, kwargs=kwargs, alias=alias)
        self.nodes.append(node)

    def _at(self, operand: Node) -> Node:
        """The current substitute of an operand."""
        memory = root(operand)
        current = self.substitutes.get(memory)
        if current is None:
            return self.now.get(operand, operand)
        if operand is memory:
            return current
        known = self.views.get((operand, current))
        if known is None:
            args, kwargs = substitute((operand.args, operand.kwargs), self._at, Node)
            name = f"{operand.name}_meanwhile_{len(self.nodes)}"
            alias = self._at(operand.alias) if operand.alias is not None else None
            known = replace(operand, args=args, kwargs=kwargs, alias=alias, name=name)
            self.views[operand, current] = known
            self.nodes.append(known)
        return known
