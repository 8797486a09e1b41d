"""Report: a pure fold over events, as frozen records with text, HTML and JSON renderings.

In: the events of one function (or of a run), in order. Out: what was captured, where the graph breaks and
what that costs, what was compiled again and why, which guards hold it all. Made by `graftjit.explain`,
`graftjit.report` and `fn.report()` through `report_of`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from ..ir.dataclass import dataclass
from ..ir.location import Location
from . import codes, events
from .errors import NotClean, OptionError
from .session import SESSION


@dataclass(frozen=True, slots=True)
class Place:
    """A user's line. Lines count from 1, columns from 0; None where unknown."""

    file: str = "?"
    line: int | None = None
    end_line: int | None = None
    column: int | None = None
    end_column: int | None = None
    function: str = "?"


@dataclass(frozen=True, slots=True)
class BreakRecord(Place):
    """A graph break. `count`: how many captures met it; `inlined`: the calls that lead to it."""

    code: str = ""
    title: str = ""
    reason: str = ""
    why: str = ""
    cost: str = ""
    cure: str = ""
    frame: str = ""
    count: int = 1
    inlined: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class RecompileRecord(Place):
    """Another entry: `source` is `now`, the nearest entry was made for `before`."""

    code: str = ""
    title: str = ""
    source: str = ""
    now: str = ""
    before: str = ""
    cure: str = ""
    frame: str = ""


@dataclass(frozen=True, slots=True)
class SymbolicRecord(Place):
    """A size or number that graphs take as an input, because it varies from call to call."""

    source: str = ""
    why: str = ""
    frame: str = ""


@dataclass(frozen=True, slots=True)
class GuardRecord(Place):
    """A condition under which an entry is valid."""

    kind: str = ""
    source: str = ""
    text: str = ""
    frame: str = ""


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """A kernel library: bytes of the file, seconds to build or load it, the operators inside."""

    name: str
    bytes: int
    seconds: float
    cached: bool
    covers: tuple[str, ...]
    frame: str


@dataclass(frozen=True, slots=True)
class ScheduleRecord:
    """A kernel that was timed in several ways (level O2): (way, seconds) with the default first, and the one chosen.
    `before`, `now`: seconds of the default and of the chosen one."""

    name: str
    chosen: str
    times: tuple[tuple[str, float], ...]
    remembered: bool
    covers: tuple[str, ...]
    frame: str

    @property
    def before(self) -> float:
        return self.times[0][1] if self.times else 0.0

    @property
    def now(self) -> float:
        return dict(self.times).get(self.chosen, self.before)


@dataclass(frozen=True, slots=True)
class NoteRecord(Place):
    """A fallback, or a frame left to plain Python (`plain`)."""

    code: str = ""
    title: str = ""
    reason: str = ""
    cure: str = ""
    frame: str = ""
    plain: bool = False
    count: int = 1


@dataclass(frozen=True, slots=True)
class FrameRecord(Place):
    """Totals of one frame, the resume functions after its breaks included; `hits` and `misses` are of its beginning.

    `distinct`: of the kernels, those that are another's equal left out; `adopted`: entries over what had been compiled for another callable of the kind; `kinds`: of the entries ("direct",
    "code", "plain"); `plain`: the code of why it runs in plain Python
    (empty if it does not); `seconds`: (stage, seconds) summed over its captures.
    """

    frame: str = ""
    entries: int = 0
    adopted: int = 0
    kinds: tuple[str, ...] = ()
    graphs: int = 0
    operators: int = 0
    calls: int = 0
    kernels: int = 0
    distinct: int = 0
    library: int = 0
    breaks: int = 0
    recompiles: int = 0
    guards: int = 0
    hits: int = 0
    misses: int = 0
    plain: str = ""
    seconds: tuple[tuple[str, float], ...] = ()


_ENTRIES = (events.Captured, events.Adopted)


def _place(where: Location | None) -> dict[str, Any]:
    return (
        {} if where is None else {f.name: getattr(where, f.name) for f in dataclasses.fields(Place)}
    )


