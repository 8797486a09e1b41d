"""Sums over rows in which one element at most is not zero.

The backward of a cross-entropy sums `where(position == target, g, 0)` over each row. The sum is g,
or 0 if the target is outside the row: `known` puts that in its place, so that a GPU need not walk
the row for it.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from ...ir.dataclass import dataclass
from ...ir.symbolic.expr import product
from ..loops import loop_nest
from ..loops.loop_nest import LoopNest, Value
from ..loops.values import Values, renumbered
from .arguments import weight
from .tiling import PROGRAMS


@dataclass(frozen=True, slots=True)
class _Hot:
    """A row whose element at position `place` is `value`, if all of `conditions` hold: numbers of
    values of the row. `casts`: the types to which it is converted, in order.
    """

    place: int
    value: int
    conditions: tuple[int, ...]
    casts: tuple[torch.dtype, ...]


def known(nest: LoopNest) -> LoopNest:
    """The nest with such sums as values of the row."""
    level = loop_nest.levels(nest)
    hot = {
        number: one_hot
        for number, value in enumerate(nest.values)
        if value.op == "reduce" and value.attr == "sum" and value.dtype.is_floating_point
        if (one_hot := _hot(nest, level, value.args[0])) is not None
    }
    if not hot or len(nest.inner) != 1 or nest.scatters:
        return nest
    made = Values()
    new: list[int] = []
    for number, value in enumerate(nest.values):
        if number not in hot:
            args = tuple([new[arg] for arg in value.args])
            made.values.append(replace(value, args=args))
            new.append(len(made.values) - 1)
            continue
        one = hot[number]
        place, found = new[one.place], new[one.value]
        for dtype in one.casts:
            found = made.cast(found, dtype)
        zero = made.const(0.0, value.dtype)
        first, end = (made.const(bound, made.dtype(place)) for bound in (0, nest.inner[0]))
        inside = made.apply("and", made.apply("ge", place, first), made.apply("lt", place, end))
        for condition in one.conditions:
            inside = made.apply("and", inside, new[condition])
        # a sum of zeros of both signs is 0.0
        new.append(made.apply("add", made.apply("where", inside, found, zero), zero))
    checks = [new[number] for number, one in enumerate(nest.values) if one.op == "checked"]
    roots = [new[store.value] for store in nest.stores]
    values, kept = renumbered(made.values, [*roots, *checks])
    stores = tuple(replace(store, value=kept[new[store.value]]) for store in nest.stores)
    nest = replace(nest, values=values, stores=stores)
    if nest.has_reduction or nest.folds_across or weight(product(nest.outer)) >= PROGRAMS:
        return nest
    return replace(nest, outer=(), inner=nest.outer + nest.inner)  # few rows: element by element


def _hot(nest: LoopNest, level: tuple[bool, ...], number: int) -> _Hot | None:
    values = nest.values
    casts: list[torch.dtype] = []
    while values[number].op == "cast":
        casts.insert(0, values[number].dtype)
        number = values[number].args[0]
    if values[number].op != "where":
        return None
    asked, found, other = values[number].args
    if level[found] or values[other].op != "const" or values[other].attr != 0:
        return None
    places: list[int] = []
    conditions: list[int] = []
    queue = [asked]
    while queue:
        one = queue.pop()
        if not level[one]:
            conditions.append(one)
        elif values[one].op == "and":
            queue += values[one].args
        else:
            place = _place(nest, level, values[one])
            if place is None:
                return None
            places.append(place)
    return _Hot(places[0], found, tuple(conditions), tuple(casts)) if len(places) == 1 else None


def _place(nest: LoopNest, level: tuple[bool, ...], value: Value) -> int | None:
    """The value of the row to which the position in the row is compared."""
    if value.op != "eq":
        return None
    for here, place in (value.args, value.args[::-1]):
        index = nest.values[here]
        if index.op == "index" and not level[place] and index.dtype == torch.int64:
            strides = (*(0 for _size in nest.outer), 1)
            if index.attr.strides == strides and not index.attr.offset:
                return place
    return None
