"""Branches on data that nothing can answer before the graph, of which one way does nothing.

`if torch.rand([]) < p: continue`, `if not drop: h = layer(h)`: the other way is a body
(`conditional`) that may write to memory of the graph, and replace tensors of locals by others of
the same layout. Behind it, such a local is memory of the graph which begins as a copy of the tensor
before, and which the body overwrites. In eager mode it is one of both tensors. `Choices.are_apart`
checks that the program cannot see the difference. A way that only stores truth values in locals
needs no body: the condition gives these values.

`begin` is called for a jump by `raising_checks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from ...ir.graph.effects import is_fresh, is_random, reads, root, writes
from ...ir.graph.nodes import Node
from ...ir.ops.checks import assumed
from ...ir.symbolic.expr import Symbol, symbols_of
from ...ir.trace import conditional as parts
from ..bytecode.branches import place_of
from ..bytecode.decoder import Instr
from ..bytecode.liveness import live_locals
from ..values.frames import Frame
from ..values.symbolic_sizes import has_one_element
from ..values.value import Const, Iterator, Tensor
from . import data_numbers
from .conditional import Open, may_begin, open_body
from .value_questions import constant, may_ask

if TYPE_CHECKING:
    from ..interpreter.machine import Machine


# -- branches


def begin(m: Machine, frame: Frame, jump: Instr, tensor: Tensor) -> bool | None:
    """The outcome to go on with, if the other one only goes on where both meet."""
    place = place_of(frame.code, jump)
    if jump.target is None or place in m.not_skipped or not may_begin(m, frame):
        return None
    jumps, falls = jump.target, jump.index + 1
    for skips, at, other in (
        (jump.arg == "true", jumps, falls),
        (jump.arg != "true", falls, jumps),
    ):
        join = _join(frame, jump, at, other)
        if join is None:
            continue
        # the number of a row is known
        known = constant(m, tensor.ghost)
        if known is not None:
            return bool(known)
        in_loop = frame.decoded.instrs[join].op == "FOR_ITER"
        asked = may_ask(m, tensor)
        if in_loop:
            if frame.stack and isinstance(frame.stack[-1], Iterator):
                return _begun(m, frame, join, jump, tensor.ghost, skips, not asked)
        elif not asked and _is_drawn(m, tensor.ghost._node):
            if join == at and _sets_truths(m, frame, join, other, tensor.ghost, not skips):
                return skips
            return _begun(m, frame, join, jump, tensor.ghost, skips, True)
    return None


def _is_drawn(m: Machine, node: Node) -> bool:
    """Whether a value depends on random numbers: neither outcome is the usual one."""
    pending, seen = [node], set[Node]()
    while pending:
        one = pending.pop()
        if one not in seen:
            seen.add(one)
            if is_random(one) or not symbols_of([one.args, one.kwargs]).isdisjoint(m.numbers.drawn):
                return True
            pending += reads(one)
    return False


def _begun(
    m: Machine, frame: Frame, join: int, jump: Instr, ghost: Any, skips: bool, replaces: bool
) -> bool | None:
    if not data_numbers.may_read(m, Tensor(ghost, torch.Tensor)):
        return None
    if not has_one_element(m, ghost):
        return None
    if skips:
        ghost = m.tracer.run(torch.logical_not, (ghost,), where=m.users_line)
    elif ghost.dtype is not torch.bool:
        ghost = m.tracer.run(data_numbers.is_not_zero, (ghost,), where=m.users_line)
    taken = data_numbers.truth(m, ghost)
    body = Open(frame, join, place_of(frame.code, jump), jump.index)
    choices = partial(_choices, m) if replaces else None
    return not skips if open_body(m, body, taken, len(frame.stack), choices) else None


def _join(frame: Frame, jump: Instr, at: int, other: int) -> int | None:
    """The instruction at which one side of a jump meets the other side, if nothing comes before it
    there but constants for locals that nothing reads from then on: the head of the loop around the
    jump, or an instruction behind the other side."""
    instrs = frame.decoded.instrs
    stored: set[Any] = set()
    for _ in range(8):
        instr = instrs[at]
        if _meet(instrs, jump, at, other):
            live = live_locals(frame.decoded, at, suppressed=False)
            return at if live.isdisjoint(stored) else None
        if instr.op == "JUMP" and instr.target is not None:
            at = instr.target
        elif instr.op == "LOAD_CONST" and instrs[at + 1].op == "STORE_FAST":
            stored.add(instrs[at + 1].arg)
            at += 2
        else:
            return None
    return None


def _meet(instrs: Sequence[Instr], jump: Instr, at: int, other: int) -> bool:
    head = instrs[at]
    if head.op == "FOR_ITER" and head.target is not None and at < jump.index < head.target:
        return True
    goes_on = head.op == "JUMP" and head.target is not None and head.target < at
    if goes_on or not jump.index < other < at:
        return False
    last = instrs[at - 1]
    falls = last.op not in ("JUMP", *_ENDS)
    return falls or any(one.op == "JUMP" and one.target == at for one in instrs[other:at])


_ENDS = ("RETURN_VALUE", "RAISE", "RERAISE")


def _sets_truths(m: Machine, frame: Frame, join: int, at: int, ghost: Any, when: bool) -> bool:
    """Give locals the truth of a tensor where a branch that is taken at this outcome only stores
    other truth values in them."""
    instrs = frame.decoded.instrs[at:join]
    pairs = list(zip(instrs[::2], instrs[1::2], strict=False))
    if len(instrs) % 2 or not all(
        load.op == "LOAD_CONST"
        and type(load.arg) is bool
        and store.op == "STORE_FAST"
        and store.arg not in frame.decoded.cells
        for load, store in pairs
    ):
        return False
    if not data_numbers.may_read(m, Tensor(ghost, torch.Tensor)) or not has_one_element(m, ghost):
        return False
    stored = {store.arg: load.arg for load, store in pairs}
    for name in stored:
        before = frame.locals.get(name)
        if type(before) is not Const or type(before.value) is not bool:
            return False
    for name, value in stored.items():
        if frame.locals[name].value is not value:  # type: ignore[attr-defined]
            known = data_numbers.truth(m, ghost)
            frame.locals[name] = known if value is when else data_numbers.inverted(m, known)
    return True


# -- tensors that a body replaces


class _Chosen:
    """A local's tensor, or the one that takes its place in a body: memory of the graph, which the
    body overwrites (`h = layer(h)`).

    In eager mode it is one of both. So nothing may write to any of them from then on, or compare
    their identities, and only one of them may leave the graph (`Choices`).
    """

    def __init__(self, m: Machine, before: Tensor, taken: Symbol) -> None:
        self.before, self.taken = before, taken
        self.nested = bool(m.open_bodies)
        self.ghost = m.tracer.run(_copied, (before.ghost,), where=m.users_line)
        self.after: Any = None
        self.made: Any = None
        self.nodes: set[Node] = set()  # those that overwrite it
        self.now: list[Any] = []  # what the tensors were behind the body

    def becomes(self, m: Machine, after: Any) -> Tensor | None:
        """The value of the local behind the body; None if another tensor cannot be that."""
        if not isinstance(after, Tensor) or not _is_plain(m, after):
            return None
        before, ghost = self.before.ghost, after.ghost
        if _layout(ghost) != _layout(self.ghost) or _layout(before) != _layout(self.ghost):
            return None
        tracked = parts.is_always_tracked(m.root_tracer, ghost)
        if before.requires_grad and not (ghost.requires_grad and tracked):
            return None  # whether it has a history would be two questions
        if ghost.requires_grad and not torch.is_grad_enabled():
            return None
        self.after = after
        known = len(m.root_tracer.values()[1])
        m.tracer.run(parts.overwrite, (self.ghost, ghost), where=m.users_line)
        self.nodes = set(m.root_tracer.values()[1][known:])
        self.now = self._now()
        m.chosen = Choices() if m.chosen is None else m.chosen
        m.chosen.append(self)
        self.made = m.heap.tensor(self.ghost)
        return self.made

    def copied(self, m: Machine) -> Tensor:
        """A copy of the tensor takes its place, outside of the body."""
        self.ghost = m.tracer.run(_copied, (self.ghost,), where=m.users_line)
        self.now = self._now()
        return m.heap.tensor(self.ghost)

    def roots(self) -> list[Node]:
        """What made the memory of the tensors: of this one, the one before and the one after."""
        return [root(node) for node, _ in self.now]

    def is_assigned(self) -> bool:
        """Whether one of the tensors has other values than behind the body."""
        return any(
            a is not b or v != w for (a, v), (b, w) in zip(self._now(), self.now, strict=True)
        )

    def _now(self) -> list[Any]:
        some = (self, self.before, self.after)
        return [(one.ghost._node, one.ghost._version) for one in some]


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone()


def _layout(ghost: Any) -> Any:
    meta = ghost._node.meta
    return meta.shape, meta.stride, meta.dtype, meta.device


def _is_plain(m: Machine, value: Tensor) -> bool:
    """Whether this is a tensor of torch's own class, without lazy bits."""
    ghost = value.ghost
    plain = value.cls is torch.Tensor and m.tracer.owns(ghost)
    return plain and not (ghost.is_conj() or ghost.is_neg())


