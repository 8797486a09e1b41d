"""What the command line answers before torch is imported: help, mistakes, `codes`; and what works without the rest.

Imported first by `graftjit`. In any other program it does nothing. Where the process is `python -m graftjit ...` (or
the script `graftjit` beside this Python) and its command needs no compiled function, the command is run here and the
process ends: `codes` answers at once, and `doctor` also where the native part of graftjit cannot be loaded.
"""

from __future__ import annotations

import os
import sys


def command_line() -> list[str] | None:
    """The words after `python -m graftjit`, or after the console script; None in any other process."""
    words = getattr(sys, "argv", None) or [""]
    if words[0] == "-m":  # so it is while runpy looks for the module, and then only
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
