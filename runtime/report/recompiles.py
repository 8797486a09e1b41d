"""Recompiles in the text report: groups them by reason, and omits those that cannot recur.

In: the RecompileRecords of a Report. Out: groups, and the values that a source had. A recompile
cannot recur if what varied is an input of the graph now. `text.problems` and `text.summary` use
this module.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .styled_text import Line, clean, counted, listed, wrap

if TYPE_CHECKING:
    from .records import RecompileRecord, SymbolicRecord
    from .report import Report

PLAIN = "constant, because "
"""The beginning of the reason why a size or number is specialised."""
VALUES_SHOWN = 8
VALUES_WIDTH = 180
"""The width in columns of a list of values: two lines of a screen."""

_SHAPE = re.compile(r"(.*\[)([\d, ]*)(\].*)")
_UNNAMED = re.compile(r"^\.stack\d+(\[\d+\])*")
_RELATION = re.compile(r"(.+?) =+ (-?\d+)")
_OF_NUMPY = re.compile(r"np\.\w+\(([^()]*)\)")
_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?(e[-+]?\d+)?", re.IGNORECASE)


def waiting(report: Report) -> list[list[RecompileRecord]]:
    """The recompiles that may recur, grouped by source and frame."""
    symbols = _symbols(report)
    return _grouped([r for r in report.recompiles if not _settled(r, symbols)])


def _grouped(records: Sequence[RecompileRecord]) -> list[list[RecompileRecord]]:
    groups: dict[Any, list[RecompileRecord]] = {}
    for record in records:
        groups.setdefault((record.code, record.frame, record.source), []).append(record)
    return list(groups.values())


def settled_count(report: Report) -> int:
    symbols = _symbols(report)
    return sum(_settled(record, symbols) for record in report.recompiles)


def _symbols(report: Report) -> set[tuple[str, str]]:
    return {
        (symbol.frame, symbol.source)
        for symbol in report.symbolic
        if not symbol.why.startswith(PLAIN)
    }


def _settled(record: RecompileRecord, symbols: set[tuple[str, str]]) -> bool:
    """Whether everything that differed is an input of the graph now."""
    if (record.frame, record.source) in symbols:
        return all(_NUMBER.fullmatch(value) for value in (record.now, record.before))
    sizes = _differing(clean(record.before), clean(record.now))
    return bool(sizes) and all(
        (record.frame, f"{record.source}.shape[{size}]") in symbols for size in sizes
    )


def change(group: Sequence[RecompileRecord]) -> str:
    """The source, its value now and before; for several recompiles, all values in order."""
    source = source_of(group[-1])
    values = list(
        dict.fromkeys(_value(shown) for shown in [group[0].before, *(r.now for r in group)])
    )
    if group[-1].code == "RC405" and all(value.isdecimal() for value in values):
        source = f"len({source})"
    lead = "" if source == "relation" else f"{source}: "
    if len(group) == 1:
        return f"{lead}now {values[-1]}, before {values[0]}"
    sizes = _differing(*values)
    if len(sizes) == 1:
        values = [_sizes(value)[sizes[0]] for value in values]
        lead = f"{source}.shape[{sizes[0]}]: "
    numbers = [_RELATION.fullmatch(value) for value in values]
    if len({number and number[1] for number in numbers}) == 1 and numbers[0] is not None:
        lead, values = f"{numbers[0][1]}: ", [number[2] for number in numbers if number]
    grows = all(b.startswith(a.removesuffix("]")) for a, b in itertools.pairwise(values))
    if values[0].startswith("[") and grows:
        return f"{lead}{values[0]}, and longer each time: {values[-1]}"
    most = max(2, min(VALUES_SHOWN, VALUES_WIDTH // (sum(map(len, values)) // len(values) + 2)))
    return lead + listed(values, most)


def _value(shown: str) -> str:
    """The text with numpy scalars as plain numbers."""
    return _OF_NUMPY.sub(r"\1", clean(shown))


def source_of(record: RecompileRecord | SymbolicRecord) -> str:
    """The source as the program would write it. An intermediate value of a line has no name."""
    return _UNNAMED.sub("a value between two steps", clean(record.source))


def _sizes(value: str) -> list[str]:
    found = _SHAPE.fullmatch(value)
    return found[2].split(", ") if found else []


def _differing(*values: str) -> list[int]:
    """The indices of the sizes that differ between these tensors; none if anything else differs."""
    parts = [_SHAPE.fullmatch(value) for value in values]
    kinds = {part and (part[1], part[3], part[2].count(",")) for part in parts}
    if None in kinds or len(kinds) != 1:
        return []
    rows = zip(*(_sizes(value) for value in values), strict=True)
    return [number for number, row in enumerate(rows) if len(set(row)) > 1]


def seconds_an_entry(report: Report, frame: str) -> float:
    """The mean time to capture and compile an entry of this frame."""
    spent = [
        sum(seconds for _stage, seconds in entry.stages)
        for entry in report.entries
        if entry.frame == frame and not entry.adopted
    ]
    return sum(spent) / len(spent) if spent else 0.0


def symbolic(report: Report, width: int) -> Iterator[Line]:
    """What became an input, and after how many recompiles. Further values do not recompile."""
    groups: dict[tuple[str, str], list[SymbolicRecord]] = {}
    for symbol in report.symbolic:
        groups.setdefault((symbol.frame, clean(symbol.why)), []).append(symbol)
    for (frame, why), symbols in groups.items():
        own = {(frame, symbol.source) for symbol in symbols}
        met = sum(_settled(record, own) for record in report.recompiles)
        after = f", after {counted(met, 'recompile')}" if met else ""
        names = list(dict.fromkeys(source_of(symbol) for symbol in symbols))
        inputs = "an input" if len(symbols) == 1 else "inputs"
        shown = f" in {frame}: {inputs} of the graph, {why}{after}"
        if why.startswith(PLAIN):
            shown = f" in {frame}: {why}; each is compiled once"
        yield from wrap([(listed(names, VALUES_SHOWN), "name"), shown], width, "  ", "    ")
