"""`python -m benchmarks.compare {call,steady,first,all}`: graftjit beside eager and torch.compile, in one run.

call     microseconds a call on tiny inputs: what a system costs on top of the work
steady   microseconds a call on real sizes: kernels and models
first    seconds of the first call in a fresh process, with empty caches and with warm ones
all      one after the other

call and steady also take errors against float64 and the peak memory of a call. It prints medians and ratios of times (below 1 is
faster), and whether the bounds of the table are kept. `--report DIR` writes each result to DIR/results.jsonl as it comes, and
at the end tables and charts (`benchmarks.report`); `--resume` goes on with such a run. `--json FILE` writes all numbers,
with versions, seed and machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import results, verdicts
from .isolated import Settings, run
from .workloads import BY_NAME, FIRST_CALL_BOUNDS, FIRST_CALL_RATIOS, GROUPS, WORKLOADS, Workload

SYSTEM_NAMES = ("eager", "graftjit", "torch.compile")
LEVEL_2 = "graftjit O2"  # asked for by name: it measures schedules, which costs seconds
OURS, PEER = "graftjit", "torch.compile"
MEASURES = ("call", "steady", "first")
# What a workload costs before its rounds, in seconds, for the estimate: a process that imports torch, then each system's compile.
START_SECONDS = 4.0
COMPILE_SECONDS: dict[str, dict[str, float]] = {
    "graftjit": {"models": 4.0, "training": 6.0, "steps": 7.0, "": 1.0},
    "torch.compile": {"models": 30.0, "training": 40.0, "steps": 40.0, "": 13.0},
}


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("what", choices=(*MEASURES, "all"))
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="only these workloads", choices=list(BY_NAME)
    )
    parser.add_argument("--subset", nargs="+", metavar="GROUP", help=f"only these groups: {', '.join(GROUPS)}",
                        choices=list(GROUPS))  # fmt: skip
    parser.add_argument("--systems", nargs="+", default=list(SYSTEM_NAMES),
                        choices=(*SYSTEM_NAMES, LEVEL_2), help="default: all but graftjit O2")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=21, help="rounds of call and steady (21)")
    parser.add_argument(
        "--sample", type=float, default=0.05, help="seconds of a sample of steady (0.05)"
    )
    parser.add_argument("--repeat", type=int, default=3, help="repetitions of first (3)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0, help="torch.set_num_threads")
    parser.add_argument(
        "--limit", type=float, default=300, help="seconds for a workload's process (300)"
    )
    parser.add_argument(
        "--report", type=Path, metavar="DIR", help="also write results, tables and charts"
    )
    parser.add_argument("--resume", action="store_true", help="go on with the run in DIR")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything as JSON")
    parser.add_argument("--check", action="store_true", help="exit status 1 if a bound is not kept")
    parsed = parser.parse_args(arguments)
    if parsed.rounds < 2 or parsed.repeat < 1:
        parser.error("--rounds is at least 2, --repeat at least 1")
    if parsed.resume and not parsed.report:
        parser.error("--resume needs --report DIR")
    return parsed


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write; 1 under `--check` if a bound is not kept, 2 if a folder cannot be used."""
    # Checks run everything twice: never what is to be measured.
    os.environ.pop("GRAFTJIT_CHECK", None)
    parsed = _arguments(arguments)
    chosen = _chosen(parsed)
    try:
        found = results.Results(_head(parsed), parsed.report and parsed.report / results.NAME, resume=parsed.resume)  # fmt: skip
    except results.ResultsError as error:
        print(error, file=sys.stderr)
        return 2
    for name, value in found.head["machine"].items():
        print(f"{name:<12}{value}")
    left = [pair for pair in chosen if not found.done(_kind(pair[0]), pair[1].name)]
    print(f"{'workloads':<12}{len(chosen)}, {len(left)} to measure, about {_minutes(_estimate(left, parsed))}\n", flush=True)  # fmt: skip
    start = time.monotonic()
    missed = _measure_all(parsed, chosen, found)
    print(f"\n{_minutes(time.monotonic() - start)}")
    _write(parsed, found)
    if missed:
        print(f"bounds missed: {', '.join(dict.fromkeys(missed))}")
    return int(bool(missed) and parsed.check)


