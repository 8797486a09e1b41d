"""Run times of programs, which native code samples, for reports.

`follow(program, ...)` records a program under the state that this thread compiles for.
`timed(state)` returns a `Timed` event for each of them that still exists. Programs are held weakly,
so a report that is never requested keeps nothing alive. `codegen.programs.compiled` and
`graftjit.dispatch.unit` call this module.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterable
from typing import Any

from ...ir.dataclass import dataclass
from .. import _native
from ..events.events import Timed
from ..guards.rows import Row
from ..process.session import SESSION
from ..program.program import COMPUTES, SLICES
from . import roofline


@dataclass(frozen=True, slots=True)
class Followed:
    """A program with the names in its `Compiled` event."""

    program: weakref.ref[Any]
    graph: str
    part: str
    frame: str
    entry: int


def follow(program: Any, graph: str, part: str) -> None:
    """Record a program. Others than native programs (a replay, the executor's mirror) are not
    timed."""
    key, frame, entry = SESSION.owner
    known = getattr(key, "followed", None)
    if known is not None and isinstance(program, _native.Program):
        alive = [one for one in known if one.program() is not None]
        key.followed = [*alive, Followed(weakref.ref(program), graph, part, frame, entry)]


def follow_too(state: Any, programs: Iterable[Followed]) -> None:
    """Record that the state also runs these programs, by the entry that this thread makes."""
    _key, frame, entry = SESSION.owner
    alive = [one for one in state.followed if one.program() is not None]
    also = [dataclasses.replace(one, frame=frame, entry=entry) for one in programs]
    state.followed = [*alive, *also]


def timed(state: Any) -> list[Timed]:
    """The measurements of the programs of a state."""
    pairs = [(one, one.program()) for one in getattr(state, "followed", ())]
    return [_timed(one, program) for one, program in pairs if program is not None]


def value_seconds(rows: Iterable[Row]) -> float:
    """The time that value guards among these rows take to compute their values; 0.0 if not
    sampled."""
    programs = {row.expected.program for row in rows if row.kind == "value"}
    return sum(program.seconds for program in programs)


def _timed(one: Followed, program: Any) -> Timed:
    """Of a program, or of its slices if these run in its place: a run of them all."""
    measured = [_of_program(part) for part in SLICES.get(program, ())]
    if not any(samples for _, samples, _, _ in measured):
        measured = [_of_program(program)]
    spent: dict[str, float] = {}
    for _, _, _, steps in measured:
        for name, seconds in steps:
            spent[name] = spent.get(name, 0.0) + seconds
    calls = max(part[0] for part in measured)
    samples = min(part[1] for part in measured)
    return Timed(
        frame=one.frame,
        entry=one.entry,
        graph=one.graph,
        part=one.part,
        calls=calls,
        samples=samples,
        seconds=sum(part[2] for part in measured),
        roofs=roofline.roofs() if any(spent.values()) else (),
        steps=tuple([(name, spent[name], samples if spent[name] else 0) for name in spent]),
    )


def _of_program(program: Any) -> tuple[int, int, float, list[tuple[str, float]]]:
    """(calls, samples, seconds of a run, (name, seconds) of each step with a name)."""
    calls, samples, seconds, each = program.times()
    steps = program.spec.steps
    computing = [at for at, step in enumerate(steps) if type(step) in COMPUTES]
    pairs = zip(computing, program.spec.names, strict=False)
    return calls, samples, seconds, [(name, each[at]) for at, name in pairs if name]
