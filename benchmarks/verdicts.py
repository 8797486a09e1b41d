"""Which bounds a record keeps. In: rows of the table and records as plain values. Out: `Verdict`s and geometric means.

A bound on time is judged on the rounds' ratios: kept if their median is within it, close if at least their lower quartile is,
missed beyond. Memory is compared up to a page, for alignments. The error is the worse of largest and rms, in units of eager's
(`benchmarks.errors`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .workloads import GROUP_LIMITS, LIMITS, Workload

OURS = "graftjit"
PAGE = 4096
KEPT, CLOSE, MISSED, UNKNOWN = "kept", "close", "MISSED", "?"


@dataclass(frozen=True, slots=True)
class Verdict:
    """graftjit's `value` in units of `against`'s, at most `bound`."""

    about: str  # "time", "memory", "error", "geomean"
    against: str
    bound: float
    value: float | None
    state: str

    def __str__(self) -> str:
        value = "not measured" if self.value is None else f"{self.value:.3g}"
        return f"{self.about} / {self.against} {value}, bound {self.bound:.3g}"


def _verdict(about: str, against: str, bound: float, value: float | None) -> Verdict:
    state = UNKNOWN if value is None else KEPT if value <= bound else MISSED
    return Verdict(about, against, bound, value, state)


def judge(row: Workload, record: dict[str, Any]) -> list[Verdict]:
    """All bounds of one workload, beside the systems that were asked for."""
    systems = record["systems"]
    if OURS not in systems:
        return []
    found = [
        *(_time(record, other, bound) for other, bound in row.time_bounds.items()),
        *(_memory(systems, other, bound) for other, bound in LIMITS["memory"].items()),
        *(v for other, bound in LIMITS["error"].items() if (v := _error(systems, other, bound))),
    ]
    return [verdict for verdict in found if verdict.against in systems]


def _time(record: dict[str, Any], other: str, bound: float) -> Verdict:
    if other not in record["ratios"]:
        return Verdict("time", other, bound, None, UNKNOWN)
    low, median, _high = record["ratios"][other]
    state = KEPT if median <= bound else CLOSE if low <= bound else MISSED
    return Verdict("time", other, bound, median, state)


def peak_of(systems: dict[str, Any], system: str) -> int | None:
    memory = systems.get(system, {}).get("memory")
    return memory["peak"] if memory else None


def _memory(systems: dict[str, Any], other: str, bound: float) -> Verdict:
    own, its = peak_of(systems, OURS), peak_of(systems, other)
    if own is None or its is None:
        return Verdict("memory", other, bound, None, UNKNOWN)
    value = own / its if its else 1.0 if own <= PAGE else math.inf
    return Verdict("memory", other, bound, value, KEPT if own <= bound * its + PAGE else MISSED)


def error_of(systems: dict[str, Any], system: str) -> float | None:
    """The worse of the two errors in units of eager's."""
    error = systems.get(system, {}).get("error")
    if not error or error["largest_of_eager"] is None:
        return None
    return max(error["largest_of_eager"], error["rms_of_eager"])


def _error(systems: dict[str, Any], other: str, bound: float) -> Verdict | None:
    """None where there is nothing to be wrong about: no output is a float."""
    if systems.get(OURS, {}).get("median") is not None and error_of(systems, OURS) is None:
        return None
    return _verdict("error", other, bound, error_of(systems, OURS))


def worst(verdicts: Iterable[Verdict]) -> str:
    """One state for all of them; "" for none."""
    states = {verdict.state for verdict in verdicts}
    return next((state for state in (MISSED, CLOSE, UNKNOWN, KEPT) if state in states), "")


def geomean(values: Iterable[float]) -> float | None:
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else None


def group_means(records: Iterable[dict[str, Any]]) -> dict[str, float]:
    """Other system -> geometric mean of graftjit's time over its time."""
    found: dict[str, list[float]] = {}
    for record in records:
        for other, (_low, median, _high) in record["ratios"].items():
            found.setdefault(other, []).append(median)
    return {other: mean for other, values in found.items() if (mean := geomean(values))}


def judge_group(group: str, means: dict[str, float]) -> list[Verdict]:
    return [_verdict("geomean", other, bound, means.get(other))
            for other, bound in GROUP_LIMITS.get(group, {}).items()]  # fmt: skip
