"""Liveness: locals that may still be read, which resume functions take and breaks keep alive.

A plain backward dataflow over the normal form, including exception handlers. Cells are not locals:
they come through the closure. Code that can read its own locals by name keeps all of them alive.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence

from .decoder import Decoded, Instr, decode, successors

READS = frozenset({"LOAD_FAST", "LOAD_FAST_CLEAR", "DELETE_FAST"})
WRITES = frozenset({"STORE_FAST", "DELETE_FAST", "LOAD_FAST_CLEAR"})
LOOKING_GLOBALS = frozenset({"locals", "vars", "dir", "eval", "exec", "breakpoint"})
LOOKING_ATTRIBUTES = frozenset({"_getframe", "currentframe", "set_trace"})
"""Names whose use means that the frame's locals may be read as a whole."""

_Known = weakref.WeakKeyDictionary[Decoded, tuple[frozenset[str], ...]]
_known: dict[bool, _Known] = {one: weakref.WeakKeyDictionary() for one in (True, False)}


def live_locals(decoded: Decoded, index: int, suppressed: bool = True) -> frozenset[str]:
    """Names of the locals whose value may be read at `index` or after it.

    `suppressed`: also where an exception has left a `with` block that suppresses it.
    """
    if decoded.base is not None and decoded.is_of_base(index):
        decoded = decode(decoded.base)
    found = _known[suppressed].get(decoded)
    if found is None:
        found = _known[suppressed][decoded] = _all(decoded, suppressed)
    return found[index]


def _looks_around(instr: Instr) -> bool:
    if instr.op == "LOAD_GLOBAL":
        return instr.arg in LOOKING_GLOBALS
    if instr.op == "LOAD_METHOD":
        return instr.arg[0] in LOOKING_ATTRIBUTES
    return instr.op == "LOAD_ATTR" and instr.arg in LOOKING_ATTRIBUTES


def _all(decoded: Decoded, suppressed: bool) -> tuple[frozenset[str], ...]:
    instrs = decoded.instrs
    used = {i.arg for i in instrs if i.op in READS | WRITES}
    names = (used | set(decoded.args)) - set(decoded.cells)
    if any(_looks_around(instr) for instr in instrs):
        return (frozenset(names),) * len(instrs)
    always: frozenset[str] = frozenset()
    if decoded.may_call_bare_super:
        always = frozenset(decoded.args[:1]) - set(decoded.cells)
    after = [successors(instr) for instr in instrs]
    if not suppressed:
        leaves = {i.handler for i in instrs if i.handler is not None and _leaves(instrs, i.handler)}
        after = [[one for one in ways if one not in leaves] for ways in after]
    return tuple(live | always for live in _flow(instrs, frozenset(names), after))


def _leaves(instrs: tuple[Instr, ...], handler: int) -> bool:
    """Whether a handler leaves a `with` block."""
    return any(one.op == "WITH_EXCEPT_START" for one in instrs[handler : handler + 3])


def _flow(
    instrs: tuple[Instr, ...], names: frozenset[str], ways: Sequence[Iterable[int]]
) -> list[frozenset[str]]:
    live: list[frozenset[str]] = [frozenset()] * len(instrs)
    before: list[list[int]] = [[] for _ in instrs]
    for instr in instrs:
        for after in ways[instr.index]:
            before[after].append(instr.index)
    todo = list(range(len(instrs)))
    while todo:
        index = todo.pop()
        instr = instrs[index]
        own = frozenset((instr.arg,)) & names if instr.op in READS | WRITES else frozenset()
        ahead: frozenset[str] = frozenset()
        for after in ways[index]:
            # An exception may come before a store is done: the handler sees the old value.
            stored = own if instr.op in WRITES and after != instr.handler else frozenset()
            ahead |= live[after] - stored
        result = ahead | own if instr.op in READS else ahead
        if result != live[index]:
            live[index] = result
            todo += before[index]
    return live
