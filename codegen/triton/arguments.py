"""Numbers in Triton text: a literal if the number is known, else a run-time argument of the kernel.

A kernel serves all sizes that its symbols allow. Each expression (`ir.symbolic.expr`) that its text
needs is one argument: "i64", "i32" if the ranges of the symbols prove that it fits, or "fp64".
`Numbers` collects them while the text is written; `bound` returns the kernel of one call. This file
also decides about unknown numbers at compile time: `weight` for cost, `most` for what must be
correct for every size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from ...ir.symbolic.expr import Expr, Sum, bounds_of, evaluate, hint_of
from ..loops import lines
from ..loops.extents import NOMINAL
from . import dialect

if TYPE_CHECKING:
    from .renderer import TritonKernel

DIVISOR = 16  # Triton gets the hint that an argument is a multiple of this
INT32 = 2**31
_DTYPES = {"i64": torch.int64, "i32": torch.int32, "fp64": torch.float64}


class Numbers(lines.Numbers):
    """The expressions that a kernel takes."""

    def scalar(self, value: Any, dtype: torch.dtype) -> str:
        """The expression of a `number` value: converted as torch converts a Python scalar."""
        if not isinstance(value, Expr):
            return dialect.const(value, dtype)
        return dialect.cast(self.text(value), _DTYPES[kind_of(value)], dtype)

    @property
    def arguments(self) -> tuple[tuple[str, str], ...]:
        """(name, type) of each."""
        return tuple((name, kind_of(value)) for value, name in self.names.items())

    @property
    def aligned(self) -> tuple[int, ...]:
        """The positions of those that are multiples of 16 for all sizes."""
        return tuple(at for at, value in enumerate(self.names) if is_multiple(value, DIVISOR))


def kind_of(value: Expr) -> str:
    """The type of an argument."""
    if value.kind == "float":
        return "fp64"
    low, high = bounds_of(value)
    return "i32" if low >= -INT32 and high < INT32 else "i64"


def is_multiple(value: Any, of: int) -> bool:
    """Whether a number is a multiple of another one for every value of the symbols."""
    if isinstance(value, Sum):
        return all(coefficient % of == 0 for coefficient, _factors in value.terms)
    return not isinstance(value, Expr) and value % of == 0


def weight(value: Any) -> int:
    """The value of a size in cost decisions: that of capture, but at least `NOMINAL`, because a
    first call may be a small one.
    """
    return (
        int(min(max(NOMINAL, hint_of(value)), most(value)))
        if isinstance(value, Expr)
        else int(value)
    )


def most(value: Any) -> float:
    """The upper bound of a number; infinity if none is known."""
    return bounds_of(value)[1]


def blocks(extent: Any, block: int) -> Any:
    """The number of blocks that hold so many elements."""
    return extent if block == 1 else (extent + (block - 1)) // block


def bound(kernel: TritonKernel, values: Mapping[str, Any]) -> TritonKernel:
    """The kernel of a call in which the symbols have these values, by name: its numbers and its
    grid are plain numbers.
    """
    return replace(
        kernel,
        numbers=evaluate(kernel.numbers, values),
        programs=evaluate(kernel.programs, values),
    )
