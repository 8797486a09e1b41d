"""Folds: pure functions from a sequence of events to each list of a report.

In: a `Folding`, the events with an index by kind. Out: records (`runtime.report.records`), in the
order of the events. Any sequence of events is valid, also one whose beginning is lost (the log is
bounded) and one with events of several frames. `FOLDS` maps each list to its fold; those of kernels
and graphs are in `program_folds`. `report.Report` calls them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

from ...ir.location import Location
from .. import codes
from ..events import events
from . import cures
from .fold_places import at
from .program_folds import fold_graphs, fold_kernels
from .records import (
    BreakRecord,
    EntryRecord,
    FailureRecord,
    FrameRecord,
    GuardRecord,
    LibraryRecord,
    Moment,
    NoteRecord,
    Place,
    RecompileRecord,
    ScheduleRecord,
    SymbolicRecord,
    WarningRecord,
)

FEWEST = 2  # least number of sampled calls for a mean, since a single call may be untypical
ENTERED = (events.Captured, events.Adopted)


class Folding:
    """Events with indices that several folds need."""

    def __init__(self, found: Iterable[events.Event]) -> None:
        self.events = tuple(found)

    @cached_property
    def _by_kind(self) -> dict[type, list[Any]]:
        found: dict[type, list[Any]] = {}
        for event in self.events:
            found.setdefault(type(event), []).append(event)
        return found

    def of(self, kind: type) -> list[Any]:
        """The events of a kind, in order."""
        return self._by_kind.get(kind, [])

    @cached_property
    def entered(self) -> list[Any]:
        """The events of new entries, in order."""
        return [event for event in self.events if type(event) in ENTERED]

    @cached_property
    def by_frame(self) -> dict[str, list[Any]]:
        """The events of each frame; frames in the order of their first event."""
        found: dict[str, list[Any]] = {}
        for event in self.events:
            if event.frame:
                found.setdefault(event.frame, []).append(event)
        return found

    @cached_property
    def numbers(self) -> dict[tuple[str, int], int]:
        """(frame, `Event.entry`) -> the entry's number in the frame."""
        found: dict[tuple[str, int], int] = {}
        counts: dict[str, int] = {}
        for event in self.entered:
            counts[event.frame] = number = counts.get(event.frame, 0) + 1
            if event.entry:
                found[event.frame, event.entry] = number
        return found

    @cached_property
    def programs(self) -> list[events.Compiled]:
        """The compiled or adopted programs, in order."""
        found = []
        for event in self.events:
            if type(event) is events.Compiled:
                found.append(event)
            elif type(event) is events.Adopted:
                found += [
                    dataclasses.replace(program, frame=event.frame, entry=event.entry)
                    for program in event.programs
                ]
        return found

    def number(self, event: events.Event, frame: str = "") -> int:
        """The number of the entry of an event, or 0. `frame`: that of the enclosing event."""
        return self.numbers.get((event.frame or frame, event.entry), 0)


# -- what was captured -----------------------------------------------------------------------------
def fold_frames(log: Folding) -> list[FrameRecord]:
    """One record per frame, in the order in which the frames were first met."""
    breaks, guards = _count(fold_breaks(log)), _count(fold_guards(log))
    programs: dict[str, list[events.Compiled]] = {}
    for program in log.programs:
        programs.setdefault(program.frame, []).append(program)
    return [
        _frame(name, mine, programs.get(name, []), breaks.get(name, 0), guards.get(name, 0))
        for name, mine in log.by_frame.items()
    ]


