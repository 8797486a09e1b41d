"""Measured products and convolutions at level O2: a graftjit kernel or the library's call.

In: a graph. Out: for its products, and for convolutions that a graftjit kernel takes, which of the
two is faster on this machine by itself, if that is not clear beforehand and differs from the
default's answer (fusion with a nest is a further gain). Both run as programs of one step over
tensors of their own with the operands' layouts. `answered` holds while the graph is planned;
`lower.matmul.pays` and `registry.replaced` read it. Results are kept as all measured schedules are
(`codegen.tuning.cpu`).
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from subprocess import SubprocessError
from typing import Any

import torch

from ...ir.graph.nodes import Graph, Meta, Node
from ...runtime.errors import BuildError
from ...runtime.executor import lower as executor
from ..analysis import products
from ..build import cxx
from ..cpp import renderer
from ..fusion.nest_builder import describe
from ..kernels import registry
from ..loops.extents import is_symbolic
from ..loops.kernel import Kernel
from ..lower import matmul
from ..schedule import plan
from ..schedule.program_writer import spec as spec_of
from . import cpu, timing
from .timing import Timing

BUDGET = 0.25  # seconds of running per graph
MOST = 8  # products of a graph
THIN = 64  # rows or columns; with more, the library is faster
SMALL, MOST_WORK = 1 << 16, 1 << 26  # multiplications of a product of any shape; of a thin one
# multiplications of a convolution: below, a graftjit kernel is clearly faster
LEAST = 1 << 20
WAYS = {True: "nest", False: "library"}
CONVOLUTIONS = {True: "kernel", False: "library"}


def answers(graph: Graph, stored: bool) -> dict[str, bool]:
    """Product -> whether a nest is faster, where that differs from the default. NotBuilt if
    something is unknown and `stored` forbids builds.
    """
    found: dict[str, bool] = {}
    asked = _candidates(graph)
    known = {key: cpu.remembered((key,), _ways(node)) for key, node in asked.items()}
    left = {key: node for key, node in asked.items() if known[key] is None}
    if left and stored:
        raise cxx.NotBuilt
    for key, node in asked.items():
        times = known[key]
        if times is not None:
            _answer(key, node, times, True, found)
    end = time.perf_counter() + BUDGET
    for number, (key, node) in enumerate(left.items()):
        seconds = (end - time.perf_counter()) / (len(left) - number)
        try:
            times = _timed(node, seconds)
        except (BuildError, OSError, MemoryError, SubprocessError) as error:
            cpu.report_fault(error)
            break
        if times:
            cpu.remember((key,), _ways(node), times)
            _answer(key, node, times, False, found)
    return found


@contextmanager
def answered(found: Mapping[str, bool]) -> Iterator[None]:
    """Plans made within the block use these answers."""
    token = products.MEASURED.set(found)
    try:
        yield
    finally:
        products.MEASURED.reset(token)


def _candidates(graph: Graph) -> dict[str, Node]:
    """The products worth a measurement, each once, those with most work first."""
    nodes = [node for node in graph.nodes if _open(node)]
    found = {products.known_as(node): node for node in nodes}
    often = Counter(products.known_as(node) for node in nodes)
    work = {key: n * _work(found[key]) for key, n in often.items()}
    return {key: found[key] for key in sorted(found, key=lambda key: -work[key])[:MOST]}


def _open(node: Node) -> bool:
    """Whether either may be faster."""
    if node.op != "call" or not (_convolves(node) or node.target in products.LETTERS):
        return False
    metas = [arg.meta for arg in node.args if isinstance(arg, Node)]
    if is_symbolic([(meta.shape, meta.stride) for meta in metas]):
        return False
    if _convolves(node):
        with answered({products.known_as(node): True}):
            possible = bool(registry.replaced([node]))
        return possible and _work(node) >= LEAST
    if not matmul.possible(node) or not matmul.in_order(node):
        return False
    found = products.sizes(node)
    if matmul.unrolled(found, products.LETTERS[node.target][3]):
        return False
    work = products.work(found)
    thin = min(found.get("m", 1), found.get("n", 1)) <= THIN
    return work <= SMALL or (work <= MOST_WORK and thin)


def _convolves(node: Node) -> bool:
    return node.target is torch.ops.aten.convolution.default


def _work(node: Node) -> int:
    """The number of multiplications."""
    if not _convolves(node):
        return int(products.work(products.sizes(node)))
    # the tensor whose positions are multiplied with the weights of their channel
    walked = node.args[0] if node.args[6] else node
    return int(math.prod((*walked.meta.shape, *node.args[1].meta.shape)) // walked.meta.shape[1])


def _ways(node: Node) -> list[str]:
    """The names of the ways, the default one first."""
    named = CONVOLUTIONS if _convolves(node) else WAYS
    ours = bool(registry.replaced([node])) if _convolves(node) else matmul.pays(node)
    return [named[ours], named[not ours]]


def _answer(
    key: str, node: Node, times: Sequence[Timing], known: bool, found: dict[str, bool]
) -> None:
    ways, way = _ways(node), cpu.choose(times)
    cpu.emit_choice(node.name, ways, times, way, known, (describe(node),))
    if way:
        found[key] = ways[way] != WAYS[False]


def _timed(node: Node, seconds: float) -> list[Timing]:
    """The timings, in the order of `_ways`."""
    alone = _alone(node)
    tensors = [_tensor(each.meta) for each in alone.inputs]
    named = CONVOLUTIONS if _convolves(node) else WAYS
    runs = {named[ours]: _program(alone, node, ours, tensors) for ours in (True, False)}
    return timing.race([runs[way] for way in _ways(node)], seconds)


def _alone(node: Node) -> Graph:
    """A graph of this product, over inputs with its operands' layouts."""
    inputs: list[Node] = []

    def operand(argument: Any) -> Any:
        if not isinstance(argument, Node):
            return argument
        number, meta = len(inputs), replace(argument.meta, offset=0)
        inputs.append(Node("input", number, meta=meta, name=f"x{number}"))
        return inputs[-1]

    args = tuple(operand(argument) for argument in node.args)
    call = Node("call", node.target, args, dict(node.kwargs), node.meta, "y")
    return Graph("product", inputs, [call], [call])


def _tensor(meta: Meta) -> torch.Tensor:
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        made = torch.empty_strided(meta.shape, meta.stride, dtype=meta.dtype, device="cpu")
        timing.fill(made.data_ptr(), made.untyped_storage().nbytes(), meta.dtype)
    return made


def _program(
    graph: Graph, node: Node, ours: bool, tensors: Sequence[torch.Tensor]
) -> Callable[[], Any]:
    """A call of the product's program."""
    addresses: dict[str, int] = {}
    keep: Any = None
    with answered({products.known_as(graph.nodes[0]): ours}):
        made = plan.plan(graph)
    kernels = [step.nest for step in made.steps if isinstance(step, Kernel)]
    if kernels:
        addresses = cxx.once(renderer.render(kernels, cxx.vector_bytes()), [kernels[0].name])
    if made.replaced:  # the replacement of the library's call on this machine
        keep = registry.load(made.replaced.values())
        addresses |= keep.addresses
    program = executor.load(spec_of(made, addresses, keep))
    return lambda: program(*tensors)
