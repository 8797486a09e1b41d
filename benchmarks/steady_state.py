"""Measurements within one process: every system in turn, round after round, and the medians.

In: workloads and the names of systems. Out: a `Row` a workload and system. The systems take turns within each
round, in rotating order, so that whatever else the machine does meets all of them; a sample is as many calls
as fill a few milliseconds. Outputs are compared with eager's before anything is timed.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .systems import SYSTEMS
from .workloads import Workload


@dataclass(frozen=True, slots=True)
class Row:
    """Microseconds a call: median and quartiles of the rounds. `problem` is set if it could not be measured
    or gave something else than eager."""

    workload: str
    system: str
    median: float | None = None
    low: float | None = None
    high: float | None = None
    calls: int = 0
    rounds: int = 0
    problem: str = ""


def measure(
    workload: Workload,
    systems: Sequence[str],
    *,
    seed: int,
    rounds: int,
    sample_seconds: float,
) -> list[Row]:
    """One workload under all systems, interleaved."""
    runs: dict[str, Callable[[], Any]] = {}
    rows: dict[str, Row] = {}
    expected = None
    for system in dict.fromkeys(("eager", *systems)):
        try:
            run, result = _prepare(workload, system, seed)
            if expected is None:
                expected = result
            torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
        except (
            Exception
        ) as error:  # one system's failure is a result, not the end of the comparison
            rows[system] = Row(workload.name, system, problem=_one_line(error))
            continue
        if system in systems:
            runs[system] = run
    samples = _rounds(runs, rounds, sample_seconds)
    for system, (calls, times) in samples.items():
        low, median, high = statistics.quantiles(times, n=4)
        rows[system] = Row(workload.name, system, median, low, high, calls, len(times))
    return [rows[system] for system in systems if system in rows]


def _prepare(workload: Workload, system: str, seed: int) -> tuple[Callable[[], Any], Any]:
    torch.manual_seed(seed)
    function, inputs = workload.make()
    wrapped = SYSTEMS[system](function)
    for _ in range(3):  # the first compiles; all of them warm up
        result = wrapped(*inputs)
    return (lambda: wrapped(*inputs)), result


def _rounds(
    runs: dict[str, Callable[[], Any]], rounds: int, sample_seconds: float
) -> dict[str, tuple[int, list[float]]]:
    calls = {system: _calls_for(run, sample_seconds) for system, run in runs.items()}
    times: dict[str, list[float]] = {system: [] for system in runs}
    order = list(runs)
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for system in order:
                times[system].append(_sample(runs[system], calls[system]))
            order = order[1:] + order[:1]
    finally:
        gc.enable()
    return {system: (calls[system], times[system]) for system in runs}


def _sample(run: Callable[[], Any], calls: int) -> float:
    """Microseconds a call over `calls` calls, the loop's own cost taken off by none (2 % of 1 us)."""
    start = time.perf_counter_ns()
    for _ in range(calls):
        run()
    return (time.perf_counter_ns() - start) / calls / 1e3


def _calls_for(run: Callable[[], Any], seconds: float) -> int:
    """How many calls fill the time of one sample; doubles as warm-up."""
    calls = 1
    while True:
        spent = _sample(run, calls) * calls / 1e6
        if spent >= seconds / 2:
            return max(1, round(calls * seconds / spent))
        calls *= 2


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:160]}"
