"""The GPUs of a graph: which ones, and what stands against kernels on them.

Asked before a plan is looked for or made, so nothing here plans, and nothing imports triton: it is known by its version.
Used by `codegen.pipeline` and `codegen.plan_cache.key`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from ...runtime.process import hardware as device
from ...runtime.process.session import SESSION


def why_not(gpus: Iterable[torch.device]) -> str:
    """What stands against kernels on these devices, "" where nothing does."""
    version = device.triton_version()
    if not version and not SESSION.store.bundled("cubin"):
        return "triton is not installed"
    if version and _numbers(version) < device.OLDEST_TRITON:
        return f"triton {version} is older than {'.'.join(map(str, device.OLDEST_TRITON))}"
    from ...runtime.cuda import driver  # late: nobody without a GPU needs it

    reason: str = driver.available()
    if reason:
        return reason
    for one in gpus:
        found = device.gpu(one)
        if found.capability < device.LEAST_CAPABILITY:
            return f"{found.name} is of compute capability {'.'.join(map(str, found.capability))}"
    return ""


def world(gpus: Sequence[torch.device]) -> str:
    """All of these devices, and of triton, that plans depend on."""
    facts = [
        (str(one), device.gpu(one).capability, device.gpu(one).multiprocessors) for one in gpus
    ]
    return f"{facts} triton {device.triton_version()}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple([int(part) if part.isdigit() else 0 for part in version.split(".")[:2]])
