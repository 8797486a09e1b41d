"""Convolutions of GPUs over memory in the order NHWC.

Tensor cores read channels side by side. For operands in NCHW, cuDNN copies them to NHWC and its
result back at every convolution. This pass gives a convolution copies in NHWC, and its result one
in NCHW, which the rest of the graph expects. The copies fuse with the pointwise operators around
them, so that between two convolutions only NHWC is in memory. A value that has a copy in NHWC is
read from that copy from then on.
"""

from __future__ import annotations

from typing import Any

import torch

from ..graph.effects import uses
from ..graph.layout import is_channels_last, is_contiguous, suggested_format
from ..graph.nodes import Graph, Meta, Node
from .rewriter import Rewriter, with_nodes

aten = torch.ops.aten
_HALVES = (torch.float16, torch.bfloat16)
# Convolution -> the arguments in NHWC, the places of `transposed` and `groups`.
_CONVOLUTIONS: dict[Any, tuple[tuple[int, ...], int, int]] = {
    aten.convolution.default: ((0, 1), 6, 8),
    aten.convolution_backward.default: ((0, 1, 2), 7, 9),
}
_POOL = aten.max_pool2d_with_indices.default


def convolutions_channels_last(graph: Graph) -> Graph:
    """The pass."""
    if not any(map(_pays, graph.nodes)):
        return graph
    walk = _Walk(graph)
    for node in graph.nodes:
        walk.origin = node
        walk.read_copies(node)
        carried = walk.carry(node)
        found = walk.tried(lambda _, one: walk.replaced(one), carried)
        if found is None:
            walk.nodes.append(carried)
            walk.follow(carried)
        walk.put(node, found or carried)
    return with_nodes(graph, walk.nodes, [walk.now[node] for node in graph.outputs])


def _pays(node: Node) -> bool:
    """Whether tensor cores compute this convolution, with operands in NCHW."""
    if node.op != "call" or node.target not in _CONVOLUTIONS:
        return False
    places, transposed, groups = _CONVOLUTIONS[node.target]
    if node.args[transposed] or node.args[groups] != 1:
        return False
    metas: list[Any] = [node.args[at].meta for at in places]
    if any(len(one.shape) != 4 or one.device.type != "cuda" for one in metas):
        return False
    if any(suggested_format(one) is not torch.contiguous_format for one in metas):
        return False
    dtype = metas[0].dtype
    return dtype in _HALVES or (dtype == torch.float32 and torch.backends.cudnn.allow_tf32)


class _Walk(Rewriter):
    """The walk, with the copies in NHWC."""

    def __init__(self, graph: Graph) -> None:
        self._old: dict[Node, Node] = {}  # new node -> the old one
        super().__init__(graph)
        self._copies: dict[Node, Node] = {}  # value -> its copy in NHWC
        self._moved: dict[Node, Node] = {}  # old node that later nodes read from this copy
        self._near: set[Node] = set()  # what pointwise operators make of values in NHWC
        # call of several results -> the same in NHWC; the first is dropped as dead
        self._calls: dict[Node, Node] = {}

    def put(self, node: Node, new: Node) -> None:
        super().put(node, new)
        self._old.setdefault(new, node)

    def read_copies(self, node: Node) -> None:
        """Let an old node read its operands from their copies in NHWC. Each reader has a node of
        its own for that, which its kernel can compute."""
        for operand in uses(node):
            copy = self._moved.get(operand)
            if copy is not None:
                self.put(operand, self._plain(copy))

    def follow(self, node: Node) -> None:
        """Note what a pointwise operator makes of values in NHWC."""
        if (
            node.op == "call"
            and torch.Tag.pointwise in getattr(node.target, "tags", ())
            and any(one in self._near and one.meta.shape == node.meta.shape for one in uses(node))
        ):
            self._near.add(node)

    def replaced(self, node: Node) -> Node | None:
        """The node over memory in NHWC; None if it stays as it is."""
        if node.op == "get" and node.args[0] in self._calls:
            return self._kept(node, self.result(self._calls[node.args[0]], node.target))
        if _pays(node):
            places: tuple[int, ...] = _CONVOLUTIONS[node.target][0]
        elif node.target is _POOL and node.args[0] in self._near:
            places = (0,)
        else:
            return None
        args = [self._last(one) if at in places else one for at, one in enumerate(node.args)]
        call = self.call(node.target, *args, **node.kwargs)
        if isinstance(node.meta, Meta):
            return self._kept(node, call)
        self._calls[node] = call
        return None

    def _kept(self, node: Node, instead: Node) -> Node | None:
        """The result with the metadata of the one that it replaces; None if there is none."""
        if instead.meta == node.meta:
            return instead
        if not is_channels_last(instead.meta.shape, instead.meta.stride):
            return None
        plain = self._plain(instead)
        return plain if plain.meta == node.meta else None

    def _plain(self, last: Node) -> Node:
        """The value in NCHW."""
        plain = self.call(aten.clone.default, last, memory_format=torch.contiguous_format)
        self._copies[plain] = last
        self._near.add(plain)
        return plain

    def _last(self, value: Node) -> Node:
        """The value in NHWC."""
        meta: Any = value.meta
        if is_channels_last(meta.shape, meta.stride):
            return value
        found = self._copies.get(value)
        if found is None:
            found = self.call(aten.clone.default, value, memory_format=torch.channels_last)
            old = self._old[value]
            if self.facts.private(old):  # nothing writes to it later
                self._copies[value] = found
                if is_contiguous(meta.shape, meta.stride):
                    self._moved[old] = found
        return found
