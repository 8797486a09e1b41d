"""torch.compile in the same process: Dynamo leaves frames of graftjit alone.

`leave_ours_alone()` tells Dynamo so by its own list of folders, once, and only where the program has imported
torch._dynamo. Called where callables and entries are made.
"""

from __future__ import annotations

import sys
from typing import Any

from . import faults

_ROOMS = ("graftjit", *(f"graftjit.{room}" for room in ("capture", "codegen", "ir", "runtime")))
_told: list[Any] = []  # the module that has been told


def leave_ours_alone() -> None:
    """Dynamo skips our frames from here on."""
    rules = sys.modules.get("torch._dynamo.trace_rules")
    if rules is None or rules in _told or "torch._dynamo" not in sys.modules:
        return
    add = getattr(rules, "add", None)
    if add is None:  # still being imported
        return
    _told.append(rules)
    try:
        for room in _ROOMS:
            add(room)
    except Exception as error:
        faults.tell("torch.compile", error, "It may compile frames of graftjit.")
