"""The pipeline: from a graph to a program. It runs the passes, fusion, the text of the kernels and
their build.

`programmed(graph, ...)` plans a graph, builds its kernels and returns a `Compiled`. With
`background` it returns ATen's operators over the same graph, which the fused program replaces when
its kernels are built. `codegen.backend` calls it for a graph whose plan is not kept: only then the
modules that plan and write kernels are imported.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..ir.dataclass import dataclass, field
from ..ir.graph.devices import gpus_of
from ..ir.graph.nodes import Graph, Node
from ..ir.ops.region_borders import without_borders
from ..ir.passes.pipeline import PassRecord, optimize
from ..runtime import _native
from ..runtime.errors import BuildError
from ..runtime.events import observers
from ..runtime.events.events import Fallback
from ..runtime.executor import lower as executor
from ..runtime.process import hardware
from ..runtime.process.session import SESSION
from ..runtime.store.store import Library
from .build import cxx
from .build.background import BACKGROUND
from .cpp import renderer
from .fusion import reasons
from .fusion.fuse import KINDS, Kinds
from .kernels import libraries
from .kernels import registry as replaced
from .lower import (
    binary,
    data_movement,
    gather,
    interpolation,
    matmul,
    pointwise,
    pooling,
    reduction,
    scan,
    scatter,
    special,
    unary,
)
from .plan_cache import cache, serialize
from .programs import step_facts
from .programs.compiled import Compiled, KernelRecord, Program, Seen, emit_compiled, record, show
from .schedule import plan
from .schedule.program_writer import spec as spec_of
from .triton import devices

if TYPE_CHECKING:
    from .schedule.gpu_kernels import Written
    from .tuning.cpu import Question

# imported to fill the table of rules
_TABLES = (
    unary,
    binary,
    pointwise,
    matmul,
    reduction,
    scan,
    special,
    gather,
    interpolation,
    data_movement,
    pooling,
    scatter,
)
Describe = Callable[[Graph, Exception], tuple[str, str]]


def programmed(
    graph: Graph,
    level: str,
    background: bool,
    tune: bool,
    describe: Describe,
    key: cache.Key | None,
) -> Compiled:
    """The graph's program; its plan is kept under `key`. `describe` gives the code and
    reason of a failure in the background.
    """
    planned = _planned(graph, expect=key is not None)
    planned.key = key
    try:
        if tune:
            planned.tune(stored=background)
        return _at_once(planned, stored=background)
    except cxx.NotBuilt:
        return _deferred(planned, level, describe)


def by_aten(graph: Graph) -> Compiled:
    """The graph's operators by ATen, one by one, without passes."""
    return _finished(_Planned(graph, _Clock({}), graph, plan.plan(graph, fuse=False)), _Built())


def verify(graph: Graph, kept: cache.Plain) -> None:
    """Raise CheckError if the graph's plan, made anew, differs from the kept one."""
    planned = _planned(graph)
    planned.render()
    cache.compare(graph, kept, _plain(planned))


def _plain(planned: _Planned, rows: list[step_facts.Plain] | None = None) -> cache.Plain:
    """The plan in the form that is kept. Raises NotKept."""
    made, symbols = planned.made, planned.symbols
    addresses: dict[str, Any] = {name: cache.At(of) for name, of in symbols.items()}
    addresses |= {one.SYMBOL: cache.At(one.SYMBOL) for one in made.replaced.values()}
    gpu, launches = planned.gpu, {}
    if gpu is not None:
        launches = gpu.bound({key: serialize.Unbound(cache.At(key)) for key in gpu.texts})
    return cache.plain(
        planned.graph,
        spec_of(made, addresses, None, planned.numbers, launches),
        planned.source,
        symbols,
        [(kernel.nest.name, kernel.nest.covers, kernel.bytes) for kernel in made.kernels],
        replaced.pairs(made.replaced.values()),
        _library_calls(made),
        None if gpu is None else gpu.plain(),
        planned.rows() if rows is None else rows,
    )


def _library_calls(made: plan.Plan) -> int:
    return sum(
        isinstance(step, Node) or (step.host is not None and step.device.type == "cpu")
        for step in made.steps
    )


