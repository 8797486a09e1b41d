"""`python -m benchmarks.compare {call,first,steady}`: graftjit beside eager and torch.compile, in one run.

call     microseconds a call on tiny inputs: what a system costs on top of the work
first    seconds of the first call in a fresh process, with empty caches and with warm ones
steady   microseconds a call on real sizes

It prints medians and ratios of times (below 1 is faster), and whether the bounds of the issues are kept;
`--json FILE` writes all numbers, with versions, seed and machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SYSTEM_NAMES = ("eager", "graftjit", "torch.compile")


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    from .workloads import WORKLOADS

    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("what", choices=("call", "first", "steady"))
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these workloads",
                        choices=[row.name for row in WORKLOADS])  # fmt: skip
    parser.add_argument("--systems", nargs="+", default=list(SYSTEM_NAMES), choices=SYSTEM_NAMES)
    parser.add_argument("--rounds", type=int, default=21, help="rounds of call and steady (21)")
    parser.add_argument("--repeat", type=int, default=3, help="repetitions of first (3)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, help="torch.set_num_threads")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything as JSON")
    parser.add_argument("--check", action="store_true", help="exit status 1 if a bound is not kept")
    parsed = parser.parse_args(arguments)
    if parsed.rounds < 2 or parsed.repeat < 1:
        parser.error("--rounds is at least 2, --repeat at least 1")
    return parsed


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write; 1 under `--check` if a bound is not kept."""
    # Checks run everything twice: never what is to be measured.
    os.environ.pop("GRAFTJIT_CHECK", None)
    parsed = _arguments(arguments)
    import torch

    from . import machine

    torch.set_grad_enabled(False)
    if parsed.threads:
        torch.set_num_threads(parsed.threads)
        os.environ["OMP_NUM_THREADS"] = str(parsed.threads)
    facts = machine.describe(parsed.seed)
    for name, value in facts.items():
        print(f"{name:<12}{value}")
    print()
    rows = _first(parsed) if parsed.what == "first" else _in_process(parsed)
    if parsed.json:
        report = {"what": parsed.what, "machine": facts, "rows": rows}
        parsed.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    missed = [row["workload"] for row in rows if row.get("verdict") == "MISSED"]
    if missed:
        print(f"\nbounds missed: {', '.join(dict.fromkeys(missed))}")
    return int(bool(missed) and parsed.check)


def _ratio(own: float | None, other: float | None) -> float | None:
    return None if own is None or not other else own / other


def _number(value: float | None, digits: int = 2) -> str:
    if value is None:
        return "-"
    return f"{value:.{digits}f}" if value < 1e4 else f"{value:.0f}"


def _in_process(parsed: argparse.Namespace) -> list[dict[str, Any]]:
    from .steady_state import measure
    from .workloads import WORKLOADS

    sample = 0.004 if parsed.what == "call" else 0.05
    columns = [f"{system} us" for system in parsed.systems]
    print(f"{'workload':<16}" + "".join(f"{column:>18}" for column in columns)
          + f"{'/eager':>9}{'/compile':>9}  bounds")  # fmt: skip
    found: list[dict[str, Any]] = []
    for workload in WORKLOADS:
        if parsed.what not in workload.what or (parsed.only and workload.name not in parsed.only):
            continue
        rows = measure(workload, parsed.systems, seed=parsed.seed, rounds=parsed.rounds,
                       sample_seconds=sample)  # fmt: skip
        median = {row.system: row.median for row in rows}
        ratios = {other: _ratio(median.get("graftjit"), median.get(other))
                  for other in SYSTEM_NAMES if other != "graftjit"}  # fmt: skip
        kept = {other: ratios.get(other) for other in workload.bounds}
        verdict = _verdict([(kept[other], most) for other, most in workload.bounds.items()])
        print(f"{workload.name:<16}" + "".join(f"{_number(median.get(s)):>18}" for s in parsed.systems)
              + f"{_number(ratios['eager']):>9}{_number(ratios['torch.compile']):>9}  {verdict}",
              flush=True)  # fmt: skip
        for row in rows:
            if row.problem:
                print(f"    {row.system}: {row.problem}")
            own = {"note": workload.note, "ratios": ratios, "verdict": verdict}
            found.append(dataclasses.asdict(row) | (own if row.system == "graftjit" else {}))
    return found


def _verdict(pairs: list[tuple[float | None, float]]) -> str:
    """ "kept", "MISSED", "?" where something was not measured, "" without bounds."""
    if not pairs:
        return ""
    if any(value is not None and value > most for value, most in pairs):
        return "MISSED"
    return "?" if any(value is None for value, _most in pairs) else "kept"


def _first(parsed: argparse.Namespace) -> list[dict[str, Any]]:
    from .first_call import measure
    from .workloads import FIRST_CALL_BOUNDS, WORKLOADS

    print(f"{'workload':<16}{'caches':<8}" + "".join(f"{system + ' s':>18}" for system in parsed.systems)
          + f"{'/compile':>10}  bounds")  # fmt: skip
    found: list[dict[str, Any]] = []
    for workload in WORKLOADS:
        if "first" not in workload.what or (parsed.only and workload.name not in parsed.only):
            continue
        rows = measure(workload.name, parsed.systems, seed=parsed.seed, repeat=parsed.repeat)
        for number, caches in enumerate(("empty", "warm")):
            median = {row.system: row.median for row in rows if row.caches == caches}
            own = median.get("graftjit")
            bounds = FIRST_CALL_BOUNDS.get(workload.name)
            verdict = _verdict([(own, bounds[number])] if bounds else [])
            ratio = _ratio(own, median.get("torch.compile"))
            print(f"{workload.name:<16}{caches:<8}"
                  + "".join(f"{_number(median.get(s), 3):>18}" for s in parsed.systems)
                  + f"{_number(ratio, 3):>10}  {verdict}", flush=True)  # fmt: skip
            for row in rows:
                if row.caches == caches:
                    mine = {"ratio": ratio, "verdict": verdict} if row.system == "graftjit" else {}
                    found.append(dataclasses.asdict(row) | mine)
        for problem in dict.fromkeys(f"    {r.system}: {r.problem}" for r in rows if r.problem):
            print(problem)
    return found


if __name__ == "__main__":
    sys.exit(main())
