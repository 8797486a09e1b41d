"""Products on a GPU at level O2: a kernel of ours with what follows, or the library's call and a kernel behind it.

In: a plan. Out: the plan in which those products have kernels of ours (`triton_hosts`) that are clearly faster so, each cut
in the way that was the fastest. All ways of a graph are compiled at once, side by side, and run on memory of their own, with
the tensors' sizes and layouts, on the current stream between events. What was found is kept in the kernel store, under the
product, its epilogue, the ways and the device; another process measures nothing. Where nothing can be measured the library
is taken. Called by `codegen.planned`; `codegen.tune` does the same for kernels on the CPU.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from ..ir.dataclass import dataclass
from ..ir.graph import Meta, Node
from ..ir.torch_level import substitute
from ..runtime.errors import BuildError
from ..runtime.program import Aten, ProgramSpec, Slot, Step
from . import build, gpu_plan, loops, plan_form, schedule, triton, triton_hosts, tune
from .clock import LEAST, NOISE, ROOM, Timing
from .gpu_plan import Gpu, Part
from .nest import Kernel
from .schedule import Plan
from .triton_hosts import Host
from .triton_product import Configuration, configurations

BUDGET = 0.5  # seconds of running a graph
MOST = 8  # products of a graph
WORK = 1 << 20  # multiplications; below that the launch is what costs, and one is fewer than two
ROUNDS = 15
SAMPLE = 200e-6  # seconds between two events, at least
LIBRARY = "library"

Run = Callable[[], Any]


@dataclass(slots=True)
class Question:
    """A product and its epilogue at some steps of a plan; the ways: the library's, then configurations of ours."""

    kernels: list[Kernel]
    key: str
    ways: tuple[Configuration | None, ...]

    @property
    def kernel(self) -> Kernel:
        return self.kernels[0]

    @property
    def names(self) -> list[str]:
        return [LIBRARY if way is None else named(way) for way in self.ways]


def named(way: Configuration) -> str:
    """`128 x 64 x 64, 4 warps, 3 stages`"""
    return f"{way.rows} x {way.columns} x {way.step}, {way.warps} warps, {way.stages} stages"


def chosen(made: Plan, stored: bool) -> Plan:
    """The plan with the products that are faster as kernels of ours. NotBuilt where something is not known and `stored`
    says that nothing shall be built."""
    every = {
        step: Host(configurations(triton_hosts.product_of(step)[0])[0])
        for step in made.steps
        if isinstance(step, Node) and triton_hosts.takes(step)
    }
    if not every:
        return made
    asked = questions(schedule.hosting(made, every))
    known = {one.key: tune.remembered((one.key,), one.names) for one in asked}
    left = [one for one in asked if known[one.key] is None]
    if left and stored:
        raise build.NotBuilt
    measured = measure(left) if left else {}
    hosts: dict[Node, Host] = {}
    for one in asked:
        times = known[one.key] or measured.get(one.key)
        if not times:
            continue
        way = tune.choose(times)
        covers = one.kernel.nest.covers
        tune.tell(one.kernel.nest.name, one.names, times, way, one.key not in measured, covers)
        best = one.ways[way]
        if best is not None:
            hosts |= {kernel.host: Host(best) for kernel in one.kernels if kernel.host is not None}
    return schedule.hosting(made, hosts) if hosts else made


def questions(trial: Plan) -> list[Question]:
    """The products with an epilogue, each once, those with most work first."""
    found: dict[str, Question] = {}
    work: dict[str, int] = {}
    for kernel in trial.kernels:
        if kernel.host is None or kernel.device.type != "cuda":
            continue
        product, _bases = triton_hosts.product_of(kernel.host)
        if product.batch * product.m * product.n * product.k < WORK or not _fits(kernel):
            continue
        key = _key(kernel)
        if key not in found:
            ways = (None, *_writable(kernel, configurations(product)))
            found[key] = Question([], key, ways)
        found[key].kernels.append(kernel)
        work[key] = work.get(key, 0) + product.batch * product.m * product.n * product.k
    worth = [one for one in found.values() if len(one.ways) > 1]
    return sorted(worth, key=lambda one: -work[one.key])[:MOST]


def _writable(kernel: Kernel, ways: Sequence[Configuration]) -> list[Configuration]:
    """Those that have a text: a nest whose axes part elsewhere has none."""
    try:
        gpu_plan.hosted(kernel, ways[0])
    except (BuildError, KeyError):
        return []
    return list(ways)


def _fits(kernel: Kernel) -> bool:
    metas = [node.meta for node in triton_hosts.given(kernel)]
    return sum(_elements(meta) * meta.dtype.itemsize for meta in metas) <= ROOM


