"""Names of branches, which a function and all its resume functions share.

In: a code object and a conditional jump. Out: a name by which `graftjit.dispatch.assumed_branches`
counts its outcomes and a later walk recognises it.
"""

from __future__ import annotations

import types
from typing import Any

from .decoder import Instr, decode
from .stack_shape import FALLS, JUMPS


def place_of(code: types.CodeType, jump: Instr) -> tuple[int, int]:
    """The name of a branch, for a function and all its resume functions. By id: an entry that held
    code would keep itself alive."""
    decoded = decode(code)
    base = decoded.base if decoded.is_of_base(jump.index) else None
    return id(base or code), jump.index


def branch_at(code: types.CodeType, index: int) -> tuple[int, int] | None:
    """The name of the branch at an instruction, or after it; None if it is no branch."""
    instrs = decode(code).instrs
    jump = instrs[index + (instrs[index].op == "TO_BOOL")]
    return place_of(code, jump) if jump.op == "POP_JUMP_IF" else None


def note_side(sides: Any, code: types.CodeType, path: Any, spec: Any) -> None:
    """Note what resumes a frame after an outcome of the branch that ends its graph."""
    jump, how = path[-1]
    if jump.op == "POP_JUMP_IF" and jump.arg in ("true", "false") and how in (FALLS, JUMPS):
        known = sides.setdefault(place_of(code, jump), {})
        known[(jump.arg == "true") == (how == JUMPS)] = spec.callable
