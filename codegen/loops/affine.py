"""Affine forms: the address of a tensor's element in the iteration space of a nest, and views as
maps between such forms.

A *form* is an `Index` over the axes of a nest. A *map* of a tensor is a tuple of forms, one per
dimension: the element that the iteration reads or writes. `through_view` turns the map of a view's
result into the map of its base, where that stays affine. `address` turns a map into an element
offset for given strides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...ir.graph.nodes import Node
from ...ir.symbolic.expr import decided, greatest, is_symbolic, least
from .extents import estimate, surely
from .loop_nest import Index

Map = tuple[Index, ...]
aten = torch.ops.aten


def zero(n_axes: int) -> Index:
    return Index((0,) * n_axes)


def axis_form(axis: int, n_axes: int) -> Index:
    """The form that equals one axis."""
    return Index(tuple(int(a == axis) for a in range(n_axes)))


def scaled(form: Index, factor: int, shift: int = 0) -> Index:
    terms = tuple((value, times * factor) for value, times in form.terms)
    return Index(tuple(s * factor for s in form.strides), form.offset * factor + shift, terms)


def added(forms: Sequence[Index], n_axes: int) -> Index:
    total = [0] * n_axes
    for form in forms:
        total = [a + b for a, b in zip(total, form.strides, strict=True)]
    terms = tuple(term for form in forms for term in form.terms if term[1] != 0)
    return Index(tuple(total), sum(form.offset for form in forms), terms)


def address(where: Map, stride: Sequence[int], offset: int, n_axes: int) -> Index:
    """The element offset of the mapped element in a tensor with these strides."""
    forms = [scaled(form, step) for form, step in zip(where, stride, strict=True)]
    found = added(forms, n_axes)
    return Index(found.strides, found.offset + offset, found.terms)


SOMEWHERE = -1  # the placeholder for the number of a value that is not made yet


def at_value(number: int, n_axes: int) -> Index:
    """The form that equals an int64 value."""
    return Index((0,) * n_axes, 0, ((number, 1),))


def broadcast(where: Map, shape: Sequence[int], operand: Sequence[int]) -> Map:
    """The map of an operand of shape `operand` that is broadcast to the shape `shape` with the map
    `where`.
    """
    n_axes = len(where[0].strides) if where else 0
    lead = len(shape) - len(operand)
    return tuple(
        zero(n_axes) if size == 1 else where[lead + dim] for dim, size in enumerate(operand)
    )


def clean(where: Map, shape: Sequence[int], axes: Sequence[int]) -> Map:
    """The same map without what has no effect: axes of size 1 and dimensions of size 1. An index
    that is read stays: its check has an effect."""
    return tuple(
        zero(len(axes))
        if size == 1 and form.offset == 0 and not form.terms
        else Index(
            tuple([s if axes[a] != 1 else 0 for a, s in enumerate(form.strides)]),
            form.offset,
            form.terms,
        )
        for form, size in zip(where, shape, strict=True)
    )


def through_view(node: Node, where: Map, axes: Sequence[int]) -> Map | None:
    """The map of the base (`node.args[0]`) of a view node whose map is `where`; None if it is not
    affine.
    """
    rule = _VIEWS.get(node.target)
    return None if rule is None else rule(node, where, axes)


def is_view(node: Node) -> bool:
    """Whether `through_view` has a rule for this node."""
    return node.op == "call" and node.target in _VIEWS


def always_affine(node: Node) -> bool:
    """Whether the node is a view that `through_view` can follow from any map."""
    plain = node.target in _VIEWS and node.target not in _RESHAPES
    return node.op == "call" and plain and not is_symbolic(node.args[1:])


# --- the views ---


def _dim(dim: int, rank: int) -> int:
    return dim + rank if dim < 0 else dim


def _same(node: Node, where: Map, axes: Sequence[int]) -> Map | None:
    return where


def _permute(node: Node, where: Map, axes: Sequence[int]) -> Map | None:
    base: list[Any] = [None] * len(where)
    for position, dim in enumerate(node.args[1]):
        base[_dim(dim, len(where))] = where[position]
    return tuple(base)


def _transpose(node: Node, where: Map, axes: Sequence[int]) -> Map | None:
    rank = len(where)
    if rank == 0:
        return where
    first, second = (_dim(dim, rank) for dim in node.args[1:3])
    base = list(where)
    base[first], base[second] = base[second], base[first]
    return tuple(base)


def _t(node: Node, where: Map, axes: Sequence[int]) -> Map | None:
    return where[::-1]


def _expand(node: Node, where: Map, axes: Sequence[int]) -> Map | None:
    shape = node.args[0].meta.shape
    lead = len(where) - len(shape)
    expanded = node.meta.shape
    return tuple(
        zero(len(axes)) if size == 1 and expanded[lead + dim] != 1 else where[lead + dim]
        for dim, size in enumerate(shape)
    )


def _slice(node: Node, where: Map, axes: Sequence[int]) -> Map | None:
    rank = len(where)
    arguments = (*node.args[1:], *(None,) * 4)
    dim = _dim(arguments[0] or 0, rank)
    size = node.args[0].meta.shape[dim]
    start = _from_front(0 if arguments[1] is None else arguments[1], size)
    if start is None:
        return None
    start = least(greatest(start, 0), size)
    step = 1 if arguments[3] is None else arguments[3]
    base = list(where)
    base[dim] = scaled(base[dim], step, start)
    return tuple(base)


def _from_front(place: Any, size: Any) -> Any:
    """A position, which may be counted from the end, counted from the front; None if its sign is
    not known.
    """
    behind = decided("<", place, 0)
    return None if behind is None else place + size if behind else place


def _select(node: Node, where: Map, axes: Sequence[int]) -> Map | None:
    dim, index = node.args[1:3]
    shape = node.args[0].meta.shape
    dim = _dim(dim, len(shape))
    index = _from_front(index, shape[dim])
    return None if index is None else (*where[:dim], Index((0,) * len(axes), index), *where[dim:])


def _reshape(node: Node, where: Map, axes: Sequence[int]) -> Map | None:
    """The map through a reshape, by runs of dimensions with equal products: a run of new dimensions
    is merged by multiplication, then split into the old ones where the form allows it.
    """
    old, new = node.args[0].meta.shape, node.meta.shape
    if 0 in new:
        return None
    base: list[Index] = []
    at = 0
    position = 0
    while position < len(old):
        found = _run(old[position:], new[at:])
        if found is None:
            return None
        length, taken = found
        run = range(position, position + length)
        flat = added(
            [scaled(where[at + k], math.prod(new[at + k + 1 : at + taken])) for k in range(taken)],
            len(axes),
        )
        parts = _split(flat, [old[dim] for dim in run], axes)
        if parts is None:
            return None
        base.extend(parts)
        position += length
        at += taken
    return tuple(base)


def _run(old: Sequence[Any], new: Sequence[Any]) -> tuple[int, int] | None:
    """How many leading dimensions of the old and of the new shape have the same product."""
    goal, product = old[0], 1
    length, taken = 1, 0
    while product != goal or (taken == 0 and new):
        smaller = surely("<", product, goal) or estimate(product) <= estimate(goal)
        if taken < len(new) and (smaller or length == len(old)):
            product = product * new[taken]
            taken += 1
        elif length < len(old):
            goal = goal * old[length]
            length += 1
        else:
            return None
    return length, taken


def _split(form: Index, sizes: list[int], axes: Sequence[int]) -> list[Index] | None:
    """The row-major coordinates of a flat form; None if one of them would not be affine."""
    if form.terms and sum(size != 1 for size in sizes) > 1:
        return None
    found: list[Index] = []
    for position, size in enumerate(sizes):
        below = math.prod(sizes[position + 1 :])
        if size == 1:
            found.append(zero(len(axes)))
            continue
        if position == len(sizes) - 1 or below == 1:
            found.append(form)
            form = zero(len(axes))
            continue
        high = Index(
            tuple(s // below if s % below == 0 else 0 for s in form.strides), form.offset // below
        )
        low = Index(tuple(0 if s % below == 0 else s for s in form.strides), form.offset % below)
        reach = low.offset + sum(s * (n - 1) for s, n in zip(low.strides, axes, strict=True))
        if not surely("<", reach, below) or not all(surely(">=", s, 0) for s in low.strides):
            return None
        found.append(high)
        form = low
    return found


_VIEWS: dict[Any, Callable[[Node, Map, Sequence[int]], Map | None]] = {
    aten.alias.default: _same,
    aten.detach.default: _same,
    aten.permute.default: _permute,
    aten.transpose.int: _transpose,
    aten.t.default: _t,
    aten.numpy_T.default: _t,
    aten.expand.default: _expand,
    aten.slice.Tensor: _slice,
    aten.select.int: _select,
    aten.view.default: _reshape,
    aten._unsafe_view.default: _reshape,
    aten._reshape_alias.default: _reshape,
    aten.unsqueeze.default: _reshape,
    aten.squeeze.default: _reshape,
    aten.squeeze.dim: _reshape,
    aten.squeeze.dims: _reshape,
}
_RESHAPES = frozenset({aten.view.default, aten._unsafe_view.default, aten._reshape_alias.default})
# Views whose elements are those of the base in the same row-major order.
FLAT = _RESHAPES | {
    aten.alias.default, aten.detach.default, aten.unsqueeze.default, aten.squeeze.default,
    aten.squeeze.dim, aten.squeeze.dims,
}  # fmt: skip


def joined(where: Map, shape: tuple[Any, ...], goal: tuple[Any, ...]) -> list[Map]:
    """The map for a shape that merges neighbouring dimensions; each merged dimension gets one form.
    Empty if `goal` is no such shape.
    """
    if len(goal) >= len(shape):
        return []
    found: list[Any] = []
    left = list(zip(where, shape, strict=True))
    for size in goal:
        form, reached = left.pop(0) if left else (None, None)
        while form is not None and reached != size and left:
            more, length = left.pop(0)
            form = added([scaled(form, length), more], len(form.strides))
            reached = reached * length
        if form is None or reached != size:
            return []
        found.append(form)
    return [] if left else [tuple(found)]


def reshaped(where: Map, shape: tuple[Any, ...], goal: tuple[Any, ...]) -> list[Map]:
    """The map for a shape that differs only in dimensions of size 1; empty for any other shape."""
    if shape == goal:
        return [where]
    forms = [form for form, size in zip(where, shape, strict=True) if size != 1]
    if not forms or [size for size in shape if size != 1] != [size for size in goal if size != 1]:
        return []
    nothing = zero(len(forms[0].strides))
    return [tuple(nothing if size == 1 else forms.pop(0) for size in goal)]
