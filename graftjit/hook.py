"""Which frames the PEP 523 hook looks at, and the unit that they belong to.

In: a code object met inside an uncaptured extent. Out: its CodeState, or None to leave it alone: frames of
torch, of the standard library and of graftjit itself are never captured on their own.
"""

from __future__ import annotations

import os
import sysconfig
import types
from typing import Any

import torch

from .runtime.options import JitConfig
from .unit import Unit

_HERE = os.path.dirname(os.path.abspath(__file__))
_SKIPPED_FOLDERS = tuple(
    os.path.abspath(folder) + os.sep
    for folder in {
        os.path.dirname(torch.__file__),
        sysconfig.get_path("stdlib"),
        sysconfig.get_path("platstdlib"),
        *(os.path.join(os.path.dirname(_HERE), room)
          for room in ("graftjit", "capture", "codegen", "ir", "runtime")),
    }
)  # fmt: skip
_SITE = tuple(
    os.path.abspath(path) + os.sep
    for path in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
)

_UNIT = Unit("frames met by the hook", JitConfig())


def skipped_file(name: str) -> bool:
    """Whether code of this file is left alone."""
    if name.startswith("<"):
        return name.startswith("<frozen") or name == "<string>"
    path = os.path.abspath(name)
    if path.startswith(_SITE) and not path.startswith(os.path.dirname(torch.__file__) + os.sep):
        return False
    return path.startswith(_SKIPPED_FOLDERS)


def policy(code: types.CodeType, scope: dict[str, Any]) -> Any:
    """The state of a frame's code, or None."""
    if code.co_name.startswith("<") or skipped_file(code.co_filename):
        return None
    return _UNIT.state_for(code)


def state_for_code(code: types.CodeType) -> Any:
    """The state of a jitted function whose `__code__` was rebound."""
    return _UNIT.state_for(code)


def codes_under(unit: Unit) -> list[types.CodeType]:
    """Code objects of frames that ran inside extents; reports of a function show them as well."""
    return _UNIT.codes()


def reset() -> None:
    _UNIT.reset()
