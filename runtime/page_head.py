"""The head of a report's page: is it fast, what holds it back, where, and what to do.

In: a `report.Report`. Out: a `Head` for the template and for the notebook's short form: a verdict in a sentence, the
figures beside it, and what to mend, the dearest first. Called by `runtime.report_html`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..ir.dataclass import dataclass
from .page_source import short_name

if TYPE_CHECKING:
    from .report import Report

MOST_TO_MEND = 50
_ALLOWED_PLAIN = ("PL204",)  # a frame without tensors is no fault


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of the head: as text, what it counts, and a word more."""

    value: str
    title: str
    note: str = ""
    mood: str = ""


@dataclass(frozen=True, slots=True)
class ToMend:
    """What to do: `target` names the record for the page's links ("break:0"), `cost` is as measured, or as told."""

    kind: str
    code: str
    title: str
    reason: str
    cure: str
    place: str
    target: str
    cost: str = ""
    times: int = 1
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Head:
    """`mood`: "good", "fair", "poor" or "none" (nothing captured)."""

    mood: str
    verdict: str
    held: str
    figures: tuple[Figure, ...]
    mend: tuple[ToMend, ...]
    more: int = 0


def seconds_text(value: float) -> str:
    """Three figures and the unit that fits: "12.3 us", "1.02 ms", "3.40 s"; a dash for what was not measured."""
    if value <= 0:
        return "–"
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if value * factor >= 1 or unit == "us":
            scaled = value * factor
            return f"{scaled:.{2 if scaled < 10 else 1 if scaled < 100 else 0}f} {unit}"
    return ""


def counted(count: int, word: str) -> str:
    """ "1 break", "2 breaks", "1 200 library calls"."""
    plural = "" if count == 1 else "es" if word.endswith("s") else "s"
    return f"{count:,} {word}{plural}".replace(",", "\u202f")


def head_of(report: Report) -> Head:
    """What the page says before anything else."""
    mend = _to_mend(report)
    mood, verdict = _verdict(report, mend)
    return Head(
        mood=mood,
        verdict=verdict,
        held=_held(report, mend),
        figures=_figures(report),
        mend=tuple(mend[:MOST_TO_MEND]),
        more=max(0, len(mend) - MOST_TO_MEND),
    )


def compiled_share(report: Report) -> float:
    """The part of all calls' time inside compiled programs, -1.0 if no frame was measured."""
    measured = [f for f in report.frames if f.compiled_share >= 0 and f.seconds_a_call > 0]
    whole = sum(f.seconds_a_call * max(1, f.calls_seen) for f in measured)
    if not whole:
        return -1.0
    return sum(f.compiled_share * f.seconds_a_call * max(1, f.calls_seen) for f in measured) / whole


def _captured(report: Report) -> bool:
    return bool(report.entries or report.kernels or any(f.graphs for f in report.frames))


def _verdict(report: Report, mend: list[ToMend]) -> tuple[str, str]:
    if not _captured(report):
        if any(m.kind == "plain" for m in mend):
            return "poor", "It runs in plain Python: nothing was compiled."
        return "none", "Nothing has been captured yet."
    share = compiled_share(report)
    if share >= 0:
        told = f"{share:.0%} of a call runs compiled.".replace("%", "\u202f%")
        mood = "good" if share > 0.9 and not mend else "poor" if share < 0.5 else "fair"
        return ("good" if not mend and share > 0.7 else mood), told
    if not mend:
        return "good", "All that was captured runs compiled."
    return "fair", "Compiled, but not as one piece."


def _held(report: Report, mend: list[ToMend]) -> str:
    counts = [(len(report.breaks), "graph break"),
              (len(report.recompiles), "recompile"),
              (sum(m.kind == "plain" for m in mend), "plain frame"),
              (sum(m.kind == "fallback" for m in mend), "fallback")]  # fmt: skip
    told = [counted(count, word) for count, word in counts if count]
    if not told:
        return "Nothing holds it back: no graph break, no recompile." if _captured(report) else (
            "The function was not called, or only in plain Python.")  # fmt: skip
    where = f", first of all at {mend[0].place}" if mend and mend[0].place else ""
    listed = told[0] if len(told) == 1 else ", ".join(told[:-1]) + " and " + told[-1]
    return f"Held back by {listed}{where}."


def _figures(report: Report) -> tuple[Figure, ...]:
    frames = report.frames
    kernels = sum(f.kernels for f in frames)
    calls = [f for f in frames if f.seconds_a_call > 0]
    spent = sum(seconds for f in frames for _stage, seconds in f.seconds)
    operators, library = sum(f.operators for f in frames), sum(f.library for f in frames)
    breaks, again = len(report.breaks), len(report.recompiles)
    dearest = max(calls, key=lambda f: f.seconds_a_call, default=None)
    out = []
    if dearest is not None:
        out.append(Figure(seconds_text(dearest.seconds_a_call), "a call",
                          f"{dearest.frame}, mean of {counted(dearest.samples, 'sample')}"))  # fmt: skip
    out += [
        Figure(f"{report.graph_count}", "graph" if report.graph_count == 1 else "graphs",
               f"in {counted(len(frames), 'frame')}"),
        Figure(f"{kernels}", "kernel" if kernels == 1 else "kernels",
               f"of {counted(operators, 'operator')}" + (f", {counted(library, 'library call')}" if library else "")),
        Figure(f"{breaks}", "graph break" if breaks == 1 else "graph breaks",
               _cost_of_breaks(report), "poor" if breaks else "good"),
        Figure(f"{again}", "recompile" if again == 1 else "recompiles",
               f"{counted(len(report.guards), 'guard')} hold", "fair" if again else "good"),
    ]  # fmt: skip
    if spent:
        out.append(Figure(seconds_text(spent), "to compile", "once, all captures together"))
    return tuple(out)


def _cost_of_breaks(report: Report) -> str:
    spent = sum(b.seconds for b in report.breaks)
    return f"{seconds_text(spent)} a call" if spent else "" if report.breaks else "none"


def _to_mend(report: Report) -> list[ToMend]:
    """Breaks by what they cost, recompiles with equal ones as one, then what was left to plain Python."""
    found: list[tuple[float, ToMend]] = []
    for number, b in enumerate(report.breaks):
        cost = f"{seconds_text(b.seconds)} a call" if b.seconds else b.cost
        found.append((b.seconds, ToMend(
            "break", b.code, b.title, b.reason or b.why, b.cure, _where(b), f"break:{number}", cost, b.count)))  # fmt: skip
    seen: dict[Any, list[int]] = {}
    for number, r in enumerate(report.recompiles):
        seen.setdefault((r.code, r.source, r.frame), []).append(number)
    for numbers in seen.values():
        r = report.recompiles[numbers[-1]]
        found.append((0.0, ToMend(
            "recompile", r.code, r.title, f"{r.source}: now {r.now}, before {r.before}", r.cure, _where(r),
            f"recompile:{numbers[-1]}", "", len(numbers), r.frame)))  # fmt: skip
    for number, n in enumerate(report.notes):
        if n.code not in _ALLOWED_PLAIN:
            found.append((0.0, ToMend("plain" if n.plain else "fallback", n.code, n.title, n.reason, n.cure,
                                      _where(n), f"note:{number}", "", n.count, n.frame)))  # fmt: skip
    found.sort(
        key=lambda pair: -pair[0]
    )  # stable: breaks, recompiles, plain frames where nothing was measured
    return [item for _seconds, item in found]


def _where(record: Any) -> str:
    return (
        ""
        if record.file == "?" or record.line is None
        else f"{short_name(record.file)}:{record.line}"
    )
