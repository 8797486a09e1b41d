"""Writes into parts of the graph's own memory become values.

`chunks = x.chunk(4, 1); chunks[0].sigmoid_(); ...` writes into views of one tensor. If all views
that are read or written there are equal or disjoint, each becomes a variable: a read after a write
uses the written value, and no write remains. Memory that is shared with an input or returned stays
unchanged. A pass of `ir.passes.pipeline`.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import torch

from ..errors import NoRule
from ..graph.effects import Facts, facts_of, is_fresh, reads, root, writes
from ..graph.interpreter import substitute
from ..graph.layout import is_dense
from ..graph.nodes import Graph, Meta, Node, meta_args
from ..graph.schema import plan_of
from ..ops.infer import infer
from ..symbolic.expr import Undecided, is_symbolic
from .defer_writes import put_back

aten = torch.ops.aten
Box = tuple[tuple[int, int], ...]  # a range for each dimension of the root


class _Fails(Exception):
    """The writes to this root's memory cannot become values."""

    def __init__(self, memory: Node) -> None:
        self.memory = memory


def values_for_writes(graph: Graph) -> Graph:
    """The graph without the writes into memory whose parts are disjoint."""
    candidates = _candidates(graph)
    while candidates:
        try:
            return _without_writes(graph, candidates)
        except _Fails as failure:
            candidates.discard(failure.memory)
    return graph


def _candidates(graph: Graph) -> set[Node]:
    """Roots that only copies write, unseen outside, with equal or disjoint parts."""
    facts = facts_of(graph)
    found = {node for node in facts.written if is_fresh(node) and node not in facts.returned}
    parts: dict[Node, set[Meta]] = {node: set() for node in found}
    for node in graph.nodes:
        if node.op != "call":
            continue
        written = writes(node)
        for operand in written:
            if node.target not in (aten.copy_.default, put_back) or not _fits(node):
                found.discard(root(operand))
        if node.alias is not None and not written:
            # A view reads no memory.
            continue
        for operand in reads(node):
            if root(operand) in found:
                parts[root(operand)].add(operand.meta)
    return {node for node in found if _are_apart(node.meta, list(parts[node]))}


def _fits(copy: Node) -> bool:
    """Whether the copy neither converts nor broadcasts."""
    into, value = copy.args[:2]
    if type(value) is not Node or type(value.meta) is not Meta:
        return False
    a, b = into.meta, value.meta
    return (a.shape, a.dtype, a.device) == (b.shape, b.dtype, b.device)


def _are_apart(whole: Any, parts: list[Meta]) -> bool:
    if type(whole) is not Meta or is_symbolic((whole.shape, whole.stride)):
        return False
    if 0 in whole.shape or not is_dense(whole.shape, whole.stride):
        return False
    boxes = [_box(whole, part) for part in parts]
    return (
        all(
            one is not None and other is not None and _disjoint(one, other)
            for number, one in enumerate(boxes)
            for other in boxes[:number]
        )
        and None not in boxes
    )


def _box(whole: Meta, part: Meta) -> Box | None:
    """The range of each root dimension that a view covers; None if the view is no box."""
    if is_symbolic((part.shape, part.stride, part.offset)) or part.dtype != whole.dtype:
        return None
    lengths = {s: n for n, s in zip(part.shape, part.stride, strict=True) if n != 1}
    if len(lengths) != sum(size != 1 for size in part.shape):
        return None
    left = part.offset - whole.offset
    order = sorted(range(len(whole.shape)), key=lambda dim: (-whole.stride[dim], -whole.shape[dim]))
    found: list[tuple[int, int]] = [(0, 1)] * len(order)
    for dim in order:
        if whole.shape[dim] == 1:
            continue
        start, left = divmod(left, whole.stride[dim])
        end = start + lengths.pop(whole.stride[dim], 1)
        if start < 0 or end > whole.shape[dim]:
            return None
        found[dim] = (start, end)
    return None if lengths or left else tuple(found)


def _disjoint(one: Box, other: Box) -> bool:
    return any(a[1] <= b[0] or b[1] <= a[0] for a, b in zip(one, other, strict=True))


def _without_writes(graph: Graph, memory: set[Node]) -> Graph:
    facts = facts_of(graph)
    values: dict[tuple[Node, Meta], Node] = {}  # the value of each part
    now: dict[Node, Node] = {}  # changed nodes
    nodes: list[Node] = []

    def read(operand: Node) -> Node:
        return values.get((root(operand), operand.meta)) or now.get(operand, operand)

    for node in graph.nodes:
        written = writes(node)
        if written and root(written[0]) in memory:
            into, value = node.args[:2]
            key = (root(value), value.meta)
            if key not in values and not _stays(value, memory, facts):
                raise _Fails(root(into))
            values[root(into), into.meta] = read(value)
            continue
        if node.op == "call" and (node.alias is None or written):
            args, kwargs = substitute((node.args, node.kwargs), read, Node)
            if (args, kwargs) != (node.args, node.kwargs):
                _same_layout(node, args, kwargs, memory)
                alias = None if node.alias is None else now.get(node.alias, node.alias)
                now[node] = node = replace(node, args=args, kwargs=kwargs, alias=alias)
        elif node.op != "constant":
            # Views and gets depend on memory, not on its content.
            args = substitute(node.args, lambda one: now.get(one, one), Node)
            alias = None if node.alias is None else now.get(node.alias, node.alias)
            if args != node.args or alias is not node.alias:
                now[node] = node = replace(node, args=args, alias=alias)
        nodes.append(node)
    return replace(graph, nodes=nodes, outputs=[now.get(node, node) for node in graph.outputs])


def _stays(value: Node, memory: set[Node], facts: Facts) -> bool:
    """Whether a value never changes later; the memory at hand is written no more."""
    if not is_fresh(value):
        return not facts.writes_outside
    return root(value) not in facts.written or root(value) in memory


def _same_layout(node: Node, args: Any, kwargs: Any, memory: set[Node]) -> None:
    """Raise _Fails if the result's metadata changes: a value's layout may not be its part's."""
    plan, meta = plan_of(node.target), None
    if meta_args((*args, *kwargs.values())) == meta_args((*node.args, *node.kwargs.values())):
        return
    if plan.row is not None:
        named = {name: meta_args(value) for name, value in kwargs.items()}
        with contextlib.suppress(NoRule, Undecided, RuntimeError, ValueError, IndexError):
            meta = infer(plan, meta_args(args), named)
    if meta is None or meta != node.meta:
        raise _Fails(next(root(one) for one in reads(node) if root(one) in memory))