@dataclass(frozen=True, slots=True)
class _Built:
    """The kernels: the library of those for the CPU, and those for GPUs by the keys of
    their texts.
    """

    library: Library | None = None
    gpu: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Planned:
    """A graph before its kernels are built.

    `source`: the text of its CPU kernels, empty if there are none; `numbers`: kernel -> the
    expressions that it takes; `symbols`: kernel -> the symbol in the text.
    """

    graph: Graph
    clock: _Clock
    better: Graph
    made: plan.Plan
    source: str = ""
    numbers: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    symbols: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)  # the text of each kernel by itself
    kinds: Kinds = KINDS  # types of devices that can have kernels
    gpu: Written | None = None  # the kernels on GPUs, if there are any
    later: bool = False  # schedules are looked up or measured when kernels are built
    asked: list[Question] = field(default_factory=list)  # kernels that have not been measured yet
    # the kernels that replace calls of ATen, if there are any
    replaced: libraries.Loaded | None = None
    key: cache.Key | None = None  # the plan is kept under this key
    passes: tuple[PassRecord, ...] = ()  # only recorded for an observer

    def rows(self) -> list[step_facts.Plain]:
        """The facts of each step."""
        symbols: dict[str, tuple[str, ...]] = {name: (of,) for name, of in self.symbols.items()}
        for name, one in () if self.gpu is None else self.gpu.launches.items():
            symbols[name] = tuple([part.text.name for part in one.parts])
        return step_facts.rows(self.graph, self.made.steps, symbols, reasons.reasons(self.made))

    def sources(self) -> str:
        """The text of all kernels."""
        texts = () if self.gpu is None else self.gpu.texts.values()
        return "\n\n\n".join([self.source, *(text.source for text in texts)])

    def tune(self, stored: bool) -> None:
        """Take the schedules that are known to be the best. NotBuilt if others must be measured and
        `stored` forbids builds.
        """
        # loaded at level O2 only
        from .tuning import cpu, library_calls

        if self.gpu is not None:
            self.tune_gpu(stored)
            return
        if "cpu" not in self.kinds:
            return
        self.later = stored
        answers = library_calls.answers(self.better, stored)
        if answers:
            with library_calls.answered(answers):
                self.made = plan.plan(self.better, kinds=self.kinds)
        self.asked = cpu.recall(cpu.candidates(self.made), self.made, stored)
        self.later = False

    def tune_gpu(self, stored: bool) -> None:
        """Tune the GPU kernels and the products with their epilogues; kernels on the CPU beside
        them stay as they are.
        """
        # loaded at level O2 only
        from .tuning import gpu

        self.later = stored
        made = gpu.chosen(self.made, stored)
        if made is not self.made:
            self.made, self.gpu = _gpu_half().write(made)
        self.later = False

    def render(self) -> None:
        """Write the text of the kernels, after the remaining measurements."""
        if self.later:
            self.tune(stored=False)
        if self.asked:
            # loaded already, by `tune`
            from .tuning import cpu

            cpu.measure(self.asked, self.made)
            self.asked = []
            self.clock.lap("tune")
        nests = [kernel.nest for kernel in self.made.kernels if kernel.device.type == "cpu"]
        if nests and not self.source:
            self.source = renderer.render(
                nests, cxx.vector_bytes(), self.numbers, self.symbols, self.texts
            )
            self.clock.lap("render")


def _planned(graph: Graph, expect: bool = False) -> _Planned:
    """Run the passes and fusion.

    Without a compiler the plan has kernels only if a bundle brought some. `expect`: kernels will be
    built, so the process that compiles those of GPUs starts now.
    """
    clock = _Clock({})
    passes: list[PassRecord] | None = [] if observers.is_observed() else None
    better = optimize(graph, check=SESSION.options.check, show=show(), records=passes)
    better = without_borders(better)
    clock.lap("passes")
    compiler = hardware.find_compiler() is not None or SESSION.store.bundled()
    kinds = frozenset(("cpu",)) if compiler else frozenset[str]()
    found = gpus_of(better)
    against = devices.why_not(found) if found else ""
    if found and not against:
        kinds |= {"cuda"}
        if expect:
            # loaded for graphs on GPUs only; before `_gpu_half`, so that its compilers start early
            from .triton import cubins

            cubins.expect()
    if any("_backward" in str(node.target) for node in better.nodes if node.op == "call"):
        # loaded at first use: it fills the table of rules with some that few programs need
        from .lower import backward  # noqa: F401
    planned = _Planned(graph, clock, better, plan.plan(better, kinds=kinds), kinds=kinds)
    planned.passes = tuple(passes or ())
    clock.lap("plan")
    _write_gpu(planned)
    if against:
        _without_gpu(against)
    if not planned.made.kernels and not compiler:
        _without_compiler()
    return planned


