"""The head of a report's page: the verdict, the main figures, and what to fix.

In: a `report.Report`. Out: a `Head` for the template and for the short form in notebooks. Problems
are ordered by cost. `runtime.report.html.render` calls this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....ir.dataclass import dataclass
from ..recompiles import change, settled_count
from ..styled_text import counted, duration, percent
from ..text.problems import Problem, problems
from ..text.summary import slower_than_plain
from .source import short_name

if TYPE_CHECKING:
    from ..records import FrameRecord
    from ..report import Report

MOST_TO_FIX = 50


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of the head: its value as text, its title, and a note."""

    value: str
    title: str
    note: str = ""
    mood: str = ""


@dataclass(frozen=True, slots=True)
class ToFix:
    """A problem and its cure. `target` names the record for links within the page ("break:0").
    `cost` is measured, or that of the table of codes."""

    kind: str
    code: str
    title: str
    reason: str
    cure: str
    place: str
    target: str
    cost: str = ""
    times: int = 1
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Head:
    """`mood`: "good", "fair", "poor" or "none" (nothing captured)."""

    mood: str
    verdict: str
    held: str
    figures: tuple[Figure, ...]
    to_fix: tuple[ToFix, ...]
    more: int = 0


def head_of(report: Report) -> Head:
    """The head of the page."""
    to_fix = _items(report)
    mood, verdict = _verdict(report, to_fix)
    return Head(
        mood=mood,
        verdict=verdict,
        held=_held(report, to_fix),
        figures=_figures(report),
        to_fix=tuple(to_fix[:MOST_TO_FIX]),
        more=max(0, len(to_fix) - MOST_TO_FIX),
    )


def dearest_frame(report: Report) -> FrameRecord | None:
    """The measured frame with the highest total time."""
    measured = [frame for frame in report.frames if frame.seconds_a_call]
    return max(measured, key=lambda f: f.seconds_a_call * max(1, f.calls_seen), default=None)


def _captured(report: Report) -> bool:
    return bool(report.entries or report.kernels or any(f.graphs for f in report.frames))


def _verdict(report: Report, to_fix: list[ToFix]) -> tuple[str, str]:
    """(mood, sentence). Fallbacks do not lower a good mood."""
    if not _captured(report):
        if any(m.kind == "plain" for m in to_fix):
            return "poor", "It runs in plain Python: nothing was compiled."
        return "none", "Nothing has been captured yet."
    clean = all(m.kind == "fallback" for m in to_fix)
    frame, slower = dearest_frame(report), slower_than_plain(report)
    if slower:
        return "poor", f"{slower[0].upper()}{slower[1:]}."
    if frame is not None and frame.compiled_share >= 0:
        mood = "poor" if frame.compiled_share < 0.5 else "good" if clean else "fair"
        return mood, f"{percent(frame.compiled_share)} of the time of a call is in compiled code."
    if clean:
        return "good", "All that was captured runs compiled."
    return "fair", "Compiled, but not as one piece."


def _held(report: Report, to_fix: list[ToFix]) -> str:
    settled = settled_count(report)
    counts = [
        (report.break_count, "graph break"),
        (report.recompile_count - settled, "recompile"),
        (sum(m.kind == "plain" for m in to_fix), "plain frame"),
        (sum(m.kind == "fallback" for m in to_fix), "fallback"),
    ]
    counted_kinds = [counted(count, word) for count, word in counts if count]
    if not _captured(report):
        return "" if counted_kinds else "The function was not called, or only plain Python ran it."
    if not counted_kinds:
        inputs = f" {counted(settled, 'recompile')} made sizes inputs." if settled else ""
        return f"Nothing holds it back: no graph break, nothing left to recompile.{inputs}"
    where = f", first at {to_fix[0].place}" if to_fix and to_fix[0].place else ""
    listed = (
        counted_kinds[0]
        if len(counted_kinds) == 1
        else ", ".join(counted_kinds[:-1]) + " and " + counted_kinds[-1]
    )
    return f"Held back by {listed}{where}."


def _figures(report: Report) -> tuple[Figure, ...]:
    frames = report.frames
    kernels = sum(f.kernels for f in frames)
    spent = sum(seconds for f in frames for _stage, seconds in f.seconds)
    operators, library = sum(f.operators for f in frames), sum(f.library for f in frames)
    breaks, again = report.break_count, report.recompile_count
    dearest = dearest_frame(report)
    out = []
    if dearest is not None:
        out.append(
            Figure(
                duration(dearest.seconds_a_call),
                "per call",
                f"{dearest.frame}, mean of {counted(dearest.samples, 'sample')}",
            )
        )
    out += [
        Figure(
            f"{report.graph_count}",
            "graph" if report.graph_count == 1 else "graphs",
            f"in {counted(len(frames), 'frame')}",
        ),
        Figure(
            f"{kernels}",
            "kernel" if kernels == 1 else "kernels",
            f"of {counted(operators, 'operator')}"
            + (f", {counted(library, 'library call')}" if library else ""),
        ),
        Figure(
            f"{breaks}",
            "graph break" if breaks == 1 else "graph breaks",
            _cost_of_breaks(report),
            "poor" if breaks else "good",
        ),
        Figure(
            f"{again}",
            "recompile" if again == 1 else "recompiles",
            f"{counted(len(report.guards), 'guard')} hold",
            "fair" if again else "good",
        ),
    ]
    if spent:
        out.append(Figure(duration(spent), "to compile", "once, all captures together"))
    return tuple(out)


def _cost_of_breaks(report: Report) -> str:
    spent = sum(b.seconds for b in report.breaks)
    return f"{duration(spent)} per call" if spent else "" if report.breaks else "none"


def _items(report: Report) -> list[ToFix]:
    """The problems of the text report in the same order, highest cost first."""
    numbers = {
        id(record): f"{kind}:{number}"
        for kind, records in (
            ("break", report.breaks),
            ("recompile", report.recompiles),
            ("note", report.notes),
        )
        for number, record in enumerate(records)
    }
    return [_item(problem, numbers[id(problem.records[0])]) for problem in problems(report)]


def _item(problem: Problem, target: str) -> ToFix:
    """One card. The reason of recompiles lists all values; notes are plain frames or fallbacks."""
    record, kind = problem.records[0], target.partition(":")[0]
    times = len(problem.records)
    if kind == "recompile":
        reason = change(problem.records[::-1])
    else:
        reason = record.reason or getattr(record, "why", "")
        times = max(times, record.count)
    if kind == "note":
        kind = "plain" if record.plain else "fallback"
    return ToFix(
        kind,
        record.code,
        record.title,
        reason,
        record.cure,
        _where(record),
        target,
        problem.cost,
        times,
        record.frame,
    )


def _where(record: Any) -> str:
    return (
        ""
        if record.file == "?" or record.line is None
        else f"{short_name(record.file)}:{record.line}"
    )
