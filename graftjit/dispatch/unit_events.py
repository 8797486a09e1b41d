"""Events of a unit: of a capture, of a recompile, and the totals for a report.

In: states of code objects, the result of `capture`, the change that caused a recompile. Out:
events, emitted under the current state or returned for a report. `unit.Unit` calls this module.
"""

from __future__ import annotations

import dataclasses
import linecache
import re
import types
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..ir.location import Location
from ..runtime.events import events
from ..runtime.process import faults
from ..runtime.process.session import SESSION
from ..runtime.report import timings
from . import lazy_modules as lazy
from .shared_entries import Made

if TYPE_CHECKING:
    from ..capture.capture import Capture
    from ..runtime.guards.mirror import FrameView
    from .eviction import Change


def place_of(code: types.CodeType) -> Location:
    """The location of a code object's first line."""
    return Location(code.co_filename, code.co_firstlineno, function=code.co_qualname)


_SLOT = re.compile(r"(?<![\w.])\.stack(\d+)")


def named(state: Any, text: str) -> str:
    """The text with the program's own expressions for values that were on the stack at a break."""
    if ".stack" not in text:
        return text
    code, after = state.code, state.after
    slots = [name for name in code.co_varnames[: code.co_argcount] if name.startswith(".stack")]
    line = after.line if after is not None else code.co_firstlineno

    def name(found: re.Match[str]) -> str:
        if after is not None and slots and found[0] == slots[-1]:
            written = _written(after)
            if written:
                return f"the result of {written}"
        return f"a value of line {line}"

    return _SLOT.sub(name, text)


def _written(where: Location) -> str:
    """The source text of an expression on a single line, or ""."""
    if where.line is None or where.column is None or where.end_line != where.line:
        return ""
    line = linecache.getline(where.file, where.line).encode()
    text = line[where.column : where.end_column].decode(errors="replace").strip()
    return text if len(text) <= 60 else ""


def _guards(state: Any, lines: tuple[events.GuardLine, ...]) -> tuple[events.GuardLine, ...]:
    """The guards with named sources."""
    return tuple(
        dataclasses.replace(
            one,
            source=named(state, one.source),
            expected=named(state, one.expected),
            path=tuple(named(state, step) for step in one.path),
        )
        if ".stack" in one.expected or ".stack" in one.source
        else one
        for one in lines
    )


def captured(state: Any, code: types.CodeType, made: Capture, seconds: dict[str, float]) -> None:
    """Emit the events of a capture: its breaks, what is symbolic, and the entry."""
    where = place_of(code)
    for record in made.breaks:
        if state.begins is not None and record.where == state.begins.where:
            continue
        reason = record.reason
        if record.code == "GB120" and state.after is not None and state.after.line is not None:
            reason += f" (line {state.after.line})" if "whose body breaks" in reason else ""
        SESSION.emit(
            events.GraphBreak(
                code=record.code, reason=reason, where=record.where, inlined=record.inlined
            )
        )
    if made.plain is not None:
        plain = made.plain
        SESSION.emit(events.RanPlain(code=plain.code, reason=plain.reason, where=plain.where))
    for source, why in made.symbolic:
        SESSION.emit(events.Symbolic(source=named(state, source), why=why, where=where))
    graph = made.graph
    SESSION.emit(
        events.Captured(
            kind=made.kind,
            resumed=state.origin is not None,
            span=state.span,
            graphs=int(graph is not None),
            nodes=sum(node.op == "call" for node in graph.nodes) if graph else 0,
            calls=len(graph.calls) if graph else 0,
            guards=_guards(state, lazy.mirror.guard_lines(made.rows)),
            claimed=made.claimed,
            seconds=tuple(seconds.items()),
            where=where,
        )
    )


def recompiled(state: Any, change: Change, view: FrameView) -> None:
    """Emit "now X, before Y" for the first failed guard of the nearest entry, with the failed
    guards of the others."""
    failed = []
    for entry, row in change.failed:
        now, before = lazy.mirror.explain_failure(row, view)
        failed.append(
            events.GuardFailed(
                entry=number_of(entry),
                code=lazy.mirror.failure_code(row, view),
                source=named(state, lazy.mirror.subject_of(row)),
                now=now,
                before=before,
            )
        )
    SESSION.emit(
        events.Recompile(
            code=change.code,
            source=named(state, change.source),
            now=change.now,
            before=change.before,
            entries=len(state.entries),
            limit=state.eviction.limit,
            failed=tuple(failed),
            where=change.row.where,
        )
    )


def resumed(made: Iterable[Any], breaks: Sequence[Any]) -> None:
    """Set the break that each resume function follows, for the cost of that break in reports."""
    for _code, _way, tail in made if breaks else ():
        tail.target.state.after = breaks[-1].where


def number_of(entry: Any) -> int:
    """The number of the events of its capture; 0 if it was not captured."""
    return entry.data.number if type(entry.data) is Made else 0


def counted(state: Any) -> events.Counted | None:
    """The totals of a state for a report; None if its code is gone, which may happen at any
    time."""
    code, entries = state.code, state.entries
    if code is None:
        return None
    # The first run of an entry is the miss that made it, not a hit.
    hits = [(number_of(entry), max(0, entry.hits - 1)) for entry in entries]
    checks = [(number_of(entry), *entry.guard_time) for entry in entries]
    values = [(number_of(entry), timings.value_seconds(entry.rows)) for entry in entries]
    _calls, samples, seconds, inside, gap_samples, gap = state.times()
    plain_samples, plain_seconds = state.plain_times()
    return events.Counted(
        frame=code.co_qualname,
        entries=len(entries),
        hits=sum(n for _, n in hits),
        misses=state.misses,
        resumed=state.origin is not None,
        entry_hits=tuple(pair for pair in hits if pair[0]),
        guards=tuple((number, spent) for number, timed, spent in checks if number and timed),
        values=tuple(pair for pair in values if all(pair)),
        samples=samples,
        seconds=samples * seconds,
        inside=samples * inside,
        plain_samples=plain_samples,
        plain_seconds=plain_samples * plain_seconds,
        after=state.after,
        gap_samples=gap_samples,
        gap=gap_samples * gap,
    )


def measured(state: Any) -> list[events.Event]:
    """Run times of programs, and the number of calls that ran in plain Python because of a tracer.
    Native code has both."""
    try:
        return [*timings.timed(state), *_traced(state)]
    except Exception as error:
        faults.warn_of_fault(state.code.co_qualname, error, "The report has no measurements of it.")
        return []


def _traced(state: Any) -> list[events.Event]:
    if not state.watched:
        return []
    code, reason = state.code, f"{state.watched} calls under a tracer, profiler or debugger"
    return [
        events.Fallback(code="PL208", reason=reason, frame=code.co_qualname, where=place_of(code))
    ]
