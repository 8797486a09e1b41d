"""Slices of a program: its steps divided into several programs that run one after the other.

`sliced(spec, groups)` divides the steps of a spec, in their order, so that each slice returns the
outputs of one group as soon as they are final. No step changes: kernels, their order and the arena
stay those of the whole. `Slices.begin(arguments)` begins a run, and each `Passing.next()` runs one
slice. Between two slices a `Passing` holds the values that later slices read. `finals(spec)` says
after which step each output is final. `runtime.autograd.divided` uses this module, and
`runtime.report.timings` asks for the parts of a program.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from ...ir.dataclass import dataclass
from ...ir.graph.interpreter import substitute
from ...ir.symbolic.expr import evaluate, is_symbolic
from .. import _native
from ..program.program import (
    COMPUTES,
    SLICES,
    Alloc,
    Aten,
    DeviceLaunch,
    Free,
    Launch,
    Otherwise,
    ProgramSpec,
    Scratch,
    Slot,
    Step,
    View,
)
from ..program.registers import values_of
from .lower import PythonProgram, consuming, load, note_aliases, slots_of

Tensors = tuple[torch.Tensor, ...]
_KEPT_BYTES = 64 << 20  # as in native/executor/workspace.cpp


# -- what a step reads and makes -------------------------------------------------------------------
def _touched(step: Step) -> tuple[int, ...]:
    """The slots whose memory a step reads or writes; none for a step that computes nothing."""
    if isinstance(step, Launch | DeviceLaunch):
        return (*step.slots, *step.writes)
    if isinstance(step, Otherwise):
        return step.slots
    if isinstance(step, Aten):
        results = [slot for slot in step.results if slot is not None]
        return (*slots_of((step.args, step.kwargs)), *results)
    return ()


def _made(step: Step) -> tuple[int, ...]:
    """The slots that a step fills, but views and scratch memory, which are made where needed."""
    if isinstance(step, Alloc):
        return (step.slot,)
    if isinstance(step, Aten):
        return tuple(slot for slot in step.results if slot is not None)
    return ()


def finals(spec: ProgramSpec) -> list[int]:
    """For each output the index of the last step that reads or writes its memory; -1: none does."""
    same: dict[int, int] = {}

    def first(slot: int) -> int:
        while slot in same:
            slot = same[slot]
        return slot

    for step in spec.steps:
        for one, other in _aliases(step):
            if first(one) != first(other):
                same[first(one)] = first(other)
    last: dict[int, int] = {}
    for at, step in enumerate(spec.steps):
        for slot in (*_touched(step), *_made(step)):
            last[first(slot)] = at
    return [last.get(first(slot), -1) for slot in spec.outputs]


def _aliases(step: Step) -> Iterator[tuple[int, int]]:
    """Pairs of slots that may share memory because of a step."""
    if isinstance(step, View) or (isinstance(step, Scratch) and step.base >= 0):
        yield step.slot, step.base
    elif isinstance(step, Aten):
        follows: dict[int, set[int]] = {}
        note_aliases(step, follows, set())
        for slot, results in follows.items():
            yield from ((slot, one) for one in results)


def _moved(step: Any, now: Callable[[int], int]) -> Any:
    """The step over other slots."""
    if isinstance(step, Alloc):
        return replace(step, slot=now(step.slot))
    if isinstance(step, View | Scratch):
        return replace(step, slot=now(step.slot), base=now(step.base))
    if isinstance(step, Aten):
        results = tuple(None if slot is None else now(slot) for slot in step.results)
        args, kwargs = substitute((step.args, step.kwargs), lambda one: Slot(now(one.index)), Slot)
        return replace(step, args=args, kwargs=kwargs, results=results)
    changes = {"slots": tuple(map(now, step.slots))}
    if isinstance(step, Launch | DeviceLaunch):
        changes["writes"] = tuple(map(now, step.writes))
    return replace(step, **changes)


# -- the division ----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Slice:
    """One slice. `program`, and `run` over a list of its arguments; `takes`: the slots that it
    reads, `last`: those among them that no later slice reads; `outputs`: the outputs that it
    returns; `gives`: the slots for later slices, which follow the outputs among its results."""

    program: Any
    run: Callable[[list[Any]], Tensors]
    takes: tuple[int, ...]
    last: frozenset[int]
    outputs: tuple[int, ...]
    gives: tuple[int, ...]


class Slices:
    """A divided program."""

    def __init__(self, spec: ProgramSpec, parts: Sequence[_Slice]) -> None:
        """The slot of the scratch memory, which all slices share, is `spec.n_slots`."""
        self.spec, self.parts = spec, parts
        self._used = {slot for part in parts for slot in part.takes}

    def begin(self, arguments: list[Any]) -> Passing:
        """A run on these arguments of the whole program; the list is emptied."""
        spec, n = self.spec, self.spec.n_inputs
        held = {slot: one for slot, one in enumerate(arguments[:n]) if slot in self._used}
        numbers = arguments[n:]
        if spec.n_slots in self._used:
            size = spec.arena
            if is_symbolic(size):
                size = evaluate(size, values_of(spec.symbols, arguments))
            held[spec.n_slots] = _take_arena(size)
        arguments.clear()
        return Passing(self, held, numbers)


class Passing:
    """A run between two slices: the values that later slices read."""

    __slots__ = ("_at", "_held", "_numbers", "_slices")

    def __init__(self, slices: Slices, held: dict[int, Any], numbers: list[Any]) -> None:
        self._slices, self._held, self._numbers, self._at = slices, held, numbers, 0

    def next(self) -> dict[int, torch.Tensor]:
        """Run the next slice: its outputs, by their positions among those of the whole."""
        slices, held = self._slices, self._held
        part = slices.parts[self._at]
        self._at += 1
        arena = held.get(slices.spec.n_slots) if self._at == len(slices.parts) else None
        arguments = [held.pop(at) if at in part.last else held[at] for at in part.takes]
        arguments += self._numbers
        made = part.run(arguments)
        n = len(part.outputs)
        held.update(zip(part.gives, made[n:], strict=True))
        if arena is not None:
            held.clear()
            _give_back_arena(arena)
        return dict(zip(part.outputs, made[:n], strict=True))


def can_slice(program: Any) -> bool:
    """Whether a program can be divided: its numbers are arguments of their own."""
    if not isinstance(program, _native.Program | PythonProgram):
        return False
    return all(origin[0] == "number" for origin in program.spec.symbols.values())


def sliced(spec: ProgramSpec, groups: Sequence[int], n: int) -> Slices:
    """The program divided into n slices, of which slice k returns the outputs whose group is k. A
    group that is final later than a following one delays that one."""
    return _Division(spec, groups, n).made()


def divided(program: Any, groups: Sequence[int], n: int) -> Slices:
    """As `sliced`, of a program in whose place the slices will run."""
    found = sliced(program.spec, groups, n)
    if isinstance(program, _native.Program):
        SLICES[program] = tuple([part.program for part in found.parts])
    return found


class _Division:
    """One division. `derived`: the views and scratch memory, by slot; each slice makes those that
    it needs again. `arena`: the slot of the scratch memory."""

    def __init__(self, spec: ProgramSpec, groups: Sequence[int], n: int) -> None:
        self.spec, self.groups, self.arena = spec, groups, spec.n_slots
        self.derived: dict[int, View | Scratch] = {}
        for step in spec.steps:
            if isinstance(step, Scratch) and step.base < 0:
                self.derived[step.slot] = replace(step, base=self.arena)
            elif isinstance(step, View | Scratch):
                self.derived[step.slot] = step
        computing = [at for at, step in enumerate(spec.steps) if isinstance(step, COMPUTES)]
        self.names = dict(zip(computing, spec.names, strict=False))
        self.ends = self._ends(n)
        self.outputs = [
            tuple(at for at, group in enumerate(groups) if group == k)
            for k in range(len(self.ends))
        ]

    def _ends(self, n: int) -> list[int]:
        """For each slice the end of its steps."""
        steps, last = self.spec.steps, finals(self.spec)
        ends: list[int] = []
        for k in range(n):
            final = [1 + at for at, of in zip(last, self.groups, strict=True) if of == k]
            end = max([0, *ends[-1:], *final])
            # A kernel reports an error to the step `Otherwise` after it, in the same run.
            while end < len(steps) and isinstance(steps[end], Free | Otherwise):
                end += 1
            ends.append(end)
        ends[-1] = len(steps)
        return ends

    def _roots(self, slots: Sequence[int]) -> set[int]:
        """The slots that are not derived from others, of these slots."""
        found = set()
        for slot in slots:
            while slot in self.derived:
                slot = self.derived[slot].base
            found.add(slot)
        return found

    def made(self) -> Slices:
        spec, steps, begin = self.spec, self.spec.steps, 0
        ranges: list[range] = []
        for end in self.ends:
            ranges.append(range(begin, end))
            begin = end
        reads = [
            self._roots([slot for at in places for slot in _touched(steps[at])])
            | self._roots([spec.outputs[at] for at in outputs])
            for places, outputs in zip(ranges, self.outputs, strict=True)
        ]
        parts = []
        for k, places in enumerate(ranges):
            made = {slot for at in places for slot in _made(steps[at])}
            later = set[int]().union(*reads[k + 1 :])
            takes = tuple(sorted(reads[k] - made - spec.constants.keys()))
            gives = tuple(sorted(made & later))
            program = load(self._spec(k, places, takes, gives))
            run = consuming(program)
            last = frozenset(takes) - later - {self.arena}
            parts.append(_Slice(program, run, takes, last, self.outputs[k], gives))
        return Slices(spec, parts)

    def _spec(
        self, k: int, places: range, takes: tuple[int, ...], gives: tuple[int, ...]
    ) -> ProgramSpec:
        """The program of slice k, which does the steps at these places."""
        spec, body = self.spec, _Body(self.derived, takes)
        for at in places:
            if not isinstance(spec.steps[at], View | Scratch | Free):
                body.add(spec.steps[at])
        outputs = [spec.outputs[at] for at in self.outputs[k]]
        for slot in outputs:
            body.derive(slot)
        results = tuple(map(body.now, (*outputs, *gives)))
        n = len(outputs)
        joined = {place for place, at in enumerate(self.outputs[k]) if at in spec.joined}
        constants = {
            body.numbers[at]: one for at, one in spec.constants.items() if at in body.numbers
        }
        return ProgramSpec(
            name=f"{spec.name}, segment {k + 1} of {len(self.ends)}",
            n_inputs=len(takes),
            n_slots=len(body.numbers),
            steps=body.freeing(results),
            outputs=results,
            constants=constants,
            symbols={
                symbol: (what, len(takes) + at - spec.n_inputs, *rest)
                for symbol, (what, at, *rest) in spec.symbols.items()
            },
            n_numbers=spec.n_numbers,
            joined=frozenset({*joined, *range(n, n + len(gives))}),
            names=tuple(self.names[at] for at in places if at in self.names),
        )


class _Body:
    """The steps of one slice. `numbers`: the slots of the slice by those of the whole."""

    def __init__(self, derived: Mapping[int, View | Scratch], takes: Sequence[int]) -> None:
        self.derived = derived
        self.numbers = {slot: at for at, slot in enumerate(takes)}
        self.steps: list[Step] = []
        self.known: set[int] = set()  # derived slots that this slice has made
        self.bases: dict[int, int] = {}  # scratch memory -> the tensor that it is part of

    def now(self, slot: int) -> int:
        return self.numbers.setdefault(slot, len(self.numbers))

    def add(self, step: Step) -> None:
        for slot in _touched(step):
            self.derive(slot)
        self.steps.append(_moved(step, self.now))

    def derive(self, slot: int) -> None:
        """Make a view or scratch memory, unless this slice has made it."""
        step = self.derived.get(slot)
        if step is None or slot in self.known:
            return
        self.derive(step.base)
        self.known.add(slot)
        if isinstance(step, Scratch):
            self.bases[self.now(slot)] = self.now(step.base)
        self.steps.append(_moved(step, self.now))

    def freeing(self, results: Sequence[int]) -> tuple[Step, ...]:
        """The steps, with each slot freed after its last use."""
        last: dict[int, int] = {}
        for at, step in enumerate(self.steps):
            for slot in (*_touched(step), *_made(step), *_derived(step)):
                last[slot] = at
                if slot in self.bases:
                    last[self.bases[slot]] = at
        ends: dict[int, list[int]] = {}
        for slot, at in last.items():
            if slot not in results:
                ends.setdefault(at, []).append(slot)
        found: list[Step] = []
        for at, step in enumerate(self.steps):
            found.append(step)
            if at in ends:
                found.append(Free(tuple(ends[at])))
        return tuple(found)


def _derived(step: Step) -> tuple[int, ...]:
    return (step.slot, step.base) if isinstance(step, View | Scratch) else ()


# -- scratch memory --------------------------------------------------------------------------------
class _Kept(threading.local):
    """The scratch memory that a thread keeps for the next run."""

    arena: torch.Tensor | None = None


_KEPT = _Kept()


def _take_arena(nbytes: int) -> torch.Tensor:
    kept, _KEPT.arena = _KEPT.arena, None
    if kept is not None and kept.numel() >= nbytes:
        return kept
    return torch.empty(nbytes, dtype=torch.uint8, device="cpu")


def _give_back_arena(arena: torch.Tensor) -> None:
    kept = _KEPT.arena
    if arena.numel() <= _KEPT_BYTES and (kept is None or kept.numel() < arena.numel()):
        _KEPT.arena = arena
