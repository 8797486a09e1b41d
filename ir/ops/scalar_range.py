"""Whether the Python numbers of a call fit the dtype that the operator converts them to.

In: an operator's plan and its operands. torch raises for `x.fill_(1e300)` on float32; a compiled
program would write infinity, or drop an unused result. So a relation holds a symbolic number to the
dtype's range, and a call whose number does not fit runs in plain Python (`Unsupported`). So do
other calls that torch refuses, or warns about, only in a run. `ir.trace.recorder` calls it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch

from ..errors import Unsupported
from ..graph.nodes import Node
from ..symbolic.expr import ACTIVE, Expr, apply, kind_of

aten = torch.ops.aten

# Operators that convert a number to the dtype itself; others compute with it in double or let it
# become infinite.
_CONVERTING = frozenset(
    {
        "fill",
        "fill_",
        "full",
        "full_like",
        "new_full",
        "masked_fill",
        "masked_fill_",
        "constant_pad_nd",
        "index_fill",
        "index_fill_",
        "scatter",
        "scatter_",
        "clamp",
        "clamp_",
        "clamp_min",
        "clamp_min_",
        "clamp_max",
        "clamp_max_",
        "scalar_tensor",
        "threshold",
        "hardtanh",
        "add",
        "add_",
        "sub",
        "sub_",
        "addcmul",
        "addcdiv",
        "addmm",
        "baddbmm",
        "lerp",
        "lerp_",
        "leaky_relu",
        "arange",
        "linspace",
        "logspace",
    }
)


# The limit of a relation of ints, which is less than float32 can hold.
_WORD = 2**63 - 1


def hold_to_dtype(op: Any, operands: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Raise Unsupported, or record a relation, for each number that may not fit. See the module."""
    _hold_masks_to_bool(op, operands)
    places = _numbers_of(op)
    if not places:
        return
    for value in _at(places, operands, named):
        symbolic = isinstance(value, Expr)
        if not symbolic and type(value) not in (int, float):
            continue
        if not symbolic and -1.0 <= value <= 100.0:
            continue
        dtype = _dtype(op, value, operands, named)
        if dtype is None or _fits(value, dtype) or op._schema.name[6:] not in _CONVERTING:
            continue
        raise Unsupported("scalar", f"{op} converts {value} to {dtype}, which cannot hold it")


_CONTINUOUS = frozenset({"normal_", "uniform_", "exponential_", "cauchy_", "log_normal_"})


def hold_draws_to_dtype(op: Any, operands: tuple[Any, ...]) -> None:
    """Raise Unsupported where an operator draws floats into a tensor of integers: torch finds that
    only in a run, where a handler of the program must see it."""
    if op._schema.name[6:] in _CONTINUOUS and type(operands[0]) is Node:
        dtype = operands[0].meta.dtype
        if not (dtype.is_floating_point or dtype.is_complex):
            raise Unsupported("draws", f"{op} into a tensor of {dtype}")


_PUTS = frozenset({
    aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default,
    aten._unsafe_index_put.default,
})  # fmt: skip


def _hold_masks_to_bool(op: Any, operands: tuple[Any, ...]) -> None:
    """Raise Unsupported for a mask of uint8: torch warns about it, and only in a run."""
    if op in _PUTS and len(operands) > 1 and isinstance(operands[1], list | tuple):
        for one in operands[1]:
            if type(one) is Node and one.meta.dtype is torch.uint8:
                raise Unsupported("warning", "torch warns of a mask of dtype torch.uint8")


@cache
def _numbers_of(op: Any) -> tuple[tuple[int, str], ...]:
    """(position, name) of the arguments that are numbers of any type."""
    return tuple(
        (position, argument.name)
        for position, argument in enumerate(op._schema.arguments)
        if str(argument.type) in ("number", "Optional[number]")
    )


def _at(places: tuple[tuple[int, str], ...], operands: Any, named: Any) -> Iterator[Any]:
    for position, name in places:
        if name in named:
            yield named[name]
        elif position < len(operands):
            yield operands[position]


def _dtype(
    op: Any, value: Any, operands: tuple[Any, ...], named: dict[str, Any]
) -> torch.dtype | None:
    given = named.get("dtype")
    if isinstance(given, torch.dtype):
        return given
    first = operands[0] if operands else None
    if isinstance(first, Node):
        return getattr(first.meta, "dtype", None)
    # An operator with numbers as its only arguments.
    whole = kind_of(value) == "int" and op._schema.name in ("aten::full", "aten::arange")
    return torch.int64 if whole else torch.get_default_dtype()


def _fits(value: Any, dtype: torch.dtype) -> bool:
    """c10's rule: nan and infinities fit any float dtype, negative ints wrap if unsigned."""
    if dtype is torch.bool or dtype.is_complex:
        return True
    if dtype.is_floating_point:
        most: Any = torch.finfo(dtype).max
        if kind_of(value) == "int":
            most = int(most) if not isinstance(value, Expr) else min(int(most), _WORD)
        least = -most
        if type(value) is float and (value != value or abs(value) == float("inf")):
            return True
    else:
        info = torch.iinfo(dtype)
        least, most = (info.min if info.min else -info.max), info.max
        if kind_of(value) == "float":
            least, most = float(least), float(most)
    if not isinstance(value, Expr):
        return bool(least <= value <= most)
    facts = ACTIVE.facts
    if facts is None:
        return True
    if least == -most and kind_of(value) == "float":
        return bool(facts.require("<=", apply("abs", value), most))
    return bool(facts.require("<=", value, most)) and bool(facts.require(">=", value, least))
