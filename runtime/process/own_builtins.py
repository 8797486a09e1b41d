"""Detection of replaced builtins.

A program may set `builtins.len`. Plain Python frames call the replacement, and so would capture,
guards and torch's own Python code. Nothing is captured while `replaced()` names such a builtin;
`graftjit.dispatch.unit` and `graftjit.dispatch.frame_policy` check that.
"""

from __future__ import annotations

import builtins

# Functions for interaction with a user. Programs replace `print`, and graftjit does not depend on
# these.
_FREE = {"print", "input", "breakpoint", "help", "exit", "quit", "copyright", "credits", "license"}
_NOW = builtins.__dict__
_FIRST = tuple(
    (name, value) for name, value in _NOW.items() if callable(value) and name not in _FREE
)


def replaced() -> str | None:
    """The name of a builtin that was replaced or removed since import. This function itself calls
    no builtin."""
    for name, value in _FIRST:
        if name not in _NOW or _NOW[name] is not value:
            return name
    return None
