"""The systems that are compared: how each of them takes a function or a module.

In: a callable. Out: the callable as eager, graftjit or torch.compile run it. Imports happen inside, so that a
process that measures one system does not pay for another. `describe` tells what a system made of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .steps import Step

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


def _eager(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _graftjit(function: Callable[..., Any], level: str = "O1") -> Callable[..., Any]:
    import graftjit

    config = graftjit.JitConfig(jit_level=level)
    if isinstance(function, torch.nn.Module):
        return graftjit.compile(function, config=config)
    return graftjit.jit(function, config=config)


def _graftjit_o2(function: Callable[..., Any]) -> Callable[..., Any]:
    return _graftjit(function, "O2")


def _peer(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function)


SYSTEMS: dict[str, Wrap] = {
    "eager": _eager,
    "graftjit": _graftjit,
    "graftjit O2": _graftjit_o2,
    "torch.compile": _peer,
}


def under(system: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, module or step as the system runs it."""
    wrap = SYSTEMS[system]
    return function.under(wrap) if isinstance(function, Step) else wrap(function)


def describe(system: str, wrapped: Any) -> dict[str, Any]:
    """What graftjit's report tells of what it made; nothing of the others."""
    if not system.startswith("graftjit"):
        return {}
    import graftjit

    seen = graftjit.report(wrapped.wrapped if isinstance(wrapped, Step) else wrapped)
    frames = seen.frames
    return {
        "graphs": seen.graph_count,
        "recompiles": seen.recompile_count,
        "operators": sum(frame.operators for frame in frames),
        "kernels": sum(frame.kernels for frame in frames),
        "library": sum(frame.library for frame in frames),
        "breaks": [_line(row) for row in seen.breaks],
        "notes": [_line(row) for row in seen.notes],
    }


def _line(row: Any) -> str:
    count = f" ({row.count} times)" if row.count > 1 else ""
    return f"{row.code} {row.reason or row.title}{count}"
