"""Numbers in Triton text: a literal where a number is known, else an argument of the kernel at run time.

A kernel serves all sizes that its symbols allow: each expression (`ir.symbolic.expr`) that its text needs is one argument,
"i64", or "i32" where the ranges of the symbols say that it fits, or "fp64". `Numbers` collects them while the text is
written; `bound` gives the kernel of one call. What is decided at compile time about numbers that are not known is here
as well: `weight` for choices of cost, `most` for what has to be right for every size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from ...ir.symbolic.expr import Expr, Sum, bounds_of, evaluate, hint_of
from ..loops.extents import NOMINAL
from . import dialect as triton_dialect

if TYPE_CHECKING:
    from .renderer import TritonKernel

DIVISOR = 16  # what Triton is told of an argument that is a multiple of it
INT32 = 2**31
_DTYPES = {"i64": torch.int64, "i32": torch.int32, "fp64": torch.float64}


class Numbers:
    """The expressions that a kernel takes, in the order in which its text came to need them."""

    def __init__(self) -> None:
        self.names: dict[Expr, str] = {}

    def text(self, value: Any) -> str:
        """A literal, or the name of an argument."""
        if isinstance(value, Expr):
            return self.names.setdefault(value, f"n{len(self.names)}")
        return str(value)

    def scalar(self, value: Any, dtype: torch.dtype) -> str:
        """The expression of a `number` value: converted as torch does a Python scalar."""
        if not isinstance(value, Expr):
            return triton_dialect.const(value, dtype)
        return triton_dialect.cast(self.text(value), _DTYPES[kind_of(value)], dtype)

    @property
    def arguments(self) -> tuple[tuple[str, str], ...]:
        """(name, type) of each."""
        return tuple((name, kind_of(value)) for value, name in self.names.items())

    @property
    def aligned(self) -> tuple[int, ...]:
        """Which of them are multiples of 16, whatever the sizes."""
        return tuple(at for at, value in enumerate(self.names) if is_multiple(value, DIVISOR))


def kind_of(value: Expr) -> str:
    """The type of an argument."""
    if value.kind == "float":
        return "fp64"
    low, high = bounds_of(value)
    return "i32" if low >= -INT32 and high < INT32 else "i64"


def is_multiple(value: Any, of: int) -> bool:
    """Is a number a multiple of another one for every value of the symbols?"""
    if isinstance(value, Sum):
        return all(coefficient % of == 0 for coefficient, _factors in value.terms)
    return not isinstance(value, Expr) and value % of == 0


def weight(value: Any) -> int:
    """What a size counts as where only speed hangs on it: the one seen at capture, but not less than is usual, for a
    first call may be a small one."""
    return (
        int(min(max(NOMINAL, hint_of(value)), most(value)))
        if isinstance(value, Expr)
        else int(value)
    )


def most(value: Any) -> float:
    """The largest that a number can be; infinity where nothing says so."""
    return bounds_of(value)[1]


def blocks(extent: Any, block: int) -> Any:
    """How many blocks hold so many elements."""
    return extent if block == 1 else (extent + (block - 1)) // block


def bound(kernel: TritonKernel, values: Mapping[str, Any]) -> TritonKernel:
    """The kernel of a call in which the symbols have these values, by name: its numbers and its grid are plain."""
    return replace(
        kernel,
        numbers=evaluate(kernel.numbers, values),
        programs=evaluate(kernel.programs, values),
    )
