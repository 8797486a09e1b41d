"""What a result depends on: versions, machine, load, commit."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of the checkout, "+" after it if files differ; None outside of a checkout."""
    root = Path(__file__).resolve().parents[1]

    def git(*words: str) -> str:
        command = ["git", "-C", str(root), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short", "HEAD") + (
            "+" if git("status", "--porcelain", "-uno") else ""
        )
    except (OSError, subprocess.CalledProcessError):
        return None


def describe(seed: int) -> dict[str, Any]:
    """Plain values for the head of a table and for JSON."""
    from graftjit.runtime.process import hardware as device

    compiler = device.find_compiler()
    return {
        "seed": seed,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "graftjit": version("graftjit"),
        "triton": version("triton"),
        "commit": _commit(),
        "compiler": None if compiler is None else device.compiler_version(compiler),
        "processor": device.cpu().model,
        "vector set": device.cpu().isa,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": [round(value, 2) for value in os.getloadavg()],
        "system": platform.platform(),
    }
