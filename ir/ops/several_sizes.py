"""Result metadata for symbolic sizes without a rule: run the operator on several sizes.

A size of a result is a plain number if all runs gave the same one. Otherwise it is the expression
over the operands' sizes that fits all runs, if there is exactly one: a size itself, a multiple of
it plus a constant, or half of it plus a constant (as in a real Fourier transform). Where the
operator requires sizes to be equal, they are tried as equal if they were so at capture, and a guard
holds them equal.

Some runs use the sizes in the opposite order, and beyond the constant ones: so no expression fits
where a result has the lesser of two sizes. Results must be dense with one order of dimensions in
all runs, and not channels-last: ATen's choice of that for convolutions may depend on the sizes. In
any doubt the result is None; then the trace is bound to the sizes at capture, as for every question
to torch.
"""

from __future__ import annotations

from typing import Any

from ..graph.layout import contiguous_strides
from ..graph.nodes import Meta
from ..symbolic.expr import ACTIVE, Expr, Symbol, evaluate, is_int, mapped, symbols_of
from .meta_kernels import can_sample, map_metas, run_sample

CHANNELS_LAST = ([0, 2, 3, 1], [0, 2, 3, 4, 1])
# Raised for sizes that do not fit each other.
REFUSALS = (RuntimeError, IndexError, ValueError)


# The least number of runs, and of distinct values of a size for which an expression may be fitted
# to it.
LEAST, DISTINCT = 3, 4
# The operator must accept this many assignments, the first ones.
REQUIRED = 2
# Floats of a run, in units of the value at capture: a size that depends on one differs between
# these. Less than 1 comes first, since an operator may refuse more (a probability).
FACTORS = (0.61, 0.13, 1.9, 7.3)


def _assignments(symbols: list[Symbol], around: int) -> list[dict[str, Any]] | None:
    """Values for each symbol, one per run; no two symbols change alike.

    In order: the value at capture, a little beyond it, about half of it, well beyond it, then two
    runs in the opposite order: beyond all constant sizes (`around`: the largest), and small. None
    if a size may be 0 or 1.
    """
    whole = sorted((s for s in symbols if is_int(s)), key=lambda symbol: symbol.hint)
    # 0 and 1 are special cases for layouts.
    if any(not symbol >= 2 for symbol in whole):
        return None
    made: list[dict[str, Any]] = [{} for _ in range(6)]
    for place, symbol in enumerate(symbols):
        hint = symbol.hint
        first = place % len(FACTORS)
        turned = FACTORS[first:] + FACTORS[:first]
        values: tuple[Any, ...] = (hint, hint, *((hint or 1.0) * one for one in turned))
        if is_int(symbol):
            back = len(whole) - 1 - whole.index(symbol)
            values = (
                hint,
                hint + 1 + place,
                max(2, (hint + 1) // 2 + place),
                hint + 17 + 3 * place,
                around + 1 + 2 * back,
                2 + back,
            )
        for one, value in zip(made, values, strict=True):
            one[symbol.name] = value
    return made


def _largest(operands: Any) -> int:
    """The largest constant size of the tensors."""
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
    """Strides of a dense tensor; `order` lists the dimensions from the outermost in."""
    strides = contiguous_strides(tuple(shape[dim] for dim in order))
    return tuple(strides[order.index(dim)] for dim in range(len(shape)))


class _Joined:
    """Combines the results of all runs into one with symbolic sizes; else LookupError."""

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
                raise LookupError
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
        if len(found) != 1:  # none fits, or several do
            raise LookupError
        return found[0]


def _fitted(size: Expr, known: tuple[int, ...], column: tuple[int, ...]) -> Any | None:
    """`size * a + b` or `size // 2 + b` if the results' sizes fit it, else None."""
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
    """(assignment, result) of each run that the operator accepts; None if they do not suffice."""
    accepted: list[tuple[dict[str, Any], Any]] = []
    for at, one in enumerate(given):
        plain_args, plain_kwargs = evaluate(args, one), evaluate(kwargs, one)
        if not can_sample(op, plain_args, plain_kwargs):
            return None
        try:
            accepted.append((one, run_sample(op, plain_args, plain_kwargs, pure)))
        except REFUSALS:
            if at < REQUIRED:
                # The program itself would raise at the sizes of capture.
                return None
    if len(accepted) < LEAST:
        return None
    # The first runs have the floats of capture.
    floats = any(type(number) is float for number in given[0].values())
    if floats and all(one in given[:REQUIRED] for one, _ in accepted):
        return None
    return accepted


def _tied(symbols: list[Symbol]) -> list[tuple[Symbol, Symbol]]:
    """Pairs of symbols that were equal at capture: (the representative, the other)."""
    first: dict[Any, Symbol] = {}
    whole = [symbol for symbol in symbols if is_int(symbol)]
    return [(one, s) for s in whole if (one := first.setdefault(s.hint, s)) is not s]


def over_sizes(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], pure: bool) -> Any | None:
    """Meta of the result (a tuple for many), or None. `pure`: as for `run_sample`."""
    if ACTIVE.facts is not None:
        # Sizes known to be equal stay equal: kernels of backward operators do not check, and read
        # beyond their operands.
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
