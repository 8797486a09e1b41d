"""Spreading: pointwise work on a cat is done on its parts: f(cat(a, b), c) is cat(f(a, c[:n]), f(b,
c[n:])).

The cat itself is then never in memory: `concat` writes each part of the last result into place
(rotary embeddings: x * cos + cat(-x2, x1) * sin is one kernel). This is done only if the cat has no
other reader, and if the other operands are in memory (as the tensors are whose slices the cat
moves) or are such work themselves. So nothing is computed or stored that was not before.
"""

from __future__ import annotations

from typing import Any

import torch

from ...ir.dataclass import dataclass
from ...ir.graph.effects import is_random, reads
from ...ir.graph.interpreter import substitute
from ...ir.graph.nodes import Graph, Meta, Node
from ...ir.ops.may_raise import may_raise
from ...ir.passes.pipeline import drop_dead
from ...ir.passes.rewriter import Rewriter
from ..analysis.dataflow import is_plain_view
from ..lower.builder import rule_for

MAX_PARTS = 4
MAX_DEPTH = 6  # the most operators in a chain that are done in parts

aten = torch.ops.aten


def spread(graph: Graph) -> Graph:
    """The graph with its cats moved behind the pointwise operators that read them."""
    if not any(node.target is aten.cat.default for node in graph.nodes):
        return graph
    rewriter = Rewriter(graph)
    if rewriter.facts.written:
        return graph  # a later read might see another value
    return drop_dead(rewriter.walk(lambda node: (_behind,) if _is_pointwise(node) else ()))


def _is_pointwise(node: Node) -> bool:
    return (
        node.op == "call"
        and torch.Tag.pointwise in node.target.tags
        and isinstance(node.meta, Meta)
        and node.alias is None
        and not is_random(node)
        and not may_raise(node)
        and rule_for(node) is not None
    )


def _behind(at: Rewriter, node: Node) -> Node | None:
    """The cat of the operator's results for each part, if an operand is a cat with no
    other reader.
    """
    assert at.origin is not None
    for old, new in zip(reads(at.origin), reads(node), strict=True):
        if new.target is aten.cat.default and new.meta.shape == node.meta.shape:
            parts = _Parts(at, new)
            if parts.are_alone(old, new) and parts.fit(at.origin, node, MAX_DEPTH):
                found = [parts.of(at.origin, node, k) for k in range(len(parts.sizes))]
                return at.call(aten.cat.default, tuple(found), parts.dim)
    return None


@dataclass(slots=True)
class _Parts:
    """The division of a cat's result. Nodes come in pairs: before and after the rewrite."""

    at: Rewriter
    cat: Node
    dim: int = 0
    sizes: tuple[Any, ...] = ()
    # values that must be in memory for the cat, because it moves slices of them
    lying: frozenset[Node] = frozenset()

    def __post_init__(self) -> None:
        cat = self.cat
        dim = cat.args[1] if len(cat.args) > 1 else cat.kwargs.get("dim", 0)
        self.dim = dim % len(cat.meta.shape)
        if all(len(operand.meta.shape) == len(cat.meta.shape) for operand in cat.args[0]):
            self.sizes = tuple(operand.meta.shape[self.dim] for operand in cat.args[0])
            self.lying = frozenset().union(*map(_sliced, cat.args[0]))

    def are_alone(self, old: Node, new: Node) -> bool:
        """Whether this cat may go, and divides its result as the first one does."""
        same = all(operand.meta.dtype == new.meta.dtype for operand in new.args[0])
        same = same and not any(map(self._is_turned, new.args[0]))
        other = self if new is self.cat else _Parts(self.at, new)
        divides = 1 < len(self.sizes) <= MAX_PARTS and 0 not in self.sizes
        return (
            same
            and divides
            and self._once(old)
            and (other.dim, other.sizes) == (self.dim, self.sizes)
        )

    def _is_turned(self, operand: Node) -> bool:
        """Whether it is a view of a value that a kernel computes. `concat` puts that into place in
        its own shape; here it would have to be in memory.
        """
        return is_plain_view(operand) and not self._in_memory(operand)

    def _once(self, old: Node) -> bool:
        facts = self.at.facts
        return facts.users.get(old, 0) == 1 and old not in facts.outputs

    def _constant_along(self, node: Node) -> bool:
        """Whether it is the same for all parts."""
        shape, lead = node.meta.shape, len(self.cat.meta.shape) - len(node.meta.shape)
        return self.dim < lead or shape[self.dim - lead] == 1

    def fit(self, old: Node, new: Node, depth: int) -> bool:
        """Whether each part of the operator's result can be computed from parts of its operands."""
        if new.meta.shape != self.cat.meta.shape:
            return False
        pairs = zip(reads(old), reads(new), strict=True)
        return depth > 0 and all(self._given(*pair, depth - 1) for pair in pairs)

    def _given(self, old: Node, new: Node, depth: int) -> bool:
        return (
            self._in_memory(new)
            or (not self._constant_along(new) and self._inside(old, new, depth))
        )  # fmt: skip

    def _inside(self, old: Node, new: Node, depth: int) -> bool:
        """Whether it is done in parts too."""
        if new.target is aten.cat.default:
            return self.are_alone(old, new)
        same = old.target is new.target and _is_pointwise(new)
        return same and self._once(old) and self.fit(old, new, depth)

    def _in_memory(self, node: Node) -> bool:
        while is_plain_view(node):
            node = node.alias  # type: ignore[assignment]
        if node.target is aten.cat.default:
            return False
        outside = node.op in ("input", "constant") or rule_for(node) is None
        return outside or node in self.lying

    def of(self, old: Node, new: Node, k: int) -> Node:
        """Part k of the operator's result, or of an operand."""
        if new.target is aten.cat.default:
            return new.args[0][k]
        known = dict(zip(reads(new), reads(old), strict=True))

        def part(operand: Node) -> Node:
            if self._in_memory(operand):
                return self._slice(operand, k)
            return self.of(known[operand], operand, k)

        args, kwargs = substitute((new.args, new.kwargs), part, Node)
        return self.at.call(new.target, *args, **kwargs)

    def _slice(self, node: Node, k: int) -> Node:
        if self._constant_along(node):
            return node
        start = sum(self.sizes[:k])
        dim = self.dim - (len(self.cat.meta.shape) - len(node.meta.shape))
        return self.at.call(aten.slice.Tensor, node, dim, start, start + self.sizes[k])


def _sliced(node: Node, depth: int = MAX_DEPTH) -> set[Node]:
    """The values that an operand of a cat is a slice of, also behind pointwise work."""
    if depth and _is_pointwise(node):
        return set().union(*(_sliced(one, depth - 1) for one in reads(node)))
    if node.target is not aten.slice.Tensor:
        return set()
    whole: Node = node.args[0]
    return set() if whole.alias is not None or whole.target is aten.cat.default else {whole}
