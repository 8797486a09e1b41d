"""Measured schedules at level O2: a kernel that can be written in several ways is timed in each of
them.

In: a plan. Out: the same plan with `loop_nest.Hints` in those nests for which another way than the
default was clearly faster. Few ways are tried (`ways_of`), only for the kernels with most work,
within `BUDGET` seconds of running per graph. The kernel store keeps the results under the kernel's
text, the ways, the machine, its threads and the compiler; another process measures nothing. If
nothing can be measured, or the gain is within the noise, the default is taken. Imported at O2 only.
`codegen.tuning.timing` runs kernels.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from subprocess import SubprocessError

import torch

from ...ir.dataclass import dataclass
from ...runtime.errors import BuildError
from ...runtime.events.events import Fallback, Tuned
from ...runtime.process import hardware
from ...runtime.process.session import SESSION
from ...runtime.store import notes
from ...runtime.version import VERSION
from ..build import cxx, translation_units
from ..cpp import renderer
from ..cpp.loop_plan import lane_count
from ..loops.extents import estimate
from ..loops.kernel import Kernel
from ..loops.loop_nest import Hints, LoopNest
from ..schedule.plan import Plan
from . import timing as clock
from .timing import Timing

BUDGET = 0.5  # seconds of running per graph
GAIN = 0.03  # a way that is faster by less is not taken
MOST = 8  # kernels of a graph
SHARE = 0.03  # of a graph's work: a kernel with less is not measured
LEAST_WORK = 1 << 14  # light element operations: below, the call itself takes the time


@dataclass(slots=True)
class Question:
    """A kernel that occurs at some steps of a plan, and the ways to write it."""

    steps: list[int]
    kernel: Kernel
    text: str
    ways: tuple[Hints, ...]
    work: int

    @property
    def nest(self) -> LoopNest:
        return self.kernel.nest

    @property
    def names(self) -> list[str]:
        return [named_way(way) for way in self.ways]

    def texts(self) -> tuple[str, ...]:
        return (self.text,)


def named_way(way: Hints) -> str:
    """A name such as `unroll 8, chunk 256`, or `default`."""
    parts = [f"{f.name} {getattr(way, f.name)}" for f in fields(way) if getattr(way, f.name)]
    return ", ".join(parts) or "default"


def candidates(made: Plan) -> list[Question]:
    """The kernels of a plan that are worth a measurement, each once, those with most work first."""
    found: dict[str, Question] = {}
    total = 0
    for step, kernel in enumerate(made.steps):
        if not isinstance(kernel, Kernel):
            continue
        written = _written(kernel.nest)
        work = estimate(written.work())
        total += work
        if work < LEAST_WORK or not clock.measurable(kernel.nest):
            continue
        text = written.text().replace(f" {kernel.nest.name}(", " (", 1)
        asked = found.get(text)
        if asked is None:
            ways = (Hints(), *ways_of(written))
            asked = found[text] = Question([], kernel, text, ways, 0)
        asked.steps.append(step)
        asked.work += work
    worth = [q for q in found.values() if len(q.ways) > 1 and q.work >= SHARE * total]
    return sorted(worth, key=lambda q: -q.work)[:MOST]


def _written(nest: LoopNest) -> renderer.Kernel:
    return renderer.Kernel(nest, lane_count(nest, cxx.vector_bytes()))


# Which way is faster depends on caches, registers and the machine's memory. Measured on an AVX-512
# machine with two threads, time relative to the default's:
#
#    squares across the lanes, chunk 1024: 0.94 for float32 [512, 512];
#        256: 0.93 for [200, 200], 1.31 for [512, 512]
#    an axis that is not contiguous, chunk 32 instead of 512: 0.25 for bfloat16 [1536, 1536],
#        1.77 for [3000, 100]
#    sums of columns, groups 16: 0.83 for [4096, 1024], 1.04 for [2000, 300];
#        groups 4: 1.86 and 0.79
#    rows, unroll 8: 0.80 for argmax [1024, 4096]; unroll 1: 3.1
#
# Not tried, because they never gained: fewer lanes, lanes along the other axis, stores past the
# caches, one thread above the threshold or several below it, other chunks of contiguous axes.
def ways_of(kernel: renderer.Kernel) -> tuple[Hints, ...]:
    """Other ways to write a kernel than the default one."""
    plan = kernel.plan
    if any(value.op == "scan" for value in kernel.nest.values):
        return ()
    if plan.lanes_are_rows:
        return tuple(Hints(groups=number) for number in (4, 16)) if plan.groups > 1 else ()
    if plan.tile is not None:
        return tuple(Hints(chunk=size) for size in (256, 1024))
    if plan.chunk_major:
        return tuple(Hints(chunk=size) for size in (16, 32, 128, 512))
    if plan.turned:
        return (Hints(unroll=2),)
    if kernel.nest.has_reduction and plan.vector is not None:
        return tuple(Hints(unroll=copies) for copies in (1, 2, 8))
    return ()


def recall(asked: Sequence[Question], made: Plan, stored: bool) -> list[Question]:
    """Put known answers into the plan; returns the questions that are left.

    Raises NotBuilt if some are left and `stored` forbids builds.
    """
    known = [remembered(question.texts(), question.names) for question in asked]
    if stored and None in known:
        raise cxx.NotBuilt
    left = []
    for question, times in zip(asked, known, strict=True):
        if times is None:
            left.append(question)
        else:
            _answer(question, made, times, True)
    return left


def measure(asked: Sequence[Question], made: Plan) -> None:
    """Answer questions by measurement, and keep the answers. Kernels that cannot be built or run
    stay as they are.
    """
    try:
        built = _built(asked)
    except (BuildError, OSError, SubprocessError) as error:
        report_fault(error)
        return
    end = time.perf_counter() + BUDGET
    work = sum(question.work for question in asked)
    for question, addresses in zip(asked, built, strict=True):
        seconds = (end - time.perf_counter()) * question.work / work
        work -= question.work
        times = _timed(question, addresses, seconds)
        if times:
            remember(question.texts(), question.names, times)
            _answer(question, made, times, False)


def choose(times: Sequence[Timing]) -> int:
    """The fastest way, if it is certainly faster than the first one; else the first one."""
    best = min(range(len(times)), key=lambda way: times[way].median)
    first = times[0]
    clear = times[best].median < first.median * (1 - GAIN) and times[best].high < first.low
    return best if clear else 0


def _built(asked: Sequence[Question]) -> list[list[int]]:
    """For each question, the addresses of the kernels of its ways. One unit each, side by side over
    the cores.
    """

    def one(question: Question) -> list[int]:
        nests = [
            replace(question.nest, name=f"way{number}", hints=way)
            for number, way in enumerate(question.ways)
        ]
        symbols: dict[str, str] = {}
        source = renderer.render(nests, cxx.vector_bytes(), {}, symbols)
        found = cxx.once(source, list(dict.fromkeys(symbols.values())))
        return [found[symbols[nest.name]] for nest in nests]

    with ThreadPoolExecutor(min(len(asked), translation_units.processors())) as pool:
        return list(pool.map(one, asked))


def _timed(question: Question, addresses: Sequence[int], seconds: float) -> list[Timing]:
    """The timings of a question's ways; empty if there is not enough memory or time."""
    try:
        scratch = clock.Scratch(question.nest)
    except (OSError, MemoryError) as error:
        report_fault(error)
        return []
    threads = torch.get_num_threads()
    different = list(dict.fromkeys(addresses))  # ways with the same text are one kernel
    times = clock.race([clock.run_at(each, scratch, threads) for each in different], seconds)
    return [times[different.index(address)] for address in addresses] if times else []


