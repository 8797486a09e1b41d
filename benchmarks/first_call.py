"""The first call in a fresh process, with empty caches and with warm ones.

In: workloads and systems. Out: a `FirstRow` each. Every measurement is a process of its own; a repetition has
cache folders of its own for every system, used twice: empty, then warm. `python -m benchmarks.first_call
SYSTEM WORKLOAD SEED` is such a process: it prints the seconds from before importing the system to after the
first result, importing torch not counted. `python -m benchmarks.first_call --stages WORKLOAD` says where graftjit's
go. A checkout's modules are compiled to bytecode first, as those of an installed package are.
"""

from __future__ import annotations

import compileall
import gc
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
FOLDERS = ("graftjit", "capture", "codegen", "ir", "runtime")
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
    as_installed()
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


def as_installed() -> None:
    """Bytecode for the modules of this checkout: an installer makes it, and torch has it."""
    for folder in FOLDERS:
        compileall.compile_dir(ROOT / folder, maxlevels=0, quiet=1)


def _one_process(system: str, workload: str, seed: int, folder: str) -> float:
    return _told(folder, system, workload, str(seed))["seconds"]


def stages(workload: str, repeat: int = 5) -> None:
    """Print the medians of what the first call is made of, with an empty store and with a warm one."""
    as_installed()
    found: dict[str, list[dict[str, float]]] = {"empty": [], "warm": []}
    for _ in range(repeat):
        with tempfile.TemporaryDirectory(prefix="graftjit-bench-") as folder:
            for seen in found.values():
                seen.append(_told(folder, "--stages", workload, "--one"))
    print(f"{workload}, ms" + "".join(f"{caches:>10}" for caches in found))
    for name in found["empty"][0]:
        medians = [1e3 * statistics.median(one[name] for one in found[c]) for c in found]
        print(f"  {name:<34}" + "".join(f"{value:>10.1f}" for value in medians))


def caches_in(folder: str) -> dict[str, str]:
    """Variables of the environment by which a process keeps its caches below `folder`."""
    return {name: str(Path(folder) / name.lower()) for name in CACHES}


def _told(folder: str, *words: str) -> dict[str, float]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GRAFTJIT_")}
    environment |= caches_in(folder)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.first_call", *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no output"]
        raise RuntimeError(lines[-1][:160])
    return json.loads(done.stdout.splitlines()[-1])


def _worker(system: str, workload: str, seed: int) -> None:
    import torch

    from .systems import under
    from .workloads import BY_NAME

    torch.set_grad_enabled(False)
    torch.manual_seed(seed)
    function, inputs = BY_NAME[workload].make()
    start = time.perf_counter()
    under(system, function)(*inputs)  # imports the system, wraps, captures, compiles and runs
    print(json.dumps({"seconds": time.perf_counter() - start}))


def _staged(workload: str) -> None:
    import torch

    from .workloads import BY_NAME

    torch.set_grad_enabled(False)
    function, inputs = BY_NAME[workload].make()
    start = time.perf_counter()
    import graftjit
    from graftjit.runtime.events import events
    from graftjit.runtime.process.session import SESSION

    imported = time.perf_counter()
    gc.disable()  # as a miss does
    # what the first miss imports, here by itself
    import graftjit.capture.capture
    import graftjit.codegen.backend
    import graftjit.runtime.executor.lower
    import graftjit.runtime.guards.compiler

    gc.enable()
    loaded = time.perf_counter()
    jitted = graftjit.jit(function)  # its events are kept as long as it is
    jitted(*inputs)
    end = time.perf_counter()
    capture = whole = building = 0.0
    for event in SESSION.log.of():
        if isinstance(event, events.Captured):
            capture += dict(event.seconds)["capture"]
        elif isinstance(event, events.Compiled):
            whole += event.seconds
        elif isinstance(event, events.KernelBuilt):
            building += event.seconds
    seen = {
        "import graftjit": imported - start,
        "modules that the first miss loads": loaded - imported,
        "capture": capture,
        "passes, plan, kernels' text": whole - building,
        "compiler, or reading the store": building,
        "guards, the run, the rest": end - loaded - whole - capture,
    }
    seen["all"] = end - start
    print(json.dumps(seen))


if __name__ == "__main__":
    if sys.argv[1] != "--stages":
        _worker(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    elif sys.argv[3:] == ["--one"]:
        _staged(sys.argv[2])
    else:
        stages(*(sys.argv[2:3] or ["sin_add"]))
