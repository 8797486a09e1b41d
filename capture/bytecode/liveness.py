"""Liveness: locals that may still be read, which resume functions take and breaks keep alive.

A plain backward dataflow over the normal form, including exception handlers. Cells are not locals:
they come through the closure. Code that can read its own locals by name keeps all of them alive.
"""

from __future__ import annotations

import weakref

from .decoder import Decoded, Instr, decode, successors

READS = frozenset({"LOAD_FAST", "LOAD_FAST_CLEAR", "DELETE_FAST"})
WRITES = frozenset({"STORE_FAST", "DELETE_FAST", "LOAD_FAST_CLEAR"})
LOOKING_GLOBALS = frozenset({"locals", "vars", "dir", "eval", "exec", "breakpoint"})
LOOKING_ATTRIBUTES = frozenset({"_getframe", "currentframe", "set_trace"})
"""Names whose use means that the frame's locals may be read as a whole."""

_known: weakref.WeakKeyDictionary[Decoded, tuple[frozenset[str], ...]] = weakref.WeakKeyDictionary()


def live_locals(decoded: Decoded, index: int) -> frozenset[str]:
    """Names of the locals whose value may be read at `index` or after it."""
    if decoded.base is not None and decoded.is_of_base(index):
        decoded = decode(decoded.base)
    found = _known.get(decoded)
    if found is None:
        found = _known[decoded] = _all(decoded)
    return found[index]


def _looks_around(instr: Instr) -> bool:
    if instr.op == "LOAD_GLOBAL":
        return instr.arg in LOOKING_GLOBALS
    if instr.op == "LOAD_METHOD":
        return instr.arg[0] in LOOKING_ATTRIBUTES
    return instr.op == "LOAD_ATTR" and instr.arg in LOOKING_ATTRIBUTES


def _all(decoded: Decoded) -> tuple[frozenset[str], ...]:
    instrs = decoded.instrs
    used = {i.arg for i in instrs if i.op in READS | WRITES}
    names = (used | set(decoded.args)) - set(decoded.cells)
    if any(_looks_around(instr) for instr in instrs):
        return (frozenset(names),) * len(instrs)
    always: frozenset[str] = frozenset()
    if decoded.may_call_bare_super:
        always = frozenset(decoded.args[:1]) - set(decoded.cells)
    return tuple(live | always for live in _flow(instrs, frozenset(names)))


def _flow(instrs: tuple[Instr, ...], names: frozenset[str]) -> list[frozenset[str]]:
    live: list[frozenset[str]] = [frozenset()] * len(instrs)
    before: list[list[int]] = [[] for _ in instrs]
    for instr in instrs:
        for after in successors(instr):
            before[after].append(instr.index)
    todo = list(range(len(instrs)))
    while todo:
        index = todo.pop()
        instr = instrs[index]
        own = frozenset((instr.arg,)) & names if instr.op in READS | WRITES else frozenset()
        ahead: frozenset[str] = frozenset()
        for after in successors(instr):
            # An exception may come before a store is done: the handler sees the old value.
            stored = own if instr.op in WRITES and after != instr.handler else frozenset()
            ahead |= live[after] - stored
        result = ahead | own if instr.op in READS else ahead
        if result != live[index]:
            live[index] = result
            todo += before[index]
    return live
