"""Lowering of gathers: elements read at positions given by other tensors.

The operand that is read this way is `far`: it is in memory. An index is checked when it is read
(`Builder.checked`), so that the kernel never reads out of range. If a check fails, the program runs
ATen's operators to raise eager's exception (`codegen.schedule.fallback`). Indices that the sizes
prove to be in range are not checked.
"""

from __future__ import annotations

from typing import Any

import torch

from ...ir.graph.effects import operands
from ...ir.graph.layout import broadcast
from ...ir.graph.nodes import Meta, Node
from ...ir.symbolic.expr import is_symbolic
from ..loops import affine
from ..loops.affine import Map
from ..loops.extents import positive
from .builder import At, Scalar, fill, first_operand

aten = torch.ops.aten
INTEGERS = (torch.int64, torch.int32)


def dim_of(node: Node) -> int:
    """The dimension that the indices are positions of."""
    return int(node.args[1]) % len(node.args[0].meta.shape)


def position(at: At, index: Node, where: Map, low: Any, high: Any) -> Scalar:
    """A checked position; one below zero counts from the end."""
    found = at.full(index, where).to(torch.int64).checked(low, high)
    if low == 0 or at.builder.bounds(found.number)[0] >= 0:
        return found
    zero, length = found.const(0), found.const(high)
    return (found < zero).where(found + length, found)


def moved(at: At, dim: int, index: Scalar) -> Map:
    """The map of the node with one coordinate replaced by an index."""
    return (*at.where[:dim], at.place(index), *at.where[dim + 1 :])


# --- embedding, index_select, gather: no negative indices ---


def _embedding(at: At) -> Scalar:
    weight, indices = at.arg(0), at.arg(1)
    row = position(at, indices, at.where[:-1], 0, weight.meta.shape[0])
    return at.fetch(weight, (at.place(row), at.where[-1]))


def _embedding_near(node: Node, where: Map) -> list[tuple[Node, Map]]:
    return [(node.args[1], where[:-1])]


def _readable(node: Node) -> bool:
    """Whether there is something to read, and the indices are integers."""
    source, index = node.args[0], node.args[1 if node.target is aten.embedding.default else 2]
    return (
        bool(source.meta.shape)
        and positive(source.meta.shape)
        and positive(node.meta.shape)
        and index.meta.dtype in INTEGERS
        and not is_symbolic(node.args)
    )


def _select_place(node: Node, where: Map) -> Map:
    """The map of the index of index_select and gather."""
    if node.target is aten.gather.default:
        return where
    return (where[dim_of(node)],) if node.args[2].meta.shape else ()


def _along(at: At) -> Scalar:
    """index_select and gather: one coordinate comes from the index."""
    source, dim = at.arg(0), dim_of(at.node)
    where = _select_place(at.node, at.where)
    return at.fetch(
        source, moved(at, dim, position(at, at.arg(2), where, 0, source.meta.shape[dim]))
    )


def _along_near(node: Node, where: Map) -> list[tuple[Node, Map]]:
    return [(node.args[2], _select_place(node, where))]


def _along_when(node: Node) -> bool:
    if not _readable(node):
        return False
    same_rank = len(node.args[2].meta.shape) == len(node.args[0].meta.shape)
    return same_rank if node.target is aten.gather.default else len(node.args[2].meta.shape) <= 1


# --- one_hot: the index is compared with each class, and must be a class ---


def _one_hot(at: At) -> Scalar:
    index, count = at.arg(0), at.arg(1)
    label = at.fetch(index, at.where[:-1]).to(torch.int64).checked(0, count)
    return label == at.index(at.where[-1])


def _one_hot_when(node: Node) -> bool:
    whole = node.args[0].meta.dtype == torch.int64 and not is_symbolic(node.meta.shape)
    return whole and positive(node.meta.shape)


# --- x[i, :, j]: integers from -size on, several of them broadcast ---


def indices_of(node: Node) -> list[Any]:
    """An index or None for each dimension of the first operand."""
    given = list(node.args[1])
    return given + [None] * (len(node.args[0].meta.shape) - len(given))


