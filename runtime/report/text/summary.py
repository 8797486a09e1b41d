"""The summary at the top of the text report: whether the program is fast, and what slows it down.

In: a Report. Out: its name, the verdict, what was compiled, and the compile time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from ..recompiles import settled_count
from ..styled_text import Line, Span, counted, cut, duration, line, listed, percent, sizes, wrap

if TYPE_CHECKING:
    from ..records import EntryRecord, FrameRecord
    from ..report import Report

INDENT = "  "


def summary(report: Report, width: int, full: bool = True) -> Iterator[Line]:
    """The summary. Without `full`, only the name and the verdict."""
    title = cut(f"graftjit report: {report.name}", width)
    yield line((title, "head"))
    if not report.frames:
        shown = "nothing has been captured yet: it was not called, or only plain Python ran it"
        yield line(INDENT, shown)
        return
    yield from wrap(_verdict(report), width, INDENT, INDENT)
    if full:
        for facts in (_work_facts(report), _call_facts(report), _build_facts(report)):
            if facts:
                yield from wrap([", ".join(facts)], width, INDENT, INDENT + "  ")


def _verdict(report: Report) -> list[str | Span]:
    """ "clean", or the problems; and the share of a call in compiled programs."""
    plain = {note.frame for note in report.left_to_python}
    breaks, settled = report.break_count, settled_count(report)
    recompiles = report.recompile_count - settled
    found = [
        counted(breaks, "graph break") if breaks else "",
        f"{counted(len(plain), 'frame')} in plain Python" if plain else "",
        counted(recompiles, "recompile") if recompiles else "",
        f"{counted(settled, 'recompile')} for sizes and numbers that are inputs now"
        if settled
        else "",
    ]
    shown: Span = ("not clean", "bad")
    if not report.graph_count:
        shown = ("nothing is compiled", "bad")
    elif not breaks and not plain and recompiles <= 1:
        shown = ("clean" if report.recompile_count <= 1 else "settled", "good")
        found.insert(0, "no graph breaks")
        found += [] if report.recompile_count else ["no recompiles"]
    reasons = ", ".join(reason for reason in found if reason)
    share, slower = _share(report.frames), slower_than_plain(report)
    if slower:
        shown = ("not clean" if report.graph_count else shown[0], "bad")
    return [
        shown,
        f": {reasons}" if reasons else "",
        f"; {share}" if share else "",
        "; " if slower else "",
        (slower, "bad") if slower else "",
    ]


# A call is reported as slower than plain Python from this factor on; below it is noise.
SLOWER = 1.05


def slower_than_plain(report: Report) -> str:
    """A sentence about the frame that loses most time against plain Python, or "".

    A frame also runs uncompiled where no entry matches and it is compiled less and less often, so
    both times may be known.
    """
    losses = [
        (loss, shown) for frame in report.frames for loss, shown in _losses(frame) if loss > 0
    ]
    return max(losses)[1] if losses else ""


def _losses(frame: FrameRecord) -> Iterator[tuple[float, str]]:
    """(seconds lost in all calls so far, as text)"""
    plain = frame.plain_seconds
    if not plain:
        return
    call, calls = frame.seconds_a_call, max(1, frame.calls_seen)
    if call > SLOWER * plain:
        compiled = f"a compiled call of {frame.frame} takes {duration(call)}"
        shown = f"slower than plain Python: {compiled}, a call in plain Python {duration(plain)}"
        yield frame.hits * (call - plain), shown
    made = sum(seconds for _stage, seconds in frame.seconds)
    saved = frame.hits * max(0.0, plain - call) if call else 0.0
    if frame.recompiles >= MANY and made - saved > (SLOWER - 1) * calls * plain:
        each = (
            f"{counted(calls, 'call')} of {frame.frame}, which take"
            f" {duration(plain)} each in plain Python"
        )
        shown = f"slower than plain Python so far: {duration(made)} to compile for {each}"
        yield made - saved, shown


# From so many recompiles on, compile time counts as a loss, not as a start-up cost.
MANY = 8


def _share(frames: Sequence[FrameRecord]) -> str:
    """The time and compiled share of a call of the frame with the highest total time."""
    measured = [frame for frame in frames if frame.seconds_a_call]
    if not measured:
        return ""
    most = max(measured, key=lambda frame: frame.seconds_a_call * max(1, frame.calls_seen))
    whose = f" of {most.frame}" if len(measured) > 1 else ""
    shown = f"a call{whose} takes {duration(most.seconds_a_call)}"
    if most.compiled_share >= 0:
        shown += f", {percent(most.compiled_share)} of it in compiled code"
    return shown


def work(operators: int, kernels: int, distinct: int, library: int) -> str:
    """ "4 operators -> 2 kernels + 1 library call"."""
    equal = f" ({distinct} distinct)" if 0 < distinct < kernels else ""
    done = [counted(kernels, "kernel") + equal] if kernels or not library else []
    done += [counted(library, "library call")] if library else []
    return f"{counted(operators, 'operator')} -> {' + '.join(done)}"


def _work_facts(report: Report) -> list[str]:
    frames = report.frames
    facts = []
    if report.graph_count:
        facts.append(counted(report.graph_count, "graph"))
        operators = sum(frame.operators for frame in frames)
        if operators:
            facts[0] += ": " + work(
                operators,
                sum(frame.kernels for frame in frames),
                sum(frame.distinct for frame in frames),
                sum(frame.library for frame in frames),
            )
        segments = max((frame.segments for frame in frames), default=0)
        facts[0] += f", backward in {segments} segments" if segments else ""
    spared = sum(entry.spared_bytes for entry in report.entries)
    if spared:
        kept = sum(entry.saved_bytes for entry in report.entries)
        again = sum(entry.again for entry in report.entries)
        paid = sum(entry.again_seconds for entry in report.entries)
        facts.append(
            f"{sizes(kept)} saved for the backward; memory_budget spares {sizes(spared)} and runs"
            f" {counted(again, 'operator')} again, about {duration(paid)} per call"
        )
    if report.adopted_count:
        taken = counted(report.adopted_count, "entry")
        facts.append(f"{taken} reused from another callable of the same class or code")
    return facts


def checked(seconds: float, values: float) -> str:
    """The time of the guards, and the part of it for value guards
    (`runtime.guards.value_guards`)."""
    return duration(seconds) + (f", {duration(values)} of it for tensor values" if values else "")


def _a_hit(report: Report, of: Callable[[EntryRecord], float]) -> float:
    """The cost of a hit, as the mean over hits: entries with few hits have few samples."""
    timed = [(entry.hits, of(entry)) for entry in report.entries if of(entry)]
    hits = sum(count for count, _ in timed)
    if not hits:
        return min((seconds for _, seconds in timed), default=0.0)
    return sum(count * seconds for count, seconds in timed) / hits


def _call_facts(report: Report) -> list[str]:
    called = [frame for frame in report.frames if frame.hits or frame.misses]
    facts = []
    # With more frames, some calls are not made by the user.
    if len(called) == 1:
        calls = counted(called[0].hits + called[0].misses, "call")
        facts.append(f"{calls} ({counted(called[0].hits, 'hit')})")
    if report.guards:
        seconds = _a_hit(report, lambda entry: entry.guard_seconds)
        values = _a_hit(report, lambda entry: entry.value_seconds)
        shown = counted(len(report.guards), "guard")
        facts.append(f"{shown}, checked in {checked(seconds, values)}" if seconds else shown)
    if any(entry.claimed for entry in report.entries):
        facts.append("is_compiling() said True")
    if report.dropped:
        facts.append(f"{counted(report.dropped, 'older event')} dropped")
    return facts


def _build_facts(report: Report) -> list[str]:
    spent: dict[str, float] = {}
    for frame in report.frames:
        for stage, seconds in frame.seconds:
            spent[stage] = spent.get(stage, 0.0) + seconds
    if not spent:
        return []
    stages = listed(
        [f"{stage} {duration(seconds)}" for stage, seconds in spent.items() if seconds], 6
    )
    return [f"{duration(sum(spent.values()))} to capture and compile ({stages})"]
