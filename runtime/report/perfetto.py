"""A report as a timeline in the Trace Event Format, which Perfetto and chrome://tracing open.

In: a `report.Report`. Out: plain values for JSON. There is a row per frame, with captures and their
stages as slices and breaks, recompiles and notes as points; and a row per graph with the steps of
one call, with their sampled times. Slices of one row are nested or disjoint, as viewers require.
`Report.trace` calls this module.

Format: Google, "Trace Event Format", 2016 (a JSON object with "traceEvents"; times in
microseconds).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..version import SCHEMA, VERSION

if TYPE_CHECKING:
    from .records import KernelRecord, Moment
    from .report import Report

# The "processes" of the viewer: the timeline of the process, and one call of each graph.
_HAPPENED, _CALLS = 1, 2


def trace(report: Report) -> dict[str, Any]:
    """The content of the whole file."""
    return {
        "traceEvents": [*_timeline(report.timeline), *_calls(report)],
        "displayTimeUnit": "ms",
        "otherData": {"name": report.name, "graftjit": VERSION, "schema": SCHEMA},
    }


def _named(what: str, row: int, process: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": row, "args": {"name": name}}


def _timeline(moments: Sequence[Moment]) -> Iterator[dict[str, Any]]:
    """The rows of frames, in the order in which they were first met."""
    if not moments:
        return
    yield _named("process_name", 0, _HAPPENED, "graftjit")
    began = moments[0].at
    rows: dict[str, list[Moment]] = {}
    for moment in moments:
        rows.setdefault(moment.frame, []).append(moment)
    for row, (frame, mine) in enumerate(rows.items(), 1):
        yield _named("thread_name", row, _HAPPENED, frame or "the process")
        yield from _row(mine, row, began)


def _row(moments: Sequence[Moment], row: int, began: float) -> Iterator[dict[str, Any]]:
    """One row. `moments` are ordered by start, the longer of two first. Clocks differ slightly, so
    a slice is cut at the end of the enclosing slice."""
    ends: list[float] = []  # of the open slices
    for moment in moments:
        start = (moment.at - began) * 1e6
        base = {
            "name": moment.title,
            "cat": moment.kind,
            "pid": _HAPPENED,
            "tid": row,
            "ts": start,
        }
        if moment.seconds <= 0:
            yield base | {"ph": "i", "s": "t"}
            continue
        while ends and ends[-1] <= start:
            ends.pop()
        end = min([start + moment.seconds * 1e6, *ends[-1:]])
        ends.append(end)
        yield base | {"ph": "X", "dur": end - start}


def _calls(report: Report) -> Iterator[dict[str, Any]]:
    """One call of each graph with timed steps; all calls start at 0."""
    graphs: dict[tuple[str, int, str], list[KernelRecord]] = {}
    for step in report.kernels:
        graphs.setdefault((step.frame, step.entry, step.graph), []).append(step)
    timed = {key: steps for key, steps in graphs.items() if any(s.seconds > 0 for s in steps)}
    if timed:
        yield _named("process_name", 0, _CALLS, "one call of each graph, as sampled")
    for row, ((frame, entry, graph), steps) in enumerate(timed.items(), 1):
        yield _named("thread_name", row, _CALLS, f"{graph or frame}, entry {entry} of {frame}")
        at = 0.0
        for step in steps:
            if step.seconds > 0:
                yield _slice(step, row, at)
                at += step.seconds * 1e6


def _slice(step: KernelRecord, row: int, at: float) -> dict[str, Any]:
    shown = {
        "operators": ", ".join(step.operators),
        "shape": step.shape,
        "device": step.device,
        "bytes": step.reads + step.writes,
        "flops": step.flops,
        "share of the roofline": step.share,
        "bound": step.bound,
        "lines": ", ".join(f"{place.file}:{place.line}" for place in step.lines),
    }
    return {
        "ph": "X",
        "name": step.name,
        "cat": step.kind,
        "pid": _CALLS,
        "tid": row,
        "ts": at,
        "dur": step.seconds * 1e6,
        "args": {name: value for name, value in shown.items() if value},
    }
