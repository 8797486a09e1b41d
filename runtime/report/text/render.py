"""The text rendering of a Report: one screen, highest costs first.

In: a `report.Report`. Out: text of at most `width` columns, without ids or addresses. `verbosity` 0
is the verdict alone, 1 one screen, 2 everything that happened and the guards as a tree, 3 also
graphs and kernel sources. The other modules of this package render the parts. `Report.text` and
`Report.show` call this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from .. import recompiles
from ..styled_text import Line, line
from . import colour as text_colour
from . import frames, guards, kernels, problems
from .summary import summary

if TYPE_CHECKING:
    from ..report import Report

PROBLEM_LINES = 34
"""Number of lines for problems on one screen."""
EVERYTHING = 1 << 30


def render_text(
    report: Report, width: int = 100, verbosity: int = 1, colour: bool | None = None
) -> str:
    """The report as text, with escape sequences only if `colour` is true."""
    return text_colour.joined(render_lines(report, width, verbosity), bool(colour))


def show(report: Report, stream: TextIO | None = None, verbosity: int = 1) -> None:
    """Write the report to the stream, in the colour and width of the terminal if it is one."""
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
    found = problems.problems(report)
    if found:
        title = "what holds it back, most expensive first"
        if all(problem.expected for problem in found):
            title = "compiled again, as expected"
        yield from _part(title, problems.lines(found, width, room))
    if verbosity > 1 or frames.worth_showing(report):
        yield from _part("frames", frames.lines(report, width, verbosity))
    timed = any(kernel.seconds for kernel in report.kernels)
    if report.kernels and (timed or verbosity > 1):
        title = "slowest kernels" if timed else "kernels"
        yield from _part(title, kernels.lines(report, width, verbosity))
    if report.symbolic:
        yield from _part("sizes and numbers that vary", recompiles.symbolic(report, width))
    if report.schedules:
        yield from _part("schedules, measured", kernels.schedules(report.schedules, width))
    if verbosity > 1 and report.guards:
        yield from _part("guards", guards.lines(report, width))
    if verbosity > 2:
        yield from _part("graphs", _graphs(report))
        yield from _part("sources of kernels", kernels.sources(report, width))


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
