"""torch.compile in the same process: makes Dynamo skip the frames of graftjit.

`leave_ours_alone()` adds graftjit's packages to Dynamo's list of skipped folders, once, and only if
the program has imported torch._dynamo. It is called where callables and entries are made.
"""

from __future__ import annotations

import sys
from typing import Any

from . import faults

_PACKAGES = (
    "graftjit",
    *(f"graftjit.{package}" for package in ("capture", "codegen", "ir", "runtime")),
)
_told: list[Any] = []  # the module whose list has the packages


def leave_ours_alone() -> None:
    """Make Dynamo skip graftjit's frames."""
    rules = sys.modules.get("torch._dynamo.trace_rules")
    if rules is None or rules in _told or "torch._dynamo" not in sys.modules:
        return
    add = getattr(rules, "add", None)
    if add is None:  # still being imported
        return
    _told.append(rules)
    try:
        for package in _PACKAGES:
            add(package)
    except Exception as error:
        faults.warn_of_fault("torch.compile", error, "It may compile frames of graftjit.")
