"""The command: sections in processes of their own, each within its time, and a report of what there is.

    python -m benchmarks.gpu --out DIR                       all of it, in less than eight minutes
    python -m benchmarks.gpu --out DIR --sections kernels --only softmax
    python -m benchmarks.gpu --out DIR --device cpu --quick  the harness itself, on a machine without a GPU

DIR gets results.jsonl (a line as soon as it is measured), report.json, report.txt and charts.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[2]


def main(words: list[str] | None = None) -> int:
    """0 if every section has left rows."""
    options = _options(words)
    if options.section:
        return _section(options)
    from . import tell
    from .sections import SECTIONS

    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    results = out / "results.jsonl"
    results.unlink(missing_ok=True)
    end = time.monotonic() + options.seconds
    sections = options.sections or list(SECTIONS)
    problems = {}
    for number, name in enumerate(sections):
        limit = _limit(name, sections[number + 1 :], end)
        print(f"-- {name}, up to {limit:.0f} s", flush=True)
        start = time.monotonic()
        problems[name] = _run(name, options, results, limit)
        print(
            f"   {time.monotonic() - start:.0f} s {problems[name] or 'done'}",
            flush=True,
        )
        tell.write(out, results, problems, options.device, options.seed)  # what there is, each time
    print((out / "report.txt").read_text(encoding="utf-8"))
    rows = tell.lines(results)
    return int(any(not any(row["section"] == name for row in rows) for name in sections))


def _options(words: list[str] | None) -> argparse.Namespace:
    from .sections import SECTIONS, WRAP

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: a check of the harness")
    parser.add_argument("--seconds", type=float, default=440.0, help="for everything")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sections", nargs="+", choices=list(SECTIONS))
    parser.add_argument("--systems", nargs="+", choices=list(WRAP))
    parser.add_argument("--only", nargs="+", default=[], help="rows that begin so")
    parser.add_argument(
        "--mib", nargs="+", type=int, default=[256, 1024], help="size of a kernel's matrix"
    )
    parser.add_argument("--section", help=argparse.SUPPRESS)
    return parser.parse_args(words)


def _limit(name: str, later: list[str], end: float) -> float:
    """Seconds of a section: its own, and a part of what others have not used."""
    from .sections import BUDGETS

    left = end - time.monotonic()
    whole = sum(BUDGETS[one] for one in (name, *later))
    return min(left, max(5.0, left * BUDGETS[name] / whole))


def _run(name: str, options: argparse.Namespace, results: Path, limit: float) -> str:
    """Why the section has not come to its end; "" if it has."""
    from .sections import LOST

    end = time.monotonic() + limit
    log = options.out / f"{name}.log"
    command = [
        sys.executable, "-m", "benchmarks.gpu", "--section", name, "--out", str(options.out.resolve()),
        "--device", options.device, "--seed", str(options.seed), *(["--quick"] if options.quick else []),
        *(["--systems", *options.systems] if options.systems else []),
        *(["--only", *options.only] if options.only else []),
        "--mib", *map(str, options.mib),
    ]  # fmt: skip
    for _ in range(6):
        left = end - time.monotonic()
        if left < 3:
            return "time ran out"
        with log.open("a") as file:
            status = _within([*command, "--seconds", f"{left:.0f}"], file, left)
        if status is None:
            return "time ran out"
        if status == 0:
            return ""
        if status != LOST:
            return f"ended with {status}: see {log.name}"
    return "the device's context was lost again and again"


def _within(command: list[str], log: IO[str], seconds: float) -> int | None:
    """The exit status of a process; None if it, and what it had started, had to be ended."""
    process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _section(options: argparse.Namespace) -> int:
    """The process of one section."""
    import torch

    from . import tell
    from .measure import Device
    from .sections import LOST, SECTIONS, Job

    end = time.monotonic() + options.seconds * 0.85
    results = options.out / "results.jsonl"
    done = {(line["section"], line["row"]) for line in tell.lines(results)}
    systems = tuple(options.systems) if options.systems else None
    device = Device(options.device)
    job = Job(
        device,
        results,
        systems,
        options.quick,
        options.seed,
        end,
        tuple(options.only),
        done,
        tuple(options.mib),
    )
    try:
        SECTIONS[options.section](job)
    except RuntimeError as error:  # the row has been told of
        if not isinstance(error, torch.AcceleratorError) and "CUDA error" not in str(error):
            raise
        print(error, file=sys.stderr)
        return LOST
    return 0


if __name__ == "__main__":
    try:
        code = main()
    except BrokenPipeError:
        code = 1
    sys.stdout.flush()
    sys.exit(code)
