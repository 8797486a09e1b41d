"""Times of several callables side by side on one device.

In: callables that compute the same. Out: seconds of each round. Within a round every callable has its turn, in rotating order.
`cold`: a turn is one call behind a write of more memory than the L2 cache holds, timed by CUDA events, so that what is read comes from
memory and launches have time to be queued: the time of kernels. `busy`: a turn is as many calls as fill some milliseconds, one
after the other, timed from before the first launch to the end of the last: the time that a program waits. On a CPU both are
taken by the clock.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

Run = Callable[[], Any]
L2_BYTES = 256 << 20  # several times what any GPU's L2 cache holds
WARM = 3


class Device:
    """Where is measured."""

    def __init__(self, name: str) -> None:
        self.device = torch.device(name)
        self.is_gpu = self.device.type == "cuda"
        nbytes = L2_BYTES if self.is_gpu else 1 << 12
        self._flush = torch.empty(nbytes, dtype=torch.uint8, device=self.device)

    def wait(self) -> None:
        if self.is_gpu:
            torch.cuda.synchronize(self.device)

    def cold(self, run: Run) -> float:
        """Seconds of one call, caches empty."""
        if not self.is_gpu:
            return self.busy(run, 1)
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._flush.zero_()
        before.record()
        run()
        after.record()
        after.synchronize()
        return before.elapsed_time(after) / 1e3

    def busy(self, run: Run, calls: int) -> float:
        """Seconds a call, of so many."""
        self.wait()
        start = time.perf_counter()
        for _ in range(calls):
            run()
        self.wait()
        return (time.perf_counter() - start) / calls


def cold(
    device: Device, runs: dict[str, Run], rounds: int, seconds: float
) -> dict[str, list[float]]:
    """Samples of each, `rounds` of them or as many as `seconds` allow."""
    return _rounds(runs, rounds, seconds, device.cold)


def busy(
    device: Device, runs: dict[str, Run], rounds: int, seconds: float, sample: float = 0.02
) -> dict[str, list[float]]:
    """The same of calls one after the other."""
    calls = {name: _calls(device, run, sample) for name, run in runs.items()}
    by_run = {id(run): calls[name] for name, run in runs.items()}
    return _rounds(runs, rounds, seconds, lambda run: device.busy(run, by_run[id(run)]))


def _calls(device: Device, run: Run, sample: float) -> int:
    for _ in range(WARM):
        run()
    return max(1, min(1000, int(sample / max(device.busy(run, 2), 1e-9))))


def _rounds(
    runs: dict[str, Run], rounds: int, seconds: float, once: Callable[[Run], float]
) -> dict[str, list[float]]:
    order = list(runs)
    found: dict[str, list[float]] = {name: [] for name in order}
    for run in runs.values():
        for _ in range(WARM):
            run()
    end = time.perf_counter() + seconds
    for _ in range(rounds):
        for name in order:
            found[name].append(once(runs[name]))
        order = order[1:] + order[:1]
        if time.perf_counter() > end:
            break
    return found


def quartiles(samples: Sequence[float]) -> tuple[float, float, float]:
    """(lower quartile, median, upper quartile)."""
    if len(samples) < 2:
        return (samples[0],) * 3
    low, median, high = statistics.quantiles(samples, n=4)
    return low, median, high


def ratios(samples: dict[str, list[float]], ours: str) -> dict[str, float]:
    """Other -> median over the rounds of its time over ours."""
    own = samples.get(ours, [])
    found = {}
    for name, times in samples.items():
        pairs = list(zip(times, own, strict=False))
        if name != ours and pairs:
            found[name] = statistics.median(other / mine for other, mine in pairs)
    return found
