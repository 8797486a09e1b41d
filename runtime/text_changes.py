"""Recompiles in the text report: those for one reason together, and those that are over left out.

In: the RecompileRecords of a Report. Out: groups, the values that a Source went through, and which changes compile
nothing any more, for what varied has become an input of the graph. Read by `text_problems` and `text_summary`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .text_layout import Line, Span, clean, counted, listed, wrap

if TYPE_CHECKING:
    from .records import RecompileRecord, SymbolicRecord
    from .report import Report

VALUES_SHOWN = 8

_SHAPE = re.compile(r"(.*\[)([\d, ]*)(\].*)")
_UNNAMED = re.compile(r"^\.stack\d+")
_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?(e[-+]?\d+)?", re.IGNORECASE)


def waiting(report: Report) -> list[list[RecompileRecord]]:
    """The recompiles that more calls may repeat, grouped by Source and frame."""
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
    return {(symbol.frame, symbol.source) for symbol in report.symbolic}


def _settled(record: RecompileRecord, symbols: set[tuple[str, str]]) -> bool:
    """Whether all that differed is an input of the graph now."""
    if (record.frame, record.source) in symbols:
        return all(_NUMBER.fullmatch(value) for value in (record.now, record.before))
    sizes = _differing(clean(record.before), clean(record.now))
    return bool(sizes) and all(
        (record.frame, f"{record.source}.shape[{size}]") in symbols for size in sizes
    )


def change(group: Sequence[RecompileRecord]) -> tuple[str, str]:
    """The Source, and what it is now and was before; of many the values in the order in which they came."""
    source = source_of(group[-1])
    values = list(dict.fromkeys([clean(group[0].before), *(clean(r.now) for r in group)]))
    if len(group) == 1:
        return source, f"now {values[-1]}, before {values[0]}"
    sizes = _differing(*values)
    if len(sizes) == 1:
        values = [_sizes(value)[sizes[0]] for value in values]
        source = f"{source}.shape[{sizes[0]}]"
    return source, listed(values, VALUES_SHOWN)


def source_of(record: RecompileRecord | SymbolicRecord) -> str:
    """The Source as the program would write it; what lay between two steps of a line has no name there."""
    return _UNNAMED.sub("a value between two steps", clean(record.source))


def _sizes(value: str) -> list[str]:
    found = _SHAPE.fullmatch(value)
    return found[2].split(", ") if found else []


def _differing(*values: str) -> list[int]:
    """Which sizes of these tensors differ; none where more than sizes does."""
    parts = [_SHAPE.fullmatch(value) for value in values]
    kinds = {part and (part[1], part[3], part[2].count(",")) for part in parts}
    if None in kinds or len(kinds) != 1:
        return []
    rows = zip(*(_sizes(value) for value in values), strict=True)
    return [number for number, row in enumerate(rows) if len(set(row)) > 1]


def seconds_an_entry(report: Report, frame: str) -> float:
    """What an entry of this frame took to capture and compile, on average."""
    spent = [
        sum(seconds for _stage, seconds in entry.stages)
        for entry in report.entries
        if entry.frame == frame and not entry.adopted
    ]
    return sum(spent) / len(spent) if spent else 0.0


def symbolic(report: Report, width: int) -> Iterator[Line]:
    """What became an input, and how many recompiles that took; further values compile nothing."""
    for symbol in report.symbolic:
        own = {(symbol.frame, symbol.source)}
        met = sum(_settled(record, own) for record in report.recompiles)
        after = f", after {counted(met, 'recompile')}" if met else ""
        source: Span = (source_of(symbol), "name")
        told = f" in {symbol.frame}: an input of the graph, {clean(symbol.why)}{after}"
        yield from wrap([source, told], width, "  ", "    ")
