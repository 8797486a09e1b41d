"""Code that reads nodes of autograd's graph: `y.grad_fn` for more than whether it is None."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

from .decoder import Decoded, Instr

_READERS = ("grad_fn", "get_gradient_edge")
_FOUND: weakref.WeakKeyDictionary[Decoded, bool] = weakref.WeakKeyDictionary()


def reads_node(instrs: Sequence[Instr], at: int) -> bool:
    """Whether what the instruction before `at` gives is more than compared with None."""
    ops = [(one.op, one.arg) for one in instrs[at : at + 2]]
    if not ops or ops[0][0] == "POP_JUMP_IF":
        return False
    return not (ops[0] == ("LOAD_CONST", None) and ops[-1][0] == "IS")


def reads_nodes(decoded: Decoded) -> bool:
    """Whether code may read a node somewhere."""
    found = _FOUND.get(decoded)
    if found is None:
        instrs = decoded.instrs
        named = (at for at, one in enumerate(instrs, 1) if _name(one) in _READERS)
        found = _FOUND[decoded] = any(reads_node(instrs, at) for at in named)
    return found


def _name(instr: Instr) -> object:
    """The attribute, method or global that an instruction loads."""
    if not instr.op.startswith("LOAD_"):
        return None
    return instr.arg[0] if type(instr.arg) is tuple and instr.arg else instr.arg