def _chosen(parsed: argparse.Namespace) -> list[tuple[str, Workload]]:
    """(measurement, workload), in the order of a run: a group of one measurement stays together."""
    measures = MEASURES if parsed.what == "all" else (parsed.what,)
    return [
        (what, row)
        for what in measures
        for group in GROUPS
        for row in WORKLOADS
        if what in row.what
        and row.group == group
        and (not parsed.only or row.name in parsed.only)
        and (not parsed.subset or group in parsed.subset)
    ]


def _kind(what: str) -> str:
    return "first" if what == "first" else "time"


def _settings(parsed: argparse.Namespace) -> Settings:
    return Settings(tuple(parsed.systems), parsed.seed, parsed.rounds, steady_seconds=parsed.sample,
                    threads=parsed.threads)  # fmt: skip


def _head(parsed: argparse.Namespace) -> dict[str, Any]:
    import torch

    from . import machine
    from .bandwidth import curve

    if parsed.threads:
        torch.set_num_threads(parsed.threads)
        os.environ["OMP_NUM_THREADS"] = str(parsed.threads)
    settings = dataclasses.asdict(_settings(parsed)) | {"repeat": parsed.repeat}
    return {"settings": settings, "machine": machine.describe(parsed.seed), "copy": curve()}


def _estimate(left: Sequence[tuple[str, Workload]], parsed: argparse.Namespace) -> float:
    """Seconds, on a machine with nothing else to do."""
    settings, total = _settings(parsed), 0.0
    for what, row in left:
        compiles = sum(costs.get(row.group, costs[""]) for system, costs in COMPILE_SECONDS.items()
                       if system in parsed.systems)  # fmt: skip
        if what == "first":
            total += parsed.repeat * (compiles * 1.3 + 2 * START_SECONDS * len(parsed.systems))
            continue
        samples = parsed.rounds * settings.sample_seconds(row.group) * len(parsed.systems)
        total += START_SECONDS + compiles + samples * 1.5
    return total


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} minutes"


def _measure_all(
    parsed: argparse.Namespace, chosen: Sequence[tuple[str, Workload]], found: results.Results
) -> list[str]:
    """Names of workloads, and of groups, that miss a bound."""
    missed: list[str] = []
    for what in dict.fromkeys(what for what, _row in chosen):
        _print_head(what, parsed)
        for group in GROUPS:
            rows = [row for other, row in chosen if other == what and row.group == group]
            if what == "first":
                missed += [row.name for row in rows if _one_first(row, parsed, found)]
            elif rows:
                missed += _one_group(group, rows, parsed, found)
        print()
    return missed


def _print_head(what: str, parsed: argparse.Namespace) -> None:
    unit = "s" if what == "first" else "us"
    columns = "".join(f"{f'{system} {unit}':>18}" for system in parsed.systems)
    rest = (
        f"{'/compile':>10}"
        if what == "first"
        else f"{'/eager':>8}{'/compile':>9}{'memory':>8}{'error':>7}"
    )
    print(f"{'workload':<18}{'caches  ' if what == 'first' else ''}{columns}{rest}  bounds")


# -- call and steady -------------------------------------------------------------------------------


def _one_group(
    group: str, rows: Sequence[Workload], parsed: argparse.Namespace, found: results.Results
) -> list[str]:
    missed, lines = [], []
    for row in rows:
        line = found.done("time", row.name)
        if line is None:
            line = {"kind": "time", **run(row.name, _settings(parsed), parsed.limit)}
            found.add(line)
        lines.append(line)
        verdict = verdicts.judge(row, line)
        _print_line(line, verdict, parsed)
        missed += [row.name] * (verdicts.worst(verdict) == verdicts.MISSED)
    means = verdicts.group_means(lines)
    verdict = verdicts.judge_group(group, means)
    seen = "; ".join(f"{v.state}: {v}" for v in verdict)
    space = " " * (18 * len(parsed.systems))
    print(f"{'= ' + group:<18}{space}{_number(means.get('eager')):>8}{_number(means.get(PEER)):>9}"
          f"{'':15}  geometric mean  {seen}", flush=True)  # fmt: skip
    return missed + [group] * (verdicts.worst(verdict) == verdicts.MISSED)


