"""Measured GPU kernels at level O2: their tilings, and which products a graftjit kernel computes.

In: a plan. Out: the same plan. Nests have another tiling than the rules' if that is clearly faster
(`tiling.choices`). Products that are faster as a graftjit kernel with their epilogue than as the
library's call followed by a kernel become such kernels (`matmul_fusion`), each with its fastest
configuration. All ways of a graph are compiled at once, side by side, and run on memory of their
own, with the tensors' sizes and layouts, on the current stream between events. The kernel store
keeps the results under the kernel, the ways and the device; another process measures nothing. If
nothing can be measured, the rules and the library are taken. `codegen.tuning.cpu` does the same for
kernels on the CPU.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import torch

from ...ir.dataclass import dataclass
from ...ir.graph.interpreter import substitute
from ...ir.graph.nodes import Meta, Node
from ...ir.symbolic.expr import is_symbolic
from ...runtime.errors import BuildError
from ...runtime.executor import lower as executor
from ...runtime.program.program import Aten, ProgramSpec, Slot, Step
from ..build import cxx
from ..loops import loop_nest
from ..loops.kernel import Kernel
from ..schedule import gpu_kernels, plan
from ..schedule.gpu_kernels import OnDevice
from ..schedule.plan import Plan
from ..triton import matmul_fusion
from ..triton import tiling as triton_tiles
from ..triton.matmul import Configuration, Product, configurations
from ..triton.matmul_fusion import Host
from ..triton.tiling import Tiling
from . import cpu
from .timing import LEAST, NOISE, Timing

BUDGET = 0.5  # seconds of running, for a graph's products and for its other kernels
MOST = 8  # the most products, and the most other kernels
# multiplications of a product; below, launches take the time, and one is fewer than two
WORK = 1 << 20
BYTES = 1 << 20  # bytes that another kernel moves; below, launches take the time, too
ROUNDS = 15
SAMPLE = 200e-6  # the least seconds between two events, if few calls take as long
CALLS = 20  # the most calls between two events
LAUNCH_CYCLES = 50_000  # of a GPU: more than the time in which the host launches one call
MOST_BYTES = 4 << 30  # of all buffers
LIBRARY, RULES = "library", "default"

Run = Callable[[], Any]
Way = Configuration | Tiling | None  # None: the library's call, followed by a kernel


@dataclass(slots=True)
class Question:
    """A kernel that occurs some times in a plan, and the ways to compute it. The first way is taken
    if no other is clearly faster. `fresh`: tensors that certainly begin at a multiple of 16 bytes.
    """

    kernels: list[Kernel]
    key: str
    ways: tuple[Way, ...]
    fresh: frozenset[Node]

    @property
    def kernel(self) -> Kernel:
        return self.kernels[0]

    @property
    def names(self) -> list[str]:
        return [named(way) for way in self.ways]


def named(way: Way) -> str:
    """A name such as `128 x 64 x 64, 4 warps, 3 stages` of a product, `rows 4, columns 1024` of a
    nest.
    """
    if way is None:
        return LIBRARY
    if isinstance(way, Configuration):
        return f"{way.rows} x {way.columns} x {way.step}, {way.warps} warps, {way.stages} stages"
    parts = [f"{f.name} {getattr(way, f.name)}" for f in fields(way) if getattr(way, f.name)]
    return ", ".join(parts) or RULES


def chosen(made: Plan, stored: bool) -> Plan:
    """The plan with the faster ways. NotBuilt if something is unknown and `stored` forbids
    builds.
    """
    every = {
        step: Host(configurations(matmul_fusion.product_of(step)[0])[0])
        for step in made.steps
        if isinstance(step, Node) and matmul_fusion.takes(step)
    }
    if every:
        hosts: dict[Node, Host] = {}
        for one, way in _answers(products(plan.hosting(made, every)), stored):
            for kernel in one.kernels:
                if isinstance(way, Configuration) and kernel.host is not None:
                    hosts[kernel.host] = Host(way)
        made = plan.hosting(made, hosts) if hosts else made
    tilings: dict[str, Tiling] = {}
    for one, way in _answers(nests(made), stored):
        if isinstance(way, Tiling) and way != Tiling():
            tilings |= {kernel.nest.name: way for kernel in one.kernels}
    return _tiled(made, tilings)


def _tiled(made: Plan, tilings: dict[str, Tiling]) -> Plan:
    if not tilings:
        return made
    steps = [
        _with(step, tilings[step.nest.name])
        if isinstance(step, Kernel) and step.nest.name in tilings
        else step
        for step in made.steps
    ]
    return replace(made, steps=steps)


def _with(kernel: Kernel, tiling: Tiling) -> Kernel:
    hints = replace(kernel.nest.hints, tiling=tiling)
    return replace(kernel, nest=replace(kernel.nest, hints=hints))


def _answers(asked: Sequence[Question], stored: bool) -> list[tuple[Question, Way]]:
    """The chosen way of each question, kept or measured now, with its event. Questions without a
    measurement have no answer.
    """
    known = {one.key: cpu.remembered((one.key,), one.names) for one in asked}
    left = [one for one in asked if known[one.key] is None]
    if left and stored:
        raise cxx.NotBuilt
    measured = measure(left) if left else {}
    found = []
    for one in asked:
        times = known[one.key] or measured.get(one.key)
        if times:
            way, nest = cpu.choose(times), one.kernel.nest
            cpu.emit_choice(nest.name, one.names, times, way, one.key not in measured, nest.covers)
            found.append((one, one.ways[way]))
    return found


# --- questions ---


def products(trial: Plan) -> list[Question]:
    """The products with an epilogue, each once, those with most work first."""

    def work(kernel: Kernel) -> int:
        if kernel.host is None:
            return 0
        product = _product(kernel)
        found = product.batch * product.m * product.n * product.k
        return found if found >= WORK else 0

    def ways(kernel: Kernel) -> Sequence[Way]:
        found = configurations(_product(kernel))
        try:  # a nest whose axes do not split where the product's do has no text
            gpu_kernels.hosted(kernel, found[0])
        except (BuildError, KeyError):
            return ()
        return (None, *found)

    return _asked(trial, work, ways)


def nests(made: Plan) -> list[Question]:
    """The kernels of one launch that move most bytes, each once."""

    def work(kernel: Kernel) -> int:
        alone = kernel.host is None and not kernel.nest.scatters
        alone = alone and not kernel.nest.folds_across
        return kernel.bytes if alone and kernel.bytes >= BYTES else 0

    def ways(kernel: Kernel) -> Sequence[Way]:
        gpu = gpu_kernels.world(kernel.device)
        return triton_tiles.choices(kernel.nest) if _one_launch(kernel, gpu) else ()

    return _asked(made, work, ways)


def _product(kernel: Kernel) -> Product:
    assert kernel.host is not None
    return matmul_fusion.product_of(kernel.host, kernel.prologues)[0]


def _one_launch(kernel: Kernel, gpu: gpu_kernels.Gpu) -> bool:
    try:
        return len(gpu_kernels.on_device(kernel, gpu, frozenset(), {}).parts) == 1
    except (BuildError, KeyError):
        return False


def _asked(
    made: Plan, work: Callable[[Kernel], int], ways: Callable[[Kernel], Sequence[Way]]
) -> list[Question]:
    fresh = gpu_kernels.aligned_memory(made)
    found: dict[str, Question] = {}
    weight: dict[str, int] = {}
    for kernel in made.kernels:
        if kernel.device.type != "cuda" or not _known(kernel):
            continue
        amount = work(kernel)
        if not amount:
            continue
        key = _key(kernel, fresh)
        if key not in found:
            found[key] = Question([], key, tuple(ways(kernel)), fresh)
        found[key].kernels.append(kernel)
        weight[key] = weight.get(key, 0) + amount
    worth = [one for one in found.values() if len(one.ways) > 1]
    return sorted(worth, key=lambda one: -weight[one.key])[:MOST]


def _known(kernel: Kernel) -> bool:
    """Whether it can run by itself: its sizes are known, and the memory suffices."""
    metas = [node.meta for node in matmul_fusion.given(kernel)]
    if is_symbolic([(meta.shape, meta.stride) for meta in metas]):
        return False
    nest = kernel.nest
    if is_symbolic((nest.outer, nest.inner)) or any(one.op == "number" for one in nest.values):
        return False
    return sum(_elements(meta) * meta.dtype.itemsize for meta in metas) <= MOST_BYTES


def _key(kernel: Kernel, fresh: frozenset[Node]) -> str:
    """Everything that the times depend on, except the ways."""
    product = None if kernel.host is None else _product(kernel)
    given = matmul_fusion.given(kernel)
    layouts = [(n.meta.shape, n.meta.stride, str(n.meta.dtype), n in fresh) for n in given]
    nest = loop_nest.text(replace(kernel.nest, name="kernel", covers=()))
    name = torch.cuda.get_device_properties(kernel.device).name
    return f"{name} {product} {layouts} {nest}"


# --- measurement ---


def measure(asked: Sequence[Question]) -> dict[str, list[Timing]]:
    """Times of the ways, by question. Ways that cannot be built or run are left out and
    reported.
    """
    if torch.cuda.is_current_stream_capturing():  # nothing else may run during a capture
        return {}
    found: dict[str, list[Timing]] = {}
    try:
        built = _built(asked)
        for one, launches in zip(asked, built, strict=True):
            with torch.cuda.device(one.kernel.device):
                times = RACE(_runs(one, launches), BUDGET / len(asked))
            if times:
                cpu.remember((one.key,), one.names, times)
                found[one.key] = times
    # the driver's among them, and out of memory
    except (BuildError, OSError, RuntimeError) as error:
        cpu.report_fault(error)
    return found


Launches = list[tuple[Kernel, OnDevice]]


def _built(asked: Sequence[Question]) -> list[list[Launches]]:
    """For each question, the launches of its ways, loaded."""
    written = gpu_kernels.Written()
    rows = []
    for place, one in enumerate(asked):
        gpu = gpu_kernels.world(one.kernel.device)
        for number, way in enumerate(one.ways):
            row = [(f"{place} {number} {n}", k) for n, k in enumerate(_kernels(one.kernel, way))]
            hosts: dict[Node, Host] = {}
            if isinstance(way, Configuration) and one.kernel.host is not None:
                hosts[one.kernel.host] = Host(way)
            for name, kernel in row:
                written.add(name, gpu_kernels.on_device(kernel, gpu, one.fresh, hosts), gpu)
            rows.append(row)
    bound = written.bound(gpu_kernels.load(written, "ways", ()))
    every = iter([[(kernel, bound[name]) for name, kernel in row] for row in rows])
    return [[next(every) for _way in one.ways] for one in asked]


def _kernels(kernel: Kernel, way: Way) -> list[Kernel]:
    """The kernels of this way, in order; the library's call comes before the last one."""
    if isinstance(way, Configuration):
        return [kernel]
    if isinstance(way, Tiling):
        return [_with(kernel, way)]
    nest = replace(kernel.nest, tiled=None)
    behind = replace(kernel, nest=nest, host=None, prologues=())
    return [*(one.kernel for one in kernel.prologues), behind]


