"""The renderings of a Report: one screen of text, and one self-contained HTML page.

In: a `report.Report`. Out: text of at most 100 columns without ids or addresses; HTML in which every text of
the user's is escaped. Called by `Report.text` and `Report.html`.
"""

from __future__ import annotations

import html
import os
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..ir.location import Location
from .errors import format_location

if TYPE_CHECKING:
    from .records import FrameRecord, NoteRecord, Place, ScheduleRecord, SymbolicRecord
    from .report import Report

MOST_SHOWN = 8


def counted(count: int, word: str) -> str:
    """ "1 break", "2 breaks", "2 library calls"."""
    return f"{count} {word}" + ("" if count == 1 else "es" if word.endswith("s") else "s")


def short_path(path: str, width: int = 60) -> str:
    """Relative to the working folder where that is shorter; cut at the front to `width`."""
    if os.path.isabs(path):
        try:
            relative = os.path.relpath(path)
        except (ValueError, OSError):  # another drive, or no working folder any more
            relative = path
        if not relative.startswith("..") and len(relative) < len(path):
            path = relative
    return path if len(path) <= width else "..." + path[3 - width :]


def snippet(place: Place, width: int, indent: str) -> list[str]:
    """File, line, the user's line and carets."""
    if place.file == "?":
        return []
    where = Location(
        place.file, place.line, place.end_line, place.column, place.end_column, place.function
    )
    lines = format_location(where, indent, width).splitlines()
    room = width - len(lines[0]) + len(place.file)
    lines[0] = lines[0].replace(place.file, short_path(place.file, max(20, room)), 1)
    return lines


def _field(title: str, value: str, width: int, indent: str) -> Iterator[str]:
    if value:
        first = f"{indent}{title:<5}"
        rest = " " * len(first)
        # One line for each of the user's own: a reason may hold several.
        yield from textwrap.wrap(" ".join(value.split()), width, initial_indent=first,
                                 subsequent_indent=rest)  # fmt: skip


def render_text(report: Report, width: int = 100) -> str:
    lines = [*_summary(report, width)]
    parts: tuple[tuple[str, Sequence[Any], Callable[..., Iterator[str]], int], ...] = (
        ("frames", report.frames, _frame_lines, 12),
        ("graph breaks", report.breaks, _break_lines, MOST_SHOWN),
        ("recompiles", report.recompiles, _recompile_lines, MOST_SHOWN),
        ("sizes and numbers that vary", report.symbolic, _symbolic_lines, MOST_SHOWN),
        ("schedules, measured", report.schedules, _schedule_lines, MOST_SHOWN),
        ("left to plain Python", [n for n in report.notes if n.plain], _note_lines, MOST_SHOWN),
        ("fallbacks", [n for n in report.notes if not n.plain], _note_lines, MOST_SHOWN),
    )
    for title, records, render, most in parts:
        if not records:
            continue
        lines += ["", title]
        for number, record in enumerate(records[:most], 1):
            lines += render(record, number, width)
        if len(records) > most:
            lines.append(f"  ... and {len(records) - most} more; .json() and .html() have all")
    return "\n".join(line.rstrip() for line in lines)


def _summary(report: Report, width: int) -> Iterator[str]:
    frames = report.frames
    yield textwrap.shorten(f"graftjit report: {report.name}", width, placeholder="...")
    if not (report.events or report.frames):
        yield "  nothing has been captured yet: it was not called, or only in plain Python"
        return
    totals = [
        counted(report.graph_count, "graph"),
        counted(report.break_count, "graph break"),
        counted(report.recompile_count, "recompile"),
        counted(len(report.guards), "guard"),
    ]
    if any(frame.calls_seen for frame in frames):
        totals.append(counted(sum(f.hits for f in frames), "hit"))
    yield "  " + ", ".join(totals)
    if any(f.operators for f in frames):
        yield "  " + _work(frames)
    if report.adopted_count:
        taken = counted(report.adopted_count, "capture")
        yield f"  {taken} taken over from a callable of the same class or code: nothing new was compiled for that"
    spent: dict[str, float] = {}
    for frame in frames:
        for stage, seconds in frame.seconds:
            spent[stage] = spent.get(stage, 0.0) + seconds
    if spent:
        stages = ", ".join(f"{stage} {_seconds(s)}" for stage, s in spent.items())
        yield "  " + textwrap.shorten(
            f"{_seconds(sum(spent.values()))} to capture and compile ({stages})",
            width - 2,
            placeholder="...",
        )
    if report.dropped:
        yield f"  {counted(report.dropped, 'older event')} were dropped"