def _answer(question: Question, made: Plan, times: Sequence[Timing], known: bool) -> None:
    """Write the chosen way into the plan, and emit the event."""
    way = choose(times)
    for step in question.steps:
        kernel = made.steps[step]
        assert isinstance(kernel, Kernel)
        made.steps[step] = replace(kernel, nest=replace(kernel.nest, hints=question.ways[way]))
    emit_choice(question.nest.name, question.names, times, way, known, question.nest.covers)


def emit_choice(
    name: str,
    ways: Sequence[str],
    times: Sequence[Timing],
    chosen: int,
    known: bool,
    covers: tuple[str, ...],
) -> None:
    """Emit the event of a measurement."""
    medians = tuple((way, timing.median) for way, timing in zip(ways, times, strict=True))
    SESSION.emit(
        Tuned(name=name, chosen=ways[chosen], times=medians, remembered=known, covers=covers)
    )


def report_fault(error: BaseException) -> None:
    """Report a measurement that failed; the default stays. Under GRAFTJIT_CHECK the error is
    raised, unless there is no compiler.
    """
    if hardware.find_compiler() is not None and SESSION.options.check:
        raise error
    SESSION.emit(Fallback(code="FB316", reason=(str(error).splitlines() or [""])[0]))


# --- kept measurements ---


def _everywhere() -> tuple[str, ...]:
    threads = f"threads {torch.get_num_threads()}"
    flags = (*cxx.FLAGS, *hardware.compiler_environment())
    return (threads, VERSION, f"torch {torch.__version__}", *flags)


def _here() -> tuple[str, str]:
    compiler = hardware.find_compiler()
    return hardware.cpu().identity, "none" if compiler is None else compiler.identity


def remember(texts: Sequence[str], ways: Sequence[str], times: Sequence[Timing]) -> None:
    """Keep timings under everything that they depend on: the texts and ways, the machine, its
    threads and the compiler.
    """
    row = [[way, t.median, t.low, t.high] for way, t in zip(ways, times, strict=True)]
    notes.keep(SESSION.store, (*texts, *ways, *_everywhere()), *_here(), row)


def remembered(texts: Sequence[str], ways: Sequence[str]) -> list[Timing] | None:
    """The timings that were kept; None if there are none."""
    kept = notes.recall(SESSION.store, (*texts, *ways, *_everywhere()), *_here())
    if not isinstance(kept, list) or len(kept) != len(ways):
        return None
    times = []
    for way, row in zip(ways, kept, strict=True):
        if not isinstance(row, list) or len(row) != 4 or row[0] != way:
            return None
        if not all(type(number) is float and 0 < number < 3600 for number in row[1:]):
            return None
        times.append(Timing(*row[1:]))
    return times