@dataclass(frozen=True)
class Report:
    """What has happened to `name`. All lists are computed from `events`, which never change."""

    name: str
    events: tuple[events.Event, ...] = ()
    dropped: int = 0

    def _of(self, *kinds: type) -> list[Any]:
        return [event for event in self.events if type(event) in kinds]

    @cached_property
    def breaks(self) -> list[BreakRecord]:
        """Graph breaks, one a place, in the order in which they were met."""
        found: dict[Any, BreakRecord] = {}
        for e in self._of(events.GraphBreak):
            row, key = codes.lookup(e.code), (e.code, e.where, e.inlined, e.frame)
            found[key] = BreakRecord(
                **_place(e.where),
                code=e.code,
                title=row.title,
                reason=e.reason,
                why=row.why,
                cost=e.cost or codes.family(e.code).cost,
                cure=e.cure or row.cure,
                frame=e.frame,
                count=1 + (found[key].count if key in found else 0),
                inlined=tuple(Place(**_place(where)) for where in e.inlined),
            )
        return list(found.values())

    @cached_property
    def recompiles(self) -> list[RecompileRecord]:
        """Each recompile, in order."""
        return [
            RecompileRecord(
                **_place(e.where),
                code=e.code,
                title=codes.lookup(e.code).title,
                source=e.source,
                now=e.now,
                before=e.before,
                cure=codes.lookup(e.code).cure,
                frame=e.frame,
            )
            for e in self._of(events.Recompile)
        ]

    @cached_property
    def symbolic(self) -> list[SymbolicRecord]:
        """Sizes and numbers that became inputs of graphs, each once a frame."""
        found = {
            (e.frame, e.source): SymbolicRecord(
                **_place(e.where), source=e.source, why=e.why, frame=e.frame
            )
            for e in self._of(events.Symbolic)
        }
        return list(found.values())

    @cached_property
    def guards(self) -> list[GuardRecord]:
        """The conditions of all entries, each once a frame."""
        found = {
            (e.frame, line.expected): GuardRecord(
                **_place(line.where),
                kind=line.kind,
                source=line.source,
                text=line.expected,
                frame=e.frame,
            )
            for e in reversed(self._of(*_ENTRIES))
            for line in reversed(e.guards)
        }
        return list(reversed(found.values()))

    @cached_property
    def kernels(self) -> list[KernelRecord]:
        """Kernel libraries, in the order in which they were built or loaded."""
        return [
            KernelRecord(e.name, e.bytes, e.seconds, e.cached, tuple(e.covers), e.frame)
            for e in self._of(events.KernelBuilt)
        ]

    @cached_property
    def schedules(self) -> list[ScheduleRecord]:
        """Kernels that were timed in several ways, in order."""
        return [
            ScheduleRecord(e.name, e.chosen, e.times, e.remembered, tuple(e.covers), e.frame)
            for e in self._of(events.Tuned)
        ]

    @cached_property
    def notes(self) -> list[NoteRecord]:
        """Fallbacks and plain frames, equal ones once with a count."""
        found: dict[Any, NoteRecord] = {}
        seen = {e.frame: e.where for e in reversed(self._of(events.FrameSeen))}
        for e in self.events:
            if not isinstance(e, (events.Fallback, events.RanPlain)):
                continue
            row, key = codes.lookup(e.code), (e.code, e.reason, e.frame, e.where)
            found[key] = NoteRecord(
                **_place(e.where or seen.get(e.frame)),
                code=e.code,
                title=row.title,
                reason=e.reason,
                cure=row.cure,
                frame=e.frame,
                plain=isinstance(e, events.RanPlain),
                count=1 + (found[key].count if key in found else 0),
            )
        return list(found.values())

    @cached_property
    def frames(self) -> list[FrameRecord]:
        """One record a frame, in the order in which they were first met."""
        names = dict.fromkeys(e.frame for e in self.events if e.frame)
        return [self._frame(name) for name in names]

    def _frame(self, name: str) -> FrameRecord:
        mine = [e for e in self.events if e.frame == name]
        captured: list[Any] = [e for e in mine if type(e) in _ENTRIES]
        compiled = [e for e in mine if type(e) is events.Compiled]
        counted = [e for e in mine if type(e) is events.Counted]
        plain = [e for e in mine if type(e) is events.RanPlain]
        first = next((e.where for e in mine if type(e) is events.FrameSeen), None)
        seconds: dict[str, float] = {}
        adopted = [e for e in captured if type(e) is events.Adopted]
        for e in captured:
            for stage, spent in getattr(e, "seconds", ()):
                seconds[stage] = seconds.get(stage, 0.0) + spent
        return FrameRecord(
            **_place(first or next((e.where for e in captured + plain if e.where), None)),
            frame=name,
            entries=sum(e.entries for e in counted) if counted else len(captured),
            adopted=len(adopted),
            kinds=tuple(e.kind for e in captured),
            graphs=sum(e.graphs for e in captured),
            operators=sum(e.nodes for e in compiled) or sum(e.nodes for e in captured),
            calls=sum(e.calls for e in captured),
            kernels=sum(e.kernels for e in compiled),
            distinct=sum(e.distinct for e in compiled),
            library=sum(e.library for e in compiled),
            breaks=sum(b.frame == name for b in self.breaks),
            recompiles=sum(type(e) is events.Recompile for e in mine),
            guards=sum(g.frame == name for g in self.guards),
            hits=sum(e.hits for e in counted if not e.resumed),
            misses=sum(e.misses for e in counted if not e.resumed),
            plain=plain[-1].code if plain else "",
            seconds=tuple(seconds.items()),
        )

    @property
    def graph_count(self) -> int:
        """Graphs over all entries, those included that were taken over from another model of the class or another
        function of the same code."""
        return sum(e.graphs for e in self._of(*_ENTRIES))

    @property
    def adopted_count(self) -> int:
        """Entries for which nothing was captured or compiled, for a callable of the kind had them already."""
        return len(self._of(events.Adopted))

    @property
    def break_count(self) -> int:
        return len(self.breaks)

    @property
    def recompile_count(self) -> int:
        return len(self.recompiles)

    def text(self, width: int = 100) -> str:
        """One screen of at most `width` columns."""
        from .report_text import render_text

        return render_text(self, width)

    __str__ = text

    def __repr__(self) -> str:
        return (
            f"<Report {self.name}: {self.graph_count} graphs, {self.break_count} breaks, "
            f"{self.recompile_count} recompiles>"
        )

    def html(self) -> str:
        """One self-contained page."""
        from .report_text import render_html

        return render_html(self)

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain values, for `json`."""
        parts: dict[str, Sequence[Any]] = {
            "frames": self.frames,
            "breaks": self.breaks,
            "recompiles": self.recompiles,
            "kernels": self.kernels,
            "schedules": self.schedules,
            "notes": self.notes,
            "guards": self.guards,
        }
        return {
            "name": self.name,
            "graph_count": self.graph_count,
            "break_count": self.break_count,
            "recompile_count": self.recompile_count,
            "adopted_count": self.adopted_count,
            "dropped_events": self.dropped,
            **{name: [dataclasses.asdict(r) for r in records] for name, records in parts.items()},
        }

    def json(self) -> str:
        return json.dumps(self.as_dict(), indent=2)

    def save(self, path: str | Path) -> Path:
        """Write the rendering that the suffix names: .txt, .html or .json. Raises OptionError on another."""
        target = Path(path)
        renderings = {".txt": self.text, ".html": self.html, ".htm": self.html, ".json": self.json}
        render = renderings.get(target.suffix.lower())
        if render is None:
            raise OptionError(
                "a report is saved by the suffix of its file name",
                expected=", ".join(renderings),
                found=repr(target.name),
            )
        target.write_text(render() + "\n", encoding="utf-8")
        return target

    def assert_clean(self, max_breaks: int = 0, max_recompiles: int = 0) -> None:
        """Raise NotClean (an AssertionError) if more graph breaks or recompiles happened than allowed, or if
        a frame was left to plain Python although it has tensor operations."""
        plain = [n for n in self.notes if n.plain and n.code != "PL204"]
        found = [
            f"{count} {word} (allowed: {most})"
            for count, word, most in (
                (self.break_count, "graph breaks", max_breaks),
                (self.recompile_count, "recompiles", max_recompiles),
                (len(plain), "frames in plain Python", 0),
            )
            if count > most
        ]
        if found:
            raise NotClean(
                f"the report of {self.name} is not clean: {', '.join(found)}\n\n{self.text()}"
            )


def report_of(name: str, keys: Iterable[Any] | None, extra: Iterable[events.Event] = ()) -> Report:
    """The Report over what SESSION recorded under these keys (None: everything), with `extra` events (a
    `Counted` a frame) at the end."""
    keys = None if keys is None else list(keys)
    return Report(name, SESSION.log.of(keys) + tuple(extra), SESSION.log.dropped(keys))