def _work(frames: Sequence[FrameRecord]) -> str:
    operators, kernels = sum(f.operators for f in frames), sum(f.kernels for f in frames)
    library = sum(f.library for f in frames)
    distinct = sum(f.distinct for f in frames)
    equal = f" ({distinct} distinct)" if 0 < distinct < kernels else ""
    done = [counted(kernels, "kernel") + equal] if kernels or not library else []
    done += [counted(library, "library call")] if library else []
    return f"{counted(operators, 'operator')} -> {' + '.join(done)}"


def _seconds(value: float) -> str:
    return f"{value * 1e3:.1f} ms" if value < 1 else f"{value:.2f} s"


def _symbolic_lines(record: SymbolicRecord, _number: int, width: int) -> Iterator[str]:
    yield "  " + textwrap.shorten(
        f"{record.source} in {record.frame}: {record.why}", width - 2, placeholder="..."
    )


def _schedule_lines(record: ScheduleRecord, _number: int, width: int) -> Iterator[str]:
    told = f"{record.name}: {record.chosen}, {record.now * 1e6:.1f} us"
    if record.now != record.before:
        told += f" (default {record.before * 1e6:.1f})"
    others = [
        f"{way} {seconds * 1e6:.1f}" for way, seconds in record.times[1:] if way != record.chosen
    ]
    told += f"; tried: {', '.join(others)}" if others else ""
    told += "; remembered" if record.remembered else ""
    yield from textwrap.wrap(told, width, initial_indent="  ", subsequent_indent="    ")


def _frame_lines(frame: FrameRecord, _number: int, width: int) -> Iterator[str]:
    place = "" if frame.line is None else f"({short_path(frame.file, 40)}:{frame.line})"
    yield "  " + textwrap.shorten(f"{frame.frame} {place}", width - 2, placeholder="...")
    if frame.plain and not frame.graphs:
        yield f"    plain Python ({frame.plain})"
        return
    totals = [
        counted(frame.graphs, "graph"),
        counted(frame.breaks, "break"),
        counted(frame.recompiles, "recompile"),
        counted(frame.guards, "guard"),
    ]
    if frame.hits or frame.misses:
        totals.append(counted(frame.hits, "hit"))
    work = "  " + _work([frame]) if frame.operators else ""
    yield "    " + ", ".join(totals) + work


def _break_lines(record: Any, number: int, width: int) -> Iterator[str]:
    times = f" (met {record.count} times)" if record.count > 1 else ""
    yield from textwrap.wrap(f"{record.code} {record.title}{times}", width,
                             initial_indent=f"  {number}. ", subsequent_indent="     ")  # fmt: skip
    for place in record.inlined:
        yield from snippet(place, width, "     ")[:1]
    yield from snippet(record, width, "     ")
    for title, value in (("what", record.reason or record.why), ("cost", record.cost),
                         ("cure", record.cure)):  # fmt: skip
        yield from _field(title, value, width, "     ")


def _recompile_lines(record: Any, number: int, width: int) -> Iterator[str]:
    yield f"  {number}. {record.code} {record.title} in {record.frame}"[:width]
    told = f"{record.source}: now {record.now}, before {record.before}"
    yield from textwrap.wrap(told, width, initial_indent="     ", subsequent_indent="       ")
    yield from snippet(record, width, "     ")
    yield from _field("cure", record.cure, width, "     ")


