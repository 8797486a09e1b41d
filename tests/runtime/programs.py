"""Programs of the executor, written by hand: what its tests and those of the driver share."""

from __future__ import annotations

from typing import Any

import torch

from graftjit.runtime.program.program import Alloc, ProgramSpec

CPU = torch.device("cpu")
F32 = torch.float32


def spec(n_inputs: int, n_slots: int, *steps: Any, outputs: tuple[int, ...], **more) -> ProgramSpec:
    return ProgramSpec("test", n_inputs, n_slots, steps, outputs, **more)


def alloc(slot: int, *shape: int, dtype: torch.dtype = F32) -> Alloc:
    return Alloc(slot, shape, torch.empty(shape, device="meta").stride(), dtype, CPU)
