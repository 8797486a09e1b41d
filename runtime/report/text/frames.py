"""Frames and entries in the text report: what was compiled, its cost, and the number of hits.

In: a Report. Out: lines. Frames are ordered by total time, each followed by its entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..source_lines import short_place
from ..styled_text import Line, counted, duration, line, percent, wrap
from .summary import checked, work

if TYPE_CHECKING:
    from ..records import EntryRecord, FrameRecord
    from ..report import Report

ENTRIES_SHOWN = 3
FRAMES_SHOWN = 6


def worth_showing(report: Report) -> bool:
    """Whether there is more than one frame or entry. A single one adds nothing to the summary."""
    return len(report.frames) > 1 or len(report.entries) > 1


def lines(report: Report, width: int, verbosity: int) -> Iterator[Line]:
    frames = sorted(report.frames, key=_seconds, reverse=True)
    most = len(frames) if verbosity > 1 else FRAMES_SHOWN
    for frame in frames[:most]:
        entries = [entry for entry in report.entries if entry.frame == frame.frame]
        yield from _frame(frame, entries, width, verbosity)
    if len(frames) > most:
        yield line(("  ", ""), (f"and {len(frames) - most} more: verbosity=2 has all", "dim"))


def _seconds(frame: FrameRecord) -> float:
    return frame.seconds_a_call * max(1, frame.calls_seen)


def _frame(
    frame: FrameRecord, entries: Sequence[EntryRecord], width: int, verbosity: int
) -> Iterator[Line]:
    place = short_place(frame)
    yield from wrap([(frame.frame, "name"), f" ({place})" if place else ""], width, "  ", "    ")
    if frame.plain and not frame.graphs:
        yield line(f"    plain Python ({frame.plain})")
        return
    facts = [
        counted(frame.graphs, "graph"),
        counted(frame.breaks, "break"),
        counted(frame.recompiles, "recompile"),
    ]
    if frame.hits or frame.misses:
        facts.append(f"{counted(frame.hits + frame.misses, 'call')}")
    if frame.seconds_a_call:
        share = frame.compiled_share
        inside = f" ({percent(share)} compiled)" if share >= 0 else ""
        facts.append(f"{duration(frame.seconds_a_call)} per call{inside}")
    if frame.plain_seconds:
        facts.append(f"{duration(frame.plain_seconds)} per call in plain Python")
    yield from wrap([", ".join(facts)], width, "    ", "      ")
    # The entries with the most hits are shown, in the order in which they were made.
    busiest = sorted(entries, key=lambda entry: (-entry.hits, entry.number))
    shown = set(busiest if verbosity > 1 else busiest[:ENTRIES_SHOWN])
    for entry in entries:
        if entry in shown:
            yield from _entry(entry, frame, width, verbosity)
    if len(shown) < len(entries):
        left = len(entries) - len(shown)
        yield line("    ", (f"and {left} more: verbosity=2 has all", "dim"))


def _entry(entry: EntryRecord, frame: FrameRecord, width: int, verbosity: int) -> Iterator[Line]:
    facts = []
    if entry.resumed:
        known = entry.line is not None and entry.line != frame.line
        facts.append(f"from line {entry.line} on" if known else "after a break")
    if entry.operators:
        facts.append(work(entry.operators, entry.kernels, entry.distinct, entry.library))
    elif not entry.graph:
        facts.append("no tensor operators")
    spent = checked(entry.guard_seconds, entry.value_seconds)
    facts.append(counted(entry.guards, "guard") + (f" ({spent})" if entry.guard_seconds else ""))
    if entry.claimed:
        facts.append("is_compiling() said True")
    facts.append(counted(entry.hits, "hit"))
    if entry.adopted:
        facts.append("reused")
    elif entry.stages:
        stages = ", ".join(f"{stage} {duration(spent)}" for stage, spent in entry.stages if spent)
        facts.append(f"made in {duration(sum(spent for _stage, spent in entry.stages))}")
        facts[-1] += f" ({stages})" if verbosity > 1 else ""
    if not entry.alive:
        facts.append("dropped")
    head = f"    entry {entry.number}: "
    yield from wrap(["; ".join(facts)], width, head, "      ")
