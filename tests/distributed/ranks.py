"""Two processes of one group (gloo, on this machine), for tests of torch.distributed.

`on_two(module, name, ...)` runs `name(*args)` of a file in this folder on both ranks and returns what each gave.
"""

from __future__ import annotations

import datetime
import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]
WORLD = 2
SECONDS = 240  # on a loaded machine; a hang is an error


def on_two(folder: Path, module: str, name: str, *args: Any) -> list[Any]:
    """The results by rank. `folder` is for files of this run."""
    torch.save(args, folder / "args.pt")
    environment = os.environ | {
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "passive",
    }
    running = [
        subprocess.Popen(
            [sys.executable, "-m", __name__, module, name, str(rank), str(folder)],
            cwd=ROOT,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(WORLD)
    ]
    try:
        errors = [one.communicate(timeout=SECONDS)[1] for one in running]
    finally:
        for one in running:
            one.kill()
    assert not any(one.returncode for one in running), "\n".join(errors)[-4000:]
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(WORLD)]


def _on_rank(module: str, name: str, rank: int, folder: Path) -> None:
    distributed = torch.distributed
    torch.set_num_threads(1)
    function = getattr(importlib.import_module(f".{module}", __package__), name)
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder / 'group'}",
        rank=rank,
        world_size=WORLD,
        timeout=datetime.timedelta(seconds=SECONDS),
    )
    try:
        found = function(*torch.load(folder / "args.pt", weights_only=False))
        torch.save(found, folder / f"{rank}.pt")
    finally:
        distributed.destroy_process_group()


if __name__ == "__main__":
    _on_rank(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
