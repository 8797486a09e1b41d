"""`python -m benchmarks.events`: what recording costs a call.

A small function (as wide as makes a call take about 20 microseconds) is called in blocks, with run times sampled as ever
and with sampling switched off, two by two in the order A B B A: the ratio is free of what the machine does to both. Told: the
median ratio with its interval of confidence at 95 % (by order statistics: no shape of the noise is assumed), and, for the noise
itself, the same of blocks that are all without sampling. What is left in both is the count of calls (an increment and a compare,
for the call and for its program): hits emit no events.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

MOST = 0.01  # part of a call that recording may take
TARGET = 20e-6  # seconds of the call
WIDTHS = tuple(int(8_000 * 1.4**n) for n in range(10))


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """(median, low, high): the median's interval of confidence at 95 %, between two order statistics."""
    ordered, n = sorted(values), len(values)
    reach = 0.98 * math.sqrt(n)  # 1.96 standard deviations of Binomial(n, 1/2)
    low, high = max(0, math.floor(n / 2 - reach)), min(n - 1, math.ceil(n / 2 + reach))
    return statistics.median(ordered), ordered[low], ordered[high]


def _program() -> tuple[Callable[[], Any], float]:
    """A compiled call of about the wanted length, and its seconds."""
    import torch

    import graftjit

    def small(x: Any, y: Any) -> Any:
        return torch.relu(x * y + 1.5)

    found: list[tuple[float, Callable[[], Any], float]] = []
    for width in WIDTHS:
        jitted, x, y = graftjit.jit(small), torch.randn(width), torch.randn(width)

        def call(jitted: Any = jitted, x: Any = x, y: Any = y) -> Any:
            return jitted(x, y)

        for _ in range(2000):
            call()
        seconds = statistics.median(_block(call, 200) for _ in range(9)) / 200
        found.append((abs(math.log(seconds / TARGET)), call, seconds))
    _, call, seconds = min(found, key=lambda one: one[0])
    return call, seconds


def _block(call: Callable[[], Any], times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        call()
    return time.perf_counter() - start


def ratios(call: Callable[[], Any], pairs: int, calls: int, on: bool) -> list[float]:
    """Seconds of two blocks with sampling (`on`; else without, for the noise) by those of two without, in the order
    A B B A or B A A B: a drift of the machine is the same for both."""
    from graftjit.runtime import _native

    found = []
    try:
        for turn in range(pairs):
            spent = {True: 0.0, False: 0.0}
            first = turn % 2 == 0
            for looked_at in (first, not first, not first, first):
                _native.set_sampling(on and looked_at)
                spent[looked_at] += _block(call, calls)
            found.append(spent[True] / spent[False])
    finally:
        _native.set_sampling(True)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write; 1 under `--check` if recording costs more than it may."""
    os.environ.pop("GRAFTJIT_CHECK", None)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.events", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument(
        "--pairs", type=int, default=1200, help="pairs of two blocks (default 1200)"
    )
    parser.add_argument("--calls", type=int, default=256, help="calls of a block (default 256)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument(
        "--check", action="store_true", help="exit status 1 if the interval reaches beyond 1 %%"
    )
    parsed = parser.parse_args(arguments)
    if min(parsed.pairs, parsed.calls) < 2:
        parser.error("--pairs and --calls are at least 2")
    import torch

    from . import machine

    torch.set_grad_enabled(False)
    torch.set_num_threads(1)  # others that wait for a processor are no part of this
    torch.manual_seed(parsed.seed)
    facts = machine.describe(parsed.seed)
    for name, value in facts.items():
        print(f"{name:<12}{value}")
    call, seconds = _program()
    print(
        f"\na call: {seconds * 1e6:.1f} us; {parsed.pairs} pairs of two blocks of {parsed.calls} calls"
    )
    seen: dict[str, Any] = {"machine": facts, "call": seconds}
    for name, on in (("recording", True), ("noise", False)):
        median, low, high = (
            100 * (r - 1) for r in interval(ratios(call, parsed.pairs, parsed.calls, on))
        )
        seen[name] = {"percent": median, "low": low, "high": high}
        print(f"{name:<12}{median:+.3f} % of a call (95 %: {low:+.3f} to {high:+.3f})")
    if parsed.json:
        parsed.json.write_text(json.dumps(seen, indent=2) + "\n")
    missed = parsed.check and seen["recording"]["high"] > 100 * MOST
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
