"""Report: a pure fold over events, with text, HTML and JSON renderings.

In: the events of one function (or of a run), in order. Out: what was captured, graph breaks and
their cost, recompiles and their reasons, and guards. `graftjit.explain`, `graftjit.report` and
`fn.report()` make reports through `report_of`.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TextIO, TypeVar, overload

from ...ir.dataclass import dataclass
from .. import codes
from ..errors import REPORT_IT, GraftError, InternalError, NotClean, OptionError
from ..events import events
from ..process.session import SESSION
from . import roofline

if TYPE_CHECKING:
    from .diff import ReportDiff
    from .folds import Folding
    from .records import (
        BreakRecord,
        EntryRecord,
        FrameRecord,
        GraphRecord,
        GuardRecord,
        KernelRecord,
        LibraryRecord,
        Moment,
        NoteRecord,
        RecompileRecord,
        ScheduleRecord,
        SymbolicRecord,
        WarningRecord,
    )

_Record = TypeVar("_Record")

# The modules that make the lists and renderings. Each is imported at its first use, since
# `import graftjit` imports this file, and together they take 0.1 s.
_MAKERS = {
    "folds": ".folds",
    "programs": ".program_folds",
    "problems": ".text.problems",
    "text": ".text.render",
    "html": ".html.render",
    "json": ".json_form",
    "perfetto": ".perfetto",
    "diff": ".diff",
    "trace": ".trace_file",
}


def _maker(name: str) -> Any:
    return importlib.import_module(_MAKERS[name], __package__)


class _List(Generic[_Record]):
    """A list of the report: folded from its events at first use, or set by `from_json`."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, report: None, owner: type) -> _List[_Record]: ...
    @overload
    def __get__(self, report: Report, owner: type) -> list[_Record]: ...
    def __get__(self, report: Report | None, owner: type) -> Any:
        if report is None:
            return self
        folds = _maker("folds")
        try:
            made = report.__dict__[self._name] = folds.FOLDS[self._name](report._folding)
        except Exception as error:
            if SESSION.options.check or isinstance(error, GraftError):
                raise
            raise InternalError(
                f"the {self._name} of a report could not be made",
                found=f"{type(error).__name__}: {error}",
                todo=REPORT_IT,
            ) from error
        return made


