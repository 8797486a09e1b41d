"""Cat without a call: the operands are written into their parts of the result.

`joins(graph)` finds each `cat` that is faster this way and returns one copy per operand, with the
layout of that operand's part of the result. A copy is pointwise, so `fuse` takes it into the kernel
that computes the operand, or makes it a kernel of its own if the operand is in memory. `schedule`
allocates the result before the first copy and makes no step for the cat. The result has the strides
that the rule of cat gives it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from ...ir.graph.effects import reads
from ...ir.graph.nodes import Graph, Meta, Node
from ...ir.ops.views import view_strides
from ...ir.symbolic.expr import is_symbolic
from ..analysis.dataflow import is_plain_view
from ..loops.extents import positive
from ..lower.builder import rule_for

MAX_OPERANDS = 32
MAX_LOADED = 4  # the most operands that are in memory: each may become a kernel that copies

aten = torch.ops.aten
Joins = dict[Node, tuple[Node, ...]]


def joins(graph: Graph) -> Joins:
    """For each cat that is done without a call, its copies."""
    cats = [node for node in graph.nodes if node.target is aten.cat.default]
    if not cats:
        return {}
    # results of the graph are in memory anyway
    users: dict[Node, int] = dict.fromkeys(graph.outputs, 3)
    for node in graph.nodes:
        for operand in reads(node):
            users[operand] = users.get(operand, 0) + 1
    found = {cat: _copies(cat) for cat in cats if _gains(cat, users)}
    return {cat: copies for cat, copies in found.items() if copies}


def _gains(cat: Node, users: dict[Node, int]) -> bool:
    """Whether kernels compute some of the operands, for this cat alone or for it and one
    other reader.
    """
    computed = sum(_only_here(one, users) or _here_too(one, users) for one in cat.args[0])
    count = len(cat.args[0])
    return computed > 0 and 1 < count <= MAX_OPERANDS and count - computed <= MAX_LOADED


def _here_too(node: Node, users: dict[Node, int]) -> bool:
    """Whether it is pointwise and one other operator reads it, like a state that the next step of a
    loop takes.

    It is then stored twice, instead of stored, read and stored, and its memory is free before the
    cat.
    """
    while is_plain_view(node) and users[node] == 1:
        node = node.alias  # type: ignore[assignment]
    rule = rule_for(node)
    return users[node] == 2 and rule is not None and rule.kind == "pointwise"


def _only_here(node: Node, users: dict[Node, int]) -> bool:
    while users[node] == 1:
        if not is_plain_view(node):
            rule = rule_for(node)
            return rule is not None and rule.kind != "create"
        node = node.alias  # type: ignore[assignment]
    return False


def _copies(cat: Node) -> tuple[Node, ...]:
    """A copy of each operand with the layout of its part; empty if an operand cannot be copied this
    way.
    """
    whole, operands = cat.meta, cat.args[0]
    rank = len(whole.shape)
    dim = (cat.args[1] if len(cat.args) > 1 else cat.kwargs.get("dim", 0)) % rank
    found: list[Node] = []
    start: Any = 0
    for number, operand in enumerate(operands):
        shape = operand.meta.shape
        if len(shape) != rank or not positive(shape):
            return ()
        offset = start * whole.stride[dim]
        meta = Meta(shape, whole.stride, whole.dtype, whole.device, offset)
        operand, meta = _below_views(operand, meta)
        same = operand.meta.dtype == whole.dtype
        target = aten.clone.default if same else aten._to_copy.default
        kwargs = {} if same else {"dtype": whole.dtype}
        name = f"{cat.name}_part{number}"
        found.append(Node("call", target, (operand,), kwargs, meta, name, cat.where))
        if rule_for(found[-1]) is None:
            return ()
        start = start + shape[dim]
    return tuple(found)


def _below_views(node: Node, meta: Meta) -> tuple[Node, Meta]:
    """The base of a view, and the layout with which the base fills the memory of the view: kernels
    compute a value in its own shape.
    """
    while node.op == "call" and node.target in _BELOW and is_plain_view(node):
        base: Node = node.args[0]
        stride = _BELOW[node.target](node, base.meta.shape, meta)
        if stride is None:
            break
        node, meta = base, replace(meta, shape=base.meta.shape, stride=tuple(stride))
    return node, meta


def _of_unsqueezed(node: Node, shape: Any, meta: Meta) -> Any:
    dim = node.args[1] % len(meta.shape)
    return (*meta.stride[:dim], *meta.stride[dim + 1 :])


def _of_permuted(node: Node, shape: Any, meta: Meta) -> Any:
    order = [dim % len(shape) for dim in node.args[1]]
    return [meta.stride[order.index(dim)] for dim in range(len(shape))]


def _of_transposed(node: Node, shape: Any, meta: Meta) -> Any:
    stride = list(meta.stride)
    one, other = (dim % len(shape) for dim in node.args[1:3])
    stride[one], stride[other] = stride[other], stride[one]
    return stride


def _of_reshaped(node: Node, shape: Any, meta: Meta) -> Any:
    if is_symbolic((shape, meta.shape, meta.stride)):
        return None
    return view_strides(meta.shape, meta.stride, shape)


_BELOW: dict[Any, Callable[[Node, Any, Meta], Any]] = {
    aten.unsqueeze.default: _of_unsqueezed,
    aten.permute.default: _of_permuted,
    aten.transpose.int: _of_transposed,
    aten.t.default: lambda node, shape, meta: meta.stride[::-1],
    aten.view.default: _of_reshaped,
    aten._unsafe_view.default: _of_reshaped,
}
