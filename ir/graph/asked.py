"""The part of a trace that computes one value, if it is cheap and depends on inputs only.

In: a node and the nodes recorded so far. Out: the nodes that compute the value, in order, with
their writes to memory of the trace's own. None where they cost too much, are random, may read other
memory that the trace wrote to, or contain an operator of another kind than `_KINDS`.
`capture.data_model.value_questions` evaluates such a part before the graph runs, to answer a
condition on tensor data.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import torch

from ..symbolic.expr import hints
from .effects import can_wait, is_fresh, reads, root, written_memory
from .interpreter import Replaced, moved
from .layout import numel
from .nodes import Meta, Node
from .schema import plan_of
from .writers import Writers

MOST_NODES = 48
# Without views, which cost little.
MOST_OPERATORS = 16
# Read and written in all: a longer computation is no cheaper than a graph break.
MOST_ELEMENTS = 1 << 18

_KINDS = frozenset(
    {"pointwise", "view", "create", "copy", "reduction", "scan", "join", "index", "sort"}
)
# Without a row in the op table.
_LOOKUPS = ("isin", "bucketize", "searchsorted")
_CLONE = torch.ops.aten.clone.default
_UNBIND, _SELECT = torch.ops.aten.unbind.int, torch.ops.aten.select.int
_UNSET = ("empty", "new_empty")  # uninitialised memory


def producing(
    node: Node,
    recorded: Sequence[Node],
    written: Collection[int],
    groups: Iterable[Collection[int]],
    writers: Writers,
) -> tuple[list[Node], int] | None:
    """The nodes that compute `node`, inputs included, in order; and how many are no views.

    `written`: positions of the inputs that the trace has written to so far; of those, the nodes
    write copies. `groups`: positions of inputs in one memory. None: see the module.
    """
    found = _behind([node])
    if found is None or not _are_cheap(found):
        return None
    refused = _not_copied(writers, written, groups)
    if _reads_written(found, writers, refused):
        return None
    while added := _writing(found, writers):
        # A part that runs only if a number is not zero has writes of its own.
        last = not writers.has_parts and _comes_last(node, added, recorded)
        more = _behind([*found, *added]) if last else None
        if more is None or not _are_cheap(more) or _reads_written(more, writers, refused):
            return None
        found = more
    order = {one: at for at, one in enumerate(recorded)}
    nodes = _by_row(_over_copies(sorted(found, key=lambda one: order.get(one, -1))))
    computing = _computing(nodes)
    if len(computing) > MOST_OPERATORS or sum(map(_elements, computing)) > MOST_ELEMENTS:
        return None
    return nodes, len(computing)


def _computing(nodes: Iterable[Node]) -> list[Node]:
    return [one for one in nodes if one.op == "call" and not _is_view(one)]


def _are_cheap(nodes: Collection[Node]) -> bool:
    few = len(_computing(nodes)) <= MOST_OPERATORS
    return few and all(_is_cheap(one) for one in nodes if one.op == "call")


def _not_copied(
    writers: Writers, written: Collection[int], groups: Iterable[Collection[int]]
) -> set[Node | int]:
    """The memory of others that the trace has written, and that no copy can replace: positions of
    inputs, and constants."""
    targets = writers.memory()
    inputs = {one for one in targets if one.op == "input"}
    shared = {at for group in groups if len(group) > 1 for at in group}
    refused = set(written) - {one.target for one in inputs if _can_be_copied(one)}
    refused |= shared.intersection(written)
    return {*refused, *(one for one in targets if one.op == "constant")}


def _can_be_copied(memory: Node) -> bool:
    """Whether a clone of an input has its layout, whatever sizes vary."""
    if can_wait(memory):
        return True
    step: Any = 1
    meta = memory.meta
    for size, stride in zip(reversed(meta.shape), reversed(meta.stride), strict=True):
        if getattr(step, "key", step) != getattr(stride, "key", stride):
            return False
        step = step * size
    return type(meta.offset) is int and meta.offset == 0


def _over_copies(nodes: list[Node]) -> list[Node]:
    """The nodes over copies of the inputs that they write."""
    copied = [one for one in written_memory(nodes) if one.op == "input"]
    if not copied:
        return nodes
    now, made = Replaced(), list[Node]()
    for node in nodes:
        made.append(node if node.op == "input" else moved(node, now.__getitem__))
        now[node] = made[-1]
        if node in copied:
            now[node] = Node("call", _CLONE, (node,), {}, node.meta, f"{node.name}_copied")
            made.append(now[node])
    return made


def _by_row(nodes: list[Node]) -> list[Node]:
    """The nodes without `unbind`: a row of many is selected alone."""
    now, made = Replaced(), list[Node]()
    for node in nodes:
        if node.target is _UNBIND:
            continue
        row = node.op == "get" and node.args[0].target is _UNBIND
        if row:
            base, dim = (*node.args[0].args, 0)[:2]
            given = (now[base], node.args[0].kwargs.get("dim", dim), node.target)
            made.append(Node("call", _SELECT, given, {}, node.meta, node.name, node.where))
        else:
            made.append(node if node.op == "input" else moved(node, now.__getitem__))
        now[node] = made[-1]
    return made


def _behind(nodes: list[Node]) -> set[Node] | None:
    found, left = set(nodes), list(nodes)
    while left:
        for operand in reads(left.pop()):
            if operand not in found:
                found.add(operand)
                left.append(operand)
        if len(found) > MOST_NODES:
            return None
    return found


def _reads_written(found: set[Node], writers: Writers, refused: set[Node | int]) -> bool:
    """Whether the trace wrote to memory of others that the value reads, before or after the
    read, so that the value cannot be computed over a copy."""
    roots = {root(one) for one in found}
    if any((one.target if one.op == "input" else one) in refused for one in roots):
        return True
    outside = any(not is_fresh(one) for one in writers.memory())
    return outside and any(one.op == "constant" and one.args != ("own",) for one in roots)


def _writing(found: set[Node], writers: Writers) -> list[Node]:
    """The other nodes that write to memory of these nodes."""
    writing = writers.of_memory({root(one) for one in found})
    return [one for _, one in writing if one not in found]


def _comes_last(node: Node, others: list[Node], recorded: Sequence[Node]) -> bool:
    order = {one: at for at, one in enumerate(recorded)}
    return node in order and all(order[one] < order[node] for one in others)


def _is_view(node: Node) -> bool:
    return plan_of(node.target).kind == "view"


def _is_cheap(node: Node) -> bool:
    if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace != "aten":
        return False
    plan = plan_of(node.target)
    if plan.writes and plan.functional is not None:
        plan = plan_of(plan.functional)
    if plan.random or plan.writes:
        return False
    if plan.row is None:
        return node.target._opname in _LOOKUPS
    if plan.row.kind not in _KINDS:
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
