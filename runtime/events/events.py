"""Events: everything that happens, as frozen records with a place.

In: what capture, codegen and runtime tell, by `Session.emit`. Out: the stream that `event_log` keeps, `report` folds
and `trace_file` writes. An event holds texts and numbers only, never a user's object, so that nothing stays alive
because of it.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from ...ir.dataclass import dataclass, field
from ...ir.graph.summary import Sketch, SketchNode
from ...ir.location import Location

__all__ = ["Sketch", "SketchNode"]  # of what `Compiled` has, read here with it


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """`frame`: the qualified name of the function; `where`: the user's line; `entry`: a number that the events of one
    capture share with the entry that comes of it, 0 outside of captures. Reports count entries anew, from 1."""

    frame: str = ""
    where: Location | None = None
    entry: int = 0
    at: float = field(default_factory=time.time)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameSeen(Event):
    """Capture meets a frame for the first time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardLine:
    """One guard as text; see `runtime.guards.rows.Row`. `path`: the steps of its source, each as text."""

    kind: str
    source: str
    expected: str
    where: Location | None = None
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entered(Event):
    """What is told of a new entry.

    kind      "direct" (no Python frame on a hit), "code" (replacement code) or "plain"
    resumed   the frame is what follows a break; `span`: (first, last) line of that
    graphs    graphs in this entry (0 or 1); nodes: ATen nodes; calls: torch-level calls
    let_go    guards whose texts the log has let go of
    claimed   `torch.compiler.is_compiling()` said True in it, as `JitConfig(claims_compiling=True)` asks
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
    """A frame, or what follows a break in it, became an entry. `seconds`: (stage, seconds) pairs."""

    seconds: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfusedFacts:
    """Why a step is not one with `neighbour`, which reads what it makes."""

    neighbour: str = ""
    why: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """One step of a program that computes, as `records.KernelRecord` tells it; the first of `lines` is that of its
    heaviest operator. `symbols`: what its text is called in the library's (equal kernels are one); `dtype`: what it
    computes with, as `ir.graph.printing` names types."""

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
    """A graph became a program: `nodes` operators in `kernels` kernels, `distinct` of them (those of equal layers are
    one), and `library` ATen calls.

    part     "forward" or "backward" of a graph for training, else ""
    steps    what computes, in order
    sketch   the graph; source: the text of the whole library, from which reports cut that of each kernel
    varied   sizes are open: what `steps` say that they move and compute is of the sizes at capture alone
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted(Entered):
    """An entry over what had been compiled for another callable of the kind: another model of the class, another
    function of the same code. Nothing was captured or compiled for it: `programs` are what its maker was
    told."""

    programs: tuple[Compiled, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelBuilt(Event):
    """A kernel library was built, or found in the store (`cached`). `covers`: the operators inside."""

    name: str = ""
    bytes: int = 0
    seconds: float = 0.0
    cached: bool = False
    covers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned(Event):
    """Ways to compute a kernel were timed beside each other (level O2): `times` has (way, seconds a call), the default
    first, and `chosen` is one of them. `remembered`: they were timed in another process, or earlier in this one."""

    name: str = ""
    chosen: str = ""
    times: tuple[tuple[str, float], ...] = ()
    remembered: bool = False
    covers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphBreak(Event):
    """The graph ends at `where`. Empty `cure` and `cost` stand for those of the table."""

    code: str = "GB101"
    reason: str = ""
    cure: str = ""
    cost: str = ""
    inlined: tuple[
        Location, ...
    ] = ()  # the calls that lead from the frame to `where`, outermost first


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardFailed(Event):
    """The entry of that number did not apply because of this guard; told with the `Recompile` that it led to."""

    code: str = "RC403"
    source: str = ""
    now: str = ""
    before: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompile(Event):
    """Another entry is made: `source` is `now`, it was `before` in the nearest entry. `failed`: what kept the call from
    each of the newest entries, of which there are `entries`."""

    code: str = "RC403"
    source: str = ""
    now: str = ""
    before: str = ""
    entries: int = 0
    limit: int = 0
    failed: tuple[GuardFailed, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Symbolic(Event):
    """A size or number became an input of a graph: `source` as the program would write it, and why."""

    source: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback(Event):
    """Compiled, but in a slower way (gradient, no compiler, operator by ATen)."""

    code: str = "FB303"
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RanPlain(Event):
    """The whole frame is left to plain Python."""

    code: str = "PL205"
    reason: str = ""
    detail: str = ""  # a traceback of an internal fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned(Event):
    """A warning that the user was given, once."""

    code: str = "WN605"
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted(Event):
    """Totals of a code state at the moment a report is asked for; added by the one who asks.

    entries       those that are alive; entry_hits: (number of an entry, calls that it answered) of each
    guards        (number of an entry, seconds that a check of its guards takes) where that was measured
    values        (number of an entry, seconds of that in which values of tensors are computed) where there are such guards
    samples       calls that were timed; seconds: these calls together; inside: of that, in compiled programs
    plain_samples calls that ran as written and were timed; plain_seconds: these together
    after         of what resumes a frame: where the break is that it follows
    gap_samples   how often the way from the compiled part before that break was timed; gap: these together
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
    """Run times of a program at the moment a report is asked for; added by the one who asks, as `Counted` is.

    graph, part   as in `Compiled`, whose steps these are; calls: runs of the program
    samples       runs that were timed; seconds: the median of them
    steps         (name, median seconds, samples) a step
    roofs         what the machine can do, as `runtime.report.roofline` has it; empty: not measured
    """

    graph: str = ""
    part: str = ""
    calls: int = 0
    samples: int = 0
    seconds: float = 0.0
    steps: tuple[tuple[str, float, int], ...] = ()
    roofs: tuple[tuple[str, float, float], ...] = ()


def as_json(event: Event) -> dict[str, Any]:
    """An event as plain JSON values, its class name under "event"."""
    return {"event": type(event).__name__, **dataclasses.asdict(event)}
