"""The builtins that graftjit's code and the libraries below it call, while a program has put others in their places.

A program may set `builtins.len`. Plain Python's frames call what it has set, and so would capture, guards and torch's own
Python code. Nothing is captured as long as `replaced()` names such a builtin. `graftjit.dispatch.unit` and `graftjit.dispatch.frame_policy` ask.
"""

from __future__ import annotations

import builtins

# Functions that talk to a user: programs do replace `print`, and nothing of ours depends on what these do.
_FREE = {"print", "input", "breakpoint", "help", "exit", "quit", "copyright", "credits", "license"}
_NOW = builtins.__dict__
_FIRST = tuple(
    (name, value) for name, value in _NOW.items() if callable(value) and name not in _FREE
)


def replaced() -> str | None:
    """The name of a builtin that is another object than at import, or gone. This function calls no builtin itself."""
    for name, value in _FIRST:
        if name not in _NOW or _NOW[name] is not value:
            return name
    return None
