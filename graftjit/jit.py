"""Placeholder: `jit` runs the function in plain Python until capture has landed."""

from __future__ import annotations

from typing import Any


def jit(fn: Any = None, *, fullgraph: bool = False, dynamic: Any = None, config: Any = None) -> Any:
    return fn if fn is not None else jit
