"""Tensors from outside with symbolic sizes: which dimensions are symbolic, and their strides.

In: a tensor, its TensorSpec and its Source. Out: the spec with open dimensions, and the Meta with
expressions for them. A stride that equals the product of the inner sizes, as in a dense tensor,
stays that product, by a guard.
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
    """(opened spec, Meta), or (`spec`, None) if no size varies. See the module's docstring."""
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
    """The strides, innermost dimension first; each is the extent inside it if it equals that."""
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


def has_one_element(m: Machine, ghost: Any) -> bool:
    """Whether a tensor certainly has one element."""
    sizes = m.facts.form(ghost._node.meta.shape)
    return all(type(size) is int and size == 1 for size in sizes)