def _choices(m: Machine, state: Any, taken: Symbol) -> list[_Chosen]:
    """The tensors of locals that a body may replace."""
    keeps = torch.is_grad_enabled()
    found = {
        id(value): value
        for value in state.locals.values()
        if isinstance(value, Tensor)
        and _is_plain(m, value)
        and (keeps or not value.ghost.requires_grad)
    }
    return [_Chosen(m, value, taken) for value in found.values()]


class Choices(list[_Chosen]):
    """All such tensors of a walk."""

    def are_apart(self, m: Machine, nodes: list[Node], outputs: list[Node]) -> bool:
        """Whether the program cannot tell them from copies. Calls in which one of them is a tensor
        from before the graph are left to Python."""
        ways = _apart(self, nodes, outputs)
        return ways is not None and all(_leave_at(m, way) for way in ways)


# What must be known of numbers, all of it: whether each is zero.
_Way = tuple[tuple[Symbol, bool], ...]
_MOST_WAYS = 8


def _apart(chosen: list[_Chosen], nodes: list[Node], outputs: list[Node]) -> list[_Way] | None:
    """When somebody can tell a chosen tensor from a copy of it (see `_Chosen`): it is one that was
    there before the graph. None: also at other times."""
    if any(one.is_assigned() for one in chosen):
        return None
    together: dict[Node, set[Node]] = {}
    overwriting = {node: one for one in chosen for node in one.nodes}
    for node in nodes:
        one = overwriting.get(node)
        if one is None:
            if any(len(together.get(root(target), ())) > 1 for target in writes(node)):
                return None
            continue
        whole = set(one.roots()).union(*(together.get(each, ()) for each in one.roots()))
        together |= dict.fromkeys(whole, whole)
    left = {root(node) for node in outputs}
    if any(len(together[node] & left) > 1 for node in left & together.keys()):
        return None
    ways: dict[Node, list[_Way]] = {}
    for one in chosen:
        here, before, after = one.roots()
        found = [((one.taken, True), *way) for way in ways.get(before, _from_outside(before))]
        found += [((one.taken, False), *way) for way in ways.get(after, _from_outside(after))]
        if found and (one.nested or len(found) > _MOST_WAYS):
            return None
        ways[here] = found
    return [way for node in left for way in ways.get(node, ())]


def _from_outside(node: Node) -> list[_Way]:
    return [] if is_fresh(node) else [()]


def _leave_at(m: Machine, way: _Way) -> bool:
    """Record that Python runs the frame again if all of this holds."""
    held = [m.numbers.read[symbol].ghost for symbol, _ in way]
    if not all(map(m.tracer.owns, held)) or not m.may_check():
        return False
    m.tracer.run(_leaves, (held, [zero for _, zero in way]), where=m.users_line)
    return True


def _leaves(numbers: list[torch.Tensor], zero: list[bool]) -> None:
    found = [(one == 0) == is_zero for one, is_zero in zip(numbers, zero, strict=True)]
    assumed(torch.stack(found).all(), False)
