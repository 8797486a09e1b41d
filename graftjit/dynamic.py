"""Marks for sizes that vary between calls.

In: a tensor and dimensions. Out: the same tensor, marked. A function compiled for it takes those
sizes as inputs from its first call on, not only after they have varied.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from .runtime.guards.dynamic_sizes import MARK


def mark_dynamic(tensor: torch.Tensor, dim: int | Iterable[int]) -> None:
    """Mark the size of `tensor` along `dim` (one dimension or several, in torch's numbering) as
    varying.

    Sizes 0 and 1 are specialised all the same, and a mark also applies under `jit(dynamic=False)`.
    Raises TypeError if the argument is not a tensor, and IndexError for a missing dimension.
    """
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"mark_dynamic marks tensors, not {type(tensor).__name__}")
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    rank = tensor.dim()
    for one in dims:
        if not -rank <= one < rank:
            raise IndexError(f"dimension {one} of a tensor with {rank} dimensions")
    known = set(getattr(tensor, MARK, ()))
    setattr(tensor, MARK, tuple(sorted(known | {one % rank for one in dims})))


def mark_all(value: Any) -> None:
    """Mark all sizes of the tensors in a value or in nested builtin containers."""
    if isinstance(value, torch.Tensor):
        mark_dynamic(value, range(value.dim()))
    elif type(value) in (list, tuple):
        for item in value:
            mark_all(item)
    elif type(value) is dict:
        for item in value.values():
            mark_all(item)
