"""Tensors from outside with symbolic sizes: which dimensions are open, and what their strides are.

In: a tensor, its TensorSpec and its Source. Out: the spec with open places, and the Meta with expressions in them.
A stride that is the product of the sizes inside of it, as in a tensor without gaps, stays that product, by a guard.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from ...ir.graph.nodes import Meta
from ...ir.symbolic.expr import Expr, hint_of
from ...runtime.guards.rows import TensorSpec
from ...runtime.guards.sources import Source
from .symbolic_numbers import with_where

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

MOST = 1 << 40  # elements along one dimension


def open_sizes(
    m: Machine, spec: TensorSpec, value: torch.Tensor, source: Source
) -> tuple[TensorSpec, Meta | None]:
    """See the module's docstring; the spec as it is and None where no size of it varies."""
    dims = m.varied.sizes(source, value)
    loose = m.varied.strides(source, value.dim())
    if not dims and not loose:
        return spec, None
    facts = m.facts
    shape: list[Any] = [
        facts.symbol("int", size, ("size", source, dim), 2, MOST) if dim in dims else size
        for dim, size in enumerate(value.shape)
    ]
    stride = _strides(m, source, shape, tuple(value.stride()), loose)
    meta = Meta(tuple(shape), stride, value.dtype, value.device, value.storage_offset())
    opened = replace(
        spec,
        shape=tuple(None if isinstance(size, Expr) else size for size in shape),
        stride=tuple(None if isinstance(step, Expr) else step for step in stride),
    )
    return opened, meta


def _strides(
    m: Machine, source: Source, shape: list[Any], real: tuple[int, ...], loose: set[int]
) -> tuple[Any, ...]:
    """The strides: the innermost dimension first, each the extent of what is inside of it where that is so."""
    facts, found = with_where(m), list[Any](real)
    extent: Any = 1
    for dim in sorted(range(len(real)), key=lambda d: (real[d], hint_of(shape[d]), -d)):
        if isinstance(extent, Expr) and real[dim] == extent.hint:
            step = facts.symbol("int", real[dim], ("stride", source, dim), 0, MOST)
            facts.ask("==", step, extent)
            found[dim] = facts.form(step)
        elif dim in loose and real[dim] > 1 and real[dim] != hint_of(extent):
            found[dim] = facts.symbol("int", real[dim], ("stride", source, dim), 0, MOST)
            facts.ask(">=", found[dim], 2)
        extent = found[dim] * shape[dim]
    return tuple(found)
