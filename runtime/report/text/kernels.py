"""Kernels in the text report: the slowest ones, their share of the roofline, and missed fusions.

In: a Report. Out: a table, the slowest kernel first; below each kernel the user's line and the
reason why it was not fused with its neighbour. Kernels without measured times are ordered by bytes
moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..source_lines import short_place, source_line
from ..styled_text import (
    Line,
    Span,
    counted,
    cut,
    duration,
    field,
    line,
    percent,
    plain,
    sizes,
    table,
    wrap,
)

if TYPE_CHECKING:
    from ..report import KernelRecord, Report, ScheduleRecord

SHOWN = 4
_SHAPE_WIDTH = 24


def slowest(report: Report) -> list[KernelRecord]:
    """Kernels by time per call; those without times by bytes."""
    return sorted(report.kernels, key=lambda k: (k.seconds, k.reads + k.writes), reverse=True)


def lines(report: Report, width: int, verbosity: int) -> Iterator[Line]:
    kernels = slowest(report)
    most = len(kernels) if verbosity > 1 else SHOWN
    shown = kernels[:most]
    whole = sum(kernel.seconds for kernel in kernels)
    rows = table(
        [_row(kernel, whole, width) for kernel in shown], (True, True, True, True, False, False)
    )
    for row, kernel in zip(rows, shown, strict=True):
        yield from _one_line(row, width)
        yield from _below(kernel, width, verbosity)
    if len(kernels) > most:
        yield line("  ", (f"and {len(kernels) - most} more: verbosity=2 has all", "dim"))


def _one_line(row: Line, width: int) -> Iterator[Line]:
    if len(plain(row)) <= width:
        yield row
    else:
        yield line(cut(plain(row), width))


def _row(kernel: KernelRecord, whole: float, width: int) -> list[Span]:
    """Time, share of all kernels' time, speed, share of the roofline, shape, name."""
    moved = kernel.reads + kernel.writes
    time = duration(kernel.seconds) if kernel.seconds else ""
    part = percent(kernel.seconds / whole) if whole else ""
    if kernel.seconds and kernel.bound == "compute" and kernel.flops:
        speed = f"{kernel.flops / kernel.seconds / 1e9:.1f} GFLOP/s"
    elif kernel.seconds and not moved:  # sizes are symbolic, so the bytes are unknown
        speed = ""
    elif kernel.seconds:
        speed = f"{moved / kernel.seconds / 1e9:.1f} GB/s"
    else:
        speed = sizes(moved)
    share = f"{percent(kernel.share)} of roofline" if kernel.share else ""
    style = "good" if kernel.share >= 0.5 else "cost" if kernel.share else ""
    called = "" if kernel.kind == "kernel" else "call "
    return [
        (time, "cost"),
        (part, ""),
        (speed, ""),
        (share, style),
        (cut(kernel.shape, _SHAPE_WIDTH), ""),
        (f"{called}{cut(kernel.name, max(20, width - 60))}", "name"),
    ]


def _below(kernel: KernelRecord, width: int, verbosity: int) -> Iterator[Line]:
    """The user's line, and the neighbours that it was not fused with."""
    indent = "      "
    place = short_place(kernel)
    if place:
        more = len({(at.file, at.line) for at in kernel.lines} - {(kernel.file, kernel.line)})
        others = f" and {counted(more, 'other line')}" if more else ""
        text = source_line(kernel, max(20, width - len(place) - len(others) - 12))
        yield line(indent, (place, "place"), f"{others}  ", (text, "dim"))
    for reason in kernel.unfused if verbosity > 1 else kernel.unfused[:1]:
        shown = f"not fused with {reason.neighbour}: {reason.why}"
        yield from wrap(
            [shown, (f" ({reason.code})" if reason.code else "", "dim")],
            width,
            indent,
            indent + "  ",
        )
    if verbosity > 1 and kernel.operators:
        yield from field("of", " ".join(kernel.operators), width, indent)


def sources(report: Report, width: int) -> Iterator[Line]:
    """The text of each generated kernel, without duplicates."""
    seen: dict[str, str] = {}
    for kernel in slowest(report):
        if kernel.source and kernel.source not in seen:
            seen[kernel.source] = kernel.name
            yield line("  ", (kernel.name, "name"))
            for text in kernel.source.rstrip().splitlines():
                yield line(f"    {text}")


def schedules(records: Sequence[ScheduleRecord], width: int) -> Iterator[Line]:
    """Kernels with timed alternatives."""
    for record in records:
        shown = f"{record.name}: {record.chosen}, {duration(record.now)}"
        if record.now != record.before:
            shown += f" (default {duration(record.before)})"
        others = [
            f"{way} {duration(seconds)}"
            for way, seconds in record.times[1:]
            if way != record.chosen
        ]
        shown += f"; tried: {', '.join(others)}" if others else ""
        shown += "; remembered" if record.remembered else ""
        yield from wrap([shown], width, "  ", "    ")
