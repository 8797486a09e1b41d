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
from ...ir.graph.nodes import Meta, Node
from ...ir.symbolic.expr import is_symbolic
from ..loops import affine
from ..loops.affine import Map
from ..loops.extents import positive
from .builder import RULES, At, Rule, Scalar, opmath

aten = torch.ops.aten
INTEGERS = (torch.int64, torch.int32)


def _first(node: Node) -> tuple[Node, ...]:
    return (node.args[0],)


def _dim(node: Node) -> int:
    return int(node.args[1]) % len(node.args[0].meta.shape)


def _index(at: At, operand: Node, where: Map) -> int:
    return Scalar.to(at.full(operand, where), torch.int64)


# --- embedding, index_select, gather: no negative indices ---


def _embedding(at: At) -> int:
    weight, indices = at.arg(0), at.arg(1)
    rows = weight.meta.shape[0]
    row = Scalar.checked(_index(at, indices, at.where[:-1]), 0, rows)
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
    return (where[_dim(node)],) if node.args[2].meta.shape else ()


def _along(at: At) -> int:
    """index_select and gather: one coordinate comes from the index."""
    source, index, dim = at.arg(0), at.arg(2), _dim(at.node)
    found = _index(at, index, _select_place(at.node, at.where))
    found = Scalar.checked(found, 0, source.meta.shape[dim])
    return at.fetch(source, (*at.where[:dim], at.place(found), *at.where[dim + 1 :]))


def _along_near(node: Node, where: Map) -> list[tuple[Node, Map]]:
    return [(node.args[2], _select_place(node, where))]


def _along_when(node: Node) -> bool:
    if not _readable(node):
        return False
    same_rank = len(node.args[2].meta.shape) == len(node.args[0].meta.shape)
    return same_rank if node.target is aten.gather.default else len(node.args[2].meta.shape) <= 1


# --- one_hot: the index is compared with each class, and must be a class ---


def _one_hot(at: At) -> int:
    index, count = at.arg(0), at.arg(1)
    found = Scalar.to(at.fetch(index, at.where[:-1]), torch.int64)
    label = Scalar.checked(found, 0, count)
    return at.done(at.apply("eq", label, at.index(at.where[-1])))


def _one_hot_when(node: Node) -> bool:
    whole = node.args[0].meta.dtype == torch.int64 and not is_symbolic(node.meta.shape)
    return whole and positive(node.meta.shape)


# --- x[i, :, j]: integers from -size on, several of them broadcast ---


def _parts(node: Node, where: Map) -> tuple[list[Any], Map, Map]:
    """(an index or None for each dimension, the map of the indices' common shape, the map of the
    dimensions kept).
    """
    source, given = node.args[:2]
    indices = [*given, *[None] * (len(source.meta.shape) - len(given))]
    places = [dim for dim, index in enumerate(indices) if index is not None]
    rank = len(node.meta.shape) - sum(index is None for index in indices)
    adjacent = places == list(range(places[0], places[-1] + 1))
    lead = places[0] if adjacent else 0
    return indices, where[lead : lead + rank], (*where[:lead], *where[lead + rank :])


def _advanced(at: At) -> int:
    indices, picked, kept = _parts(at.node, at.where)
    source, rest, place = at.arg(0), list(kept), []
    for index, size in zip(indices, source.meta.shape, strict=True):
        if index is None:
            place.append(rest.pop(0))
            continue
        found = _index(at, index, _picked(index, picked))
        found = Scalar.checked(found, -size, size)
        if at.builder.bounds(found.number)[0] < 0:
            zero, length = at.const(0, torch.int64), at.const(size, torch.int64)
            behind = at.apply("lt", found, zero)
            found = at.apply("where", behind, at.apply("add", found, length), found)
        place.append(at.place(found))
    return at.fetch(source, tuple(place))


def _picked(index: Node, picked: Map) -> Map:
    lead = len(picked) - len(index.meta.shape)
    n_axes = len(picked[0].strides) if picked else 0
    return tuple(
        affine.zero(n_axes) if size == 1 else picked[lead + dim]
        for dim, size in enumerate(index.meta.shape)
    )


def _advanced_near(node: Node, where: Map) -> list[tuple[Node, Map]]:
    indices, picked, _kept = _parts(node, where)
    return [(index, _picked(index, picked)) for index in indices if index is not None]


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


def _nll(at: At) -> int:
    x, target, weight, _reduction, ignored = (at.arg(i) for i in range(5))
    kind = opmath(at.dtype)
    given = _index(at, target, at.where)
    counts = at.apply("ne", given, at.const(ignored, torch.int64))
    used = at.apply("where", counts, given, at.const(0, torch.int64))
    label = at.place(Scalar.checked(used, 0, x.meta.shape[1]))
    value = at.apply("neg", Scalar.to(at.fetch(x, (at.where[0], label)), kind))
    if weight is not None:
        value = at.apply("mul", value, Scalar.to(at.fetch(weight, (label,)), kind))
    return at.done(at.apply("where", counts, value, at.const(0.0, kind)))


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
        and x.meta.dtype in (torch.float32, torch.float64)
        and plain
    )


_ALONG = Rule(_along, when=_along_when, far=_first, near=_along_near)

RULES.update(
    {
        aten.embedding.default: Rule(
            _embedding, when=_readable, far=_first, near=_embedding_near, alone=False
        ),
        aten.index_select.default: Rule(
            _along, when=_along_when, far=_first, near=_along_near, alone=False
        ),
        aten.gather.default: _ALONG,
        aten.one_hot.default: Rule(_one_hot, when=_one_hot_when, far=_first),
        aten.index.Tensor: Rule(_advanced, when=_advanced_when, far=_first, near=_advanced_near),
        aten._unsafe_index.Tensor: Rule(
            _advanced, when=_advanced_when, far=_first, near=_advanced_near
        ),
        aten.nll_loss_forward.default: Rule(
            _nll, when=_nll_when, far=_nll_far, near=_nll_near, alone=False
        ),
    }
)
