"""From a graph to a program: the backend that capture calls.

`compile_graph(graph, options)` gives a `Compiled`: fused kernels and ATen steps run by the executor, or the replay of
the torch-level calls (a gradient is needed, level O0, or code generation failed: said by an event and, once, by a
warning). Under GRAFTJIT_CHECK a failure raises, and each run is compared with the replay. With the option `background`
a program begins as ATen's operators and is exchanged for the fused one when its kernels are built.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..ir.dataclass import dataclass, field
from ..ir.graph import Graph, Node
from ..ir.joint import Joint
from ..ir.location import Location
from ..ir.passes import optimize
from ..ir.symbols import hint_of
from ..runtime import device
from ..runtime.errors import BuildError, GraftError, InternalError
from ..runtime.events import Compiled as CompiledEvent
from ..runtime.events import Fallback
from ..runtime.kernel_store import Library
from ..runtime.program import ProgramSpec
from ..runtime.session import LOGGER, SESSION
from ..runtime.spent import SpentProgram
from . import (
    build,
    cpp,
    lower,
    lower_index,
    lower_move,
    lower_pool,
    lower_product,
    lower_reduce,
    lower_scan,
    lower_scatter,
    lower_special,
    replaced,
    schedule,
)
from .background import BACKGROUND
from .nest import Kernel
from .replay import compile_replay
from .shadow import shadowed

if TYPE_CHECKING:
    from .tune import Question

# imported to fill the table of rules
_TABLES = (
    lower,
    lower_product,
    lower_reduce,
    lower_scan,
    lower_special,
    lower_index,
    lower_move,
    lower_pool,
    lower_scatter,
)

Program = Callable[..., tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """One kernel for the report: its text, what it covers (operator and line), bytes moved a call."""

    name: str
    source: str
    covers: tuple[str, ...]
    bytes: int
    cached: bool = False


@dataclass(slots=True)
class Compiled:
    """A graph that can run. `program` takes input tensors by position and returns a tuple of outputs.

    mode      "fused", "replay" (`reason` says why), or "background": ATen's operators until kernels take their place
    kernels   a record a kernel; `distinct`: how many there are in the library; `library` counts ATen calls
    timings   stage -> seconds
    """

    graph: Graph
    program: Program
    mode: str
    spec: ProgramSpec | None = None
    kernels: tuple[KernelRecord, ...] = ()
    library: int = 0
    distinct: int = 0
    reason: str = ""
    timings: dict[str, float] = field(default_factory=dict)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        return self.program(*inputs)


def compile_graph(graph: Graph, options: Any = None) -> Compiled:
    """Compile a graph at the level that options (a JitConfig or None) ask for."""
    start = time.perf_counter()
    level = getattr(options, "jit_level", "O1")
    background = getattr(options, "background", False)
    tune = level == "O2" and SESSION.options.tune and getattr(options, "tune", True)
    if level == "O0":
        compiled = _replayed(graph, "FB311", "level O0")
    elif graph.needs_grad:
        compiled = _joint_or_replayed(graph, level, background, tune)
    else:
        compiled = _fused_or_replayed(graph, level, background, tune)
        if (graph.spent or (graph.spends and graph.mutates)) and compiled.mode != "replay":
            compiled.program = SpentProgram(compiled.program, graph.spent)
    compiled.timings["total"] = time.perf_counter() - start
    if compiled.mode != "background":  # that is told when it is done
        _tell(compiled, level)
    return compiled


def _tell(compiled: Compiled, level: str) -> None:
    graph = compiled.graph
    SESSION.emit(
        CompiledEvent(
            graph=graph.name,
            level=level,
            nodes=sum(node.op == "call" for node in graph.nodes),
            kernels=len(compiled.kernels),
            distinct=compiled.distinct,
            library=compiled.library,
            arena_bytes=0 if compiled.spec is None else hint_of(compiled.spec.arena),
            seconds=compiled.timings["total"],
        )
    )


def _replayed(graph: Graph, code: str, reason: str, where: Location | None = None) -> Compiled:
    SESSION.emit(Fallback(code=code, reason=reason, where=where))
    return Compiled(graph, compile_replay(graph), "replay", library=len(graph.calls), reason=reason)


def _joint_or_replayed(graph: Graph, level: str, background: bool, tune: bool) -> Compiled:
    """Forward and backward as programs, or the calls under autograd."""
    from .joint import compile_joint  # late: not every program is trained

    if not isinstance(graph.joint, Joint):
        reason = graph.joint.reason if graph.joint else "a gradient is needed"
        return _replayed(graph, "FB301", reason, graph.grad_where)
    owner = SESSION.owner

    def build(half: Graph) -> Compiled:
        start = time.perf_counter()
        with SESSION.working_for(*owner):
            made = _half(half, level, background, tune)
            made.timings["total"] = time.perf_counter() - start
            if half.name != graph.name:  # the forward is told of with its frame
                _tell(made, level)
            return made

    try:
        program, forward = compile_joint(graph, build, SESSION.options.check, _show())
    except Exception as error:  # a fault of ours must not become the user's
        return _replayed(graph, *_told(graph, error))
    return replace(forward, graph=graph, program=program)


def _half(graph: Graph, level: str, background: bool, tune: bool) -> Compiled:
    """A forward or backward, which has no calls to fall back to: without kernels its operators run by ATen."""
    try:
        return _programmed(graph, level, background, tune)
    except Exception as error:
        code, reason = _told(graph, error)
        SESSION.emit(Fallback(code=code, reason=reason))
        by_aten = schedule.plan(graph, fuse=False)
        return _finished(_Planned(graph, _Clock({}), graph, by_aten), None)


def _fused_or_replayed(graph: Graph, level: str, background: bool, tune: bool) -> Compiled:
    try:
        return _programmed(graph, level, background, tune)
    except Exception as error:  # a fault of ours must not become the user's
        return _replayed(graph, *_told(graph, error))


def _programmed(graph: Graph, level: str, background: bool, tune: bool) -> Compiled:
    planned = _planned(graph)
    try:
        if tune:
            planned.tune(stored=background)
        return _at_once(planned, stored=background)
    except build.NotBuilt:
        return _deferred(planned, level)


def _told(graph: Graph, error: Exception) -> tuple[str, str]:
    """The code and the reason of a fallback, after one warning. Under GRAFTJIT_CHECK it is raised."""
    if SESSION.options.check:
        if isinstance(error, GraftError):
            raise error
        raise InternalError(
            f"code generation failed for the graph {graph.name}", found=repr(error)
        ) from error
    reason = f"{type(error).__name__}: {error}".splitlines()[0]
    SESSION.warn_once(
        "WN606",
        f"a graph runs operator by operator, for its kernels could not be made: {reason}",
    )
    return "FB306" if isinstance(error, BuildError) else "FB303", reason


@dataclass(slots=True)
class _Planned:
    """A graph before its kernels are built. `source` is their text, empty where there are none; `numbers`: the
    expressions that each one takes; `symbols`: the one that stands for it there."""

    graph: Graph
    clock: _Clock
    better: Graph
    made: schedule.Plan
    source: str = ""
    numbers: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    symbols: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)  # of each kernel by itself
    fuse: bool = True  # there is a way to have kernels
    later: bool = False  # schedules are to be looked for when kernels are built
    asked: list[Question] = field(default_factory=list)  # what has not been measured yet
    replaced: replaced.Loaded | None = (
        None  # the kernels in place of ATen's calls, where there are any
    )

    def tune(self, stored: bool) -> None:
        """Take the schedules that are known to be the best. NotBuilt where there are others to measure, and `stored`
        says that nothing shall be built."""
        from . import tune, tune_products  # late: nothing of it is needed below O2

        if not self.fuse:
            return
        self.later = stored
        answers = tune_products.answers(self.better, stored)
        if answers:
            with tune_products.answered(answers):
                self.made = schedule.plan(self.better)
        self.asked = tune.recall(tune.questions(self.made), self.made, stored)
        self.later = False

    def render(self) -> None:
        """The kernels' text, after what is left to measure."""
        if self.later:
            self.tune(stored=False)
        if self.asked:
            from . import tune

            tune.measure(self.asked, self.made)
            self.asked = []
            self.clock.lap("tune")
        if self.made.kernels and not self.source:
            nests = [kernel.nest for kernel in self.made.kernels]
            self.source = cpp.render(
                nests, build.vector_bytes(), self.numbers, self.symbols, self.texts
            )
            self.clock.lap("render")

    def watched(self, program: Program, kernels: Sequence[str] = ()) -> Program:
        """The program, under GRAFTJIT_CHECK with each run compared with eager's."""
        graph = self.graph
        if not SESSION.options.check or graph.mutates or graph.random or not graph.calls:
            return program
        return shadowed(program, compile_replay(graph), graph, kernels)


