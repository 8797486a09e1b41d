"""First calls on a GPU: seconds from before a system is imported until the first result is there.

Every call is a process of its own (`python -m benchmarks.gpu.first_calls SYSTEM MODEL DEVICE`), with cache folders of its own a system and
model, used twice: empty, then warm. Importing torch, making CUDA's context and loading its libraries are not counted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .sections import Job

ROOT = Path(__file__).resolve().parents[2]
CACHES = ("GRAFTJIT_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
SYSTEMS = ("graftjit", "torch.compile")
LIMIT = 120.0


def section(job: Job) -> None:
    """The rows of `first`."""
    from ..first_call import as_installed

    as_installed()
    names = ("tiny", "mlp") if job.quick else ("tiny", "bert", "mlp")
    for name in names:
        if not job.wants("first", name):
            continue
        rows: dict[str, dict[str, Any]] = {}
        for system in job.chosen(SYSTEMS):
            rows[system] = row = {}
            with tempfile.TemporaryDirectory(prefix="graftjit-gpu-") as folder:
                for caches in ("empty", "warm"):
                    left = job.end - time.monotonic()
                    if left < 1:
                        row["problem"] = "no time was left"
                        break
                    try:
                        row[caches] = _process(system, name, job, folder, min(LIMIT, left))
                    except (RuntimeError, subprocess.TimeoutExpired) as error:
                        row["problem"] = str(error)[:300]
                        break
        job.add({"section": "first", "row": name, "systems": rows})


def _process(system: str, name: str, job: Job, folder: str, limit: float) -> float:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GRAFTJIT_")}
    for variable in CACHES:
        environment[variable] = str(Path(folder) / variable.lower())
    device, scale = str(job.device.device), "tiny" if job.quick else "small"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu.first_calls", system, name, device, scale],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=limit,
    )  # fmt: skip
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no output"]
        raise RuntimeError(lines[-1])
    return float(json.loads(done.stdout.splitlines()[-1])["seconds"])


def _tiny(x: Any, y: Any) -> Any:
    return x.sin() + y * 2


def _worker(system: str, name: str, device: str, scale: str) -> None:
    import torch

    from . import nets
    from .sections import WRAP

    torch.set_grad_enabled(False)
    function: Any = _tiny
    inputs: tuple[Any, ...] = tuple(torch.randn(8, device=device) for _ in range(2))
    if name != "tiny":
        function, inputs = nets.made(name, scale, device, 0)
    function(*inputs)  # CUDA's libraries are there
    wait = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    wait()
    start = time.perf_counter()
    WRAP[system](function)(*inputs)  # imports the system, wraps, captures, compiles and runs
    wait()
    print(json.dumps({"seconds": time.perf_counter() - start}))


if __name__ == "__main__":
    _worker(*sys.argv[1:5])
