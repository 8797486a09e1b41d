"""The text rendering of a Report: one screen, what costs most first.

In: a `report.Report`. Out: text of at most `width` columns without ids or addresses. `verbosity` 0 has the verdict
alone, 1 one screen, 2 everything that happened and the guards as a tree, 3 the graphs and the kernels' sources too.
The parts are in `text_*`. Called by `Report.text` and `Report.show`.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TextIO

from . import (
    text_changes,
    text_colour,
    text_frames,
    text_guards,
    text_kernels,
    text_layout,
    text_places,
    text_problems,
)
from .text_layout import Line, line
from .text_summary import summary

if TYPE_CHECKING:
    from .report import Report

PROBLEM_LINES = 34
"""Lines for what holds a program back, on one screen."""
EVERYTHING = 1 << 30


def render_text(
    report: Report, width: int = 100, verbosity: int = 1, colour: bool | None = None
) -> str:
    """Escapes for colour are in it if `colour` is true, never else."""
    return text_colour.joined(render_lines(report, width, verbosity), bool(colour))


def show(report: Report, stream: TextIO | None = None, verbosity: int = 1) -> None:
    """Write the report where it will be read: in colour and as wide as the terminal, if it is one."""
    stream = text_colour.output(stream)
    text = render_text(report, text_colour.width_of(stream), verbosity, text_colour.wanted(stream))
    text_colour.write(text, stream)


def render_lines(report: Report, width: int = 100, verbosity: int = 1) -> Iterator[Line]:
    """The lines with their styles."""
    width = max(width, 40)
    yield from summary(report, width, full=verbosity > 0)
    if verbosity < 1 or not report.frames:
        return
    room = PROBLEM_LINES if verbosity == 1 else EVERYTHING
    found = text_problems.problems(report)
    if found:
        yield from _part(
            "what holds it back, most expensive first", text_problems.lines(found, width, room)
        )
    if verbosity > 1 or text_frames.worth_showing(report):
        yield from _part("frames", text_frames.lines(report, width, verbosity))
    if report.kernels:
        title = "slowest kernels" if any(k.seconds for k in report.kernels) else "kernels"
        yield from _part(title, text_kernels.lines(report, width, verbosity))
    if report.symbolic:
        yield from _part("sizes and numbers that vary", text_changes.symbolic(report, width))
    if report.schedules:
        yield from _part("schedules, measured", text_kernels.schedules(report.schedules, width))
    if verbosity > 1 and report.guards:
        yield from _part("guards", text_guards.lines(report, width))
    if verbosity > 2:
        yield from _part("graphs", _graphs(report))
        yield from _part("sources of kernels", text_kernels.sources(report, width))


def _part(title: str, lines: Iterator[Line]) -> Iterator[Line]:
    yield ()
    yield line((title, "head"))
    yield from lines


def _graphs(report: Report) -> Iterator[Line]:
    for graph in report.graphs:
        which = ", ".join(part for part in (graph.frame, graph.part, graph.level) if part)
        yield line("  ", (graph.name, "name"), f" ({which})")
        for text in graph.text.rstrip().splitlines():
            yield line(f"    {text}")


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
    body += [
        f"<p>{html.escape(text_layout.plain(spans).strip())}</p>"
        for spans in list(summary(report, 200))[1:]
    ]
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
        lines = [text_layout.plain(spans) for spans in text_places.snippet(record, 100, "")]
        return f"<pre>{html.escape(chr(10).join(lines))}</pre>" if lines else ""
    value = getattr(record, column)
    if column == "file":
        value = text_places.short_path(value)
    if isinstance(value, tuple):
        value = ", ".join(map(str, value))
    if isinstance(value, float):
        value = f"{value:.4f}" if value >= 0.1 else f"{value:.3g}"
    return "" if value is None else html.escape(str(value))
