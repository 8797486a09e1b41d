"""What the tests of codegen share: trace a function, compile its graph, run it, compare with eager.

`mirror(spec)` runs a ProgramSpec in Python, step by step, so that these tests need no native executor.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch

from graftjit.codegen import build, cpp, schedule
from graftjit.codegen.backend import compile_graph  # noqa: F401  (fills the rules)
from graftjit.codegen.shadow import differs
from graftjit.ir.graph import Graph
from graftjit.ir.trace import Tracer
from graftjit.runtime.program import Alloc, Aten, Free, Launch, ProgramSpec, Scratch, Slot, View


def trace(fn: Callable[..., Any], *inputs: torch.Tensor, name: str = "test") -> Graph:
    """The graph of `fn` on these inputs: one torch-level call that is the whole function."""
    tracer = Tracer(name)
    ghosts = [tracer.input(tensor) for tensor in inputs]
    with torch.no_grad():
        result = tracer.run(fn, ghosts)
    return tracer.finish(result if isinstance(result, (tuple, list)) else [result])


def mirror(spec: ProgramSpec, threads: int = 2) -> Callable[..., tuple[Any, ...]]:
    """A ProgramSpec as a Python function."""

    def run(*inputs: torch.Tensor) -> tuple[Any, ...]:
        slots: dict[int, Any] = {**dict(enumerate(inputs)), **spec.constants}
        arena = torch.full((spec.arena + 64,), 0xCD, dtype=torch.uint8)
        base = -(-arena.data_ptr() // 64) * 64
        for step in spec.steps:
            _step(step, slots, base, threads)
        return tuple(slots[number] for number in spec.outputs)

    return run


def _step(step: Any, slots: dict[int, Any], base: int, threads: int) -> None:
    match step:
        case Alloc():
            slots[step.slot] = torch.empty_strided(step.shape, step.stride, dtype=step.dtype)
        case Scratch():
            slots[step.slot] = base + step.offset
        case View():
            source = slots[step.base]
            offset = step.offset + (0 if step.absolute else source.storage_offset())
            slots[step.slot] = source.as_strided(step.shape, step.stride, offset)
        case Free():
            for number in step.slots:
                del slots[number]
        case Launch():
            found = [slots[number] for number in step.slots]
            pointers = [item if isinstance(item, int) else item.data_ptr() for item in found]
            array = (ctypes.c_void_p * len(pointers))(*pointers)
            kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int)
            kind(step.address)(ctypes.addressof(array), threads)
        case Aten():
            results = step.op(*_filled(step.args, slots), **_filled(step.kwargs, slots))
            if not isinstance(results, (tuple, list)):
                results = (results,)
            for number, result in zip(step.results, results, strict=False):
                if number is not None:
                    slots[number] = result


def _filled(value: Any, slots: dict[int, Any]) -> Any:
    if isinstance(value, Slot):
        return slots[value.index]
    if isinstance(value, (tuple, list)):
        return type(value)(_filled(item, slots) for item in value)
    if isinstance(value, dict):
        return {key: _filled(item, slots) for key, item in value.items()}
    return value


class Made:
    """A compiled graph as the tests see it."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.plan = schedule.plan(graph)
        self.kernels = self.plan.kernels
        nests = [kernel.nest for kernel in self.kernels]
        addresses: dict[str, int] = {}
        keep: Any = None
        self.source = ""
        if nests:
            self.source = cpp.render(nests, build.vector_bytes())
            keep = build.load(self.source, [nest.name for nest in nests])
            addresses = keep.addresses
        self.spec = schedule.spec(self.plan, addresses, keep)
        self.run = mirror(self.spec)

    @property
    def library(self) -> list[Any]:
        """Targets of the ATen calls left."""
        return [step.op for step in self.spec.steps if isinstance(step, Aten)]


def make(fn: Callable[..., Any], *inputs: torch.Tensor) -> Made:
    return Made(trace(fn, *inputs))


def check(
    fn: Callable[..., Any], *inputs: torch.Tensor, kernels: int | None = None, library: int | None = 0
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
