"""The first call in a fresh process, with empty caches and with warm ones.

In: workloads and systems. Out: a `FirstRow` each. Every measurement is a process of its own; a repetition has
cache folders of its own for every system, used twice: empty, then warm. `python -m benchmarks.first_call
SYSTEM WORKLOAD SEED` is such a process: it prints the seconds from before importing the system to after the
first result, importing torch not counted.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CACHES = ("GRAFTJIT_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


@dataclass(frozen=True, slots=True)
class FirstRow:
    """Median seconds beyond importing torch, and each repetition's."""

    workload: str
    system: str
    caches: str  # "empty" or "warm"
    median: float | None = None
    samples: tuple[float, ...] = ()
    problem: str = ""


def measure(workload: str, systems: Sequence[str], *, seed: int, repeat: int) -> list[FirstRow]:
    """Fresh processes, the systems taking turns; `repeat` times empty and then warm."""
    found: dict[tuple[str, str], list[float]] = {}
    problems: dict[str, str] = {}
    for _ in range(repeat):
        for system in systems:
            if system in problems:
                continue
            with tempfile.TemporaryDirectory(prefix="graftjit-bench-") as folder:
                for caches in ("empty", "warm"):
                    try:
                        seconds = _one_process(system, workload, seed, folder)
                    except RuntimeError as error:
                        problems[system] = str(error)
                        break
                    found.setdefault((system, caches), []).append(seconds)
    rows = []
    for system in systems:
        for caches in ("empty", "warm"):
            samples = tuple(found.get((system, caches), ()))
            if system in problems or not samples:
                rows.append(FirstRow(workload, system, caches, problem=problems.get(system, "?")))
            else:
                rows.append(FirstRow(workload, system, caches, statistics.median(samples), samples))
    return rows


def _one_process(system: str, workload: str, seed: int, folder: str) -> float:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GRAFTJIT_")}
    for name in CACHES:
        environment[name] = str(Path(folder) / name.lower())
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.first_call", system, workload, str(seed)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no output"]
        raise RuntimeError(lines[-1][:160])
    return json.loads(done.stdout.splitlines()[-1])["seconds"]


def _worker(system: str, workload: str, seed: int) -> None:
    import torch

    from .systems import SYSTEMS
    from .workloads import BY_NAME

    torch.set_grad_enabled(False)
    torch.manual_seed(seed)
    function, inputs = BY_NAME[workload].make()
    start = time.perf_counter()
    SYSTEMS[system](function)(*inputs)  # imports the system, wraps, captures, compiles and runs
    print(json.dumps({"seconds": time.perf_counter() - start}))


if __name__ == "__main__":
    _worker(sys.argv[1], sys.argv[2], int(sys.argv[3]))
