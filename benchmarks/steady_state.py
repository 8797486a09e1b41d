"""Measurements of one workload within one process: every system in turn, round after round, and the medians.

In: a workload and the names of systems. Out: a `Record` with a `Result` a system. The systems take turns within each
round, in rotating order, so that whatever else the machine does meets all of them; a sample is as many calls
as fill a few milliseconds. Outputs are compared with eager's before anything is timed, their errors are taken against float64
over several draws (`errors`), and one call of each system is looked at for its memory (`memory`). `isolated` calls this in a process a workload.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .bandwidth import moved
from .errors import Draw, Error, draw, over, reference, same
from .memory import Peak, peak
from .steps import outcome
from .systems import describe, under
from .workloads import Workload

OURS = "graftjit"
DRAWS = 5  # of parameters and inputs, that errors are taken over


@dataclass(frozen=True, slots=True)
class Result:
    """Microseconds a call: median and quartiles of the rounds. `problem` is set if it could not be measured
    or gave other values than eager. `program`: what a system tells about what it compiled."""

    median: float | None = None
    low: float | None = None
    high: float | None = None
    calls: int = 0
    rounds: int = 0
    compile_seconds: float | None = None  # of the calls before the first timed one
    error: Error | None = None
    memory: Peak | None = None
    program: dict[str, Any] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """`ratios`: other system -> quartiles over the rounds of graftjit's time over its time in the same round.
    `moved`: bytes that a call has to read and write (`bandwidth.moved`)."""

    workload: str
    systems: dict[str, Result]
    ratios: dict[str, tuple[float, float, float]]
    moved: int = 0


@dataclass(slots=True)
class _Ready:
    run: Callable[[], Any]
    result: Any
    compile_seconds: float
    wrapped: Any
    other: str = ""  # how its values differ from eager's


def measure(
    workload: Workload,
    systems: Sequence[str],
    *,
    seed: int,
    rounds: int,
    sample_seconds: float,
) -> Record:
    """One workload under all systems, interleaved."""
    ready, problems = _prepare_all(workload, systems, seed)
    seen, problem = _errors(workload, ready, seed)
    nbytes = _moved(workload, seed) if "eager" in ready else 0
    for system in set(ready) - set(systems):
        del ready[system]
    for one in ready.values():
        one.result = None
    for one in ready.values():
        one.run()  # a step's first calls make an optimizer's states: none of that is looked at
    memory = {system: peak(one.run) for system, one in ready.items()}
    samples = interleaved({s: one.run for s, one in ready.items()}, rounds, sample_seconds)
    results = {}
    for system in systems:
        if system in problems:
            results[system] = Result(problem=problems[system])
            continue
        calls, times = samples[system]
        low, median, high = quartiles(times)
        results[system] = Result(
            median, low, high, calls, len(times), ready[system].compile_seconds, seen.get(system),
            memory[system], describe(system, ready[system].wrapped), ready[system].other or problem,
        )  # fmt: skip
    times_of = {system: times for system, (_calls, times) in samples.items()}
    return Record(workload.name, results, _ratios(times_of), nbytes)


def _prepare_all(
    workload: Workload, systems: Sequence[str], seed: int
) -> tuple[dict[str, _Ready], dict[str, str]]:
    """Compiled and warm, as far as they give what eager gives; and what is wrong with the others. A peer that gives other
    values (it rounds elsewhere in bfloat16) is timed all the same, and that is told; of ours nothing else counts."""
    ready: dict[str, _Ready] = {}
    problems: dict[str, str] = {}
    for system in dict.fromkeys(("eager", *systems)):
        try:
            one = _prepare(workload, system, seed)
            if "eager" in ready:
                _compare(system, one, ready["eager"].result)
            ready[system] = one
        # one system's failure is a result, not the end of the comparison
        except Exception as error:
            problems[system] = one_line(error)
    return ready, problems


def _compare(system: str, one: _Ready, expected: Any) -> None:
    try:
        same(one.result, expected)
    except AssertionError as error:
        if system == OURS:
            raise
        one.other = f"other values than eager's: {one_line(error)}"


def _prepare(workload: Workload, system: str, seed: int) -> _Ready:
    torch.manual_seed(seed)
    function, inputs = workload.make()
    start = time.perf_counter()
    wrapped = under(system, function)
    for _ in range(3):  # the first compiles; all of them warm up
        wrapped(*inputs)
    seconds = time.perf_counter() - start
    return _Ready(lambda: wrapped(*inputs), outcome(wrapped, inputs), seconds, wrapped)


def _errors(
    workload: Workload, ready: dict[str, _Ready], seed: int
) -> tuple[dict[str, Error], str]:
    """Over `DRAWS` draws: the first is that of `ready`, the others have parameters and inputs of other seeds, for eager and
    graftjit alone, whose programs answer for any model of a class."""
    results = {system: one.result for system, one in ready.items()}
    found: list[Draw] = []
    try:
        for other in range(seed, seed + DRAWS):
            if other != seed:
                results = {s: _result(workload, s, other) for s in ("eager", OURS) if s in ready}
            found.append(draw(results, reference(workload, other)))
    except Exception as error:  # told with the results, which do not depend on it
        what = "no other draws" if found else "no float64 reference"
        return over(found) if found else {}, f"{what}: {one_line(error)}"
    return over(found), ""


def _result(workload: Workload, system: str, seed: int) -> Any:
    torch.manual_seed(seed)
    function, inputs = workload.make()
    return outcome(under(system, function), inputs)


def _moved(workload: Workload, seed: int) -> int:
    torch.manual_seed(seed)
    function, inputs = workload.make()
    return moved(function, inputs, function(*inputs), workload.sparse)


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    low, median, high = statistics.quantiles(values, n=4)
    return low, median, high


def _ratios(times: dict[str, list[float]]) -> dict[str, tuple[float, float, float]]:
    if OURS not in times:
        return {}
    return {
        other: quartiles([own / its for own, its in zip(times[OURS], others, strict=True)])
        for other, others in times.items()
        if other != OURS
    }


def interleaved(
    runs: dict[str, Callable[[], Any]], rounds: int, sample_seconds: float
) -> dict[str, tuple[int, list[float]]]:
    """System -> (calls of a sample, microseconds a call in each round); the systems take turns."""
    calls = {system: calls_for(run, sample_seconds) for system, run in runs.items()}
    gc.collect()
    gc.disable()
    try:
        times = in_turns(list(runs), rounds, lambda system: sample(runs[system], calls[system]))
    finally:
        gc.enable()
    return {system: (calls[system], times[system]) for system in runs}


def in_turns(order: list[str], rounds: int, take: Callable[[str], float]) -> dict[str, list[float]]:
    """System -> what `take(system)` gave in each round; each round begins with another system."""
    times: dict[str, list[float]] = {system: [] for system in order}
    for _ in range(rounds):
        for system in order:
            times[system].append(take(system))
        order = order[1:] + order[:1]
    return times


def sample(run: Callable[[], Any], calls: int) -> float:
    """Microseconds a call over `calls` calls, the loop's own cost taken off by none (2 % of 1 us)."""
    start = time.perf_counter_ns()
    for _ in range(calls):
        run()
    return (time.perf_counter_ns() - start) / calls / 1e3


def calls_for(run: Callable[[], Any], seconds: float) -> int:
    """How many calls fill the time of one sample; doubles as warm-up."""
    calls = 1
    while True:
        spent = sample(run, calls) * calls / 1e6
        if spent >= seconds / 2:
            return max(1, round(calls * seconds / spent))
        calls *= 2


def one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:160]}"
