"""Events: everything that happens, as frozen records with a location.

In: facts from capture, codegen and runtime, by `Session.emit`. Out: the stream that
`runtime.events.log` stores, reports fold and `trace_writer` writes. An event contains only texts
and numbers, never an object of the user, so it keeps nothing alive.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from ...ir.dataclass import dataclass, field
from ...ir.graph.summary import Sketch, SketchNode
from ...ir.location import Location

__all__ = ["Sketch", "SketchNode"]  # parts of `Compiled`, re-exported


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """`frame`: the qualified name of the function. `where`: the user's line. `entry`: a number
    shared by the events of one capture and its entry, 0 outside captures. Reports number entries
    anew, from 1."""

    frame: str = ""
    where: Location | None = None
    entry: int = 0
    at: float = field(default_factory=time.time)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameSeen(Event):
    """Capture met a frame for the first time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardLine:
    """One guard as text; see `runtime.guards.rows.Row`. `path`: the steps of its source, as
    texts."""

    kind: str
    source: str
    expected: str
    where: Location | None = None
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entered(Event):
    """A new entry.

    kind      "direct" (no Python frame on a hit), "code" (replacement code) or "plain"
    resumed   the frame is the continuation after a break; `span`: its (first, last) line
    graphs    graphs in this entry (0 or 1); nodes: ATen nodes; calls: torch-level calls
    let_go    number of guards whose texts the log has dropped
    claimed   `torch.compiler.is_compiling()` returned True while it was captured, because of
              `JitConfig(claims_compiling=True)`
    """

    kind: str = "code"
    resumed: bool = False
    span: tuple[int, ...] = ()
    graphs: int = 0
    nodes: int = 0
    calls: int = 0
    guards: tuple[GuardLine, ...] = ()
    let_go: int = 0
    claimed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured(Entered):
    """A frame, or its continuation after a break, became an entry. `seconds`: (stage, seconds)
    pairs."""

    seconds: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfusedFacts:
    """Why a step is not fused with `neighbour`, which reads its result."""

    neighbour: str = ""
    why: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """One computing step of a program, as `records.KernelRecord` describes it. The first of `lines`
    belongs to its most expensive operator. `symbols`: the names of its kernels in the library's
    text (equal kernels have one name). `dtype`: the type it computes with, as `ir.graph.printing`
    names types."""

    name: str = ""
    kind: str = "kernel"
    device: str = "cpu"
    operators: tuple[str, ...] = ()
    lines: tuple[Location, ...] = ()
    shape: str = ""
    reads: int = 0
    writes: int = 0
    flops: int = 0
    dtype: str = ""
    cached: bool = False
    symbols: tuple[str, ...] = ()
    unfused: tuple[UnfusedFacts, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled(Event):
    """A graph became a program: `nodes` operators in `kernels` kernels, `distinct` different ones
    (equal layers share one), and `library` ATen calls.

    part     "forward" or "backward" of a training graph, else ""
    steps    the computing steps, in order
    sketch   the graph
    source   the text of the whole library, from which reports cut each kernel
    varied   some sizes are symbolic: bytes and operations in `steps` are those of the sizes at
             capture
    saved_bytes, spared_bytes, again, again_seconds
             of a forward: see `EntryRecord`
    """

    graph: str = ""
    level: str = "O1"
    nodes: int = 0
    kernels: int = 0
    distinct: int = 0
    library: int = 0
    views: int = 0
    arena_bytes: int = 0
    seconds: float = 0.0
    part: str = ""
    steps: tuple[StepFacts, ...] = ()
    sketch: Sketch | None = None
    source: str = ""
    varied: bool = False
    saved_bytes: int = 0
    spared_bytes: int = 0
    again: int = 0
    again_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardDivided(Event):
    """The backward of a graph runs in several segments, so that the gradients of some leaves are
    accumulated before the others are computed."""

    graph: str = ""
    segments: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted(Entered):
    """A new entry that reuses the compilation of another callable of the same kind: another model
    of the class, or another function of the same code. `programs` are the events of the original
    compilation."""

    programs: tuple[Compiled, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelBuilt(Event):
    """A kernel library was built, or found in the store (`cached`). `covers`: its operators."""

    name: str = ""
    bytes: int = 0
    seconds: float = 0.0
    cached: bool = False
    covers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned(Event):
    """Alternative versions of a kernel were timed (level O2). `times` has (version, seconds per
    call), the default first; `chosen` is one of them. `remembered`: the times are from another
    process or from an earlier compile."""

    name: str = ""
    chosen: str = ""
    times: tuple[tuple[str, float], ...] = ()
    remembered: bool = False
    covers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphBreak(Event):
    """The graph ends at `where`. If `cure` or `cost` is empty, that of the table of codes
    applies."""

    code: str = "GB101"
    reason: str = ""
    cure: str = ""
    cost: str = ""
    # the calls that lead from the frame to `where`, outermost first
    inlined: tuple[Location, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardFailed(Event):
    """The entry of this number did not match because of this guard; emitted with the
    `Recompile`."""

    code: str = "RC403"
    source: str = ""
    now: str = ""
    before: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompile(Event):
    """Another entry is made: `source` is `now`, it was `before` in the nearest entry. `failed`: the
    failed guard of each of the newest entries. `entries`: the number of entries."""

    code: str = "RC403"
    source: str = ""
    now: str = ""
    before: str = ""
    entries: int = 0
    limit: int = 0
    failed: tuple[GuardFailed, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Symbolic(Event):
    """A size or number became an input of a graph. `source`: its expression in the program; `why`:
    the reason."""

    source: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback(Event):
    """Compiled in a slower form (gradient, no compiler, operator by ATen)."""

    code: str = "FB303"
    reason: str = ""


# Codes of frames that run in plain Python because nothing in them can be compiled.
HARMLESS_FRAMES = frozenset({"PL204", "PL216"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RanPlain(Event):
    """The whole frame runs in plain Python."""

    code: str = "PL205"
    reason: str = ""
    detail: str = ""  # the traceback of an internal error


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned(Event):
    """A warning was shown to the user, once."""

    code: str = "WN605"
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted(Event):
    """Totals of a code state when a report is requested; the report adds this event.

    entries       live entries; entry_hits: (entry number, calls that it answered) of each
    guards        (entry number, seconds per check of its guards), where measured
    values        (entry number, seconds of that for value guards), where there are any
    samples       timed calls; seconds: their total; inside: the part of it in compiled programs
    plain_samples timed calls that ran uncompiled; plain_seconds: their total
    after         for a continuation: the location of the break before it
    gap_samples   timed transitions from the compiled region before that break; gap: their total
    """

    entries: int = 0
    hits: int = 0
    misses: int = 0
    resumed: bool = False
    entry_hits: tuple[tuple[int, int], ...] = ()
    guards: tuple[tuple[int, float], ...] = ()
    values: tuple[tuple[int, float], ...] = ()
    samples: int = 0
    seconds: float = 0.0
    inside: float = 0.0
    plain_samples: int = 0
    plain_seconds: float = 0.0
    after: Location | None = None
    gap_samples: int = 0
    gap: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed(Event):
    """Run times of a program when a report is requested; the report adds this event.

    graph, part   as in `Compiled`, which has the same steps; calls: runs of the program
    samples       timed runs; seconds: their median
    steps         (name, median seconds, samples) of each step
    roofs         limits of the machine, as in `runtime.report.roofline`; empty: not measured
    """

    graph: str = ""
    part: str = ""
    calls: int = 0
    samples: int = 0
    seconds: float = 0.0
    steps: tuple[tuple[str, float, int], ...] = ()
    roofs: tuple[tuple[str, float, float], ...] = ()


def as_json(event: Event) -> dict[str, Any]:
    """An event as plain JSON values, with its class name under "event"."""
    return {"event": type(event).__name__, **dataclasses.asdict(event)}