def _runs(one: Question, ways: Sequence[Launches]) -> list[Run]:
    """A call of each way, over tensors of its own."""
    host, device = one.kernel.host, one.kernel.device
    every = [] if host is None else _operands(host)
    for launches in ways:
        every += [node for kernel, _on in launches for node in matmul_fusion.given(kernel)]
    nodes = [node for node in dict.fromkeys(every) if node is not host]
    tensors = [_tensor(node.meta) for node in nodes]
    slots = {node: number for number, node in enumerate(nodes)}
    tile = len(nodes)
    runs: list[Run] = []
    for way, launches in zip(one.ways, ways, strict=True):
        here = slots if host is None else {**slots, host: tile}
        steps: list[Step] = []
        for place, (kernel, on_device) in enumerate(launches):
            if way is None and place == len(launches) - 1:
                assert host is not None
                args, kwargs = _slotted(host.args, slots), _slotted(host.kwargs, slots)
                steps.append(Aten(host.target, args, kwargs, (tile,)))
            places = tuple(here[node] for node in matmul_fusion.given(kernel))
            steps += [part.step(places, device, ()) for part in on_device.parts]
        program = executor.load(ProgramSpec("way", len(nodes), tile + 1, tuple(steps), (0,)))
        runs.append(functools.partial(program, *tensors))
    return runs


