"""Metadata of results where sizes are open and no rule of ours answers: the operator runs on zeros of several sizes.

A size of a result is then a plain number, if all runs gave that one, or the expression over the sizes among the operands that
fits all of them and is the only one that does: a size itself, a multiple of it and a constant, or half of it and a constant
(what a real Fourier transform gives). Sizes that the operator wants to be equal are tried as equal where they were so at
capture, and are guarded to be so. Among the runs are some in which the sizes come in the opposite order, and pass by the
constant ones: where a result has the lesser of two sizes, no expression fits. Only results that are dense with one order of
dimensions in all runs are answered, and none that lies channels-last: whether ATen chooses that for convolutions may hang on
the very sizes. `None` where anything is in doubt; then the trace is bound to the sizes at capture, as it is for whatever
torch has to be asked about.
"""

from __future__ import annotations

from typing import Any

from ..graph.layout import contiguous_strides
from ..graph.nodes import Meta
from ..symbolic.expr import ACTIVE, Expr, Symbol, evaluate, is_int, mapped, symbols_of
from .meta_kernels import can_sample, map_metas, run_sample

CHANNELS_LAST = ([0, 2, 3, 1], [0, 2, 3, 4, 1])
REFUSALS = (RuntimeError, IndexError, ValueError)  # of sizes that do not go together


# The least number of runs, and of those for which a size must have differed before an expression may be fitted to it.
LEAST, DISTINCT = 3, 4
REQUIRED = 2  # so many assignments must be accepted, the first ones


def _assignments(symbols: list[Symbol], around: int) -> list[dict[str, Any]] | None:
    """Values for each: that at capture, one beyond it, about half of it, some beyond it, and twice in the opposite order,
    beyond all constant sizes (`around`: the largest) and small. No two symbols move alike."""
    whole = sorted((s for s in symbols if is_int(s)), key=lambda symbol: symbol.hint)
    if any(not symbol >= 2 for symbol in whole):  # 0 and 1 are other cases for layouts
        return None
    made: list[dict[str, Any]] = [{} for _ in range(6)]
    for place, symbol in enumerate(symbols):
        hint = symbol.hint
        values: tuple[Any, ...] = (hint,) * len(made)
        if is_int(symbol):
            back = len(whole) - 1 - whole.index(symbol)
            values = (
                hint, hint + 1 + place, max(2, (hint + 1) // 2 + place), hint + 17 + 3 * place,
                around + 1 + 2 * back, 2 + back,
            )  # fmt: skip
        for one, value in zip(made, values, strict=True):
            one[symbol.name] = value
    return made


def _largest(operands: Any) -> int:
    """Of the constant sizes among tensors."""
    found = [1]

    def note(item: Any) -> Any:
        if type(item) is int:
            found.append(item)
        return item

    map_metas(operands, lambda meta: mapped(meta.shape, note))
    return max(found)


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
    """What the results have in common, as one with open sizes. Raises LookupError where they have nothing."""

    def __init__(self, sizes: list[Expr], assignments: list[dict[str, Any]]) -> None:
        self._columns = [
            (one, tuple(evaluate(one, given) for given in assignments)) for one in sizes
        ]

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
        same = [one for one, known in self._columns if known == column]
        found = same or [
            fit for one, known in self._columns if (fit := _fitted(one, known, column)) is not None
        ]
        if len(found) != 1:  # none, or which of two it is
            raise LookupError
        return found[0]


def _fitted(size: Expr, known: tuple[int, ...], column: tuple[int, ...]) -> Any | None:
    """`size * a + b` or `size // 2 + b` where that is what the results have."""
    if len(set(known)) < DISTINCT:
        return None
    halves = [value // 2 for value in known]
    if len({value - half for value, half in zip(column, halves, strict=True)}) == 1:
        return size // 2 + (column[0] - halves[0])
    (x0, y0), (x1, y1) = sorted(set(zip(known, column, strict=True)))[:2]
    if x1 == x0 or (y1 - y0) % (x1 - x0) or y1 <= y0:
        return None
    times = (y1 - y0) // (x1 - x0)
    if any(y0 + times * (x - x0) != y for x, y in zip(known, column, strict=True)):
        return None
    return size * times + (y0 - times * x0)


def _run(
    op: Any, args: Any, kwargs: Any, pure: bool, given: list[dict[str, Any]]
) -> list[tuple[dict[str, Any], Any]] | None:
    """(assignment, result) of each that the operator accepts; None where they do not suffice."""
    accepted: list[tuple[dict[str, Any], Any]] = []
    for at, one in enumerate(given):
        plain_args, plain_kwargs = evaluate(args, one), evaluate(kwargs, one)
        if not can_sample(op, plain_args, plain_kwargs):
            return None
        try:
            accepted.append((one, run_sample(op, plain_args, plain_kwargs, pure)))
        except REFUSALS:
            if at < REQUIRED:
                return None  # what it raises at the sizes of capture is the program's
    return accepted if len(accepted) >= LEAST else None


def _tied(symbols: list[Symbol]) -> list[tuple[Symbol, Symbol]]:
    """Pairs that were equal at capture: (the one that stands for both, the other)."""
    first: dict[Any, Symbol] = {}
    whole = [symbol for symbol in symbols if is_int(symbol)]
    return [(one, s) for s in whole if (one := first.setdefault(s.hint, s)) is not s]


def over_sizes(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], pure: bool) -> Any | None:
    """Meta of the result (a tuple of them for many) with open sizes, or None. `pure`: as `run_sample` has it."""
    if ACTIVE.facts is not None:
        # Sizes known to be equal stay equal: kernels of backward operators do not check, and read beyond their operands.
        args, kwargs = ACTIVE.facts.form(args), ACTIVE.facts.form(kwargs)
    symbols = sorted(symbols_of((args, kwargs)), key=lambda symbol: symbol.name)
    assignments = _assignments(symbols, _largest((args, kwargs))) if symbols else None
    if assignments is None:
        return None
    found = _run(op, args, kwargs, pure, assignments)
    pairs = _tied(symbols)
    if found is None and pairs and ACTIVE.facts is not None:
        together = [{**one, **{s.name: one[of.name] for of, s in pairs}} for one in assignments]
        found = _run(op, args, kwargs, pure, together)
        if found is not None:
            for of, symbol in pairs:
                ACTIVE.facts.ask("==", of, symbol)
            args, kwargs = ACTIVE.facts.form(args), ACTIVE.facts.form(kwargs)
    if found is None:
        return None
    accepted, results = [one for one, _ in found], [result for _, result in found]
    try:
        return _Joined(_sizes_among((args, kwargs)), accepted).result(results)
    except LookupError:
        return None