def _count(records: Iterable[Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    for record in records:
        found[record.frame] = found.get(record.frame, 0) + 1
    return found


def _frame(
    name: str, mine: list[Any], compiled: list[events.Compiled], breaks: int, guards: int
) -> FrameRecord:
    captured: list[Any] = [e for e in mine if type(e) in ENTERED]
    counted = [e for e in mine if type(e) is events.Counted]
    plain = [e for e in mine if type(e) is events.RanPlain]
    first = next((e.where for e in mine if type(e) is events.FrameSeen), None)
    where = first or next((e.where for e in captured + plain if e.where), None)
    begun = [e for e in counted if not e.resumed]
    return FrameRecord(
        **at(where),
        frame=name,
        entries=sum(e.entries for e in counted) if counted else len(captured),
        adopted=sum(type(e) is events.Adopted for e in captured),
        kinds=tuple(e.kind for e in captured),
        graphs=sum(e.graphs for e in captured),
        operators=sum(e.nodes for e in compiled) or sum(e.nodes for e in captured),
        calls=sum(e.calls for e in captured),
        kernels=sum(e.kernels for e in compiled),
        distinct=sum(e.distinct for e in compiled),
        library=sum(e.library for e in compiled),
        breaks=breaks,
        recompiles=sum(type(e) is events.Recompile for e in mine),
        guards=guards,
        hits=sum(e.hits for e in begun),
        misses=sum(e.misses for e in begun),
        plain=plain[-1].code if plain else "",
        seconds=_stages(captured),
        calls_seen=sum(e.hits + e.misses for e in begun),
        resumed_lines=_spans(captured),
        lines=_covered(compiled, where),
        segments=max((e.segments for e in mine if type(e) is events.BackwardDivided), default=0),
        **_clocked(begun),
    )


def _stages(captured: Iterable[Any]) -> tuple[tuple[str, float], ...]:
    seconds: dict[str, float] = {}
    for event in captured:
        for stage, spent in getattr(event, "seconds", ()):
            seconds[stage] = seconds.get(stage, 0.0) + spent
    return tuple(seconds.items())


def _clocked(begun: list[events.Counted]) -> dict[str, Any]:
    """Mean times of the sampled calls."""
    samples, seconds = sum(e.samples for e in begun), sum(e.seconds for e in begun)
    plain = _as_written(begun)
    if samples < FEWEST or seconds <= 0:
        return plain
    inside = sum(e.inside for e in begun)
    share = min(1.0, inside / seconds)
    return {
        "samples": samples,
        "seconds_a_call": seconds / samples,
        "compiled_share": share,
        **plain,
    }


def _as_written(begun: list[events.Counted]) -> dict[str, Any]:
    samples, seconds = sum(e.plain_samples for e in begun), sum(e.plain_seconds for e in begun)
    if samples < FEWEST or seconds <= 0:
        return {}
    return {"plain_samples": samples, "plain_seconds": seconds / samples}


def _spans(captured: Iterable[Any]) -> tuple[tuple[int, int], ...]:
    """The line ranges of resume functions, without duplicates, by first line."""
    return tuple(sorted({(e.span[0], e.span[1]) for e in captured if len(e.span) == 2}))


def _covered(compiled: Iterable[Any], where: Location | None) -> tuple[int, ...]:
    """The lines of the frame's file that its graphs cover."""
    if where is None:
        return ()
    nodes = (node.where for e in compiled if e.sketch for node in e.sketch.nodes)
    steps = (line for e in compiled for step in e.steps for line in step.lines)
    found = {
        line.line
        for line in (*nodes, *steps)
        if line is not None and line.file == where.file and line.line is not None
    }
    return tuple(sorted(found))


def fold_entries(log: Folding) -> list[EntryRecord]:
    """One record per entry, in the order in which they were made."""
    hits = {(e.frame, entry): n for e in log.of(events.Counted) for entry, n in e.entry_hits}
    checks = {(e.frame, entry): s for e in log.of(events.Counted) for entry, s in e.guards}
    values = {(e.frame, entry): s for e in log.of(events.Counted) for entry, s in e.values}
    counted = {e.frame for e in log.of(events.Counted) if e.entry_hits}
    programs: dict[tuple[str, int], list[events.Compiled]] = {}
    for e in log.programs:
        programs.setdefault((e.frame, e.entry), []).append(e)
    counts: dict[str, int] = {}
    begun = {e.frame: e.where for e in reversed(log.of(events.FrameSeen))}
    found = []
    for e in log.entered:
        counts[e.frame] = number = counts.get(e.frame, 0) + 1
        key = (e.frame, e.entry)
        compiled = programs.get(key, []) if e.entry else []
        found.append(
            EntryRecord(
                **at(begun.get(e.frame) or e.where),
                frame=e.frame,
                number=number,
                kind=e.kind,
                resumed=e.resumed,
                adopted=type(e) is events.Adopted,
                graph=_graph_name(e, compiled),
                operators=sum(c.nodes for c in compiled) or e.nodes,
                calls=e.calls,
                kernels=sum(c.kernels for c in compiled),
                distinct=sum(c.distinct for c in compiled),
                library=sum(c.library for c in compiled),
                guards=len(e.guards) + e.let_go,
                guard_seconds=checks.get(key, 0.0),
                value_seconds=values.get(key, 0.0),
                claimed=e.claimed,
                stages=tuple(getattr(e, "seconds", ())),
                saved_bytes=sum(c.saved_bytes for c in compiled),
                spared_bytes=sum(c.spared_bytes for c in compiled),
                again=sum(c.again for c in compiled),
                again_seconds=sum((c.again_seconds for c in compiled), 0.0),
                hits=hits.get(key, 0),
                alive=key in hits or e.frame not in counted,
                at=e.at,
            )
        )
    return found


def _graph_name(entered: Any, compiled: list[events.Compiled]) -> str:
    if not entered.graphs:
        return ""
    return next((c.graph for c in compiled if c.graph), "graph")


# -- what it cost and why --------------------------------------------------------------------------
def fold_breaks(log: Folding) -> list[BreakRecord]:
    """Graph breaks, one per location, in the order in which they were met."""
    gaps: dict[Any, tuple[float, int]] = {}
    for e in log.of(events.Counted):
        if e.after is not None and e.gap_samples:
            spent, samples = gaps.get((e.frame, e.after), (0.0, 0))
            gaps[e.frame, e.after] = spent + e.gap, samples + e.gap_samples
    found: dict[Any, BreakRecord] = {}
    for e in log.of(events.GraphBreak):
        row, key = codes.lookup(e.code), (e.code, e.where, e.inlined, e.frame)
        spent, samples = gaps.get((e.frame, e.where), (0.0, 0))
        # A function that resumes a loop over an outside iterator meets the break again and no
        # longer knows its origin, so the first reason stays; the caller's, for an inlined function.
        if e.code == "GB120" and not e.inlined:
            same = (known for known in found if known[:2] == key[:2] and known[2])
            key = next(same, key)
        reason = found[key].reason if key in found else e.reason
        found[key] = BreakRecord(
            **at(e.where),
            code=e.code,
            title=row.title,
            reason=reason,
            why=row.why,
            cost=e.cost or codes.family(e.code).cost,
            cure=e.cure or cures.of_break(e.code, reason),
            frame=e.frame,
            count=1 + (found[key].count if key in found else 0),
            inlined=tuple(Place(**at(where)) for where in e.inlined),
            seconds=spent / samples if samples else 0.0,
            samples=samples,
        )
    return list(found.values())


def fold_recompiles(log: Folding) -> list[RecompileRecord]:
    """All recompiles, in order."""
    growing = _growing(log.of(events.Recompile))
    bound: dict[str, dict[str, str]] = {}
    for e in log.of(events.Symbolic):
        if e.why.startswith("constant, because "):
            bound.setdefault(e.frame, {})[e.source] = e.why
    return [
        RecompileRecord(
            **at(e.where),
            code=e.code,
            title=codes.lookup(e.code).title,
            source=e.source,
            now=e.now,
            before=e.before,
            cure=cures.of_growth(e.source)
            if id(e) in growing
            else cures.of_recompile(
                e.code, e.source, e.now, e.before, _bound(e, bound.get(e.frame, {}))
            ),
            frame=e.frame,
            entries=e.entries,
            limit=e.limit,
            failed=tuple(
                FailureRecord(log.number(f, e.frame), f.code, f.source, f.now, f.before)
                for f in e.failed
            ),
            at=e.at,
        )
        for e in log.of(events.Recompile)
    ]


ALL = "sizes and numbers"
"""The source of a Symbolic event about a whole frame, if an operator supports no symbolic size."""


def _bound(e: events.Recompile, plain: dict[str, str]) -> str:
    """Why a size in this recompile is not symbolic. `plain`: size -> reason."""
    for source, why in plain.items():
        if source == ALL or source.startswith(f"{e.source}.shape["):
            return why
        if source in e.before or source in e.now:
            return why
    return ""


def _growing(recompiles: Iterable[events.Recompile]) -> set[int]:
    """The recompiles of containers that grew by one, as they did before the previous recompile."""
    found: set[int] = set()
    latest: dict[tuple[str, str], tuple[str, bool]] = {}
    for e in recompiles:
        if e.code != "RC405" or not (e.now.isdecimal() and e.before.isdecimal()):
            continue
        grew = int(e.now) == int(e.before) + 1
        before, had_grown = latest.get((e.frame, e.source), ("", False))
        if grew and had_grown and e.before == before:
            found.add(id(e))
        latest[e.frame, e.source] = e.now, grew
    return found


def fold_symbolic(log: Folding) -> list[SymbolicRecord]:
    """Sizes and numbers that became inputs of graphs, each once per frame."""
    found = {
        (e.frame, e.source): SymbolicRecord(
            **at(e.where), source=e.source, why=e.why, frame=e.frame
        )
        for e in log.of(events.Symbolic)
    }
    return list(found.values())


def fold_guards(log: Folding) -> list[GuardRecord]:
    """The conditions of all entries, each once per frame."""
    found: dict[tuple[str, str], GuardRecord] = {}
    for e in reversed(log.entered):
        number = log.number(e)
        for line in reversed(e.guards):
            found[e.frame, line.expected] = GuardRecord(
                **at(line.where),
                kind=line.kind,
                source=line.source,
                text=line.expected,
                frame=e.frame,
                entry=number,
                path=line.path,
            )
    return list(reversed(found.values()))


def fold_libraries(log: Folding) -> list[LibraryRecord]:
    """Kernel libraries, in the order in which they were built or loaded."""
    return [
        LibraryRecord(e.name, e.bytes, e.seconds, e.cached, tuple(e.covers), e.frame, e.at)
        for e in log.of(events.KernelBuilt)
    ]


def fold_schedules(log: Folding) -> list[ScheduleRecord]:
    """Kernels with timed alternatives, in order."""
    return [
        ScheduleRecord(e.name, e.chosen, e.times, e.remembered, tuple(e.covers), e.frame)
        for e in log.of(events.Tuned)
    ]


def fold_notes(log: Folding) -> list[NoteRecord]:
    """Fallbacks and plain frames; equal ones are one record with a count."""
    found: dict[Any, NoteRecord] = {}
    seen = {e.frame: e.where for e in reversed(log.of(events.FrameSeen))}
    for e in log.events:
        if not isinstance(e, (events.Fallback, events.RanPlain)):
            continue
        row, key = codes.lookup(e.code), (e.code, e.reason, e.frame, e.where)
        found[key] = NoteRecord(
            **at(e.where or seen.get(e.frame)),
            code=e.code,
            title=row.title,
            reason=e.reason,
            cure=row.cure,
            frame=e.frame,
            plain=isinstance(e, events.RanPlain),
            count=1 + (found[key].count if key in found else 0),
        )
    return list(found.values())


def fold_warnings(log: Folding) -> list[WarningRecord]:
    """The warnings that were issued, in order."""
    return [WarningRecord(e.code, e.text, e.at) for e in log.of(events.Warned)]


# -- when ------------------------------------------------------------------------------------------
def _moment(e: Any, kind: str, title: str, seconds: float = 0.0) -> Moment:
    return Moment(e.at - seconds, kind, title, e.frame, seconds)


def _capture_moments(e: Any) -> list[Moment]:
    """The capture, and the guards at its end. Compilation has an event of its own."""
    part = "what follows a break" if e.resumed else "the frame"
    found = [_moment(e, "capture", f"capture of {part}", sum((s for _, s in e.seconds), 0.0))]
    guards = dict(e.seconds).get("guards", 0.0)
    return [*found, _moment(e, "stage", "guards", guards)] if guards else found


def _program_moments(e: Any) -> list[Moment]:
    part = f" ({e.part})" if e.part else ""
    return [_moment(e, "stage", f"compile {e.graph}{part}", e.seconds)] if e.seconds else []


_MOMENTS: dict[type, Callable[[Any], list[Moment]]] = {
    events.Captured: _capture_moments,
    events.Compiled: _program_moments,
    events.Adopted: lambda e: [
        _moment(e, "adopted", "reused from another callable of the same class or code")
    ],
    events.KernelBuilt: lambda e: [
        _moment(e, "build", f"{'loading' if e.cached else 'building'} {e.name}", e.seconds)
    ],
    events.GraphBreak: lambda e: [_moment(e, "break", f"{e.code} {e.reason}".rstrip())],
    events.Recompile: lambda e: [
        _moment(e, "recompile", f"{e.code} {e.source}: now {e.now}, before {e.before}")
    ],
    events.Fallback: lambda e: [_moment(e, "fallback", f"{e.code} {e.reason}".rstrip())],
    events.RanPlain: lambda e: [_moment(e, "plain", f"{e.code} {e.reason}".rstrip())],
    events.Warned: lambda e: [_moment(e, "warning", f"{e.code} {e.text}".rstrip())],
}


def fold_timeline(log: Folding) -> list[Moment]:
    """The timeline, by start; an enclosing moment comes before its parts."""
    found = [m for e in log.events if type(e) in _MOMENTS for m in _MOMENTS[type(e)](e)]
    return sorted(found, key=lambda moment: (moment.at, -moment.seconds))


FOLDS: dict[str, Callable[[Folding], list[Any]]] = {
    "frames": fold_frames,
    "entries": fold_entries,
    "breaks": fold_breaks,
    "recompiles": fold_recompiles,
    "symbolic": fold_symbolic,
    "guards": fold_guards,
    "kernels": fold_kernels,
    "libraries": fold_libraries,
    "graphs": fold_graphs,
    "schedules": fold_schedules,
    "notes": fold_notes,
    "warnings": fold_warnings,
    "timeline": fold_timeline,
}
