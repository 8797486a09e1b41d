"""Writes into inputs without a copy: the kernel that computes the written value stores it in the
input's memory.

`sunk(graph)` turns inputs that are written as a whole into values: a read after a write reads the
written value, and of several writes the last one is kept (an optimizer's moments, which are scaled
and then added to). `copies(graph)` gives for each remaining write a copy with the layout of the
written memory. `fuse` takes it into a kernel like any pointwise node, and `schedule` makes no step
for the write (see `concat`, which does the same for a cat). Version counters rise as often as in
eager. This is done only if inputs are known not to overlap (`Graph.apart`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from ...ir.graph.effects import facts_of, is_fresh, reads, root, writes
from ...ir.graph.interpreter import substitute
from ...ir.graph.nodes import Graph, Meta, Node
from ...ir.ops.may_raise import may_raise
from ...ir.passes.defer_writes import put_back
from ...ir.passes.rewriter import with_nodes
from ..analysis.dataflow import base_of
from ..loops.extents import positive
from ..lower.builder import rule_for

aten = torch.ops.aten
COPIES = frozenset({aten.copy_.default, put_back})
STORED = "_stored"  # the suffix of a write's name for the copy that does it
Moves = Mapping[Node, int]  # a write -> by how much eager raises the input's version for it


def is_apart(graph: Graph) -> bool:
    """Whether no input shares memory with another input or with a tensor that the graph
    was made with.
    """
    return graph.apart and not any(
        node.op == "constant" and node.args != ("own",) for node in graph.nodes
    )


def copies(graph: Graph, refused: frozenset[Node]) -> dict[Node, tuple[Node, ...]]:
    """For each write into an input that a kernel can do, the copy that does it; none for the inputs
    `refused`.
    """
    if not graph.mutates or not is_apart(graph):
        return {}
    found = {
        node: _copy_of(node)
        for node in graph.nodes
        if node.target in COPIES and base_of(node.args[0]) not in refused
    }
    return {write: (copy,) for write, copy in found.items() if copy is not None}


def _copy_of(write: Node) -> Node | None:
    into, value = write.args[:2]
    if type(value) is not Node or type(value.meta) is not Meta or base_of(into).op != "input":
        return None
    if value.meta.device != into.meta.device or not positive(into.meta.shape):
        return None
    same = value.meta.dtype == into.meta.dtype
    target = aten.clone.default if same else aten._to_copy.default
    kwargs = {} if same else {"dtype": into.meta.dtype}
    meta = Meta(
        into.meta.shape, into.meta.stride, into.meta.dtype, into.meta.device, into.meta.offset
    )
    copy = Node("call", target, (value,), kwargs, meta, f"{write.name}{STORED}", write.where)
    return None if rule_for(copy) is None else copy


# --- inputs as values ---
def sunk(graph: Graph) -> tuple[Graph, Moves]:
    """The graph with one write for each input that is written as a whole, and the number of writes
    that each replaces.
    """
    chains = _chains(graph) if graph.mutates and is_apart(graph) else {}
    if not chains:
        return graph, {}
    target = {write: memory for memory, chain in chains.items() for write in chain}
    holds: dict[Node, Node] = {}  # an input that was written -> the value that it holds
    made: dict[Node, Node] = {}  # old node -> changed node
    moves: dict[Node, int] = {}
    nodes: list[Node] = []

    def named(node: Node) -> Node:
        return made.get(node, node)

    def read(node: Node) -> Node:
        return holds.get(node) or named(node)

    for node in graph.nodes:
        is_view = node.alias is not None and not writes(node)
        if node in target:
            memory = target[node]
            holds[memory] = value = read(node.args[1])
            if node is not chains[memory][-1]:
                continue
            new = replace(node, args=(memory, value))
            moves[new] = len(chains[memory])
        else:
            args, kwargs = substitute((node.args, node.kwargs), named if is_view else read, Node)
            alias = None if node.alias is None else named(node.alias)
            same = (args, kwargs) == (node.args, node.kwargs) and alias is node.alias
            new = node if same else replace(node, args=args, kwargs=kwargs, alias=alias)
        if new is not node:
            made[node] = new
        nodes.append(new)
    return with_nodes(graph, nodes, [named(node) for node in graph.outputs]), moves


def _chains(graph: Graph) -> dict[Node, list[Node]]:
    """The writes into each input that can become a value: written as a whole, with a value that
    does not change later, and read as a whole from then on.

    No operator that may raise comes between the writes: after its exception the writes before it
    are visible.
    """
    facts = facts_of(graph)
    chains: dict[Node, list[Node]] = {}
    refused: set[Node] = set()
    raised: dict[Node, int] = {}
    raisers = 0
    for node in graph.nodes:
        if node.op == "constant" or (node.alias is not None and not writes(node)):
            continue
        for one in reads(node):
            if one is not root(one) and root(one) in chains:
                refused.add(root(one))
        raisers += node.target not in COPIES and may_raise(node)
        for memory in (root(one) for one in writes(node)):
            if memory.op != "input":
                continue
            if (
                not _is_value(node, memory)
                or raised.setdefault(memory, raisers) != raisers
                or root(node.args[1]) in facts.written
                or not is_fresh(node.args[1])
            ):
                refused.add(memory)
            chain = chains.setdefault(memory, [])
            chain.append(node)
            if node.target is not chain[0].target:
                refused.add(memory)  # one of them raises the version, the other one does not
    return {memory: chain for memory, chain in chains.items() if memory not in refused}


def _is_value(write: Node, memory: Node) -> bool:
    """Whether the write fills the whole input with a tensor of the same layout."""
    if write.target not in COPIES or write.args[0] is not memory:
        return False
    if _copy_of(write) is None:
        return False
    one, other = write.args[1].meta, memory.meta
    return (one.shape, one.stride, one.dtype) == (other.shape, other.stride, other.dtype)
