"""A process of its own for each workload: what one leaves behind (evidence of varying sizes, caches, threads, arenas) does not
meet the next, and one that crashes or hangs is a row of the results, not the end of the run.

`run` is called by `benchmarks.compare`; `python -m benchmarks.isolated SETTINGS` is the child, which prints a record as JSON.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PEER = "torch.compile"


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """How a run measures; results of equal settings may stand in one table."""

    systems: tuple[str, ...]
    seed: int = 0
    rounds: int = 21
    call_seconds: float = 0.004
    steady_seconds: float = 0.05
    threads: int = 0  # 0: as torch has it

    def sample_seconds(self, group: str) -> float:
        return self.call_seconds if group == "call" else self.steady_seconds


def run(workload: str, settings: Settings, limit: float) -> dict[str, Any]:
    """A `steady_state.Record` as plain values. Seconds beyond `limit` end the process: then once more without the peer, whose
    compiler is what takes long."""
    record, problem = _child(workload, settings, limit)
    if record is not None:
        return record
    left = tuple(system for system in settings.systems if system != PEER)
    if not left or left == settings.systems:
        return _failed(workload, settings.systems, problem)
    record, other = _child(workload, dataclasses.replace(settings, systems=left), limit)
    if record is None:
        return _failed(workload, settings.systems, other)
    record["systems"][PEER] = {"median": None, "problem": problem}
    return record


def _failed(workload: str, systems: tuple[str, ...], problem: str) -> dict[str, Any]:
    rows = {system: {"median": None, "problem": problem} for system in systems}
    return {"workload": workload, "systems": rows, "ratios": {}, "moved": 0}


def _child(workload: str, settings: Settings, limit: float) -> tuple[dict[str, Any] | None, str]:
    seen = json.dumps({"workload": workload, **dataclasses.asdict(settings)})
    command = [sys.executable, "-m", "benchmarks.isolated", seen]
    # A group of its own: the peer's compile workers end with it.
    with subprocess.Popen(command, cwd=ROOT, env=environment(settings.threads), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, start_new_session=True) as child:  # fmt: skip
        try:
            out, err = child.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            end(child)
            return None, f"not ready after {limit:.0f} s"
    if child.returncode != 0:
        return None, ended_with(child.returncode, err)
    return json.loads(out.splitlines()[-1]), ""


def environment(threads: int) -> dict[str, str]:
    """That of a process that measures; with 0 torch chooses how many threads."""
    # Checks run everything twice: never what is to be measured.
    found = {k: v for k, v in os.environ.items() if k != "GRAFTJIT_CHECK"}
    found.setdefault("KINETO_LOG_LEVEL", "5")  # the profiler of `memory` has nothing to say
    if threads:
        found["OMP_NUM_THREADS"] = str(threads)
    return found


def end(child: subprocess.Popen[str]) -> None:
    """At once, with all of its group; a group that is stopped, too."""
    os.killpg(child.pid, signal.SIGKILL)
    child.communicate()


def ended_with(code: int, err: str) -> str:
    """In one line; the last one of what it wrote says most."""
    lines = err.strip().splitlines() or ["no output"]
    return f"process ended with {code}: {lines[-1][:160]}"


def _main(seen: str) -> None:
    import torch

    from .steady_state import measure
    from .workloads import BY_NAME

    given = json.loads(seen)
    row = BY_NAME[given.pop("workload")]
    settings = Settings(**given)
    torch.set_grad_enabled(False)
    if settings.threads:
        torch.set_num_threads(settings.threads)
    record = measure(row, settings.systems, seed=settings.seed, rounds=settings.rounds,
                     sample_seconds=settings.sample_seconds(row.group))  # fmt: skip
    print(json.dumps(dataclasses.asdict(record)))


if __name__ == "__main__":
    _main(sys.argv[1])
