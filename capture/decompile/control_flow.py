"""The control flow of a decoded function: blocks, dominators, loops, and shared endings.

In: `decoder.Decoded`. Out: a `Flow`, which `capture.decompile.writer` writes as ifs, loops and
tries. `same_as` finds the position in another function from which it runs the same instructions:
replacement code and resume functions end in the user's own instructions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.dataclass import dataclass
from .. import helpers
from ..bytecode.decoder import Decoded, Handler, Instr, stack_effect
from ..bytecode.opcodes import FINAL, JUMPS

EXIT = -1
CLEANUP = (("COPY", 3), ("POP_EXCEPT", None), ("RERAISE", 1))
"""A handler made by the compiler around other handlers: it only ends what they began."""
FAULTS, FAULT_LENGTH = (helpers.failed_before, helpers.failed_halfway), 8
"""The emitter's fault handlers call one of these within their first instructions."""


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Instructions start..stop-1; control goes on to block `fall` or to block `target`."""

    number: int
    start: int
    stop: int
    fall: int | None
    target: int | None

    @property
    def after(self) -> list[int]:
        return [at for at in (self.fall, self.target) if at is not None]


class Flow:
    """Blocks, dominators and loops, without handlers of the compiler's and of the emitter's."""

    def __init__(self, decoded: Decoded) -> None:
        self.instrs = decoded.instrs
        self.handlers = [one for one in decoded.handlers if not self._is_left_out(one)]
        starts = {0, *(one.target for one in self.instrs if one.target is not None)}
        starts |= {one.index + 1 for one in self.instrs if one.op in JUMPS | FINAL}
        for row in self.handlers:
            starts |= {row.start, row.stop, row.target}
        order = sorted(at for at in starts if at < len(self.instrs))
        self.number = {at: number for number, at in enumerate(order)}
        self.blocks = [
            self._block(number, at, stop)
            for number, (at, stop) in enumerate(
                zip(order, [*order[1:], len(self.instrs)], strict=True)
            )
        ]
        self.before: dict[int, list[int]] = {block.number: [] for block in self.blocks}
        self.reached = self._reach()
        for number in self.reached:
            for after in self.blocks[number].after:
                self.before[after].append(number)
        n = len(self.blocks)
        self.raised = {block.number: self._handlers_of(block) for block in self.blocks}
        self.dominator = _dominators(n, [0], lambda at: self.blocks[at].after + self.raised[at])
        ends = [at for at in self.reached if not self.blocks[at].after]
        self.joins = _dominators(n, ends, lambda at: self.before[at])
        self.loops = self._loops()

    def _is_left_out(self, row: Handler) -> bool:
        found = self.instrs[row.target : row.target + len(CLEANUP)]
        first = self.instrs[row.target : row.target + FAULT_LENGTH]
        return [(one.op, one.arg) for one in found] == list(CLEANUP) or any(
            one.op == "LOAD_CONST" and any(one.arg is known for known in FAULTS) for one in first
        )

    def _block(self, number: int, start: int, stop: int) -> Block:
        last = self.instrs[stop - 1]
        fall = None if last.op in FINAL or stop == len(self.instrs) else number + 1
        target = None if last.target is None else self.number[last.target]
        return Block(number, start, stop, fall, target)

    def _reach(self) -> list[int]:
        """The blocks that control can reach."""
        seen: set[int] = set()
        todo = [0]
        while todo:
            at = todo.pop()
            if at not in seen:
                seen.add(at)
                block = self.blocks[at]
                todo += block.after + self._handlers_of(block)
        return sorted(seen)

    def _handlers_of(self, block: Block) -> list[int]:
        return [
            self.number[row.target]
            for row in self.handlers
            if row.start < block.stop and block.start < row.stop
        ]

    def _loops(self) -> dict[int, set[int]]:
        """Loop head -> the blocks of the loop."""
        found: dict[int, set[int]] = {}
        for at in self.reached:
            for head in self.blocks[at].after:
                if self.dominates(head, at):
                    body = found.setdefault(head, {head})
                    todo = [at]
                    while todo:
                        one = todo.pop()
                        if one not in body:
                            body.add(one)
                            todo += self.before[one]
        return found

    def dominates(self, one: int, other: int) -> bool:
        at: int | None = other
        while at is not None and at != EXIT:
            if at == one:
                return True
            at = self.dominator.get(at)
        return False

    def join(self, at: int) -> int | None:
        """The block where all paths from here meet; None if they do not."""
        found = self.joins.get(at)
        return None if found in (None, EXIT) else found

    def threaded(self, at: int) -> int:
        """The block that control reaches from a block, past those that only jump."""
        for _ in self.blocks:
            block = self.blocks[at]
            ops = [one.op for one in self.instrs[block.start : block.stop] if one.op != "NOP"]
            if at in self.loops or (ops and ops != ["JUMP"]) or len(block.after) != 1:
                break
            at = block.after[0]
        return at

    def lowest(self, at: int, join: int, depth: int) -> int:
        """How many stack items stay untouched until `join`, of `depth` after the block."""
        low = depth
        seen: set[int] = set()
        todo = [(after, depth) for after in self.blocks[at].after]
        while todo:
            one, now = todo.pop()
            if one == join or one in seen:
                continue
            seen.add(one)
            for instr in self.instrs[self.blocks[one].start : self.blocks[one].stop]:
                popped, pushed = stack_effect(instr)
                if instr.op != "COPY":  # COPY only reads
                    low = min(low, now - popped)
                now += pushed - popped
            todo += [(after, now) for after in self.blocks[one].after]
        return max(low, 0)

    def exit_of(self, head: int) -> int | None:
        """The block after a loop."""
        body = self.loops[head]
        out = [self.threaded(one) for at in sorted(body) for one in self.blocks[at].after]
        out = [one for one in out if one not in body]
        join = self.join(head)
        if join is not None and self.threaded(join) in out:
            return self.threaded(join)
        return max(set(out), key=out.count) if out else None


def _dominators(n: int, entries: list[int], after: Callable[[int], list[int]]) -> dict[int, int]:
    """The immediate dominator of each reachable block; EXIT if several entries lead to it.

    (Cooper, Harvey, Kennedy: A simple, fast dominance algorithm.)
    """
    order: list[int] = []
    seen = {EXIT}
    todo = [(EXIT, iter(entries))]
    while todo:
        at, rest = todo[-1]
        follow = next((one for one in rest if one not in seen), None)
        if follow is None:
            todo.pop()
            order.append(at)
        else:
            seen.add(follow)
            todo.append((follow, iter(after(follow))))
    rank = {at: place for place, at in enumerate(order)}
    before: dict[int, list[int]] = {at: [] for at in order}
    for entry in entries:
        before[entry].append(EXIT)
    for at in order:
        if at != EXIT:
            for one in after(at):
                before[one].append(at)
    found = {EXIT: EXIT}

    def meet(one: int, other: int) -> int:
        while one != other:
            while rank[one] < rank[other]:
                one = found[one]
            while rank[other] < rank[one]:
                other = found[other]
        return one

    changed = True
    while changed:
        changed = False
        for at in reversed(order):
            if at == EXIT:
                continue
            known = [one for one in before[at] if one in found]
            best = known[0]
            for one in known[1:]:
                best = meet(best, one)
            if found.get(at) != best:
                found[at], changed = best, True
    found.pop(EXIT)
    return found


# -- the user's own instructions
# ---------------------------------------------------------------------------


def same_as(one: Decoded, other: Decoded, at: int) -> int | None:
    """The instruction of `other` that continues as `one` does from `at`; None if there is none.

    Both must have the same locations in the program.
    """
    at = _past(one.instrs, at)
    first = one.instrs[at]
    if first.where.column is None:
        return None
    for candidate in other.instrs:
        if _alike(first, candidate) and _bisimilar(one, other, at, candidate.index):
            return candidate.index
    return None


def _past(instrs: tuple[Instr, ...], at: int) -> int:
    """The next instruction with an effect."""
    for _ in instrs:
        instr = instrs[at]
        if instr.op == "JUMP" and instr.target is not None:
            at = instr.target
        elif instr.op == "NOP":
            at += 1
        else:
            break
    return at


def _alike(one: Instr, other: Instr) -> bool:
    return (
        one.op == other.op
        and (one.arg is other.arg or _equal(one.arg, other.arg))
        and (one.where.line, one.where.column) == (other.where.line, other.where.column)
    )


def _equal(one: Any, other: Any) -> bool:
    """Equality of constants that runs no code of the user's."""
    plain = (str, int, bool, tuple, type(None))
    return type(one) is type(other) and type(one) in plain and repr(one) == repr(other)


def _bisimilar(one: Decoded, other: Decoded, at: int, candidate: int) -> bool:
    seen: set[tuple[int, int]] = set()
    todo = [(at, candidate)]
    while todo:
        left, right = todo.pop()
        left, right = _past(one.instrs, left), _past(other.instrs, right)
        if (left, right) in seen:
            continue
        seen.add((left, right))
        a, b = one.instrs[left], other.instrs[right]
        if not _alike(a, b):
            return False
        for x, y in ((a.target, b.target), (a.handler, b.handler)):
            if (x is None) != (y is None):
                return False
            if x is not None and y is not None:
                todo.append((x, y))
        if a.op not in FINAL:
            todo.append((left + 1, right + 1))
    return True
