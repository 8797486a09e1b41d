"""Result metadata of operators whose first size data decide, with a symbol for that size.

In: the facts of a trace, and the operator's arguments with a Meta for each tensor. Out: (Meta of
the result, or of all of them; the symbol). `ir.trace.read_numbers` gives the symbol its origin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..graph.layout import contiguous_strides, numel
from ..graph.nodes import Meta
from ..symbolic.expr import Symbol, hint_of, is_symbolic
from ..symbolic.shape_env import Facts

_ORIGIN = ("data",)


def _size(facts: Facts, most: Any, least: int = 0) -> Symbol:
    """A new symbol for a size of at most `most`."""
    known = None if most is None or is_symbolic(most) else most
    hint = 64 if most is None else max(hint_of(most) // 2, least)
    return facts.symbol("int", hint, _ORIGIN, least, known)


def _nonzero(facts: Facts, x: Meta) -> tuple[Any, Symbol]:
    size = _size(facts, numel(x.shape))
    shape = (size, len(x.shape))
    return Meta(shape, (1, size), torch.int64, x.device), size


def _repeats(facts: Facts, repeats: Meta, output_size: Any = None) -> tuple[Any, Symbol]:
    size = _size(facts, None)
    return Meta((size,), (1,), repeats.dtype, repeats.device), size


def _counted(
    facts: Facts, x: Meta, weights: Meta | None = None, minlength: int = 0
) -> tuple[Any, Symbol]:
    size = _size(facts, None, minlength)
    wide = (torch.float32, torch.float64)
    dtype = torch.int64
    if weights is not None:
        dtype = weights.dtype if weights.dtype in wide else torch.float64
    return Meta((size,), (1,), dtype, x.device), size


def _unique(
    facts: Facts, x: Meta, sorted: bool = True, inverse: bool = False, counts: bool = False
) -> tuple[Any, Symbol]:
    """The values, their places in `x`, and how often each occurs."""
    size = _size(facts, numel(x.shape))
    none = Meta((0,), (1,), torch.int64, x.device)
    places = Meta(x.shape, contiguous_strides(x.shape), torch.int64, x.device) if inverse else none
    times = Meta((size,), (1,), torch.int64, x.device) if counts else none
    return (Meta((size,), (1,), x.dtype, x.device), places, times), size


def _consecutive(
    facts: Facts, x: Meta, inverse: bool = False, counts: bool = False, dim: int | None = None
) -> tuple[Any, Symbol]:
    if dim is not None and (len(x.shape), dim) not in ((1, 0), (1, -1)):
        return _slices(facts, x, dim)
    return _unique(facts, x, True, inverse, counts)


def _slices(
    facts: Facts,
    x: Meta,
    dim: int,
    sorted: bool = True,
    inverse: bool = False,
    counts: bool = False,
) -> tuple[Any, Symbol]:
    """The slices in a dimension, their places in `x`, and how often each occurs.

    The processor gives all three in any case (`_unique_dim_cpu_template` in ATen's
    native/Unique.cpp). The dimension is the outermost one in memory.
    """
    dim %= len(x.shape)
    size = _size(facts, x.shape[dim], 1)
    others = (*x.shape[:dim], *x.shape[dim + 1 :])
    stride = [*contiguous_strides(others)]
    stride.insert(dim, numel(others))
    shape = (*x.shape[:dim], size, *x.shape[dim + 1 :])
    places = Meta((x.shape[dim],), (1,), torch.int64, x.device)
    times = Meta((size,), (1,), torch.int64, x.device)
    return (Meta(shape, tuple(stride), x.dtype, x.device), places, times), size


SIZED: dict[str, Callable[..., tuple[Any, Symbol]]] = {
    "aten.nonzero.default": _nonzero,
    "aten.repeat_interleave.Tensor": _repeats,
    "aten.bincount.default": _counted,
    "aten._unique2.default": _unique,
    "aten.unique_dim.default": _slices,
    "aten.unique_consecutive.default": _consecutive,
}