def _planned(graph: Graph) -> _Planned:
    """Passes and fusion. Without a compiler: for kernels that a bundle brought, or none."""
    clock = _Clock({})
    better = optimize(graph, check=SESSION.options.check, show=_show())
    clock.lap("passes")
    fuse = device.find_compiler() is not None or SESSION.store.bundled()
    planned = _Planned(graph, clock, better, schedule.plan(better, fuse=fuse), fuse=fuse)
    clock.lap("plan")
    if not planned.made.kernels and not fuse:
        _without_compiler()
    return planned


def _library(planned: _Planned, stored: bool = False) -> Library | None:
    """The kernels, built or found. Without a compiler and without a bundle that has them the plan becomes one
    without kernels."""
    planned.render()
    calls = planned.made.replaced
    if not planned.source and not calls:
        return None
    covers = tuple(line for kernel in planned.made.kernels for line in kernel.nest.covers)
    names = list(dict.fromkeys(planned.symbols.values()))
    try:
        planned.replaced = replaced.load(calls.values(), stored=stored) if calls else None
        if not planned.source:
            return None
        return build.load(planned.source, names, planned.graph.name, covers, stored)
    except BuildError:
        if device.find_compiler() is not None:
            raise
    finally:
        planned.clock.lap("build")
    _without_compiler()
    planned.made, planned.source = schedule.plan(planned.better, fuse=False), ""
    planned.symbols.clear()
    return None