def _built(planned: _Planned, stored: bool = False) -> _Built:
    """The kernels, built or found.

    If kernels cannot be built, the plan becomes one without them: on the CPU without a compiler and
    without a bundle that has them, on GPUs if triton fails.
    """
    planned.render()
    gpu = _gpu_kernels(planned, stored)
    return _Built(_library(planned, _covers(planned), stored), gpu)


def _covers(planned: _Planned) -> tuple[str, ...]:
    return tuple(line for kernel in planned.made.kernels for line in kernel.nest.covers)


def _gpu_kernels(planned: _Planned, stored: bool) -> dict[str, Any]:
    """The kernels of GPUs, by key.

    The plan is made again with calls of ATen for the operators of kernels that the compiler
    rejects. If there is no compiler, or it rejects too many, no kernel is left on the GPU.
    """
    if planned.gpu is None or not planned.gpu.launches:
        return {}
    half = _gpu_half()
    found: dict[str, Any] = {}
    for attempt in range(half.ATTEMPTS):
        try:
            found = half.load(planned.gpu, planned.graph.name, _covers(planned), stored)
            break
        except BuildError as error:
            if SESSION.options.check:
                raise
            if isinstance(error, devices.NotCompiled) and attempt + 1 < half.ATTEMPTS:
                _replan(
                    planned, planned.kinds, half.refuse(planned.made, planned.gpu, error.failed)
                )
            else:
                _without_gpu(str(error).splitlines()[0])
                _replan(planned, planned.kinds - {"cuda"})
            planned.render()
        if planned.gpu is None:
            break
    planned.clock.lap("build_gpu")
    return found


def _library(planned: _Planned, covers: tuple[str, ...], stored: bool) -> Library | None:
    calls = planned.made.replaced
    if not planned.source and not calls:
        return None
    names = list(dict.fromkeys(planned.symbols.values()))
    try:
        planned.replaced = replaced.load(calls.values(), stored=stored) if calls else None
        if not planned.source:
            return None
        return cxx.load(planned.source, names, planned.graph.name, covers, stored)
    except BuildError:
        if hardware.find_compiler() is not None:
            raise
    finally:
        planned.clock.lap("build")
    _without_compiler()
    _replan(planned, planned.kinds - {"cpu"})
    return None


def _replan(planned: _Planned, kinds: Kinds, made: plan.Plan | None = None) -> None:
    """Replace the plan by this one, or by one with kernels only for these devices. It is
    not kept.
    """
    planned.kinds, planned.key, planned.gpu = kinds, None, None
    planned.made = made or plan.plan(planned.better, kinds=kinds)
    planned.source, planned.asked, planned.replaced = "", [], None
    for names in (planned.symbols, planned.numbers, planned.texts):
        names.clear()
    _write_gpu(planned)


def _gpu_half() -> Any:
    # loaded for graphs on GPUs only
    from .schedule import gpu_kernels

    return gpu_kernels


def _write_gpu(planned: _Planned) -> None:
    """Write the text of the kernels on GPUs, if the plan may have some."""
    if "cuda" in planned.kinds:
        planned.made, planned.gpu = _gpu_half().write(planned.made)
        planned.clock.lap("render_gpu")


def _without_compiler() -> None:
    SESSION.emit(Fallback(code="FB302", reason="no C++ compiler was found"))
    SESSION.warn_once(
        "WN604",
        "no C++ compiler was found: programs run as ATen steps."
        " Install g++ or clang++, or set CXX.",
    )