def _note_lines(record: NoteRecord, _number: int, width: int) -> Iterator[str]:
    times = f" ({record.count} times)" if record.count > 1 else ""
    head = f"{record.code} {record.title}{times}" + (f" in {record.frame}" if record.frame else "")
    yield from textwrap.wrap(head, width, initial_indent="  ", subsequent_indent="     ")
    yield from snippet(record, width, "     ")
    yield from _field("what", record.reason, width, "     ")
    yield from _field("cure", record.cure, width, "     ")


# --- HTML --------------------------------------------------------------------------------------------

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse;width:100%;margin:.5rem 0 1.5rem}th,td{text-align:left;vertical-align:top;"
    "padding:.3rem .6rem;border-bottom:1px solid #ddd}pre{margin:.2rem 0;background:#f6f6f6;padding:.4rem;"
    "overflow-x:auto}small{color:#666}@media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}"
    "pre{background:#242424}th,td{border-color:#333}}"
)

# (title, list of the report, columns: heading and attribute; "place" is the user's line with carets)
_TABLES: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...] = (
    ("Frames", "frames", (("frame", "frame"), ("file", "file"), ("line", "line"), ("graphs", "graphs"),
                          ("operators", "operators"), ("kernels", "kernels"), ("library calls", "library"),
                          ("breaks", "breaks"), ("recompiles", "recompiles"), ("guards", "guards"),
                          ("hits", "hits"), ("plain", "plain"))),
    ("Graph breaks", "breaks", (("code", "code"), ("what", "title"), ("where", "place"), ("reason", "reason"),
                                ("cost", "cost"), ("cure", "cure"))),
    ("Recompiles", "recompiles", (("code", "code"), ("what", "title"), ("source", "source"), ("now", "now"),
                                  ("before", "before"), ("where", "place"), ("cure", "cure"))),
    ("Sizes and numbers that vary", "symbolic", (("frame", "frame"), ("what", "source"), ("why", "why"))),
    ("Fallbacks and plain frames", "notes", (("code", "code"), ("what", "title"), ("frame", "frame"),
                                             ("reason", "reason"), ("where", "place"), ("cure", "cure"))),
    ("Libraries of kernels", "libraries", (("library", "name"), ("bytes", "bytes"), ("seconds", "seconds"),
                            ("from the store", "cached"), ("covers", "covers"))),
    ("Schedules, measured", "schedules", (("kernel", "name"), ("chosen", "chosen"), ("seconds", "now"),
                                          ("seconds by default", "before"), ("remembered", "remembered"),
                                          ("covers", "covers"))),
    ("Guards", "guards", (("frame", "frame"), ("condition", "text"), ("file", "file"), ("line", "line"))),
)  # fmt: skip


def render_html(report: Report) -> str:
    name = html.escape(report.name)
    body = [f"<h1>{name}</h1>"]
    body += [f"<p>{html.escape(line.strip())}</p>" for line in list(_summary(report, 200))[1:]]
    for title, attribute, columns in _TABLES:
        records = getattr(report, attribute)
        if not records:
            continue
        body.append(f"<h2>{title} <small>{len(records)}</small></h2><table><tr>")
        body.append("".join(f"<th>{heading}</th>" for heading, _field in columns) + "</tr>")
        for record in records:
            cells = "".join(f"<td>{_cell(record, column)}</td>" for _heading, column in columns)
            body.append(f"<tr>{cells}</tr>")
        body.append("</table>")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{name}</title>'
        f"<style>{_STYLE}</style></head><body>\n" + "\n".join(body) + "\n</body></html>"
    )


def _cell(record: Any, column: str) -> str:
    if column == "place":
        lines = snippet(record, 100, "")
        return f"<pre>{html.escape(chr(10).join(lines))}</pre>" if lines else ""
    value = getattr(record, column)
    if column == "file":
        value = short_path(value)
    if isinstance(value, tuple):
        value = ", ".join(map(str, value))
    if isinstance(value, float):
        value = f"{value:.4f}" if value >= 0.1 else f"{value:.3g}"
    return "" if value is None else html.escape(str(value))
