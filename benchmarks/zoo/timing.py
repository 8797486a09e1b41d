"""The time of a call beside plain Python's, after ten calls of each.

In: two callables. Out: medians in microseconds and their ratios. A shared machine has slow moments: what seems slower is measured again, and is
called slower only if it is slower each time.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from ..steady_state import interleaved

CALLS = 10
SLOWER = 1.05
TIMES = 3
ROUNDS = (3, 9)  # the fewest, and the most, as far as SECONDS allow
SAMPLE_SECONDS = 0.01
SECONDS = 2.0


def beside(ours: Callable[[], Any], eager: Callable[[], Any]) -> dict[str, Any]:
    """`ratios`: of each measurement, the last one below `SLOWER` if there is one."""
    runs = {"graftjit": ours, "eager": eager}
    for run in runs.values():
        for _ in range(CALLS):
            began = time.perf_counter()
            run()
    took = max(time.perf_counter() - began, SAMPLE_SECONDS) * len(runs)
    rounds = min(max(round(SECONDS / took), ROUNDS[0]), ROUNDS[1])
    found: dict[str, Any] = {"ratios": []}
    for _ in range(TIMES):
        samples = interleaved(runs, rounds, SAMPLE_SECONDS)
        times = {system: statistics.median(times) for system, (_calls, times) in samples.items()}
        found |= {f"{system}_us": round(us, 1) for system, us in times.items()}
        pairs = zip(samples["graftjit"][1], samples["eager"][1], strict=True)
        found["ratios"].append(round(statistics.median(a / b for a, b in pairs), 3))
        if found["ratios"][-1] <= SLOWER:
            break
    return found


def slower(part: dict[str, Any]) -> bool:
    ratios = part.get("ratios", [])
    return bool(ratios) and min(ratios) > SLOWER
