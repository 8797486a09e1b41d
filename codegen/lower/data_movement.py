"""Lowering of operators that move elements: padding, cat, roll, flip.

They compute nothing: an operand is read from memory (`Rule.far`) at another position. If the result
comes from several operands or partly from none, loads under a mask that is affine in the position
(`inside`) read it; the renderer turns such masks into spans of lanes. Without consumers in the
kernel most of these operators stay ATen steps; they pay if later operators in the kernel read them.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch

from ...ir.graph.nodes import Node
from ...ir.symbolic.expr import is_symbolic
from ..loops import affine
from ..loops.extents import positive
from ..loops.loop_nest import Index
from .builder import At, Scalar, argument, fill, first_operand, no_near

aten = torch.ops.aten
MAX_OPERANDS = 6  # the most operands of a cat that is read by loads under masks


def _zero(at: At) -> Scalar:
    return at.const(False if at.dtype == torch.bool else 0, at.dtype)


# (the coordinate to read at, a form, low, high): it holds where low <= form < high; high None:
# everywhere
Piece = tuple[Index, Index, Any, Any]


def _pieces(at: At, source: Node, choices: list[list[Piece]]) -> Scalar:
    """An element from one of several positions: for each dimension the pieces that its coordinate
    may come from.
    """
    found = _zero(at)
    for chosen in itertools.product(*choices):
        place = tuple(piece[0] for piece in chosen)
        bounds = [(form, low, high) for _at, form, low, high in chosen if high is not None]
        if not bounds:
            return at.fetch(source, place)
        found = at.fetch(source, place, at.inside(*bounds), found)
    return found


def _plain(form: Index) -> list[Piece]:
    return [(form, form, None, None)]


# --- constant padding ---


def _pad_amounts(node: Node) -> list[tuple[Any, Any]]:
    """(before, after) of each dimension."""
    given, rank = node.args[1], len(node.meta.shape)
    pairs = [(given[i], given[i + 1]) for i in range(0, len(given), 2)]
    return [(0, 0)] * (rank - len(pairs)) + pairs[::-1]


def _constant_pad(at: At) -> Scalar:
    source, value = at.arg(0), at.arg(2, "value", 0)
    place, bounds = [], []
    for form, size, (before, after) in zip(
        at.where, source.meta.shape, _pad_amounts(at.node), strict=True
    ):
        place.append(affine.scaled(form, 1, -before))
        if before > 0 or after > 0:
            low = max(before, 0)
            bounds.append((form, low, before + size))
    if not bounds:
        return at.fetch(source, tuple(place))
    number = at.const(bool(value) if at.dtype == torch.bool else value, at.dtype)
    return at.fetch(source, tuple(place), at.inside(*bounds), number)


def _constant_pad_when(node: Node) -> bool:
    value = argument(node, 2, "value", 0)
    dtype = node.meta.dtype
    if is_symbolic((node.args[1:], node.kwargs)) or not positive(node.args[0].meta.shape):
        return False
    if dtype.is_floating_point or dtype == torch.bool:
        return True
    limits = torch.iinfo(dtype)
    return float(value).is_integer() and limits.min <= value <= limits.max


# --- cat ---


def _cat_parts(node: Node) -> tuple[list[Node], int]:
    """The operands that have elements, and the dimension."""
    rank = len(node.meta.shape)
    dim = argument(node, 1, "dim", 0) % max(rank, 1)
    return [one for one in node.args[0] if one.meta.shape != (0,) and 0 not in one.meta.shape], dim


def _cat(at: At) -> Scalar:
    parts, dim = _cat_parts(at.node)
    found, start = _zero(at), 0
    for part in parts:
        form, size = at.where[dim], part.meta.shape[dim]
        place = (*at.where[:dim], affine.scaled(form, 1, -start), *at.where[dim + 1 :])
        found = at.fetch(part, place, at.inside((form, start, start + size)), found)
        start = start + size
    return found


def _cat_when(node: Node) -> bool:
    parts, _dim = _cat_parts(node)
    return 0 < len(parts) <= MAX_OPERANDS and all(
        one.meta.dtype == node.meta.dtype and len(one.meta.shape) == len(node.meta.shape)
        for one in parts
    )


def _cat_far(node: Node) -> tuple[Node, ...]:
    return tuple(dict.fromkeys(node.args[0]))


# --- roll, flip ---


def _roll_amounts(node: Node) -> dict[int, int]:
    """Dimension -> shift, 0 < shift < size."""
    shifts, rank = node.args[1], len(node.meta.shape)
    dims = argument(node, 2, "dims", ())
    found: dict[int, int] = {}
    for shift, dim in zip(shifts, dims or ((0,) if rank == 1 else ()), strict=True):
        size = node.meta.shape[dim % rank]
        found[dim % rank] = (found.get(dim % rank, 0) + shift) % size
    return found


def _roll(at: At) -> Scalar:
    shifts, choices = _roll_amounts(at.node), []
    for dim, (form, size) in enumerate(zip(at.where, at.meta.shape, strict=True)):
        shift = shifts.get(dim, 0)
        if shift == 0:
            choices.append(_plain(form))
            continue
        if at.meta.stride[dim] != 1:
            choices.append(_plain(_wrapped(at, form, size, shift)))
            continue
        near, far = affine.scaled(form, 1, -shift), affine.scaled(form, 1, size - shift)
        choices.append([(far, form, 0, shift), (near, form, shift, size)])
    return _pieces(at, at.arg(0), choices)


def _wrapped(at: At, form: Index, size: int, shift: int) -> Index:
    """(form - shift) % size, by arithmetic: once per row, if the dimension is not that of
    the lanes.
    """
    moved = at.index(affine.scaled(form, 1, -shift))
    return at.place((moved < 0).where(moved + size, moved))


def _roll_when(node: Node) -> bool:
    if is_symbolic((node.args, node.kwargs, node.meta.shape)) or 0 in node.meta.shape:
        return False
    dims = argument(node, 2, "dims", ())
    return bool(node.meta.shape) and (bool(dims) or len(node.meta.shape) == 1)


def _flip(at: At) -> Scalar:
    rank = len(at.where)
    dims = {dim % rank for dim in at.arg(1)}
    return at.fetch(
        at.arg(0),
        tuple(
            affine.scaled(form, -1, size - 1) if dim in dims else form
            for dim, (form, size) in enumerate(zip(at.where, at.meta.shape, strict=True))
        ),
    )


def _has_dimensions(node: Node) -> bool:
    return bool(node.meta.shape) and not is_symbolic(node.args)


# --- reflection and replication ---


def _edge_pad(at: At) -> Scalar:
    """Reflection and replication: the last dimension in three pieces, of which the middle one is
    contiguous; the coordinates of the other dimensions by arithmetic, once per row.
    """
    source, reflects = at.arg(0), "reflection" in at.node.target._opname
    choices: list[list[Piece]] = []
    amounts = _pad_amounts(at.node)
    for form, size, (before, after) in zip(at.where, source.meta.shape, amounts, strict=True):
        if before == 0 and after == 0:
            choices.append(_plain(form))
        elif len(choices) < len(amounts) - 1 or min(before, after) < 0:
            choices.append(_plain(at.place(_edge(at, form, size, before, reflects))))
        else:
            still = affine.scaled(form, 0)
            left = affine.scaled(form, -1, before) if reflects else still
            back = affine.scaled(form, -1, before + 2 * (size - 1))
            right = back if reflects else affine.scaled(still, 1, size - 1)
            middle = affine.scaled(form, 1, -before)
            choices.append([
                (left, form, 0, before),
                (right, form, before + size, before + size + after),
                (middle, form, before, before + size),
            ])  # fmt: skip
    return _pieces(at, source, choices)


def _edge(at: At, form: Index, size: int, before: int, reflects: bool) -> Scalar:
    number = at.index(affine.scaled(form, 1, -before))
    last, zero = number.const(size - 1), number.const(0)
    if not reflects:
        return number.maximum(zero).minimum(last)
    return last - abs(last - abs(number))


def _edge_pad_when(node: Node) -> bool:
    sizes = (node.args, node.args[0].meta.shape)
    return not is_symbolic(sizes) and positive(node.args[0].meta.shape)


_EDGES = (
    aten.reflection_pad1d.default, aten.reflection_pad2d.default, aten.replication_pad1d.default,
    aten.replication_pad2d.default,
)  # fmt: skip
for _op, _build, _when, _far in (
    (aten.constant_pad_nd.default, _constant_pad, _constant_pad_when, first_operand),
    (aten.cat.default, _cat, _cat_when, _cat_far),
    (aten.roll.default, _roll, _roll_when, first_operand),
    (aten.flip.default, _flip, _has_dimensions, first_operand),
    (_EDGES, _edge_pad, _edge_pad_when, first_operand),
):
    fill(_when, {_op: _build}, far=_far, near=no_near, alone=False, moves=True)
