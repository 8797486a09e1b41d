"""Graphs before they are programs: passes, fusion, the kernels' text, and what becomes of them.

`programmed(graph, ...)` plans a graph, builds its kernels and gives a `Compiled`; with `background` it gives ATen's operators
over the same graph, exchanged for the fused program when its kernels are built. Called by `codegen.backend` for a graph
whose plan is not kept: only then all that plans and writes kernels is imported.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..ir.dataclass import dataclass, field
from ..ir.graph import Graph, Node
from ..ir.passes import optimize
from ..runtime import device
from ..runtime.errors import BuildError
from ..runtime.events import Fallback
from ..runtime.kernel_store import Library
from ..runtime.session import SESSION
from . import (
    build,
    cpp,
    fixed,
    kept_plans,
    lower,
    lower_index,
    lower_interp,
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
from .compiled import Compiled, Program, record, show, tell, watched
from .nest import Kernel

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
    lower_interp,
    lower_move,
    lower_pool,
    lower_scatter,
)
Told = Callable[[Graph, Exception], tuple[str, str]]


def programmed(
    graph: Graph, level: str, background: bool, tune: bool, told: Told, key: kept_plans.Key | None
) -> Compiled:
    """The graph's program; its plan is kept under `key`. `told` gives code and reason of a failure in the background."""
    planned = _planned(graph)
    planned.key = key
    try:
        if tune:
            planned.tune(stored=background)
        return _at_once(planned, stored=background)
    except build.NotBuilt:
        return _deferred(planned, level, told)


def by_aten(graph: Graph) -> Compiled:
    """The graph's operators by ATen, one by one, as they stand."""
    return _finished(_Planned(graph, _Clock({}), graph, schedule.plan(graph, fuse=False)), None)


def verify(graph: Graph, kept: kept_plans.Plain) -> None:
    """Raise CheckError where the graph's plan, made anew, is another than the one that was kept."""
    planned = _planned(graph)
    planned.render()
    kept_plans.compare(graph, kept, _plain(planned))


def _plain(planned: _Planned) -> kept_plans.Plain:
    """The plan as it is kept. Raises NotKept."""
    made, symbols = planned.made, planned.symbols
    addresses: dict[str, Any] = {name: kept_plans.At(of) for name, of in symbols.items()}
    addresses |= {one.SYMBOL: kept_plans.At(one.SYMBOL) for one in made.replaced.values()}
    return kept_plans.plain(
        planned.graph,
        schedule.spec(made, addresses, None, planned.numbers),
        planned.source,
        symbols,
        [(kernel.nest.name, kernel.nest.covers, kernel.bytes) for kernel in made.kernels],
        replaced.pairs(made.replaced.values()),
        _library_calls(made),
    )


def _library_calls(made: schedule.Plan) -> int:
    return sum(isinstance(step, Node) or step.host is not None for step in made.steps)


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
    replaced: fixed.Loaded | None = (
        None  # the kernels in place of ATen's calls, where there are any
    )
    key: kept_plans.Key | None = None  # under which the plan is kept

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


def _planned(graph: Graph) -> _Planned:
    """Passes and fusion. Without a compiler: for kernels that a bundle brought, or none."""
    clock = _Clock({})
    better = optimize(graph, check=SESSION.options.check, show=show())
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
    planned.key = None
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
    done.program = watched(planned.graph, done.program, [one.name for one in done.kernels])
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
    distinct = len(set(symbols.values())) if keep else 0
    laps, library = planned.clock.laps, _library_calls(made)
    if planned.key is not None:
        kept_plans.keep(planned.key, lambda: _plain(planned))
    return Compiled(graph, program, "fused", spec, records, library, distinct, timings=laps)


def _deferred(planned: _Planned, level: str, told: Told) -> Compiled:
    """ATen's operators one by one, exchanged for the kernels when these are built."""
    from ..runtime import _native
    from ..runtime.executor import load

    graph = planned.graph
    one_by_one = schedule.plan(planned.better, fuse=False)
    spec = schedule.spec(one_by_one, {})
    program: Program = load(spec)
    if not isinstance(program, _native.Program):  # nothing could be exchanged
        return _at_once(planned)
    owner, library = SESSION.owner, sum(isinstance(step, Node) for step in one_by_one.steps)

    def exchange() -> None:
        with SESSION.working_for(*owner):
            try:
                done = _finished(planned, _library(planned))
                program.become(done.program)
            except Exception as error:
                code, reason = told(graph, error)
                SESSION.emit(Fallback(code=code, reason=reason))
            else:
                done.timings["total"] = sum(done.timings.values())
                tell(done, level)

    SESSION.emit(Fallback(code="FB315", reason=f"{len(planned.made.kernels)} kernels to be built"))
    BACKGROUND.submit(f"building {len(planned.made.kernels)} kernels of {graph.name}", exchange)
    return Compiled(graph, watched(graph, program), "background", spec, (), library)


def _record(kernel: Kernel, texts: dict[str, str], cached: bool) -> Any:
    nest = kernel.nest
    return record(nest.name, texts[nest.name], nest.covers, kernel.bytes, cached)


class _Clock:
    def __init__(self, laps: dict[str, float]) -> None:
        self.laps, self.last = laps, time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self.last = now - self.last, now
