"""The records of a report: location, reason, cost and fix of what happened, as frozen plain values.

In: nothing. Out: one class for each list of `report.Report`; text, HTML and JSON render the same
records. `runtime.report.folds` makes them from events. Times are in seconds, sizes in bytes; a time
of 0.0 was not measured. Times of day (`at`, as from `time.time`) are for the timeline. The names
and types of all fields are the JSON schema, with the version `version.SCHEMA`;
docs/report-schema.md is generated from this file.
"""

from __future__ import annotations

from ...ir.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """A user's line. Lines count from 1, columns from 0; None where unknown."""

    file: str = "?"
    line: int | None = None
    end_line: int | None = None
    column: int | None = None
    end_column: int | None = None
    function: str = "?"


@dataclass(frozen=True, slots=True)
class FrameRecord(Place):
    """Totals of one frame, including the resume functions after its breaks; `hits` and `misses` are
    those of the original function.

    distinct         kernels without those equal to another one
    segments         segments of a backward that is divided by leaves, as for a reducer; 0: none is
    adopted          entries that reuse the compilation of another callable of the same kind
    kinds            kinds of the entries: "direct", "code", "plain"
    plain            the code of the reason why it runs in plain Python, else empty
    seconds          (stage, seconds) summed over its captures
    calls_seen       counted calls: hits and misses
    seconds_a_call   mean time of the `samples` sampled calls
    plain_seconds    mean time of the `plain_samples` sampled calls that ran uncompiled
    compiled_share   the part of `seconds_a_call` in compiled programs, 0 to 1; -1.0: not measured
    resumed_lines    (first, last) lines that run in resume functions
    lines            lines that a graph covers
    """

    frame: str = ""
    entries: int = 0
    adopted: int = 0
    kinds: tuple[str, ...] = ()
    graphs: int = 0
    operators: int = 0
    calls: int = 0
    kernels: int = 0
    distinct: int = 0
    library: int = 0
    breaks: int = 0
    recompiles: int = 0
    guards: int = 0
    hits: int = 0
    misses: int = 0
    plain: str = ""
    seconds: tuple[tuple[str, float], ...] = ()
    calls_seen: int = 0
    seconds_a_call: float = 0.0
    compiled_share: float = -1.0
    samples: int = 0
    plain_seconds: float = 0.0
    plain_samples: int = 0
    resumed_lines: tuple[tuple[int, int], ...] = ()
    lines: tuple[int, ...] = ()
    segments: int = 0


@dataclass(frozen=True, slots=True)
class EntryRecord(Place):
    """One entry of a frame: the code that runs if its guards hold.

    number          from 1 in the frame with its resume functions; other records call it `entry`
    kind            "direct" (no Python frame on a hit), "code" (replacement code) or "plain"
    resumed         it begins after a break
    adopted         it reuses the compilation of another callable of the same kind
    graph           the name of its graph, empty without one
    operators       operators in the graph, which became `kernels` (`distinct` different ones) and
                    `library` calls of ATen
    calls           calls of torch's functions in the program
    guards          number of conditions
    guard_seconds   time of checking them
    value_seconds   the part of it that computes values of tensors
    claimed         `torch.compiler.is_compiling()` returned True during capture:
                    `JitConfig(claims_compiling=True)`
    stages          (stage, seconds) of making it
    saved_bytes     bytes that its graphs save for their backward, beside arguments and results that
                    autograd saves itself
    spared_bytes    bytes that `JitConfig(memory_budget=...)` does not save
    again           operators that run again in the backward for it, in an estimated time of
                    `again_seconds` per call
    hits            calls that it answered, without the one that made it
    alive           whether calls can still use it
    """

    frame: str = ""
    number: int = 0
    kind: str = ""
    resumed: bool = False
    adopted: bool = False
    graph: str = ""
    operators: int = 0
    calls: int = 0
    kernels: int = 0
    distinct: int = 0
    library: int = 0
    guards: int = 0
    guard_seconds: float = 0.0
    value_seconds: float = 0.0
    claimed: bool = False
    stages: tuple[tuple[str, float], ...] = ()
    saved_bytes: int = 0
    spared_bytes: int = 0
    again: int = 0
    again_seconds: float = 0.0
    hits: int = 0
    alive: bool = True
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class BreakRecord(Place):
    """A graph break. `count`: number of captures that met it; `inlined`: the calls that lead to it;
    `seconds`: mean time from the end of the compiled region before it to the beginning of the next
    one, over `samples` calls."""

    code: str = ""
    title: str = ""
    reason: str = ""
    why: str = ""
    cost: str = ""
    cure: str = ""
    frame: str = ""
    count: int = 1
    inlined: tuple[Place, ...] = ()
    seconds: float = 0.0
    samples: int = 0


