"""What the tests of codegen share: trace a function, compile its graph, run it, compare with eager.

Graphs go through the passes of `ir` first, as in `codegen.backend`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from graftjit.codegen.build import cxx as build
from graftjit.codegen.cpp import renderer as cpp
from graftjit.codegen.kernels import registry as replaced
from graftjit.codegen.pipeline import programmed  # noqa: F401  (fills the rules)
from graftjit.codegen.programs.shadow import differs
from graftjit.codegen.schedule import plan as schedule
from graftjit.codegen.schedule.program_writer import spec as spec_of
from graftjit.ir.graph.nodes import Graph, Node
from graftjit.ir.passes.pipeline import optimize
from graftjit.ir.trace.tracer import Tracer
from graftjit.runtime.executor.lower import load
from graftjit.runtime.program.program import Launch


def trace(fn: Callable[..., Any], *inputs: torch.Tensor, name: str = "test") -> Graph:
    """The graph of `fn` on these inputs: one torch-level call that is the whole function."""
    tracer = Tracer(name)
    ghosts = [tracer.input(tensor) for tensor in inputs]
    with torch.no_grad():
        result = tracer.run(fn, ghosts)
    return tracer.finish(result if isinstance(result, (tuple, list)) else [result])


class Made:
    """A compiled graph as the tests see it."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.plan = schedule.plan(optimize(graph, check=True))
        self.kernels = self.plan.kernels
        self.source = ""
        numbers: dict[str, tuple[Any, ...]] = {}
        addresses, keep = self.built([kernel.nest for kernel in self.kernels], numbers)
        if self.plan.replaced:
            large = replaced.load(self.plan.replaced.values())
            addresses |= large.addresses
            keep = (keep, large)
        self.spec = spec_of(self.plan, addresses, keep, numbers)
        self.run = load(self.spec)

    def built(self, nests: list[Any], numbers: dict[str, Any]) -> tuple[dict[str, int], Any]:
        """Addresses of kernels, and what keeps them; `numbers` gets the expressions that each takes."""
        if not nests:
            return {}, None
        symbols: dict[str, str] = {}
        text = cpp.render(nests, build.vector_bytes(), numbers, symbols)
        self.source += text
        library = build.load(text, list(dict.fromkeys(symbols.values())))
        return {name: library.addresses[of] for name, of in symbols.items()}, library

    @property
    def library(self) -> list[Any]:
        """Targets of the ATen calls left, those of which a large product takes the place included."""
        steps = self.plan.steps
        calls = [step if isinstance(step, Node) else step.host for step in steps]
        return [call.target for call in calls if call is not None]


def make(fn: Callable[..., Any], *inputs: torch.Tensor) -> Made:
    return Made(trace(fn, *inputs))


def check(
    fn: Callable[..., Any],
    *inputs: torch.Tensor,
    kernels: int | None = None,
    library: int | None = 0,
) -> Made:
    """Compile fn for these inputs and compare with eager: values, dtypes, shapes, strides.

    kernels, library: how many of each the program must have (None: any number)."""
    with torch.no_grad():
        expected = fn(*inputs)
    made = make(fn, *inputs)
    found = made.run(*inputs)
    expected = expected if isinstance(expected, (tuple, list)) else (expected,)
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        problem = differs(ours, theirs)
        assert not problem, f"{problem}\nours   {ours}\neager  {theirs}\n{made.source[-6000:]}"
    if kernels is not None:
        assert len(made.kernels) == kernels, [k.nest.covers for k in made.kernels]
    if library is not None:
        assert len(made.library) == library, made.library
    return made


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator)


def launched(made: Made, symbol: str) -> int:
    """How many steps of a program launch this kernel."""
    steps = made.spec.steps
    return sum(isinstance(s, Launch) and s.kernel == symbol for s in steps)


def check_launches(case: Any, symbol: str, count: int) -> None:
    """A case (name, function, shapes): so many launches of this kernel, and results as eager's."""
    _name, fn, shapes = case
    inputs = [normal(*shape, seed=place) for place, shape in enumerate(shapes)]
    assert launched(make(fn, *inputs), symbol) == count
    check(fn, *inputs, library=None)


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
