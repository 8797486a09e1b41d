"""Commands that run before torch is imported: help, mistakes, `codes`, and `doctor`.

`graftjit` imports this module first. In a process `python -m graftjit ...` (or the script
`graftjit` beside this Python) whose command needs no compiled function, it runs the command and
ends the process. So `codes` answers at once, and `doctor` works even if the native part of graftjit
cannot be loaded. In any other process the module does nothing.
"""

from __future__ import annotations

import os
import sys


def command_line() -> list[str] | None:
    """The arguments after `python -m graftjit` or the console script; None in any other process."""
    words = getattr(sys, "argv", None) or [""]
    # argv[0] is "-m" only while runpy looks for the module.
    if words[0] == "-m":
        return (
            words[1:]
            if sys.orig_argv[-len(words) - 1 :] == ["-m", "graftjit", *words[1:]]
            else None
        )
    folder, name = os.path.split(os.path.abspath(words[0]))
    return words[1:] if name == "graftjit" and folder == os.path.dirname(sys.executable) else None


_WORDS = command_line()
if _WORDS is not None:
    from .main import before_torch

    before_torch(_WORDS)
