"""The values of a nest while it is made, and nests that are made of the values of others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch

from ...ir.symbolic.expr import Expr
from .loop_nest import Index, LoopNest, Store, Value, reached, with_indices

BOOLEAN = frozenset(("lt", "le", "gt", "ge", "eq", "ne", "isnan", "isinf", "isfinite", "signbit"))


class Values:
    """The list of values of one nest while it is made. Equal values are one value."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self._known: dict[Any, int] = {}

    def add(self, value: Value) -> int:
        key = (
            value.op,
            value.args,
            value.dtype,
            repr(value.attr) if value.op == "const" else value.attr,
        )
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = len(self.values)
            self.values.append(value)
        return number

    def dtype(self, number: int) -> torch.dtype:
        return self.values[number].dtype

    def const(self, number: Any, dtype: torch.dtype) -> int:
        """A constant, or an expression whose value is an argument of the kernel."""
        if isinstance(number, Expr):
            return self.add(Value("number", (), dtype, number))
        if dtype in (torch.bfloat16, torch.float16):  # a value of these is always a rounded one
            number = _convert(number, dtype, dtype)
        return self.add(Value("const", (), dtype, number))

    def apply(self, op: str, *args: int) -> int:
        dtype = torch.bool if op in BOOLEAN else self.dtype(args[-1])
        return self.add(Value(op, args, dtype))

    def cast(self, number: int, dtype: torch.dtype) -> int:
        value = self.values[number]
        if value.dtype == dtype:
            return number
        if value.op == "const":
            return self.const(_convert(value.attr, value.dtype, dtype), dtype)
        if value.op == "cast" and self.dtype(value.args[0]) == dtype and _holds(value.dtype, dtype):
            return value.args[0]
        return self.add(Value("cast", (number,), dtype))

    def reduce(self, kind: str, number: int, dtype: torch.dtype | None = None) -> int:
        return self.add(Value("reduce", (number,), dtype or self.dtype(number), kind))

    def scan(self, kind: str, number: int) -> int:
        return self.add(Value("scan", (number,), self.dtype(number), kind))


def _convert(number: Any, source: torch.dtype, target: torch.dtype) -> Any:
    return torch.tensor(number, dtype=source).to(target).item()


def _holds(wide: torch.dtype, narrow: torch.dtype) -> bool:
    """Whether each value of `narrow` is a value of `wide`."""
    return narrow in (torch.bfloat16, torch.float16) and wide in (torch.float32, torch.float64)


def renumbered(
    values: Sequence[Value], roots: Iterable[int]
) -> tuple[tuple[Value, ...], dict[int, int]]:
    """The values that roots need, and their new numbers."""
    kept = reached(values, roots)
    new = {number: place for place, number in enumerate(kept)}
    found = [replace(values[n], args=tuple([new[arg] for arg in values[n].args])) for n in kept]
    return tuple(found), new


def unroll(nest: LoopNest, axis: int) -> LoopNest:
    """The same nest without one of its outer axes.

    A value that differs along the axis becomes one value per position; any other value is computed
    once.
    """
    made, stores = Values(), []

    def at(place: int) -> list[Store]:
        def moved(index: Index) -> Index:
            rest = index.strides[:axis] + index.strides[axis + 1 :]
            return Index(rest, index.offset + place * index.strides[axis])

        numbers: list[int] = []
        for value in nest.values:
            args = tuple([numbers[arg] for arg in value.args])
            numbers.append(made.add(replace(with_indices(value, moved), args=args)))
        return [
            replace(store, index=moved(store.index), value=numbers[store.value])
            for store in nest.stores
        ]

    for place in range(nest.outer[axis]):
        stores += at(place)
    outer = nest.outer[:axis] + nest.outer[axis + 1 :]
    return replace(nest, outer=outer, values=tuple(made.values), stores=tuple(stores))