@dataclass(frozen=True, slots=True)
class FailureRecord:
    """The guard that kept a call from an entry: `source` is `now`, the entry expects `before`."""

    entry: int = 0
    code: str = ""
    source: str = ""
    now: str = ""
    before: str = ""


@dataclass(frozen=True, slots=True)
class RecompileRecord(Place):
    """Another entry: `source` is `now`, the nearest entry expects `before`. There were `entries` of
    at most `limit`; `failed` has the failed guard of the newest ones, newest first."""

    code: str = ""
    title: str = ""
    source: str = ""
    now: str = ""
    before: str = ""
    cure: str = ""
    frame: str = ""
    entries: int = 0
    limit: int = 0
    failed: tuple[FailureRecord, ...] = ()
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class SymbolicRecord(Place):
    """A size or number that graphs take as an input because it varies between calls."""

    source: str = ""
    why: str = ""
    frame: str = ""


@dataclass(frozen=True, slots=True)
class GuardRecord(Place):
    """A condition under which an entry is valid; `entry` is the first entry with it. `path`: the
    steps to the value, ("self", ".layers", "[0]", ".weight"); empty if the condition is not about
    one value."""

    kind: str = ""
    source: str = ""
    text: str = ""
    frame: str = ""
    entry: int = 0
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LibraryRecord:
    """A kernel library that was built, or loaded from the store (`cached`): bytes of the file,
    seconds to build or load it, its operators."""

    name: str = ""
    bytes: int = 0
    seconds: float = 0.0
    cached: bool = False
    covers: tuple[str, ...] = ()
    frame: str = ""
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class UnfusedRecord:
    """Why a step is not fused with `neighbour`, which reads its result. `code` is of the family
    NF7xx."""

    neighbour: str = ""
    why: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True)
class KernelRecord(Place):
    """One computing step of a program. Its place is the line of its most expensive operator.

    kind       "kernel" (generated) or "call" (ATen or a library)
    device     "cpu", "cuda:0"
    operators  what it computes, in order
    lines      the lines of the program that request it
    shape      dtype and sizes of its result or iteration: "f32[32, 512]"
    reads, writes, flops   bytes and floating-point operations per call
    seconds    median of `samples` runs
    share      the reached share of the roofline, 0 to 1
    bound      what limits it: "memory", "compute", "overhead" or ""
    cached     loaded from the store
    source     its text, empty for calls
    unfused    why it is not fused with its neighbours
    """

    name: str = ""
    frame: str = ""
    graph: str = ""
    entry: int = 0
    kind: str = "kernel"
    device: str = "cpu"
    operators: tuple[str, ...] = ()
    lines: tuple[Place, ...] = ()
    shape: str = ""
    reads: int = 0
    writes: int = 0
    flops: int = 0
    seconds: float = 0.0
    samples: int = 0
    share: float = 0.0
    bound: str = ""
    cached: bool = False
    source: str = ""
    unfused: tuple[UnfusedRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeRecord(Place):
    """A node of a graph. `op`: "aten.add.Tensor", "input", "constant" or "output"; `type`: "f32[4,
    8]"; `inputs`: names of nodes; `kernel`: the KernelRecord that computes it."""

    name: str = ""
    op: str = ""
    type: str = ""
    inputs: tuple[str, ...] = ()
    kernel: str = ""


@dataclass(frozen=True, slots=True)
class GraphRecord:
    """A graph that became a program at `level`. `part`: "forward", "backward" or ""; `text`: the
    printed graph."""

    name: str = ""
    frame: str = ""
    entry: int = 0
    level: str = ""
    part: str = ""
    nodes: tuple[NodeRecord, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True)
class ScheduleRecord:
    """A kernel with timed alternatives (level O2): (version, seconds) with the default first, and
    the chosen one. `before`, `now`: seconds of the default and of the chosen one."""

    name: str = ""
    chosen: str = ""
    times: tuple[tuple[str, float], ...] = ()
    remembered: bool = False
    covers: tuple[str, ...] = ()
    frame: str = ""

    @property
    def before(self) -> float:
        return self.times[0][1] if self.times else 0.0

    @property
    def now(self) -> float:
        return dict(self.times).get(self.chosen, self.before)


@dataclass(frozen=True, slots=True)
class NoteRecord(Place):
    """A fallback, or a frame left to plain Python (`plain`)."""

    code: str = ""
    title: str = ""
    reason: str = ""
    cure: str = ""
    frame: str = ""
    plain: bool = False
    count: int = 1


@dataclass(frozen=True, slots=True)
class WarningRecord:
    """A warning, which is issued once."""

    code: str = ""
    text: str = ""
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Moment:
    """An item of the timeline: `at` is its start, `seconds` its duration (0.0: a point in time),
    `kind` one of "capture", "stage", "build", "break", "recompile", "adopted", "fallback", "plain",
    "warning"."""

    at: float = 0.0
    kind: str = ""
    title: str = ""
    frame: str = ""
    seconds: float = 0.0
