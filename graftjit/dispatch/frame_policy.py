"""The policy of the PEP 523 frame hook: which frames are compiled, and in which unit.

In: a code object met below a compiled callable. Out: its CodeState, or None to ignore it. Frames of
torch, of the standard library and of graftjit are never captured by themselves.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from ..runtime import _native
from ..runtime.events import events
from ..runtime.process import faults, own_builtins, wrappers
from ..runtime.process.options import JitConfig, by_number
from ..runtime.process.skipped_files import skipped_file
from .resume_functions import first_state
from .unit import UNITS, Unit

# Ignored: the body of a module runs once, and so does most code that it calls.
_IMPORTING = "<frozen importlib."

# One unit per configuration, for frames met below its callables.
_UNITS: dict[JitConfig, Unit] = {}


def policy(code: types.CodeType, scope: dict[str, Any]) -> Any:
    """The state of a frame's code; None to ignore the frame, False to ignore it and all frames
    below; True: ignore it this time only."""
    if own_builtins.replaced():
        return True
    try:
        return _policy(code)
    except Exception as error:
        faults.warn_of_fault(code.co_qualname, error)
        return None


def _policy(code: types.CodeType) -> Any:
    if wrappers.kind_of(code) is not None or code.co_filename.startswith(_IMPORTING):
        return False
    if code.co_name.startswith("<") and code.co_name != "<lambda>":
        return None
    if skipped_file(code.co_filename):
        return None
    owner = _owner()
    if owner is not None:
        owner.meets(code)
    return _unit().state_for(code)


def _unit() -> Unit:
    """The unit for frames below the callable that this thread runs, by its configuration."""
    config = by_number(_native.config_of_thread())
    if config not in _UNITS:
        _UNITS[config] = Unit("frames met by the hook", config)
    return _UNITS[config]


_unit()  # made at import, since it is the most used one


def _owner() -> Unit | None:
    """The unit whose code is nearest on this thread's stack. Its report includes the frame."""
    frame = sys._getframe(1)
    units = list(UNITS)
    while frame is not None:
        found = next((unit for unit in units if unit.runs(frame.f_code)), None)
        if found is not None:
            return found
        frame = frame.f_back  # type: ignore[assignment]
    return None


def state_for_code(code: types.CodeType) -> Any:
    """The state for a jitted function after its `__code__` was rebound."""
    try:
        return _unit().state_for(code)
    except Exception as error:
        faults.warn_of_fault(code.co_qualname, error)
        return _native.CodeState(code)  # without a miss callback: always plain Python


def counted(unit: Unit) -> list[tuple[Any, events.Counted]]:
    """States of frames met below the unit's and of their resume functions, with totals."""
    names = {id(code) for code in unit.met()}
    met = _UNITS.get(unit.config)
    return [
        (state, row)
        for state, row in (met.counted() if met else ())
        if id(first_state(state).code) in names
    ]


def everywhere() -> list[tuple[Any, events.Counted]]:
    """All states with totals: of jitted functions, and of frames met below them."""
    return [pair for unit in (*UNITS, *_UNITS.values()) for pair in unit.counted()]


def units() -> list[Unit]:
    """The units of frames met below callables, one per configuration."""
    return list(_UNITS.values())


def reset() -> None:
    """Drop everything compiled for frames that the hook met."""
    for unit in list(_UNITS.values()):
        unit.reset()