def _print_line(
    line: dict[str, Any], verdict: Sequence[verdicts.Verdict], parsed: argparse.Namespace
) -> None:
    systems = line["systems"]
    times = "".join(f"{_number(systems[s].get('median')):>18}" for s in parsed.systems)
    ratios = [line["ratios"].get(other, (None, None))[1] for other in ("eager", PEER)]
    memory = next((v.value for v in verdict if (v.about, v.against) == ("memory", "eager")), None)
    error = verdicts.error_of(systems, OURS)
    shown = [str(v) for v in verdict if v.state in (verdicts.MISSED, verdicts.CLOSE)]
    bounds = "; ".join((verdicts.worst(verdict), *shown))
    print(f"{line['workload']:<18}{times}{_number(ratios[0]):>8}{_number(ratios[1]):>9}{_number(memory):>8}"
          f"{_number(error, 1):>7}  {bounds}", flush=True)  # fmt: skip
    program = systems.get(OURS, {}).get("program") or {}
    for text in (*program.get("breaks", ()), *program.get("notes", ())):
        print(f"    {OURS}: {text}")
    for system in parsed.systems:
        if systems[system].get("problem"):
            print(f"    {system}: {systems[system]['problem']}")


def _number(value: float | None, digits: int = 2) -> str:
    if value is None:
        return "-"
    return f"{value:.{digits}f}" if value < 1e4 else f"{value:.0f}"


# -- first -----------------------------------------------------------------------------------------


def _one_first(row: Workload, parsed: argparse.Namespace, found: results.Results) -> bool:
    """Whether a bound is missed."""
    from .first_call import measure

    line = found.done("first", row.name)
    if line is None:
        measured = measure(row.name, parsed.systems, seed=parsed.seed, repeat=parsed.repeat)
        line = {
            "kind": "first",
            "workload": row.name,
            "rows": [dataclasses.asdict(one) for one in measured],
        }
        for number, caches in enumerate(("empty", "warm")):
            _judge_first(row, number, [one for one in line["rows"] if one["caches"] == caches])
        found.add(line)
    for caches in ("empty", "warm"):
        own = {one["system"]: one for one in line["rows"] if one["caches"] == caches}
        mine = own.get(OURS, {})
        print(f"{row.name:<18}{caches:<8}" + "".join(f"{_number(own[s]['median'], 3):>18}" for s in parsed.systems)
              + f"{_number(mine.get('ratio'), 3):>10}  {mine.get('verdict', '')}", flush=True)  # fmt: skip
    for problem in dict.fromkeys(
        f"    {one['system']}: {one['problem']}" for one in line["rows"] if one["problem"]
    ):
        print(problem)
    return any(one.get("verdict") == verdicts.MISSED for one in line["rows"])


def _judge_first(row: Workload, number: int, own: list[dict[str, Any]]) -> None:
    """Adds ratio and verdict to graftjit's row: seconds, and seconds over the peer's."""
    by_system = {one["system"]: one for one in own}
    mine, peer = by_system.get(OURS), by_system.get(PEER)
    if mine is None:
        return
    both = mine["median"] is not None and peer is not None and peer["median"]
    mine["ratio"] = mine["median"] / peer["median"] if both and peer else None
    pairs = (
        [(mine["median"], FIRST_CALL_BOUNDS[row.name][number])]
        if row.name in FIRST_CALL_BOUNDS
        else []
    )
    over_peer = FIRST_CALL_RATIOS.get(row.name) or FIRST_CALL_RATIOS.get(row.group)
    pairs += [(mine["ratio"], over_peer[number])] if over_peer else []
    states = {verdicts.UNKNOWN if value is None else verdicts.KEPT if value <= bound else verdicts.MISSED
              for value, bound in pairs}  # fmt: skip
    mine["verdict"] = next(
        (s for s in (verdicts.MISSED, verdicts.UNKNOWN, verdicts.KEPT) if s in states), ""
    )


# -- what is written -------------------------------------------------------------------------------


def _write(parsed: argparse.Namespace, found: results.Results) -> None:
    if parsed.json:
        seen = {"what": parsed.what, **found.head, "lines": found.lines}
        parsed.json.write_text(json.dumps(seen, indent=2) + "\n", encoding="utf-8")
    if parsed.report:
        from . import report

        for path in report.write(parsed.report, found.head, found.lines):
            print(path)


if __name__ == "__main__":
    sys.exit(main())
