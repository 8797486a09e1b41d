"""Kernels that differ only in their length share one text, which takes the length as an argument.

An optimizer's step has the same loop for each parameter; a text per length would take the compiler
longer than all other work of a first call. In: nests. Out: the same nests, those of a family over
the symbol `LENGTH`, so that their content is equal and `renderer` writes it once; and the numbers
of a member's launch. Results are the same to the bit, since no nest with a reduction is opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ...ir.symbolic.expr import Symbol, is_symbolic, product, substituted, symbols_of
from ..loops import loop_nest
from ..loops.loop_nest import Hints, LoopNest

LENGTH = Symbol("length", "int", 1 << 12, low=1)
LEAST = 4  # lengths from which on a family has one text
SHORT = 64  # elements up to which a kernel has fewer lanes, or no loop


def opened(nests: Sequence[LoopNest]) -> list[LoopNest]:
    """The nests, with `LENGTH` in place of the length of those that belong to a family."""
    families: dict[Any, dict[str, tuple[int, LoopNest]]] = {}
    for nest in nests:
        if _may(nest):
            one = _over(nest)
            families.setdefault(one.content, {})[nest.name] = nest.columns, one
    found = {
        name: one
        for members in families.values()
        if len({length for length, _ in members.values()}) >= LEAST
        for name, (_, one) in members.items()
    }
    return [found.get(nest.name, nest) for nest in nests]


def closed(numbers: Iterable[Any], length: Any) -> tuple[Any, ...]:
    """The numbers of a launch of this length."""
    by = {LENGTH: length}
    return tuple([substituted(n, by) if LENGTH in symbols_of(n) else n for n in numbers])


def _may(nest: LoopNest) -> bool:
    """Whether the nest is one loop over consecutive elements, of known length."""
    plain = not (nest.has_reduction or nest.scatters) and nest.tiled is None
    return (
        plain
        and nest.hints == Hints()
        and not nest.outer
        and len(nest.inner) == 1
        and not is_symbolic(nest.inner)
        and nest.columns > SHORT
        and all(index.strides[0] in (0, 1) for index in loop_nest.indices(nest))
    )


def _over(nest: LoopNest) -> LoopNest:
    inner: Any = (LENGTH,)
    buffers = [
        replace(one, shape=inner, stride=(1,)) if product(one.shape) == nest.columns else one
        for one in nest.buffers
    ]
    return replace(nest, inner=inner, buffers=tuple(buffers))
