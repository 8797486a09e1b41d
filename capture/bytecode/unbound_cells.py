"""Cells that may be empty when the function reads them.

In: the decoded original. Out: the names whose read may raise UnboundLocalError. A resume function
gets its cells through the closure, and Python's message would call them free variables; so the
assembler reads these by `load_cell`. A plain forward dataflow over the normal form: which cells are
certainly bound before each instruction. A cell that a nested function deletes is never certain.
"""

from __future__ import annotations

import types

from ...runtime import _native
from .decoder import Decoded, decode, successors

load_cell = _native.load_cell
_READS = frozenset({"LOAD_DEREF", "DELETE_DEREF"})
_EMPTIES = frozenset({"DELETE_DEREF", "MAKE_CELL"})


def maybe_unbound(code: types.CodeType) -> frozenset[str]:
    """Names among `co_cellvars`; cells from outside are free variables in any case."""
    own = frozenset(code.co_cellvars) - _deleted_inside(code)
    # It may empty its own cells through that attribute.
    if "cell_contents" in code.co_names:
        own = frozenset()
    decoded = decode(code)
    reads = [i for i in decoded.instrs if i.op in _READS and i.arg in code.co_cellvars]
    if not reads:
        return frozenset()
    bound = _bound(decoded, own)
    return frozenset(i.arg for i in reads if i.arg not in bound.get(i.index, own))


def _deleted_inside(code: types.CodeType) -> frozenset[str]:
    nested = [decode(const) for const in code.co_consts if isinstance(const, types.CodeType)]
    own = {i.arg for inner in nested for i in inner.instrs if i.op == "DELETE_DEREF"}
    inside = [_deleted_inside(c) for c in code.co_consts if isinstance(c, types.CodeType)]
    return frozenset(own).union(*inside)


def _bound(decoded: Decoded, own: frozenset[str]) -> dict[int, frozenset[str]]:
    """The cells of `own` that are bound before each reachable instruction."""
    bound: dict[int, frozenset[str]] = {0: own & frozenset(decoded.args)}
    todo = [0]
    while todo:
        instr = decoded.instrs[todo.pop()]
        before = bound[instr.index]
        after = before
        if instr.op == "STORE_DEREF":
            after = before | own & {instr.arg}
        elif instr.op in _EMPTIES:
            after = before - {instr.arg}
        for index in successors(instr):
            # An exception may come before a store is done, and after a deletion is done.
            reached = before & after if index == instr.handler else after
            known = bound.get(index)
            now = reached if known is None else known & reached
            if now != known:
                bound[index] = now
                todo.append(index)
    return bound