def _key(kernel: Kernel) -> str:
    """All that the times depend on, but for the ways."""
    assert kernel.host is not None
    product, bases = triton_hosts.product_of(kernel.host)
    properties = torch.cuda.get_device_properties(kernel.device)
    layouts = [
        (node.meta.shape, node.meta.stride, str(node.meta.dtype))
        for node in (*bases, *triton_hosts.given(kernel))
    ]
    nest = loops.text(replace(kernel.nest, name="kernel", covers=()))
    return f"{properties.name} {product} {layouts} {nest}"


# --- measurement -----------------------------------------------------------------------------------------------


def measure(asked: Sequence[Question]) -> dict[str, list[Timing]]:
    """Times of the ways, by question. What cannot be built or run is left out, and told."""
    if torch.cuda.is_current_stream_capturing():  # nothing else may be run meanwhile
        return {}
    found: dict[str, list[Timing]] = {}
    try:
        built = _built(asked)
        for one, parts in zip(asked, built, strict=True):
            with torch.cuda.device(one.kernel.device):
                times = RACE(_runs(one, parts), BUDGET / len(asked))
            if times:
                tune.remember((one.key,), one.names, times)
                found[one.key] = times
    except (BuildError, OSError, RuntimeError) as error:  # the driver's among them, out of memory
        tune.told_fault(error)
    return found


def _built(asked: Sequence[Question]) -> list[list[Part]]:
    """For each question, the launches of its ways (of the library's: the kernel behind it), loaded."""
    parts: list[list[Part]] = []
    for one in asked:
        gpu = gpu_plan.world(one.kernel.device)
        parts.append([_part(one.kernel, way, gpu) for way in one.ways])
    every = {part.key: part for row in parts for part in row}
    capabilities = {key: int(key.rsplit(":", 1)[1]) for key in every}
    texts = {key: part.text for key, part in every.items()}
    loaded = plan_form.load_kernels(texts, capabilities, "products", (), False)
    return [[replace(part, loaded=loaded[part.key]) for part in row] for row in parts]


def _part(kernel: Kernel, way: Configuration | None, gpu: Gpu) -> Part:
    nest = kernel.nest
    places = tuple(range(len(triton_hosts.given(kernel)) if way else len(nest.buffers)))
    if way is not None:
        text = gpu_plan.hosted(kernel, way)
    else:
        text = triton.render(gpu_plan.anonymous(replace(nest, tiled=None)))
    return gpu_plan.part(text, nest.name, places, gpu)


def _runs(one: Question, parts: Sequence[Part]) -> list[Run]:
    """A call of each way, over tensors of its own."""
    from ..runtime.executor import load  # late: it loads the native extension

    kernel = one.kernel
    host, device = kernel.host, kernel.device
    assert host is not None
    nodes = list(dict.fromkeys((*_operands(host), *triton_hosts.given(kernel))))
    tensors = [_tensor(node.meta) for node in nodes]
    slots = {node: number for number, node in enumerate(nodes)}
    tile = len(nodes)
    call = Aten(host.target, _slotted(host.args, slots), _slotted(host.kwargs, slots), (tile,))
    runs: list[Run] = []
    for way, part in zip(one.ways, parts, strict=True):
        if way is None:
            read = [slots.get(node, tile) for node in kernel.reads]
            places = (*read, *(slots[node] for node in kernel.stores))
            steps: tuple[Step, ...] = (call, part.step(tuple(places), device, ()))
        else:
            places = tuple(slots[node] for node in triton_hosts.given(kernel))
            steps = (part.step(places, device, ()),)
        program = load(ProgramSpec("way", len(nodes), tile + 1, steps, (0,)))
        runs.append(functools.partial(program, *tensors))
    return runs


def _operands(host: Node) -> list[Node]:
    return [one for one in host.args if isinstance(one, Node)]


def _slotted(value: Any, slots: dict[Node, int]) -> Any:
    return substitute(value, lambda node: Slot(slots[node]), Node)


def _tensor(meta: Meta) -> torch.Tensor:
    """Memory with this layout, of small numbers."""
    made = torch.empty_strided(meta.shape, meta.stride, dtype=meta.dtype, device=meta.device)
    return made.fill_(0.5) if meta.dtype.is_floating_point else made.zero_()


def _elements(meta: Meta) -> int:
    return 1 + sum((size - 1) * step for size, step in zip(meta.shape, meta.stride, strict=True))


def race(runs: Sequence[Run], seconds: float) -> list[Timing]:
    """Each of these in turn, round after round, between events of the current stream. Empty where the time is not enough,
    or where the first one takes a different time each time."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def once(run: Run, times: int) -> float:
        begin.record()
        for _ in range(times):
            run()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3 / times

    repeat = []
    for run in runs:
        run()
        repeat.append(max(1, round(SAMPLE / max(once(run, 2), 1e-7))))
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


RACE = race  # tests without a device put another one here
