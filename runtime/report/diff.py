"""Comparison of two reports: breaks, recompiles, kernels, calls and frames that are new, gone or
have another cost.

In: two `report.Report`s, made in this process or read from JSON. Out: a `ReportDiff`, whose records
tell what is worse. Locations are compared by file, function and finding, without line numbers, so a
moved line is the same line. Times count only where both reports have measured them, and only if
they differ by a quarter and a microsecond. `Report.diff` calls `diff`.
"""

from __future__ import annotations

import dataclasses
import os
import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ...ir.dataclass import dataclass
from .records import Place

if TYPE_CHECKING:
    from .report import Report

_PART = 1.25  # factor by which times must differ
_LEAST = 1e-6  # seconds by which times must differ
_PLACE = tuple(field.name for field in dataclasses.fields(Place))


@dataclass(frozen=True, slots=True)
class DiffRecord(Place):
    """One difference. `kind`: "break", "recompile", "plain", "fallback", "frame", "kernel" or
    "call". `change`: "new", "gone", "more" or "less". `before` and `now` are in `unit`: "times",
    "seconds", or the name of what is counted. `worse`: whether the new report is worse in this
    respect."""

    kind: str = ""
    change: str = ""
    title: str = ""
    frame: str = ""
    before: float = 0.0
    now: float = 0.0
    unit: str = "times"
    worse: bool = False


@dataclass(frozen=True, slots=True)
class ReportDiff:
    """The differences of two reports, the worse ones first. True if there are any."""

    name: str
    records: tuple[DiffRecord, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.records)

    @property
    def worse(self) -> list[DiffRecord]:
        """The differences in which the new report is worse."""
        return [record for record in self.records if record.worse]

    def of(self, kind: str, change: str = "") -> list[DiffRecord]:
        """The differences of a kind: `diff.of("break", "new")`."""
        return [r for r in self.records if r.kind == kind and change in ("", r.change)]

    def text(self, width: int = 100) -> str:
        """One or two lines for each difference."""
        if not self.records:
            return f"{self.name}: no difference"
        worse = len(self.worse)
        head = f"{self.name}: {len(self.records)} differences, {worse} for the worse"
        lines = [head if len(self.records) > 1 else f"{self.name}: 1 difference"]
        for record in self.records:
            lines += _lines(record, width)
        return "\n".join(lines)

    __str__ = text

    def as_dict(self) -> dict[str, Any]:
        """The differences as plain values."""
        return {"name": self.name, "records": [dataclasses.asdict(r) for r in self.records]}


_SLOWER = {"more": "slower", "less": "faster"}


def _lines(record: DiffRecord, width: int) -> Iterator[str]:
    sign = {True: "!", False: " "}[record.worse]
    change = _SLOWER[record.change] if record.unit == "seconds" else record.change
    first = f"{sign} {change:<6} {record.kind}: "
    shown = f"{record.title}{_amounts(record)}"
    if record.line is not None:
        shown += f" ({os.path.basename(record.file)}:{record.line})"
    yield from textwrap.wrap(shown, width, initial_indent=first, subsequent_indent=" " * 9)


def _amounts(record: DiffRecord) -> str:
    if record.unit == "seconds":
        return f", {record.now * 1e6:.1f} us per call, before {record.before * 1e6:.1f}"
    if record.change in ("more", "less"):
        return f", {record.now:g} {record.unit}, before {record.before:g}"
    return ""


# -- what is compared ------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Kind:
    """How one list of records is compared: identity, title and cost of a record. `bad`: each new
    record makes the report worse."""

    name: str
    records: Callable[[Report], Iterable[Any]]
    key: Callable[[Any], Any]
    title: Callable[[Any], str]
    seconds: Callable[[Any], float] = lambda record: 0.0
    bad: bool = True


def _where(record: Any) -> tuple[str, str]:
    return os.path.basename(record.file), record.function


def _step_key(record: Any) -> Any:
    return record.frame, record.device, record.operators, record.shape


def _step_title(record: Any) -> str:
    work = ", ".join(record.operators[:4]) + (", ..." if len(record.operators) > 4 else "")
    return f"{work or record.name} {record.shape}".rstrip()


def _note_key(record: Any) -> Any:
    return record.code, record.frame, record.reason


