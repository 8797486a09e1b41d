"""Pointwise work on a cat, done on its parts: f(cat(a, b), c) is cat(f(a, c[:n]), f(b, c[n:])).

The cat itself never lies in memory then: `join` has each part of the last result written into its place (rotary
embeddings: x * cos + cat(-x2, x1) * sin is one kernel). Only where the cat has no other reader, and where the other
operands lie in memory (what the cat moves slices of does) or are such work themselves, so that nothing is computed or stored that
was not before.
Called by `schedule`.
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
MAX_DEPTH = 6  # operators over one another that are done in parts

aten = torch.ops.aten


def spread(graph: Graph) -> Graph:
    """The graph with its cats moved behind the pointwise operators that read them."""
    if not any(node.target is aten.cat.default for node in graph.nodes):
        return graph
    rewriter = Rewriter(graph)
    if rewriter.facts.written:
        return graph  # what is read later might be another value
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
    """The cat of what the operator gives for each part, if an operand is a cat that nobody else reads."""
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
    """How one cat divides its result. Nodes come in pairs, as they were and as they are now."""

    at: Rewriter
    cat: Node
    dim: int = 0
    sizes: tuple[Any, ...] = ()
    lying: frozenset[Node] = (
        frozenset()
    )  # values that have to lie in memory for the cat: it moves slices of them

    def __post_init__(self) -> None:
        cat = self.cat
        dim = cat.args[1] if len(cat.args) > 1 else cat.kwargs.get("dim", 0)
        self.dim = dim % len(cat.meta.shape)
        if all(len(operand.meta.shape) == len(cat.meta.shape) for operand in cat.args[0]):
            self.sizes = tuple(operand.meta.shape[self.dim] for operand in cat.args[0])
            self.lying = frozenset().union(*map(_sliced, cat.args[0]))

    def are_alone(self, old: Node, new: Node) -> bool:
        """May this cat go, and does it divide as the first one does?"""
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
        """Is it a view of what a kernel computes? `join` puts that into its place in its own shape, here it would have
        to lie in memory."""
        return is_plain_view(operand) and not self._in_memory(operand)

    def _once(self, old: Node) -> bool:
        facts = self.at.facts
        return facts.users.get(old, 0) == 1 and old not in facts.outputs

    def _constant_along(self, node: Node) -> bool:
        """Is it the same for all parts?"""
        shape, lead = node.meta.shape, len(self.cat.meta.shape) - len(node.meta.shape)
        return self.dim < lead or shape[self.dim - lead] == 1

    def fit(self, old: Node, new: Node, depth: int) -> bool:
        """Can each part of the operator's result be computed from parts of its operands?"""
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
        """Is it done in parts too?"""
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
    """The values that an operand of a cat is slices of, with pointwise work on them."""
    if depth and _is_pointwise(node):
        return set().union(*(_sliced(one, depth - 1) for one in reads(node)))
    if node.target is not aten.slice.Tensor:
        return set()
    whole: Node = node.args[0]
    return set() if whole.alias is not None or whole.target is aten.cat.default else {whole}
