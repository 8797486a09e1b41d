"""From a graph to a program: the backend that capture calls.

`compile_graph(graph, options)` gives a `Compiled`: fused kernels and ATen steps run by the executor, or the replay of
the torch-level calls (a gradient is needed, level O0, or code generation failed: said by an event and, once, by a
warning). Under GRAFTJIT_CHECK a failure raises, and each run is compared with the replay.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..ir.graph import Graph, Node
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
from . import build, cpp, lower, lower_reduce, schedule
from .nest import Kernel
from .replay import compile_replay
from .shadow import shadowed

_TABLES = (lower, lower_reduce)  # imported to fill the table of rules

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

    mode      "fused" or "replay"; `reason` says why the latter
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
    if graph.needs_grad:
        compiled = _replayed(
            graph, "FB301", "a value requires a gradient from here on", graph.grad_where
        )
    elif level == "O0":
        compiled = _replayed(graph, "FB311", "level O0")
    else:
        compiled = _fused_or_replayed(graph)
    compiled.timings["total"] = time.perf_counter() - start
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
    return compiled


def _replayed(graph: Graph, code: str, reason: str, where: Location | None = None) -> Compiled:
    SESSION.emit(Fallback(code=code, reason=reason, where=where))
    return Compiled(graph, compile_replay(graph), "replay", library=len(graph.calls), reason=reason)


def _fused_or_replayed(graph: Graph) -> Compiled:
    try:
        return _fused(graph)
    except Exception as error:  # a fault of ours must not become the user's
        if SESSION.options.check:
            if isinstance(error, GraftError):
                raise
            raise InternalError(
                f"code generation failed for the graph {graph.name}", found=repr(error)
            ) from error
        code = "FB306" if isinstance(error, BuildError) else "FB303"
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        SESSION.warn_once(
            "WN606",
            f"a graph runs operator by operator, for its kernels could not be made: {reason}",
        )
        return _replayed(graph, code, reason)


def _fused(graph: Graph) -> Compiled:
    from ..runtime.executor import load  # late: it loads the native extension

    timings: dict[str, float] = {}
    clock = _Clock(timings)
    better = optimize(graph, check=SESSION.options.check, show=_show())
    clock.lap("passes")
    numbers: dict[str, tuple[Any, ...]] = {}
    symbols: dict[str, str] = {}
    made, keep = _kernels(better, graph.name, clock, numbers, symbols)
    addresses = {} if keep is None else {n: keep.addresses[of] for n, of in symbols.items()}
    records = tuple(_record(kernel, keep.cached) for kernel in made.kernels) if keep else ()
    spec = schedule.spec(made, addresses, keep, numbers)
    program: Program = load(spec)
    clock.lap("load")
    library = sum(isinstance(step, Node) for step in made.steps)
    if SESSION.options.check and not graph.mutates and not graph.random:
        program = shadowed(program, compile_replay(graph), graph, [r.name for r in records])
    distinct = len(set(symbols.values())) if keep else 0
    return Compiled(graph, program, "fused", spec, records, library, distinct, timings=timings)


def _kernels(
    graph: Graph,
    name: str,
    clock: _Clock,
    numbers: dict[str, tuple[Any, ...]],
    symbols: dict[str, str],
) -> tuple[schedule.Plan, Library | None]:
    """The plan and the library of its kernels; `numbers` gets the expressions that each one takes, `symbols` the one
    that stands for it there. Without a compiler: those that a bundle brought, or none."""
    compiler = device.find_compiler()
    if compiler is not None or SESSION.store.bundled():
        made = schedule.plan(graph, fuse=True)
        clock.lap("plan")
        if not made.kernels:
            return made, None
        nests = [kernel.nest for kernel in made.kernels]
        source = cpp.render(nests, build.vector_bytes(), numbers, symbols)
        clock.lap("render")
        covers = tuple(line for nest in nests for line in nest.covers)
        try:
            keep = build.load(source, list(dict.fromkeys(symbols.values())), name, covers)
            clock.lap("build")
            return made, keep
        except BuildError:
            if compiler is not None:
                raise
    SESSION.emit(Fallback(code="FB302", reason="no C++ compiler was found"))
    SESSION.warn_once(
        "WN604",
        "no C++ compiler was found: programs run as ATen steps. Install g++ or clang++, or set CXX.",
    )
    made = schedule.plan(graph, fuse=False)
    clock.lap("plan")
    return made, None


def _show() -> Callable[[str], None] | None:
    return LOGGER.debug if SESSION.options.debug >= 4 else None


def _record(kernel: Kernel, cached: bool) -> KernelRecord:
    source = cpp.kernel_text(kernel.nest, build.vector_bytes())
    return KernelRecord(kernel.nest.name, source, kernel.nest.covers, kernel.bytes, cached)


class _Clock:
    def __init__(self, laps: dict[str, float]) -> None:
        self.laps, self.last = laps, time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self.last = now - self.last, now
