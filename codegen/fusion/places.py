"""Where the result of an operator can be in a unit: maps over the unit's iteration.

In: the sizes of the iteration, its reduced dimensions (None: none), and the maps of the members.
Out: maps. `codegen.fusion.fuse` asks; it takes the first map that suits all operands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...ir.graph.nodes import Meta, Node
from ..loops import affine
from ..loops.affine import Map
from ..lower.builder import scatters

Sizes = tuple[Any, ...]


def identity(shape: Sizes) -> Map:
    """The map of an element of the iteration itself."""
    return tuple(affine.axis_form(dim, len(shape)) for dim in range(len(shape)))


def row_places(shape: Sizes | None, folded: tuple[int, ...] | None) -> list[tuple[Sizes, Map]]:
    """(shape, map) of row values: with the reduced dimensions kept as 1, and without them."""
    assert shape is not None and folded is not None
    full = identity(shape)
    kept = [dim for dim in range(len(shape)) if dim not in folded]
    zero = affine.zero(len(shape))
    with_ones = tuple(1 if dim in folded else size for dim, size in enumerate(shape))
    return [
        (with_ones, tuple(zero if dim in folded else full[dim] for dim in range(len(full)))),
        (tuple(shape[dim] for dim in kept), tuple(full[dim] for dim in kept)),
    ]


def place_of(shape: Sizes | None, folded: tuple[int, ...] | None, sizes: Sizes, row: bool) -> Map:
    """The map of the result, of these sizes, of a "fold" or "normalize" rule."""
    assert shape is not None
    if not row:
        return identity(shape)
    return next(where for found, where in row_places(shape, folded) if found == sizes)


def places(
    shape: Sizes, folded: tuple[int, ...] | None, members: Mapping[Node, Map], sizes: Sizes
) -> Iterator[Map]:
    """The maps that a pointwise result of these sizes could have, each once."""
    seen: set[Map] = set()
    for where in _all_places(shape, folded, members, sizes):
        if where not in seen:
            seen.add(where)
            yield where


def _all_places(
    shape: Sizes, folded: tuple[int, ...] | None, members: Mapping[Node, Map], sizes: Sizes
) -> Iterator[Map]:
    if sizes == shape:
        yield identity(shape)
    if folded is not None:
        yield from (where for found, where in row_places(shape, folded) if found == sizes)
    for node, where in members.items():
        if isinstance(node.meta, Meta) and not scatters(node):
            yield from affine.reshaped(where, node.meta.shape, sizes) or affine.joined(
                where, node.meta.shape, sizes
            )
