"""Events: everything that happens, as frozen records with a place; and the log that keeps them.

In: events from capture, codegen and runtime, each under the key (the state of a code object) of the function it
belongs to. Out: the events of a key in order, for `runtime.report`; JSON lines when GRAFTJIT_TRACE is set. An
event holds texts and numbers only, never a user's object, so that nothing stays alive because of it; the log
drops what belongs to a state together with that state, but for the time of `keeping`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from typing import IO, Any

from ..ir.dataclass import dataclass, field
from ..ir.location import Location

MAX_EVENTS_A_KEY = 1024


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
    """One guard as text; see `runtime.guards.Row`. `path`: the steps of its source, each as text."""

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
    """

    kind: str = "code"
    resumed: bool = False
    span: tuple[int, ...] = ()
    graphs: int = 0
    nodes: int = 0
    calls: int = 0
    guards: tuple[GuardLine, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured(Entered):
    """A frame, or what follows a break in it, became an entry. `seconds`: (stage, seconds) pairs."""

    seconds: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted(Entered):
    """An entry over what had been compiled for another callable of the kind: another model of the class, another
    function of the same code. Nothing was captured or compiled for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfusedFacts:
    """Why a step is not one with `neighbour`, which reads what it makes."""

    neighbour: str = ""
    why: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """One step of a program that computes, as `records.KernelRecord` tells it; the first of `lines` is that of its
    heaviest operator."""

    name: str = ""
    kind: str = "kernel"
    device: str = "cpu"
    operators: tuple[str, ...] = ()
    lines: tuple[Location, ...] = ()
    shape: str = ""
    reads: int = 0
    writes: int = 0
    flops: int = 0
    cached: bool = False
    unfused: tuple[UnfusedFacts, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SketchNode:
    """A node of a graph, see `records.NodeRecord`; `step`: the name of the step that computes it."""

    name: str = ""
    op: str = ""
    type: str = ""
    inputs: tuple[str, ...] = ()
    step: str = ""
    where: Location | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sketch:
    """A graph as cheap tuples, without its objects; `text` is its printed form, empty where the reader prints it."""

    nodes: tuple[SketchNode, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled(Event):
    """A graph became a program: `nodes` operators in `kernels` kernels, `distinct` of them (those of equal layers are
    one), and `library` ATen calls.

    part     "forward" or "backward" of a graph for training, else ""
    steps    what computes, in order
    sketch   the graph; source: the text of the whole library, from which reports cut that of each kernel
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
    samples       calls that were timed; seconds: these calls together; inside: of that, in compiled programs
    after         of what resumes a frame: where the break is that it follows
    gap_samples   how often the way from the compiled part before that break was timed; gap: these together
    """

    entries: int = 0
    hits: int = 0
    misses: int = 0
    resumed: bool = False
    entry_hits: tuple[tuple[int, int], ...] = ()
    guards: tuple[tuple[int, float], ...] = ()
    samples: int = 0
    seconds: float = 0.0
    inside: float = 0.0
    after: Location | None = None
    gap_samples: int = 0
    gap: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed(Event):
    """Run times of a program at the moment a report is asked for; added by the one who asks, as `Counted` is.

    graph, part   as in `Compiled`, whose steps these are; calls: runs of the program
    samples       runs that were timed; seconds: the median of them
    steps         (name, median seconds, samples) a step
    roofs         (device, bytes a second, floating-point operations a second) that the machine can do
    """

    graph: str = ""
    part: str = ""
    calls: int = 0
    samples: int = 0
    seconds: float = 0.0
    steps: tuple[tuple[str, float, int], ...] = ()
    roofs: tuple[tuple[str, float, float], ...] = ()


@dataclass(slots=True)
class _Shelf:
    """The events of one key. `dropped` counts what the bound pushed out."""

    owner: Any  # a weak reference, kept for its callback; None for events of the whole process
    events: deque[tuple[int, Event]] = field(default_factory=lambda: deque(maxlen=MAX_EVENTS_A_KEY))
    dropped: int = 0


class EventLog:
    """Append-only and bounded a key. Keys go by identity: equal code objects are two keys."""

    def __init__(self) -> None:
        self._shelves: dict[int, _Shelf] = {0: _Shelf(None)}
        self._kept: list[_Shelf] | None = None  # of keys that are gone, while `keeping`
        self._serial = itertools.count()
        self.after_fork()

    def after_fork(self) -> None:
        """A lock that another thread held when this process was forked is nobody's here. (One that may be taken
        twice: a finalizer may run, and emit, at any place.)"""
        self._lock = threading.RLock()

    def append(self, event: Event, key: Any = None) -> None:
        """Add an event under a key (anything that can be referred to weakly); None: the process as a whole."""
        shelf = self._shelves.get(0 if key is None else id(key)) or self._new_shelf(key)
        if len(shelf.events) == MAX_EVENTS_A_KEY:
            shelf.dropped += 1
        shelf.events.append((next(self._serial), event))

    def _new_shelf(self, key: Any) -> _Shelf:
        name = id(key)
        with self._lock:
            shelf = self._shelves.get(name)
            if shelf is None:
                shelf = _Shelf(weakref.ref(key, lambda _ref: self._drop(name)))
                self._shelves[name] = shelf
            return shelf

    def _drop(self, name: int) -> None:
        shelf = self._shelves.pop(name, None)
        if shelf is not None and self._kept is not None:
            self._kept.append(shelf)

    @contextlib.contextmanager
    def keeping(self) -> Iterator[None]:
        """Within the block, events outlive their keys: for a report on a whole run, whose functions may be gone."""
        before, self._kept = self._kept, []
        try:
            yield
        finally:
            self._kept = before

    def of(self, keys: Iterable[Any] | None = None) -> tuple[Event, ...]:
        """The events of these keys in the order in which they happened; None: of all keys."""
        found = [pair for shelf in self._shelves_of(keys) for pair in tuple(shelf.events)]
        return tuple(event for _serial, event in sorted(found, key=lambda pair: pair[0]))

    def serial(self) -> int:
        """A number between those of the events so far and of those to come."""
        return next(self._serial)

    def since(self, serial: int, key: Any) -> list[Event]:
        """The events of a key from there on."""
        shelf = self._shelves.get(id(key))
        pairs = () if shelf is None else tuple(shelf.events)
        return [event for number, event in pairs if number > serial]

    def dropped(self, keys: Iterable[Any] | None = None) -> int:
        """How many events of these keys are lost to the bound."""
        return sum(shelf.dropped for shelf in self._shelves_of(keys))

    def _shelves_of(self, keys: Iterable[Any] | None) -> list[_Shelf]:
        if keys is None:
            return [*self._shelves.values(), *(self._kept or ())]
        names = dict.fromkeys(0 if key is None else id(key) for key in keys)
        return [self._shelves[name] for name in names if name in self._shelves]

    def clear(self, key: Any = None) -> None:
        """Forget one key, or everything."""
        with self._lock:
            if key is None:
                self._shelves = {0: _Shelf(None)}  # at once: others may be appending
                self._kept = None if self._kept is None else []
            else:
                self._shelves.pop(id(key), None)


def as_json(event: Event) -> dict[str, Any]:
    """An event as plain JSON values, its class name under "event"."""
    return {"event": type(event).__name__, **dataclasses.asdict(event)}


def write_line(stream: IO[str], event: Event) -> None:
    """One event as one line; flushed, so that a crash loses nothing."""
    stream.write(json.dumps(as_json(event), default=str) + "\n")
    stream.flush()
