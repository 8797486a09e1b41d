"""`python -m benchmarks.operators`: graftjit beside eager on every lowered operator, over sizes, dtypes and layouts.

A seeded choice of the cases of `operator_cases` that fits into `--budget` seconds, alone and between two neighbours. Rounds
are interleaved; what seems slower than eager is measured a second time, longer, and that counts. It prints the ratios of
times, the worst first, and what each became (kernels + ATen steps). Kernels are best built beforehand: `--build` runs the
same choice once without timing, and fills the kernel store.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import statistics
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from . import machine
from .operator_cases import DTYPES, LAYOUTS, MAIN_DTYPES, SIZES, WAYS, Case, cases, unmet
from .steady_state import calls_for
from .steady_state import sample as timed
from .systems import SYSTEMS, describe

BORDER = 1.03  # of eager's time: what the house promises
ROUNDS, AGAIN = 5, 15


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operators", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="operators whose name begins so")
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--dtypes", nargs="+", choices=list(DTYPES), default=list(MAIN_DTYPES))
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument(
        "--seed", type=int, default=0, help="which cases are taken, and their values"
    )
    parser.add_argument("--budget", type=float, default=200, metavar="SECONDS")
    parser.add_argument("--count", type=int, default=0, help="so many cases at most")
    parser.add_argument("--sample", type=float, default=0.004, help="seconds of a sample (0.004)")
    parser.add_argument("--build", action="store_true", help="compile and run, without timing")
    parser.add_argument("--show", type=int, default=60, help="rows of the table (60)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all rows")
    return parser.parse_args(arguments)


def chosen(parsed: argparse.Namespace) -> list[Case]:
    """The cases asked for, in an order by the seed."""
    found = [
        case
        for case in cases()
        if case.size in parsed.sizes and case.dtype in parsed.dtypes
        and case.layout in parsed.layouts and case.way in parsed.ways
        and (not parsed.only or any(case.operator.startswith(text) for text in parsed.only))
    ]  # fmt: skip
    random.Random(parsed.seed).shuffle(found)
    return found[: parsed.count or None]


def measure(case: Case, seed: int, sample: float, build: bool) -> dict[str, Any] | None:
    """A row; None where eager refuses the case."""
    function, inputs = case.function(), case.inputs(seed)
    try:
        function(*inputs)
    except (RuntimeError, TypeError, IndexError, ValueError):
        return None
    compiled = SYSTEMS["graftjit"](case.function())
    compiled(*inputs)
    compiled(*inputs)
    seen = describe("graftjit", compiled)
    row = {"case": case.name, "size": case.size, "text": case.text,
           "became": f"{seen['kernels']}+{seen['library']}" + "!" * len(seen["breaks"])}  # fmt: skip
    if build:
        return row
    row |= _times(lambda: function(*inputs), lambda: compiled(*inputs), ROUNDS, sample)
    if row["ratio"] > BORDER:
        row |= _times(lambda: function(*inputs), lambda: compiled(*inputs), AGAIN, sample * 1.5)
    return row


def _times(theirs: Any, ours: Any, rounds: int, sample: float) -> dict[str, float]:
    counts = calls_for(theirs, sample), calls_for(ours, sample)
    eager: list[float] = []
    mine: list[float] = []
    for number in range(rounds):
        pairs = [(eager, theirs, counts[0]), (mine, ours, counts[1])]
        for times, run, count in pairs if number % 2 else reversed(pairs):
            times.append(timed(run, count))
    ratio = statistics.median(b / a for a, b in zip(eager, mine, strict=True))
    return {"eager": statistics.median(eager), "ours": statistics.median(mine), "ratio": ratio}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    os.environ.pop("GRAFTJIT_CHECK", None)
    parsed = _arguments(arguments)
    start, rows, refused = time.monotonic(), [], 0
    todo = chosen(parsed)
    gc.collect()
    gc.disable()
    for number, case in enumerate(todo):
        if time.monotonic() - start > parsed.budget:
            break
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            row = measure(case, parsed.seed, parsed.sample, parsed.build)
        if row is None:
            refused += 1
        else:
            rows.append(row)
        if number % 50 == 0:
            gc.collect()
    spent = time.monotonic() - start
    print(f"{len(todo)} cases, {len(rows)} run, {refused} refused by eager, {spent:.0f} s, "
          f"{torch.get_num_threads()} threads")  # fmt: skip
    if unmet():
        print(f"not met: {', '.join(unmet())}")
    if not parsed.build:
        rows.sort(key=lambda row: -row["ratio"])
        _table(rows, parsed.show)
    if parsed.json:
        seen = {"machine": machine.describe(parsed.seed), "rows": rows}
        parsed.json.write_text(json.dumps(seen, indent=1) + "\n", encoding="utf-8")
    return 0


def _table(rows: list[dict[str, Any]], show: int) -> None:
    print(f"{'ours / eager':>12} {'eager us':>10} {'ours us':>10}  {'became':<7} case")
    for row in rows[:show]:
        print(
            f"{row['ratio']:12.2f} {row['eager']:10.1f} {row['ours']:10.1f}  {row['became']:<7} {row['case']}"
        )
    if rows:
        slow = sum(row["ratio"] > BORDER for row in rows)
        mean = statistics.geometric_mean(row["ratio"] for row in rows)
        print(f"geometric mean {mean:.2f}; slower than {BORDER} of eager: {slow} of {len(rows)}")


if __name__ == "__main__":
    sys.exit(main())
