"""Sinking: pointwise work moves into the kernel that reads it.

`fuse` puts a node into the kernel of its operands. In a loop over stencils that is the kernel of
the step before: beside the new state it stores all that the next step computes from it without a
shift, and all of that is in memory at once. In: the units that `fusion` made. Out: the same units;
work that only one other kernel reads is computed there, if its operands are in memory anyway and
that kernel already loads all but one of them. Nothing is computed twice. `schedule` uses this for
copies to another layout on GPUs, and for all nodes if a plan would need more memory than eager.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ...ir.graph.effects import is_random, reads, root
from ...ir.graph.nodes import Meta, Node
from ...ir.ops.may_raise import may_raise
from ..analysis.dataflow import is_plain_view
from .fuse import LIGHT, Fusion, Unit, size_in_bytes

MAX_CHAIN = 12


def sink(fusion: Fusion, chosen: Callable[[Node], bool] = lambda node: True) -> None:
    """Move all chosen nodes that can be moved, the latest first: their operands may follow them."""
    if fusion.flow.writes_memory or not fusion.enabled:
        return
    outputs = {fusion.source(node) for node in fusion.flow.graph.outputs}
    for node in reversed(fusion.flow.nodes):
        if chosen(node) and _may_move(fusion, node, outputs):
            homes = {
                fusion.home.get(user) and fusion.unit_of(user) for user in _users(fusion, node)
            }
            reader = homes.pop() if len(homes) == 1 else None
            if reader is not None and reader is not fusion.unit_of(node):
                _try(fusion, node, reader, outputs)


def is_layout_copy(node: Node) -> bool:
    """Whether the node copies a value to memory with other strides."""
    return node.target is torch.ops.aten.clone.default and node.meta != node.args[0].meta


def _users(fusion: Fusion, node: Node) -> list[Node]:
    return fusion.flow.users.get(node, [])


def _may_move(fusion: Fusion, node: Node, outputs: set[Node]) -> bool:
    """Whether it is pointwise, in a kernel, and not a result of the graph."""
    rule = fusion.rules.get(node)
    if rule is None or rule.kind != "pointwise" or rule.far is not None or rule.near is not None:
        return False
    if node in outputs or node in fusion.flow.whole or not isinstance(node.meta, Meta):
        return False
    unit = fusion.unit_of(node)
    return unit.is_kernel and unit.rows is None and not may_raise(node) and not is_random(node)


def _chain(fusion: Fusion, node: Node, outputs: set[Node]) -> list[Node] | None:
    """The nodes that must move with it because they are not in memory, in the order of the
    program.
    """
    unit, chain = fusion.unit_of(node), {node}
    left = [node]
    while left:
        for operand in reads(left.pop()):
            source = fusion.source(operand)
            if source in chain or source not in fusion.home or fusion.unit_of(source) is not unit:
                continue
            if source in outputs or _read_outside(fusion, source, unit):
                continue
            moves = source is operand and _may_move(fusion, source, outputs)
            if not moves or not chain.issuperset(_users(fusion, source)):
                return None
            chain.add(source)
            left.append(source)
    ordered = sorted(chain, key=fusion.position.__getitem__)
    return ordered if len(ordered) <= MAX_CHAIN and len(ordered) < len(unit.nodes) else None


def _read_outside(fusion: Fusion, node: Node, unit: Unit) -> bool:
    """Whether another unit reads it, so that it is in memory in any case."""
    for user in _users(fusion, node):
        if user.op == "get" or is_plain_view(user):
            if _read_outside(fusion, user, unit):
                return True
        elif user not in fusion.home or fusion.unit_of(user) is not unit:
            return True
    return False


def _try(fusion: Fusion, node: Node, reader: Unit, outputs: set[Node]) -> None:
    if not reader.is_kernel or reader.rows is not None:
        return
    chain = _chain(fusion, node, outputs)
    if chain is None or fusion._full(reader, *chain):
        return
    if reader.folded is not None and any(one.target not in LIGHT for one in chain):
        return  # it might be computed once per pass
    loaded = [
        operand for one in chain for operand in reads(one)
        if fusion.source(operand) not in chain and not fusion._inlined(fusion.source(operand))
    ]  # fmt: skip
    if len({root(operand) for operand in loaded} - {*reader.reads}) > 1:
        return
    trial = Unit(-1, shape=reader.shape, folded=reader.folded, where=dict(reader.where))
    for one in chain:
        place = fusion._place_in(one, fusion.rules[one], trial)
        if place is None:
            return
        trial.where[one] = place
    trial.nodes = sorted([*reader.nodes, *chain], key=fusion.position.__getitem__)
    if all(fusion._still_fits(one, trial) for one in trial.nodes):
        _move(fusion, chain, reader, trial, loaded)


def _move(fusion: Fusion, chain: list[Node], reader: Unit, trial: Unit, loaded: list[Node]) -> None:
    unit = fusion.unit_of(chain[0])
    for one in chain:
        unit.nodes.remove(one)
        del unit.where[one]
        fusion.home[one] = reader
        reader.reads.pop(root(one), None)
    reader.nodes, reader.where = trial.nodes, trial.where
    for operand in loaded:
        reader.reads.setdefault(root(operand), size_in_bytes(operand.meta))
