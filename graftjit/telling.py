"""What a unit tells: the events of a capture, of a recompile, and the totals that a report adds.

In: states of code objects, what `capture` gave, what changed. Out: events, emitted under the state at work or given
to the one who asks for a report. Called by `unit.Unit`; what a report may never ask for is put in words there, not
here.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from .ir.location import Location
from .kin import Made
from .runtime import clocks, events
from .runtime.session import SESSION

if TYPE_CHECKING:
    from .capture.frame import Capture
    from .room import Change
    from .runtime.mirror import FrameView


def place_of(code: types.CodeType) -> Location:
    """Where a code object begins."""
    return Location(code.co_filename, code.co_firstlineno, function=code.co_qualname)


def captured(state: Any, code: types.CodeType, made: Capture, seconds: dict[str, float]) -> None:
    """Where the graph ends, what varies, and the entry that comes of it."""
    from .runtime.mirror import guard_lines

    where = place_of(code)
    for record in made.breaks:
        SESSION.emit(
            events.GraphBreak(
                code=record.code, reason=record.reason, where=record.where, inlined=record.inlined
            )
        )
    if made.plain is not None:
        plain = made.plain
        SESSION.emit(events.RanPlain(code=plain.code, reason=plain.reason, where=plain.where))
    for source, why in made.symbolic:
        SESSION.emit(events.Symbolic(source=source, why=why, where=where))
    graph = made.graph
    SESSION.emit(
        events.Captured(
            kind=made.kind,
            resumed=state.origin is not None,
            span=state.span,
            graphs=int(graph is not None),
            nodes=sum(node.op == "call" for node in graph.nodes) if graph else 0,
            calls=len(graph.calls) if graph else 0,
            guards=guard_lines(made.rows),
            seconds=tuple(seconds.items()),
            where=where,
        )
    )


def recompiled(state: Any, change: Change, view: FrameView) -> None:
    """now X, before Y of the first guard that failed in the nearest entry; and what failed in the others."""
    from .runtime.mirror import explain_failure, failure_code

    failed = []
    for entry, row in change.failed:
        now, before = explain_failure(row, view)
        failed.append(
            events.GuardFailed(
                entry=number_of(entry),
                code=failure_code(row, view),
                source=str(row.source or row.kind),
                now=now,
                before=before,
            )
        )
    SESSION.emit(
        events.Recompile(
            code=change.code,
            source=change.source,
            now=change.now,
            before=change.before,
            entries=len(state.entries),
            limit=state.room.limit,
            failed=tuple(failed),
            where=change.row.where,
        )
    )


def resumed(made: Iterable[tuple[Any, Any]], breaks: Sequence[Any]) -> None:
    """What resumes a frame knows the break that it follows, for the report to say what that costs."""
    for _way, tail in made if breaks else ():
        tail.target.state.after = breaks[-1].where


def number_of(entry: Any) -> int:
    """The number that the events of its capture have; 0: it was not captured."""
    return entry.data.number if type(entry.data) is Made else 0


def counted(state: Any) -> events.Counted | None:
    """Totals of a state for a report; None if its code is gone, for a collection may take it at any time."""
    code, entries = state.code, state.entries
    if code is None:
        return None
    # The first run of an entry is the miss that made it.
    hits = [(number_of(entry), max(0, entry.hits - 1)) for entry in entries]
    checks = [(number_of(entry), *entry.guard_time) for entry in entries]
    _calls, samples, seconds, inside, gap_samples, gap = state.times()
    return events.Counted(
        frame=code.co_qualname,
        entries=len(entries),
        hits=sum(n for _, n in hits),
        misses=state.misses,
        resumed=state.origin is not None,
        entry_hits=tuple(pair for pair in hits if pair[0]),
        guards=tuple((number, spent) for number, timed, spent in checks if number and timed),
        samples=samples,
        seconds=samples * seconds,
        inside=samples * inside,
        after=state.after,
        gap_samples=gap_samples,
        gap=gap_samples * gap,
    )


def measured(state: Any) -> list[events.Event]:
    """Beside the totals: run times of programs, and calls that ran in plain Python for a tracer's sake. Native code has
    both."""
    return [*clocks.timed(state), *_watched(state)]


def _watched(state: Any) -> list[events.Event]:
    if not state.watched:
        return []
    code, reason = state.code, f"{state.watched} calls under a tracer, profiler or debugger"
    return [
        events.Fallback(code="PL208", reason=reason, frame=code.co_qualname, where=place_of(code))
    ]