def _without_compiler() -> None:
    SESSION.emit(Fallback(code="FB302", reason="no C++ compiler was found"))
    SESSION.warn_once(
        "WN604",
        "no C++ compiler was found: programs run as ATen steps. Install g++ or clang++, or set CXX.",
    )


def _at_once(planned: _Planned, stored: bool = False) -> Compiled:
    """The program, when its kernels are there."""
    done = _finished(planned, _library(planned, stored))
    done.program = planned.watched(done.program, [record.name for record in done.kernels])
    return done


def _finished(planned: _Planned, keep: Library | None) -> Compiled:
    """The program over loaded kernels."""
    from ..runtime.executor import load  # late: it loads the native extension

    made, graph, symbols = planned.made, planned.graph, planned.symbols
    addresses = {} if keep is None else {n: keep.addresses[of] for n, of in symbols.items()}
    if planned.replaced is not None:
        addresses |= planned.replaced.addresses
    records = tuple(_record(k, planned.texts, keep.cached) for k in made.kernels) if keep else ()
    spec = schedule.spec(made, addresses, (keep, planned.replaced), planned.numbers)
    program: Program = load(spec)
    planned.clock.lap("load")
    library = sum(isinstance(step, Node) or step.host is not None for step in made.steps)
    distinct = len(set(symbols.values())) if keep else 0
    laps = planned.clock.laps
    return Compiled(graph, program, "fused", spec, records, library, distinct, timings=laps)


def _deferred(planned: _Planned, level: str) -> Compiled:
    """ATen's operators one by one, exchanged for the kernels when these are built."""
    from ..runtime import _native
    from ..runtime.executor import load

    graph = planned.graph
    by_aten = schedule.plan(planned.better, fuse=False)
    spec = schedule.spec(by_aten, {})
    program: Program = load(spec)
    if not isinstance(program, _native.Program):  # nothing could be exchanged
        return _at_once(planned)
    owner, library = SESSION.owner, sum(isinstance(step, Node) for step in by_aten.steps)

    def exchange() -> None:
        with SESSION.working_for(*owner):
            try:
                done = _finished(planned, _library(planned))
                program.become(done.program)
            except Exception as error:
                code, reason = _told(graph, error)
                SESSION.emit(Fallback(code=code, reason=reason))
            else:
                done.timings["total"] = sum(done.timings.values())
                _tell(done, level)

    SESSION.emit(Fallback(code="FB315", reason=f"{len(planned.made.kernels)} kernels to be built"))
    BACKGROUND.submit(f"building {len(planned.made.kernels)} kernels of {graph.name}", exchange)
    return Compiled(graph, planned.watched(program), "background", spec, (), library)


def _show() -> Callable[[str], None] | None:
    return LOGGER.debug if SESSION.options.debug >= 4 else None


def _record(kernel: Kernel, texts: dict[str, str], cached: bool) -> KernelRecord:
    nest = kernel.nest
    source = cpp.described(nest, texts[nest.name])
    return KernelRecord(nest.name, source, nest.covers, kernel.bytes, cached)


class _Clock:
    def __init__(self, laps: dict[str, float]) -> None:
        self.laps, self.last = laps, time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self.last = now - self.last, now
