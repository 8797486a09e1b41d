"""Problems in the text report: breaks, recompiles, plain frames and fallbacks, highest costs first.

In: a Report. Out: an ordered list of `Problem`s, each with its lines. Breaks in one user line are
one problem, however many frames met it. Recompiles for one reason are one problem, however many
values caused them. The cost is in seconds per call if measured, else the text of the code's family.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ....ir.dataclass import dataclass
from ... import codes
from ...events import events
from ..recompiles import change, seconds_an_entry, waiting
from ..source_lines import chain, is_internal, short_place, snippet
from ..styled_text import Line, Span, counted, cut, duration, field, line, percent, wrap

if TYPE_CHECKING:
    from ..records import BreakRecord, FrameRecord, NoteRecord, Place, RecompileRecord
    from ..report import Report

STORM = 3
"""So many recompiles for one reason suggest that more will follow."""

# Codes that report only what the user asked for, or that cost nothing.
_HARMLESS = events.HARMLESS_FRAMES | frozenset(
    {"PL206", "FB311", "FB307", "FB313", "FB316", "FB335"}
)
# Fallbacks with which nothing, or almost nothing, is compiled.
_GRAVE = frozenset({"FB302", "FB303", "FB306", "FB308", "FB314", "FB318", "FB319"})
_STYLE = {"what": "", "cost": "cost", "cure": "cure"}
_GRAVE_FIRST, _BY_COST, _ONCE, _SLIGHT = range(4)


@dataclass(frozen=True, slots=True)
class Problem:
    """`rank` and `seconds` (per call; 0.0 if unknown) give the order. `title`, `body`: its lines.
    `records`: its records, the main one first. `cost`: measured, or as text. `expected`: there is
    nothing to fix."""

    rank: int
    seconds: float
    title: tuple[Span, ...]
    place: str
    body: Callable[[int, str], Iterator[Line]]
    records: tuple[Any, ...] = ()
    cost: str = ""
    expected: bool = False


def problems(report: Report) -> list[Problem]:
    """All problems, highest costs first; those of equal cost in the order of their records."""
    frames = {frame.frame: frame for frame in report.frames}
    notes = [note for note in report.notes if note.code not in _HARMLESS]
    found = [
        *(_of_note(note, frames.get(note.frame)) for note in notes),
        *(_of_breaks(groups, frames) for groups in _by_line(grouped_breaks(report.breaks))),
        *(_of_recompiles(group, report) for group in waiting(report)),
    ]
    return sorted(found, key=lambda problem: (problem.rank, -problem.seconds))


def lines(found: Sequence[Problem], width: int, room: int) -> Iterator[Line]:
    """The problems: in full until `room` lines are used, then one line each."""
    shown, shortened = 0, False
    for number, problem in enumerate(found, 1):
        head = f"{number:>3}. "
        body = list(problem.body(width, " " * len(head)))
        title = list(wrap(problem.title, width, head, " " * len(head)))
        shortened = shortened or (number > 1 and shown + len(title) + len(body) > room)
        if shortened and shown >= room + 8:
            left = len(found) - number + 1
            yield line(("     ", ""), (f"and {left} more: verbosity=2 has all", "dim"))
            return
        if shortened:
            body, title = [], [_brief(problem, head, width)]
        shown += len(title) + len(body)
        yield from title
        yield from body


def _brief(problem: Problem, head: str, width: int) -> Line:
    """Title and place on one line."""
    shown = "".join(text for text, _style in problem.title)
    room = width - len(head) - len(problem.place) - 2
    return line(head, cut(shown, max(20, room)), "  ", (problem.place, "place"))


# -- Breaks ----------------------------------------------------------------------------------------


def grouped_breaks(breaks: Iterable[BreakRecord]) -> list[list[BreakRecord]]:
    """Breaks grouped by code and place. In a group, the break with the fewest calls is first."""
    groups: dict[Any, list[BreakRecord]] = {}
    for record in breaks:
        key = (record.code, record.file, record.line, record.column, record.end_column)
        groups.setdefault(key, []).append(record)
    return [sorted(group, key=lambda record: len(record.inlined)) for group in groups.values()]


def _by_line(groups: Iterable[list[BreakRecord]]) -> list[list[list[BreakRecord]]]:
    """Groups of breaks with the same code in one line, which have the same fix."""
    lines: dict[Any, list[list[BreakRecord]]] = {}
    for group in groups:
        first = group[0]
        key = (first.code, first.file, first.line) if first.line is not None else id(group)
        lines.setdefault(key, []).append(group)
    return list(lines.values())


def _of_breaks(groups: Sequence[list[BreakRecord]], frames: dict[str, FrameRecord]) -> Problem:
    records = [record for group in groups for record in group]
    first, *others = (group[0] for group in groups)
    seconds = sum(max(record.seconds for record in group) for group in groups)
    whole = max((f.seconds_a_call for r in records if (f := frames.get(r.frame))), default=0.0)

    def body(width: int, indent: str) -> Iterator[Line]:
        longest = max(records, key=lambda record: len(record.inlined))
        yield from chain(longest.inlined, width, indent)
        yield from snippet(first, width, indent, others)
        for title, shown in (
            ("what", [record.reason or record.why for record in (first, *others)]),
            ("cost", [first.cost]),
            ("cure", [record.cure for record in (first, *others)]),
        ):
            yield from field(title, "; ".join(dict.fromkeys(shown)), width, indent, _STYLE[title])

    many = "graph break" if not others else counted(len(groups), "graph break")
    title: list[Span] = [(first.code, "code"), (f" {many}: {first.title}", "head")]
    price = _price(seconds, whole)
    if price:
        title.append((f", {price}", "cost"))
    shown = price or first.cost
    return Problem(_BY_COST, seconds, tuple(title), short_place(first), body, tuple(records), shown)


def _price(seconds: float, whole: float) -> str:
    if not seconds:
        return ""
    share = f" ({percent(min(1.0, seconds / whole))})" if whole > seconds else ""
    return f"{duration(seconds)} per call{share}"


# -- Recompiles ------------------------------------------------------------------------------------


def _of_recompiles(group: Sequence[RecompileRecord], report: Report) -> Problem:
    last = group[-1]
    frame = next((f for f in report.frames if f.frame == last.frame), None)
    calls = frame.calls_seen if frame is not None else 0
    each = seconds_an_entry(report, last.frame)
    storm, expected = len(group) >= STORM, last.cure.startswith("none")
    cost = f"{duration(each)} each to capture and compile" if each else ""
    cost = cost or codes.family(last.code).cost
    cost += f"; {last.limit} entries are kept at most" if storm and last.limit else ""

    def body(width: int, indent: str) -> Iterator[Line]:
        yield from wrap([(change(group), "name")], width, indent, indent + "  ")
        if expected:
            yield from field("cure", last.cure, width, indent, "cure")
            return
        yield from snippet(
            frame if frame is not None and is_internal(last) else last, width, indent
        )
        yield from field("cost", cost, width, indent, "cost")
        yield from field("cure", last.cure, width, indent, "cure")

    shown = f" {counted(len(group), 'recompile')}: {last.title}"
    title: list[Span] = [(last.code, "code"), (shown, "head"), (f" in {last.frame}", "")]
    if each:
        title.append((f", {duration(each * len(group))} so far", "cost"))
    seconds = each * len(group) / max(calls, len(group) + 1)
    rank, place = _BY_COST if storm else _ONCE, short_place(_of_user(last, frame))
    records = tuple(reversed(group))
    return Problem(rank, seconds, tuple(title), place, body, records, cost, expected)


# -- Plain frames and fallbacks --------------------------------------------------------------------


def _of_user(place: Place, frame: FrameRecord | None) -> Place:
    """The place, or the beginning of the frame if the place is within torch or graftjit."""
    return frame if frame is not None and is_internal(place) else place


def _of_note(note: NoteRecord, frame: FrameRecord | None) -> Problem:
    place = _of_user(note, frame)

    def body(width: int, indent: str) -> Iterator[Line]:
        yield from snippet(place, width, indent)
        yield from field("what", note.reason, width, indent)
        yield from field("cost", codes.family(note.code).cost, width, indent, "cost")
        yield from field("cure", note.cure, width, indent, "cure")

    kind = "plain Python" if note.plain else "fallback"
    times = f" ({note.count} times)" if note.count > 1 else ""
    within = f" in {note.frame}" if note.frame else ""
    title = ((note.code, "code"), (f" {kind}: {note.title}", "head"), (f"{within}{times}", ""))
    rank = _GRAVE_FIRST if note.plain or note.code in _GRAVE else _SLIGHT
    cost = codes.family(note.code).cost
    return Problem(rank, 0.0, title, short_place(place), body, (note,), cost)