@dataclass(frozen=True, eq=False)  # a report from JSON has no events to compare
class Report:
    """What happened to `name`. All lists are computed from `events`, which never change.
    `dropped`: number of older events lost to the limit of the log."""

    name: str
    events: tuple[events.Event, ...] = ()
    dropped: int = 0

    frames: ClassVar[_List[FrameRecord]] = _List()
    """One record per frame, in the order in which the frames were first met."""
    entries: ClassVar[_List[EntryRecord]] = _List()
    """One record per entry, in the order in which they were made."""
    breaks: ClassVar[_List[BreakRecord]] = _List()
    """Graph breaks, one per location, in the order in which they were met."""
    recompiles: ClassVar[_List[RecompileRecord]] = _List()
    """All recompiles, in order."""
    symbolic: ClassVar[_List[SymbolicRecord]] = _List()
    """Sizes and numbers that became inputs of graphs, each once per frame."""
    guards: ClassVar[_List[GuardRecord]] = _List()
    """The conditions of all entries, each once per frame."""
    kernels: ClassVar[_List[KernelRecord]] = _List()
    """The computing steps of all programs, in execution order."""
    libraries: ClassVar[_List[LibraryRecord]] = _List()
    """Kernel libraries, in the order in which they were built or loaded."""
    graphs: ClassVar[_List[GraphRecord]] = _List()
    """The graphs that became programs, in order."""
    schedules: ClassVar[_List[ScheduleRecord]] = _List()
    """Kernels with timed alternatives, in order."""
    notes: ClassVar[_List[NoteRecord]] = _List()
    """Fallbacks and plain frames; equal ones are one record with a count."""
    warnings: ClassVar[_List[WarningRecord]] = _List()
    """The warnings that were issued, in order."""
    timeline: ClassVar[_List[Moment]] = _List()
    """The timeline, by start."""

    @cached_property
    def _folding(self) -> Folding:
        return _maker("folds").Folding(self.events)

    @classmethod
    def from_trace(cls, path: str | Path) -> Report:
        """The report on the process that wrote this trace file with GRAFTJIT_TRACE=FOLDER. Raises
        OptionError if the file is no trace."""
        return _maker("trace").read_trace(path)

    @property
    def graph_count(self) -> int:
        """Number of graphs over all entries, including entries that reuse the compilation of
        another model of the class or another function of the same code."""
        return sum(frame.graphs for frame in self.frames)

    @property
    def adopted_count(self) -> int:
        """Number of entries that reuse the compilation of another callable of the same kind, so
        that nothing was captured or compiled."""
        return sum(frame.adopted for frame in self.frames)

    @property
    def left_to_python(self) -> list[NoteRecord]:
        """Frames in plain Python that could have been compiled."""
        return [one for one in self.notes if one.plain and one.code not in events.HARMLESS_FRAMES]

    @property
    def break_count(self) -> int:
        """Number of locations at which a graph broke, however many frames met each. All renderings
        show this number."""
        return len(_maker("problems").grouped_breaks(self.breaks))

    @property
    def recompile_count(self) -> int:
        """Number of entries that were made because no existing entry matched."""
        return len(self.recompiles)

    def text(self, width: int = 100, verbosity: int = 1, colour: bool | None = None) -> str:
        """The report in at most `width` columns. `verbosity` 0: whether it is clean; 1: one screen,
        highest costs first; 2: all breaks, recompiles, kernels and guards; 3: also graphs and
        kernel sources. Without escape sequences unless `colour` is true."""
        return _maker("text").render_text(self, width, verbosity, colour)

    def show(self, file: TextIO | None = None, verbosity: int = 1) -> None:
        """Print the text; on a terminal in colour and in its width. Respects NO_COLOR and
        FORCE_COLOR."""
        _maker("text").show(self, file, verbosity)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return (
            f"<Report {self.name}: {self.graph_count} graphs, {self.break_count} breaks, "
            f"{self.recompile_count} recompiles>"
        )

    def html(self) -> str:
        """One self-contained page, which opens from a file and makes no network requests."""
        return _maker("html").render_page(self)

    def _repr_html_(self) -> str:
        """The short form for notebooks: the verdict, and what to fix. It is self-contained."""
        return _maker("html").render_compact(self)

    def as_dict(self) -> dict[str, Any]:
        """The whole report as plain values, for `json`; docs/report-schema.md has the names."""
        return _maker("json").as_dict(self)

    def json(self) -> str:
        """The whole report as text, with the version of the schema first; `from_json` reads it."""
        return json.dumps(self.as_dict(), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Report:
        """The report that `json` wrote, with its lists but without its events. Raises OptionError
        if the text is no report or was written by a newer version."""
        name, dropped, lists = _maker("json").lists_of(text)
        made = cls(name, (), dropped)
        made.__dict__.update(lists)
        return made

    def trace(self) -> dict[str, Any]:
        """The timeline, and one call of each graph, in the Trace Event Format. Write it with
        `save("x.trace.json")` and open it at ui.perfetto.dev."""
        return _maker("perfetto").trace(self)

    def diff(self, old: Report) -> ReportDiff:
        """The differences from `old`: breaks, recompiles, plain frames, kernels and calls that are
        new, gone, or take another time. True if there are any. A moved line counts as the same
        line."""
        return _maker("diff").diff(self, old)

    def save(self, path: str | Path) -> Path:
        """Write the rendering of the suffix: .txt, .html, .json, or .trace.json for the timeline.
        Raises OptionError for another suffix."""
        target = Path(path)
        renderings: dict[str, Callable[[], str]] = {
            ".txt": self.text,
            ".html": self.html,
            ".htm": self.html,
            ".trace.json": lambda: json.dumps(self.trace()),
            ".json": self.json,
        }
        name = target.name.lower()
        render = next((render for end, render in renderings.items() if name.endswith(end)), None)
        if render is None:
            raise OptionError(
                "the suffix of the file name must give the form of the report",
                expected=", ".join(renderings),
                found=repr(target.name),
            )
        # File names may contain bytes that are not valid text.
        target.write_text(render() + "\n", encoding="utf-8", errors="backslashreplace")
        return target

    def assert_clean(
        self, max_breaks: int = 0, max_recompiles: int = 1, allow: Iterable[str] = ()
    ) -> None:
        """Raise NotClean (an AssertionError) if there were more graph breaks or recompiles than
        allowed, or if a frame with tensor operations was left to plain Python. Findings with a code
        in `allow` ("GB103") do not count."""
        fine = {allow} if isinstance(allow, str) else set(allow)
        unknown = sorted(code for code in fine if code not in codes.CODES)
        if unknown:
            raise OptionError(
                "`allow` takes codes",
                expected="codes of the table: GB103, RC402, ...",
                found=", ".join(unknown),
                todo="python -m graftjit codes lists them",
            )
        plain = self.left_to_python
        lists: tuple[tuple[str, Sequence[Any], int], ...] = (
            ("graph break", self.breaks, max_breaks),
            ("recompile", self.recompiles, max_recompiles),
            ("frame in plain Python", plain, 0),
        )
        found = []
        for word, records, most in lists:
            count = sum(record.code not in fine for record in records)
            if count > most:
                plural = word.replace("frame", "frames") if "frame" in word else f"{word}s"
                found.append(f"{count} {word if count == 1 else plural} (allowed: {most})")
        if found:
            raise NotClean(
                f"the report of {self.name} is not clean: {', '.join(found)}\n\n{self.text()}"
            )


def report_of(name: str, keys: Iterable[Any] | None, extra: Iterable[events.Event] = ()) -> Report:
    """The Report on what SESSION recorded under these keys (None: everything), followed by `extra`
    events (one `Counted` per frame)."""
    keys = None if keys is None else list(keys)
    found, dropped = SESSION.log.of(keys) + tuple(extra), SESSION.log.dropped(keys)
    made = Report(name, found, dropped)
    timed = any(type(event) is events.Timed and event.roofs for event in found)
    if timed and _maker("programs").beats_the_roof(made._folding):
        rows = roofline.again()
        found = tuple(
            [
                dataclasses.replace(e, roofs=rows) if type(e) is events.Timed and e.roofs else e
                for e in found
            ]
        )
        made = Report(name, found, dropped)
    return made
