"""The values that must be in memory, because something outside their own kernel reads them."""

from __future__ import annotations

from ...ir.graph.effects import reads
from ...ir.graph.nodes import Meta, Node
from ...ir.ops.may_raise import may_raise
from ..analysis.dataflow import Flow, is_plain_view
from ..fusion.fuse import Fusion, Unit
from ..lower.builder import scatters


def wanted_in_memory(flow: Flow, fusion: Fusion) -> set[Node]:
    """The values that steps outside of their own kernel need in memory."""
    wanted = {fusion.source(node) for node in flow.graph.outputs}
    # An operator with several results has no result of its own to store: only its arguments can
    # make it fail.
    wanted |= {
        node
        for node in fusion.rules
        if may_raise(node) and type(node.meta) is Meta and _unread(node, flow, fusion)
    }
    copied: list[tuple[Node, Unit, bool]] = []
    moved: set[tuple[Node, int]] = set()
    seen: set[tuple[Node, Unit, bool]] = set()

    def need(operand: Node, unit: Unit, far: bool) -> None:
        source = fusion.source(operand)
        if source not in fusion.home or (fusion._inlined(source) and unit.is_kernel):
            return
        if unit.is_kernel and fusion.unit_of(source) is unit:
            if far and (source, unit.number) not in moved:  # computed again where it is read
                moved.add((source, unit.number))
                for other in reads(source):
                    need(other, unit, True)
            return
        if fusion.copied(operand, unit, far):
            if (source, unit, far) not in seen:
                seen.add((source, unit, far))
                copied.append((source, unit, far))
        else:
            wanted.add(source)

    for node in flow.nodes:
        if node.op != "get" and not is_plain_view(node) and not fusion.runs_elsewhere(node):
            far = fusion.far(node)
            for operand in flow.reads(node):
                if (
                    operand in far
                    and scatters(node)
                    and not fusion._inlined(fusion.source(operand))
                ):
                    if fusion.source(operand) in fusion.home:
                        wanted.add(fusion.source(operand))  # a copy of its memory is made
                    continue
                need(operand, fusion.unit_of(node), operand in far)
    while copied:  # the operands of a copied value are needed instead of it
        node, unit, moves = copied.pop()
        if node not in wanted:
            for operand in reads(node):
                need(operand, unit, moves)
    return wanted


def _unread(node: Node, flow: Flow, fusion: Fusion) -> bool:
    """Whether nothing computes with a node's elements: no other reader would make it run."""
    users = flow.users.get(node, ())
    return not any(is_plain_view(user) or not fusion._inlined(user) for user in users)