_KINDS = (
    _Kind(
        "break",
        lambda report: report.breaks,
        lambda r: (r.code, _where(r), r.frame, r.reason, tuple(_where(one) for one in r.inlined)),
        lambda r: f"{r.code} {r.title} in {r.frame}: {r.reason}",
        lambda r: r.seconds,
    ),
    _Kind(
        "recompile",
        lambda report: report.recompiles,
        lambda r: (r.code, r.frame, r.source),
        lambda r: f"{r.code} {r.title} in {r.frame}: {r.source}",
    ),
    _Kind(
        "plain",
        lambda report: [note for note in report.notes if note.plain],
        _note_key,
        lambda r: f"{r.code} {r.title}: {r.frame} runs in plain Python",
    ),
    _Kind(
        "fallback",
        lambda report: [note for note in report.notes if not note.plain],
        _note_key,
        lambda r: f"{r.code} {r.title} in {r.frame}: {r.reason}",
    ),
    _Kind(
        "frame",
        lambda report: report.frames,
        lambda r: (r.frame, os.path.basename(r.file)),
        lambda r: r.frame,
        lambda r: r.seconds_a_call,
        bad=False,
    ),
    _Kind(
        "kernel",
        lambda report: [step for step in report.kernels if step.kind == "kernel"],
        _step_key,
        _step_title,
        lambda r: r.seconds,
        bad=False,
    ),
    _Kind(
        "call",
        lambda report: [step for step in report.kernels if step.kind != "kernel"],
        _step_key,
        _step_title,
        lambda r: r.seconds,
        bad=False,
    ),
)

# (attribute of a frame, what it counts, whether more is worse)
_COUNTS = (
    ("graphs", "graphs", False),
    ("kernels", "kernels", False),
    ("library", "library calls", True),
)


def diff(new: Report, old: Report) -> ReportDiff:
    """The differences of `new` from `old`."""
    found = [record for kind in _KINDS for record in _compared(kind, new, old)]
    found += _counts(new, old)
    return ReportDiff(new.name, tuple(sorted(found, key=lambda record: not record.worse)))


def _compared(kind: _Kind, new: Report, old: Report) -> Iterator[DiffRecord]:
    """Records with equal keys are matched in order."""
    now, before = _grouped(kind, new), _grouped(kind, old)
    for key in {**now, **before}:
        mine, others = now.get(key, []), before.get(key, [])
        for one, other in zip(mine, others, strict=False):
            yield from _costs(kind, one, other)
        for one in mine[len(others) :]:
            yield _record(kind, one, "new", worse=kind.bad)
        for one in others[len(mine) :]:
            yield _record(kind, one, "gone", worse=False)


def _grouped(kind: _Kind, report: Report) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = {}
    for record in kind.records(report):
        found.setdefault(kind.key(record), []).append(record)
    return found


def _costs(kind: _Kind, one: Any, other: Any) -> Iterator[DiffRecord]:
    now, before = kind.seconds(one), kind.seconds(other)
    if now <= 0 or before <= 0 or abs(now - before) < _LEAST:
        return
    if max(now, before) >= _PART * min(now, before):
        change = "more" if now > before else "less"
        yield dataclasses.replace(
            _record(kind, one, change, now > before), before=before, now=now, unit="seconds"
        )


def _record(kind: _Kind, one: Any, change: str, worse: bool) -> DiffRecord:
    place = {name: getattr(one, name) for name in _PLACE}
    return DiffRecord(
        **place,
        kind=kind.name,
        change=change,
        title=kind.title(one).rstrip(": "),
        frame=one.frame,
        worse=worse,
    )


def _counts(new: Report, old: Report) -> Iterator[DiffRecord]:
    """Differences in the counts of frames that both reports contain."""
    before = {frame.frame: frame for frame in old.frames}
    for frame in new.frames:
        other = before.get(frame.frame)
        for name, unit, more_is_worse in _COUNTS if other is not None else ():
            now, was = getattr(frame, name), getattr(other, name)
            if now != was:
                place = {part: getattr(frame, part) for part in _PLACE}
                yield DiffRecord(
                    **place,
                    kind="frame",
                    title=frame.frame,
                    change="more" if now > was else "less",
                    frame=frame.frame,
                    before=was,
                    now=now,
                    unit=unit,
                    worse=more_is_worse and now > was,
                )
