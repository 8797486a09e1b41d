"""Schedules by measurement, at level O2: a kernel that may be written in several ways is timed in each of them.

In: a plan. Out: the same plan with `loops.Hints` in those nests of which another way than the default one was clearly
faster. Few ways are tried (`ways`), of the kernels that have most to do, within `BUDGET` seconds of running a graph; what
was found is kept in the kernel store, under the kernel's text, the ways, the machine, its threads and the compiler, and
another process measures nothing. Where nothing can be measured, or the gain is within the noise, the default is taken.
Imported at O2 only. `codegen.tuning.timing` runs kernels; called by `codegen.backend`.
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
from ...runtime.process import hardware as device
from ...runtime.process.session import SESSION
from ...runtime.store import notes as kept_notes
from ...runtime.version import VERSION
from ..build import cxx as build
from ..build import translation_units as units
from ..cpp import renderer as cpp
from ..cpp.loop_plan import lane_count
from ..loops.extents import estimate
from ..loops.kernel import Kernel
from ..loops.loop_nest import Hints, LoopNest
from ..schedule.plan import Plan
from . import timing as clock
from .timing import Timing

BUDGET = 0.5  # seconds of running a graph
GAIN = 0.03  # a way that is faster by less is not taken
MOST = 8  # kernels of a graph
SHARE = 0.03  # of a graph's work: a kernel that has less is not measured
LEAST_WORK = 1 << 14  # light element operations: below that a call is what costs


@dataclass(slots=True)
class Question:
    """A kernel that occurs at some steps of a plan, the ways to write it, and what is known of them."""

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
    """`unroll 8, chunk 256`, or `default`."""
    told = [f"{f.name} {getattr(way, f.name)}" for f in fields(way) if getattr(way, f.name)]
    return ", ".join(told) or "default"


def questions(made: Plan) -> list[Question]:
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


def _written(nest: LoopNest) -> cpp.Kernel:
    return cpp.Kernel(nest, lane_count(nest, build.vector_bytes()))


# What pays is a matter of caches, registers and the machine's memory. Measured on an AVX-512 machine with two threads,
# time over the default's:
#   squares across the lanes, chunk 1024: 0.94 of float32 [512, 512]; 256: 0.93 of [200, 200], 1.31 of [512, 512]
#   an axis that is not read in order, chunk 32 in place of 512: 0.25 of bfloat16 [1536, 1536], 1.77 of [3000, 100]
#   sums of columns, groups 16: 0.83 of [4096, 1024], 1.04 of [2000, 300]; groups 4: 1.86 and 0.79
#   rows, unroll 8: 0.80 of argmax [1024, 4096]; unroll 1: 3.1
# Not tried, for nothing was gained anywhere: fewer lanes, lanes along the other axis, stores past the caches, one thread
# above the threshold or several below it, other chunks of what lies in order.
def ways_of(kernel: cpp.Kernel) -> tuple[Hints, ...]:
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
    """Put what is known into the plan. The questions that are left; NotBuilt if there are some and `stored` says that
    nothing shall be built."""
    known = [remembered(question.texts(), question.names) for question in asked]
    if stored and None in known:
        raise build.NotBuilt
    left = []
    for question, times in zip(asked, known, strict=True):
        if times is None:
            left.append(question)
        else:
            _answer(question, made, times, True)
    return left


def measure(asked: Sequence[Question], made: Plan) -> None:
    """Answer questions by measurement, and keep the answers. What cannot be built or run stays as it is."""
    try:
        built = _built(asked)
    except (BuildError, OSError, SubprocessError) as error:
        told_fault(error)
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
    """The fastest way, if it is faster than the first one beyond doubt; else the first one."""
    best = min(range(len(times)), key=lambda way: times[way].median)
    first = times[0]
    clear = times[best].median < first.median * (1 - GAIN) and times[best].high < first.low
    return best if clear else 0


def _built(asked: Sequence[Question]) -> list[list[int]]:
    """For each question, the addresses of the kernels of its ways. One unit each, side by side over the cores."""

    def one(question: Question) -> list[int]:
        nests = [
            replace(question.nest, name=f"way{number}", hints=way)
            for number, way in enumerate(question.ways)
        ]
        symbols: dict[str, str] = {}
        source = cpp.render(nests, build.vector_bytes(), {}, symbols)
        found = build.once(source, list(dict.fromkeys(symbols.values())))
        return [found[symbols[nest.name]] for nest in nests]

    with ThreadPoolExecutor(min(len(asked), units.processors())) as pool:
        return list(pool.map(one, asked))


def _timed(question: Question, addresses: Sequence[int], seconds: float) -> list[Timing]:
    """Empty where there is no memory or no time for it."""
    try:
        scratch = clock.Scratch(question.nest)
    except (OSError, MemoryError) as error:
        told_fault(error)
        return []
    threads = torch.get_num_threads()
    different = list(dict.fromkeys(addresses))  # ways that come to the same are one kernel
    times = clock.race([clock.run_at(each, scratch, threads) for each in different], seconds)
    return [times[different.index(address)] for address in addresses] if times else []


def _answer(question: Question, made: Plan, times: Sequence[Timing], known: bool) -> None:
    """Write the chosen way into the plan, and tell."""
    way = choose(times)
    for step in question.steps:
        kernel = made.steps[step]
        assert isinstance(kernel, Kernel)
        made.steps[step] = replace(kernel, nest=replace(kernel.nest, hints=question.ways[way]))
    tell(question.nest.name, question.names, times, way, known, question.nest.covers)


def tell(
    name: str,
    ways: Sequence[str],
    times: Sequence[Timing],
    chosen: int,
    known: bool,
    covers: tuple[str, ...],
) -> None:
    """Say what was found out."""
    medians = tuple((way, timing.median) for way, timing in zip(ways, times, strict=True))
    SESSION.emit(
        Tuned(name=name, chosen=ways[chosen], times=medians, remembered=known, covers=covers)
    )


def told_fault(error: BaseException) -> None:
    """A measurement that failed leaves the default. Without a compiler that is no fault, else one of ours."""
    if device.find_compiler() is not None and SESSION.options.check:
        raise error
    SESSION.emit(Fallback(code="FB316", reason=(str(error).splitlines() or [""])[0]))


# -- what was found out before ----------------------------------------------------------------------------------


def _everywhere() -> tuple[str, ...]:
    threads = f"threads {torch.get_num_threads()}"
    flags = (*build.FLAGS, *device.compiler_environment())
    return (threads, VERSION, f"torch {torch.__version__}", *flags)


def _here() -> tuple[str, str]:
    compiler = device.find_compiler()
    return device.cpu().identity, "none" if compiler is None else compiler.identity


def remember(texts: Sequence[str], ways: Sequence[str], times: Sequence[Timing]) -> None:
    """Keep timings under what they depend on, beside the machine, its threads and the compiler."""
    row = [[way, t.median, t.low, t.high] for way, t in zip(ways, times, strict=True)]
    kept_notes.keep(SESSION.store, (*texts, *ways, *_everywhere()), *_here(), row)


def remembered(texts: Sequence[str], ways: Sequence[str]) -> list[Timing] | None:
    """The timings that were kept; None if there are none."""
    told = kept_notes.recall(SESSION.store, (*texts, *ways, *_everywhere()), *_here())
    if not isinstance(told, list) or len(told) != len(ways):
        return None
    times = []
    for way, row in zip(ways, told, strict=True):
        if not isinstance(row, list) or len(row) != 4 or row[0] != way:
            return None
        if not all(type(number) is float and 0 < number < 3600 for number in row[1:]):
            return None
        times.append(Timing(*row[1:]))
    return times
