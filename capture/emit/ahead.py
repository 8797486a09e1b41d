"""Facts on the code that may still run: locals that it writes, and its lines.

Each is computed backwards once for all instructions of a function, and is valid for its resume
functions as well.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

from ..bytecode.decoder import Decoded, Instr, decode, successors
from ..bytecode.liveness import WRITES

Gathered = TypeVar("Gathered")


class Ahead(Generic[Gathered]):
    """Combines `own(instr)` over an instruction and all that it reaches.

    `join` combines two; its result must include both.
    """

    def __init__(
        self, own: Callable[[Instr], Gathered], join: Callable[[Gathered, Gathered], Gathered]
    ) -> None:
        self._own, self._join = own, join
        self._known: weakref.WeakKeyDictionary[Decoded, list[Gathered]] = (
            weakref.WeakKeyDictionary()
        )

    def at(self, decoded: Decoded, index: int) -> Gathered:
        if decoded.base is None:
            return self._of(decoded)[index]
        if decoded.is_of_base(index):
            return self._of(decode(decoded.base))[index]
        # The beginning of a resume function ends with its only jump.
        *rest, jump = decoded.instrs[index:]
        assert jump.target is not None
        found = self._of(decode(decoded.base))[jump.target]
        for instr in rest:
            found = self._join(found, self._own(instr))
        return found

    def _of(self, decoded: Decoded) -> list[Gathered]:
        found = self._known.get(decoded)
        if found is None:
            found = self._known[decoded] = self._gathered(decoded.instrs)
        return found

    def _gathered(self, instrs: tuple[Instr, ...]) -> list[Gathered]:
        found, changed = [self._own(instr) for instr in instrs], True
        while changed:
            changed = False
            for instr in reversed(instrs):
                now = found[instr.index]
                for after in successors(instr):
                    now = self._join(now, found[after])
                if now != found[instr.index]:
                    found[instr.index], changed = now, True
        return found


_DROPPED: Ahead[frozenset[str]] = Ahead(
    lambda instr: frozenset((instr.arg,)) if instr.op in WRITES else frozenset(),
    lambda one, other: one if other <= one else one | other,
)


def dropped_ahead(decoded: Decoded) -> frozenset[str]:
    """Names of the locals that the code writes or deletes, from its beginning on."""
    return _DROPPED.at(decoded, decoded.entry)


def _line(instr: Instr) -> tuple[int, ...]:
    line = instr.where.line
    return () if line is None else (line, line)


def _span(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    if not one or not other:
        return one or other
    return min(one[0], other[0]), max(one[1], other[1])


_LINES = Ahead(_line, _span)


def lines_from(code: types.CodeType, index: int) -> tuple[int, ...]:
    """(first, last) line that may run from instruction `index` on; empty if none is known."""
    return _LINES.at(decode(code), index)