def _operands(host: Node) -> list[Node]:
    return [one for one in host.args if isinstance(one, Node)]


def _slotted(value: Any, slots: dict[Node, int]) -> Any:
    return substitute(value, lambda node: Slot(slots[node]), Node)


def _tensor(meta: Meta) -> torch.Tensor:
    """Memory with this layout, filled with small numbers."""
    made = torch.empty_strided(meta.shape, meta.stride, dtype=meta.dtype, device=meta.device)
    return made.fill_(0.5) if meta.dtype.is_floating_point else made.zero_()


def _elements(meta: Meta) -> int:
    return 1 + sum((size - 1) * step for size, step in zip(meta.shape, meta.stride, strict=True))


def race(runs: Sequence[Run], seconds: float) -> list[Timing]:
    """Run each of these in turn, round after round, between events of the current stream.

    The GPU sleeps until all calls of a round are launched: the events enclose kernels without the
    host's gaps. Empty if the time does not suffice, or if the times of the first one vary too much.
    """
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def once(run: Run, times: int) -> float:
        torch.cuda._sleep(times * LAUNCH_CYCLES)
        begin.record()
        for _ in range(times):
            run()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3 / times

    repeat = []
    for run in runs:
        run()
        repeat.append(min(CALLS, max(1, round(SAMPLE / max(once(run, 2), 1e-7)))))
    samples: list[list[float]] = [[] for _ in runs]
    spent = 0.0
    while len(samples[0]) < ROUNDS and spent < seconds:
        for run, times, found in zip(runs, repeat, samples, strict=True):
            found.append(once(run, times))
            spent += found[-1] * times
    if len(samples[0]) < LEAST:
        return []
    timings = []
    for found in samples:
        low, median, high = statistics.quantiles(found, n=4)
        timings.append(Timing(median, low, high))
    return timings if timings[0].high - timings[0].low <= NOISE * timings[0].median else []


RACE = race  # tests without a device replace it
