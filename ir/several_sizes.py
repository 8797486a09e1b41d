"""Metadata of results where sizes are open and no rule of ours answers: the operator runs on zeros of three sizes.

A size of a result is then a plain number, if all three runs gave that one, or the size among the operands that was the
same as it in each. Only results that are dense with one order of dimensions in all three are answered, and none that lies
channels-last: whether ATen chooses that for convolutions may hang on the very sizes. `None` where anything is in doubt;
then the trace is bound to the sizes at capture, as it is for whatever torch has to be asked about.
"""

from __future__ import annotations

from typing import Any

from .graph import Meta
from .layout import contiguous_strides
from .probe import can_sample, run_sample
from .symbols import Expr, Symbol, evaluate, is_int, mapped, symbols_of

CHANNELS_LAST = ([0, 2, 3, 1], [0, 2, 3, 4, 1])
REFUSALS = (RuntimeError, IndexError, ValueError)  # of sizes that do not go together


def _assignments(symbols: list[Symbol]) -> list[dict[str, Any]] | None:
    """Three values for each: that at capture, one beyond it, and about half of it. No two symbols move alike."""
    made: list[dict[str, Any]] = [{}, {}, {}]
    for place, symbol in enumerate(symbols):
        hint = symbol.hint
        if not is_int(symbol):
            values = (hint, hint, hint)
        elif not symbol >= 2:  # 0 and 1 are other cases for layouts
            return None
        else:
            values = (hint, hint + 1 + place, max(2, (hint + 1) // 2 + place))
        for one, value in zip(made, values, strict=True):
            one[symbol.name] = value
    return made


def _sizes_among(operands: Any) -> list[Expr]:
    found: dict[Expr, None] = {}

    def note(item: Any) -> Any:
        if isinstance(item, Expr) and is_int(item):
            found.setdefault(item)
        return item

    mapped(operands, note)
    return list(found)


def _dense(shape: tuple[Any, ...], order: list[int]) -> tuple[Any, ...]:
    """Strides of elements without gaps, `order` naming the dimensions from the outermost."""
    strides = contiguous_strides(tuple(shape[dim] for dim in order))
    return tuple(strides[order.index(dim)] for dim in range(len(shape)))


class _Joined:
    """What three results have in common, as one with open sizes. Raises LookupError where they have nothing."""

    def __init__(self, sizes: list[Expr], assignments: list[dict[str, Any]]) -> None:
        self._known: dict[tuple[Any, ...], Expr | None] = {}
        for one in sizes:
            column = tuple(evaluate(one, given) for given in assignments)
            self._known[column] = None if column in self._known else one  # None: which of two it is

    def result(self, results: list[Any]) -> Any:
        first = results[0]
        if isinstance(first, tuple):
            if any(len(one) != len(first) for one in results):
                raise LookupError
            return tuple(self.result(list(items)) for items in zip(*results, strict=True))
        if isinstance(first, Meta):
            return self._meta(results)
        if any(type(one) is not type(first) or one != first for one in results):
            raise LookupError
        return first

    def _meta(self, metas: list[Meta]) -> Meta:
        first = metas[0]
        for one in metas:
            if (one.dtype, one.device, len(one.shape), one.offset) != (
                first.dtype,
                first.device,
                len(first.shape),
                0,
            ):
                raise LookupError  # fmt: skip
        order = sorted(range(len(first.shape)), key=lambda dim: (-first.stride[dim], dim))
        if order in CHANNELS_LAST or any(one.stride != _dense(one.shape, order) for one in metas):
            raise LookupError
        sizes = tuple(self._size(column) for column in zip(*(m.shape for m in metas), strict=True))
        return Meta(sizes, _dense(sizes, order), first.dtype, first.device)

    def _size(self, column: tuple[int, ...]) -> Any:
        if len(set(column)) == 1:
            return column[0]
        found = self._known[column]
        if found is None:
            raise LookupError
        return found


def over_sizes(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], pure: bool) -> Any | None:
    """Meta of the result (a tuple of them for many) with open sizes, or None. `pure`: as `run_sample` has it."""
    symbols = sorted(symbols_of((args, kwargs)), key=lambda symbol: symbol.name)
    assignments = _assignments(symbols) if symbols else None
    if assignments is None:
        return None
    results = []
    for given in assignments:
        plain_args, plain_kwargs = evaluate(args, given), evaluate(kwargs, given)
        if not can_sample(op, plain_args, plain_kwargs):
            return None
        try:
            results.append(run_sample(op, plain_args, plain_kwargs, pure))
        except REFUSALS:
            return (
                None  # asked again at the sizes of capture, where what it raises is the program's
            )
    try:
        return _Joined(_sizes_among((args, kwargs)), assignments).result(results)
    except LookupError:
        return None
