"""The GPUs of a graph, the reasons why they cannot have kernels, and the errors of kernels.

This is used before a plan is looked up or made, so this file plans nothing and imports no triton:
it only reads triton's version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from ...runtime.errors import BuildError
from ...runtime.process import hardware
from ...runtime.process.session import SESSION

if TYPE_CHECKING:
    from .compiler import Fault


class NotCompiled(BuildError):
    """Some kernels of a graph could not be compiled: `failed` has name -> why. The others are in
    the store.
    """

    failed: Mapping[str, str] = {}


def error_of(fault: Fault) -> BuildError:
    """The BuildError for a fault."""
    return BuildError(fault.what, expected=fault.expected, found=fault.found, todo=fault.todo)


def why_not(gpus: Iterable[torch.device]) -> str:
    """Why there are no kernels for these devices; "" if nothing prevents them."""
    version = hardware.triton_version()
    if not version and not SESSION.store.bundled("cubin"):
        return "triton is not installed"
    if version and _numbers(version) < hardware.OLDEST_TRITON:
        return f"triton {version} is older than {'.'.join(map(str, hardware.OLDEST_TRITON))}"
    # loaded for graphs on GPUs only
    from ...runtime.cuda import driver

    reason: str = driver.available()
    if reason:
        return reason
    for one in gpus:
        found = hardware.gpu(one)
        if found.capability < hardware.LEAST_CAPABILITY:
            return f"{found.name} is of compute capability {'.'.join(map(str, found.capability))}"
    return ""


def world(gpus: Sequence[torch.device]) -> str:
    """All facts about these devices and triton that plans depend on."""
    facts = [
        (str(one), hardware.gpu(one).capability, hardware.gpu(one).multiprocessors) for one in gpus
    ]
    return f"{facts} triton {hardware.triton_version()}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple([int(part) if part.isdigit() else 0 for part in version.split(".")[:2]])
