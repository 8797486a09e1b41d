"""The systems that are compared: how each of them takes a function or a module.

In: a callable. Out: the callable as eager, graftjit or torch.compile run it. Imports happen inside, so that a
process that measures one system does not pay for another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


def _eager(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _graftjit(function: Callable[..., Any]) -> Callable[..., Any]:
    import graftjit

    if isinstance(function, torch.nn.Module):
        return graftjit.compile(function)
    return graftjit.jit(function)


def _peer(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function)


SYSTEMS: dict[str, Wrap] = {"eager": _eager, "graftjit": _graftjit, "torch.compile": _peer}
