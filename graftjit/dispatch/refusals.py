"""Why a frame may not be captured now.

In: the state of the thread. Out: the code and the text of a reason, or None. `Unit.miss` asks it.
"""

from __future__ import annotations

import dataclasses

import torch
from torch.utils._device import DeviceContext

from ..runtime.guards.interpreter_state import State, snapshot
from ..runtime.process.session import SESSION


def refused() -> tuple[str, str] | None:
    """Why nothing may be captured now: graftjit is disabled, or as `refused_in` says."""
    if SESSION.options.disable:
        return "PL206", "GRAFTJIT_DISABLE is set"
    return refused_in(snapshot())


def refused_in(now: State) -> tuple[str, str] | None:
    """Why nothing may be captured in such a state: the trace does not model an active mode."""
    if now.plain or _default_device_only(now):
        return None
    names = [*now.modes, *now.dispatch, now.functorch[0], "a tracer" if now.tracing else ""]
    names.append("anomaly mode" if now.watched and now.grad_mode else "")
    names.append("forward AD" if now.forward_level >= 0 else "")
    names.append("no dispatch to Python" if now.unheard else "")
    names.append(now.torch_function and f"__torch_function__: {now.torch_function}")
    return "PL209", f"active: {', '.join(filter(None, names))}"


def _default_device_only(now: State) -> bool:
    """Whether the only mode is torch's mode for a default device, which acts during capture as it
    does when the frame runs."""
    if len(now.modes) != 1 or type(torch._C._get_function_stack_at(0)) is not DeviceContext:
        return False
    return dataclasses.replace(now, modes=()).plain