def _without_gpu(reason: str) -> None:
    SESSION.emit(Fallback(code="FB319", reason=reason))
    SESSION.warn_once(
        "WN608",
        f"no kernels are made for the GPU, and work on it runs as ATen steps: {reason}."
        " `python -m graftjit doctor` has the details.",
    )


def _at_once(planned: _Planned, stored: bool = False) -> Compiled:
    """The program, with its kernels built first."""
    return _finished(planned, _built(planned, stored))


def _finished(planned: _Planned, built: _Built) -> Compiled:
    """The program over loaded kernels."""
    made, graph, symbols, keep = planned.made, planned.graph, planned.symbols, built.library
    addresses = {} if keep is None else {n: keep.addresses[of] for n, of in symbols.items()}
    if planned.replaced is not None:
        addresses |= planned.replaced.addresses
    launches = {} if planned.gpu is None else planned.gpu.bound(built.gpu)
    records = _records(planned, built, launches)
    spec = spec_of(made, addresses, (keep, planned.replaced), planned.numbers, launches)
    program: Program = executor.load(spec)
    planned.clock.lap("load")
    distinct = len(set(symbols.values())) if keep else 0
    distinct += len(built.gpu)
    laps, library = planned.clock.laps, _library_calls(made)
    rows, was = planned.rows(), {one.name: one.cached for one in records}
    if planned.key is not None:
        cache.keep(planned.key, lambda: _plain(planned, rows))
    done = Compiled(
        graph,
        program,
        "fused",
        spec,
        records,
        library,
        distinct,
        timings=laps,
        steps=step_facts.report_facts(graph, rows, was),
        sketch=step_facts.sketch(graph, rows),
        source=planned.sources(),
        sampled=program,
    )
    observers.publish(
        lambda: Seen(graph, planned.passes, made, {r.name: r.source for r in records}, done)
    )
    return done


def _deferred(planned: _Planned, level: str, describe: Describe) -> Compiled:
    """ATen's operators one by one, which the fused program replaces when its kernels are built."""
    graph = planned.graph
    one_by_one = plan.plan(planned.better, fuse=False)
    spec = spec_of(one_by_one, {})
    program: Program = executor.load(spec)
    if not isinstance(program, _native.Program):  # a program of another type cannot be exchanged
        return _at_once(planned)
    owner, library = SESSION.owner, sum(isinstance(step, Node) for step in one_by_one.steps)
    made = Compiled(graph, program, "background", spec, (), library, sampled=program)

    def exchange() -> None:
        with SESSION.working_for(*owner):
            try:
                done = _finished(planned, _built(planned))
                program.become(done.program)
                done.part = made.part
                done.timings["total"] = sum(done.timings.values())
                emit_compiled(done, level)
            except Exception as error:
                code, reason = describe(graph, error)
                SESSION.emit(Fallback(code=code, reason=reason))

    SESSION.emit(Fallback(code="FB315", reason=f"{len(planned.made.kernels)} kernels to be built"))
    BACKGROUND.submit(f"building {len(planned.made.kernels)} kernels of {graph.name}", exchange)
    return made


def _records(planned: _Planned, built: _Built, launches: Any) -> tuple[KernelRecord, ...]:
    """The kernels for the report."""
    found = []
    for kernel in planned.made.kernels:
        nest, on_gpu = kernel.nest, launches.get(kernel.nest.name)
        if on_gpu is not None:
            text, cached = _shown(on_gpu)
            found.append(record(nest.name, text, nest.covers, kernel.bytes, cached, "#"))
        elif built.library is not None:
            text, cached = planned.texts[nest.name], built.library.cached
            found.append(record(nest.name, text, nest.covers, kernel.bytes, cached))
    return tuple(found)


def _shown(on_gpu: Any) -> tuple[str, bool]:
    parts = on_gpu.parts
    return "\n".join([part.text.source for part in parts]), all(p.loaded.cached for p in parts)


class _Clock:
    def __init__(self, laps: dict[str, float]) -> None:
        self.laps, self.last = laps, time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self.last = now - self.last, now
