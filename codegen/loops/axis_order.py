"""Axis order: put the axes of a nest with reductions into the order of the memory that it reads.

In: a nest as `nest_builder` makes it, with its axes in the order of dimensions. Out: the same nest
with its outer axes and its inner axes reordered, so that most loads go from one neighbour to the
next. The sum of a whole transposed matrix, for example, becomes the sum over its memory. The result
of a reduction depends on the order only for positions (argmax) and for the first of several zeros,
which count in row-major order: such reductions keep their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from . import loop_nest
from .extents import estimate
from .loop_nest import Index, LoopNest


def in_memory(nest: LoopNest) -> LoopNest:
    """The nest with its axes reordered; outer and inner axes are not mixed."""
    if not nest.has_reduction:
        return nest
    n_outer, n_inner = len(nest.outer), len(nest.inner)
    places = any(v.op == "reduce" and v.attr in loop_nest.OF_PLACES for v in nest.values)
    walked = [index for index in loop_nest.indices(nest) if nest.moves_inner(index)]
    inner = list(range(n_outer, n_outer + n_inner))
    if not places:
        inner = _best(inner, walked, nest)
    outer = _best(list(range(n_outer)), walked, nest)
    order = [*outer, *inner]
    return nest if order == sorted(order) else permuted(nest, order)


def _best(axes: list[int], indices: Sequence[Index], nest: LoopNest) -> list[int]:
    """The order of these axes in which most indices rise in small steps."""
    sizes = nest.outer + nest.inner
    moving = [axis for axis in axes if sizes[axis] != 1]
    if len(moving) < 2:
        return axes

    def steps(index: Index) -> tuple[int, ...]:
        return tuple(abs(estimate(index.strides[axis])) for axis in axes)

    def falls(order: Sequence[int], step: dict[int, int]) -> bool:
        met = [step[axis] for axis in order if step[axis] and sizes[axis] != 1]
        return met == sorted(met, reverse=True)

    found = [dict(zip(axes, steps(index), strict=True)) for index in indices]
    orders = [axes]
    orders += [sorted(axes, key=step.__getitem__, reverse=True) for step in found]
    return max(orders, key=lambda order: sum(falls(order, step) for step in found))


def permuted(nest: LoopNest, order: list[int]) -> LoopNest:
    """The nest with its axes in this order; the number of outer axes does not change."""
    sizes = [(nest.outer + nest.inner)[axis] for axis in order]

    def moved(index: Index) -> Index:
        return replace(index, strides=tuple(index.strides[axis] for axis in order))

    return loop_nest.over(nest, sizes[: len(nest.outer)], sizes[len(nest.outer) :], moved)