def lead_of(node: Node) -> int:
    """The first of the dimensions that the indices' common shape has."""
    places = [dim for dim, index in enumerate(node.args[1]) if index is not None]
    return places[0] if places == list(range(places[0], places[-1] + 1)) else 0


def picked_shape(node: Node) -> tuple[Any, ...]:
    """The indices' common shape."""
    return broadcast(*(index.meta.shape for index in node.args[1] if index is not None))


def index_maps(node: Node, where: Map) -> list[tuple[Node, Map]]:
    """The map of each index, given that of the picked elements."""
    shape, lead = picked_shape(node), lead_of(node)
    picked = where[lead : lead + len(shape)]
    return [
        (index, affine.broadcast(picked, shape, index.meta.shape))
        for index in node.args[1]
        if index is not None
    ]


def picked_map(at: At) -> Map:
    """The map of the first operand: a checked coordinate for each index, the others as they are."""
    lead, maps = lead_of(at.node), iter(index_maps(at.node, at.where))
    kept = iter((*at.where[:lead], *at.where[lead + len(picked_shape(at.node)) :]))
    return tuple(
        next(kept) if index is None else at.place(position(at, *next(maps), -size, size))
        for index, size in zip(indices_of(at.node), at.arg(0).meta.shape, strict=True)
    )


def _advanced_when(node: Node) -> bool:
    given = [index for index in node.args[1] if index is not None]
    sizes = (node.args[0].meta.shape, node.meta.shape, [index.meta.shape for index in given])
    return (
        bool(given)
        and not is_symbolic(sizes)
        and positive(node.args[0].meta.shape)
        and all(index.meta.dtype in INTEGERS for index in given)
        and not any(other is node.args[0] for other in operands(node.args[1]))
    )


# --- negative log likelihood, one value per row; ir.passes.losses makes its sums ---


def _nll(at: At) -> Scalar:
    x, target, weight, _reduction, ignored = (at.arg(i) for i in range(5))
    given = at.full(target, at.where).to(torch.int64)
    counts = given != ignored
    label = at.place(counts.where(given, 0).checked(0, x.meta.shape[1]))
    value = -at.fetch(x, (at.where[0], label)).to(at.math)
    if weight is not None:
        value = value * at.fetch(weight, (label,)).to(at.math)
    return counts.where(value, 0.0)


def _nll_far(node: Node) -> tuple[Node, ...]:
    return tuple(one for one in (node.args[0], node.args[2]) if one is not None)


def _nll_near(node: Node, where: Map) -> list[tuple[Node, Map]]:
    return [(node.args[1], where)]


def _nll_when(node: Node) -> bool:
    x, target, weight, reduction, _ignored = node.args
    plain = weight is None or weight.meta.dtype == x.meta.dtype
    return (
        reduction == 0
        and len(x.meta.shape) == 2
        and positive(x.meta.shape)
        and isinstance(node.meta[0], Meta)
        and target.meta.dtype == torch.int64
        # Narrow elements are exact without weights.
        and (
            x.meta.dtype in (torch.float32, torch.float64)
            or (x.meta.dtype.is_floating_point and weight is None)
        )
        and plain
    )


fill(
    _readable, {aten.embedding.default: _embedding},
    far=first_operand, near=_embedding_near, alone=False,
)  # fmt: skip
fill(
    _along_when, {aten.index_select.default: _along},
    far=first_operand, near=_along_near, alone=False,
)  # fmt: skip
fill(_along_when, {aten.gather.default: _along}, far=first_operand, near=_along_near)
fill(_one_hot_when, {aten.one_hot.default: _one_hot}, far=first_operand)
fill(
    _advanced_when,
    {(aten.index.Tensor, aten._unsafe_index.Tensor): lambda at: at.fetch(at.arg(0), picked_map(at))},
    far=first_operand, near=index_maps,
)  # fmt: skip
fill(_nll_when, {aten.nll_loss_forward.default: _nll}, far=_nll_far, near=_nll_near, alone=False)
