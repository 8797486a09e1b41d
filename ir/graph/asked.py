"""The part of a trace that computes one value, if it is cheap and depends on inputs only.

In: a node and the nodes recorded so far. Out: the nodes that compute the value, in order. None
where they cost too much, are random, may read memory that the trace wrote to, or contain an
operator of another kind than `_KINDS`. `capture.data_model.value_questions` evaluates such a part
before the graph runs, to answer a condition on tensor data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..symbolic.expr import hints
from .effects import reads, root, writes
from .layout import numel
from .nodes import Meta, Node
from .schema import plan_of

MOST_NODES = 48
# Without views, which cost little.
MOST_OPERATORS = 16
# Read and written in all: a longer computation is no cheaper than a graph break.
MOST_ELEMENTS = 1 << 18

_KINDS = frozenset(
    {"pointwise", "view", "create", "copy", "reduction", "scan", "join", "index", "sort"}
)
_UNSET = ("empty", "new_empty")  # uninitialised memory


def producing(
    node: Node, recorded: Sequence[Node], written: frozenset[int]
) -> tuple[list[Node], int] | None:
    """The nodes that compute `node`, inputs included, in order; and how many are no views.

    `written`: positions of the inputs that the trace has written to so far. None: see the module.
    """
    found = _behind(node)
    if found is None or _reads_written(found, recorded, written):
        return None
    calls = [one for one in found if one.op == "call"]
    computing = [one for one in calls if not _is_view(one)]
    if len(computing) > MOST_OPERATORS or not all(map(_is_cheap, calls)):
        return None
    if sum(map(_elements, computing)) > MOST_ELEMENTS:
        return None
    order = {one: at for at, one in enumerate(recorded)}
    return sorted(found, key=lambda one: order.get(one, -1)), len(computing)


def _behind(node: Node) -> set[Node] | None:
    found, left = {node}, [node]
    while left:
        for operand in reads(left.pop()):
            if operand not in found:
                found.add(operand)
                left.append(operand)
        if len(found) > MOST_NODES:
            return None
    return found


def _reads_written(found: set[Node], recorded: Sequence[Node], written: frozenset[int]) -> bool:
    """Whether the trace wrote to memory that the value reads, before or after the read."""
    roots = {root(one) for one in found}
    if any(one.op == "input" and one.target in written for one in roots):
        return True
    if written and any(one.op == "constant" and one.args != ("own",) for one in roots):
        return True
    return any(root(target) in roots for one in recorded for target in writes(one))


def _is_view(node: Node) -> bool:
    return plan_of(node.target).kind == "view"


def _is_cheap(node: Node) -> bool:
    if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace != "aten":
        return False
    plan = plan_of(node.target)
    if plan.random or plan.row is None or plan.row.kind not in _KINDS or plan.writes:
        return False
    return not node.target._opname.startswith(_UNSET)


def _elements(node: Node) -> int:
    """Elements that an operator reads and writes; indexing reads as many as it returns."""
    row = plan_of(node.target).row
    values = [node] if row is not None and row.kind == "index" else [node, *reads(node)]
    return sum(_size(one.meta) for one in values)


def _size(meta: Any) -> int:
    if isinstance(meta, tuple):
        return sum(map(_size, meta))
    return numel(hints(meta.shape)) if isinstance(meta, Meta) else 0
