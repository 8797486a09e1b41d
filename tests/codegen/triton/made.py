"""Whole programs whose kernels are Triton's: planned, bound to sizes by the executor, run in Triton's interpreter.

`TritonMade` is the harness's `Made` with the other renderer: at each kernel's address is a callback, which takes what a
launch hands over (pointers, and the numbers that the executor computed), lets a worker process run the kernel on
this memory, and writes back what it changed. Buffers that lie over each other do so in the worker. A nest that scatters is
several kernels. An assertion that fails is the trouble of a C++ kernel. Nests that Triton text cannot say are `declined`
and stay C++.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import torch

from graftjit.codegen.loops import loop_nest as loops
from graftjit.codegen.schedule import plan as schedule
from graftjit.codegen.triton import renderer as triton
from graftjit.codegen.triton import scatter as triton_scatter
from graftjit.ir.graph.nodes import Graph
from graftjit.ir.passes.pipeline import optimize
from graftjit.runtime.errors import BuildError

from ..harness import Made, trace

CALL = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int32, ctypes.POINTER(ctypes.c_int64)
)
GRAIN = 16  # bytes to which memory is aligned in the worker as it is here
ASSERTED = "AssertionError: index out of bounds"  # how the interpreter tells of an assertion


class TritonMade(Made):
    """A compiled graph. `rendered`: nest name -> kernel (of several, the last one); `errors`: what callbacks met, for nobody above them can."""

    def __init__(self, graph: Graph, worker: Any) -> None:
        self.worker = worker
        self.rendered: dict[str, Any] = {}
        self.declined: dict[str, str] = {}
        self.errors: list[Exception] = []
        super().__init__(graph)
        program = self.run

        def run(*inputs: Any) -> Any:
            found = program(*inputs)
            if self.errors:
                raise self.errors[0]
            return found

        self.run = run

    def built(self, nests: list[Any], numbers: dict[str, Any]) -> tuple[dict[str, int], Any]:
        called = {nest.name: self._callback(nest, numbers) for nest in nests}
        left = [nest for nest in nests if nest.name in self.declined]
        addresses, library = super().built(left, numbers)
        for name, function in called.items():
            if function is not None:
                addresses[name] = ctypes.cast(function, ctypes.c_void_p).value or 0
        return addresses, (called, library)

    def _callback(self, nest: Any, numbers: dict[str, Any]) -> Any:
        try:
            parts = triton_scatter.split(nest)
            kernels = [triton.render(part.nest) for part in parts]
        except (BuildError, KeyError) as error:
            self.declined[nest.name] = str(error)
            return None
        self.source += "\n\n".join(kernel.source for kernel in kernels)
        self.rendered[nest.name] = kernels[-1]
        given: list[Any] = []
        calls = []
        for kernel, part in zip(kernels, parts, strict=True):
            terms, owners = _steps(part.nest)
            calls.append((kernel, owners, part.buffers, len(given)))
            given += (kernel.programs, *kernel.numbers, *terms)
        numbers[nest.name] = tuple(given)
        count = len(nest.buffers)
        return CALL(lambda buffers, _threads, given: self._called(calls, buffers, given, count))

    def _called(self, calls: Any, buffers: Any, given: Any, count: int) -> None:
        try:
            for kernel, owners, own, first in calls:
                self._launched(kernel, owners, [buffers[number] for number in own], given, first)
        except Exception as error:
            if ASSERTED in str(error):
                ctypes.c_int32.from_address(buffers[count]).value = 1
            else:
                self.errors.append(error)

    def _launched(self, kernel: Any, owners: Any, buffers: Any, given: Any, first: int) -> None:
        doubles = ctypes.cast(given, ctypes.POINTER(ctypes.c_double))
        values = [
            doubles[at] if number.kind == "float" else given[at]
            for at, number in enumerate(kernel.numbers, first + 1)
        ]
        plain = replace(kernel, programs=int(given[first]), numbers=tuple(values))
        spans, at = [], first + 1 + len(kernel.numbers)
        for number, (dtype, counts) in enumerate(owners):
            size = 0
            for count in counts:
                moves = [int(given[at + k]) for k in range(count)]
                size, at = (
                    max(size, 1 + moves[0] + sum(max(0, m) for m in moves[1:])),
                    at + count,
                )
            spans.append((int(buffers[number] or 0), size * dtype.itemsize, dtype))
        memory = _Memory([span[:2] for span in spans if span[1]])
        places = [memory.place(*span) for span in spans]
        memory.take_back(self.worker.run(plain, memory.parts, places=places))


def _steps(nest: Any) -> tuple[list[Any], list[tuple[torch.dtype, list[int]]]]:
    """How far each buffer is reached: for its layout, and for each access that may go beyond it (it is a part of
    something), the offset and the farthest move along each axis. The numbers, and by buffer how many each time."""
    terms: list[Any] = []
    owners: list[tuple[torch.dtype, list[int]]] = []
    sizes = nest.outer + nest.inner
    for number, buffer in enumerate(nest.buffers):
        forms = [(0, buffer.shape, buffer.stride)]
        forms += [(i.offset, sizes, i.strides) for at, i in loops.accesses(nest) if at == number]
        counts = []
        for offset, shape, strides in forms:
            moves = [(n - 1) * step for n, step in zip(shape, strides, strict=True)]
            terms += [offset, *moves]
            counts.append(1 + len(moves))
        owners.append((buffer.dtype, counts))
    return terms, owners


class _Memory:
    """Copies of ranges of memory, one of all that touch each other."""

    def __init__(self, spans: list[tuple[int, int]]) -> None:
        self.ranges: list[list[int]] = []
        for first, size in sorted(spans):
            if self.ranges and first < self.ranges[-1][1]:
                self.ranges[-1][1] = max(self.ranges[-1][1], first + size)
            else:
                self.ranges.append([first, first + size])
        self.ranges = self.ranges or [[0, 0]]
        self.parts = []
        for first, last in self.ranges:
            part = torch.zeros(last - first // GRAIN * GRAIN, dtype=torch.uint8)
            if last > first:
                part[first % GRAIN :].copy_(_bytes(first, last - first))
            self.parts.append(part)

    def place(self, first: int, size: int, dtype: torch.dtype) -> tuple[Any, ...]:
        """Where a buffer lies in the copies, as `Worker.run` takes it."""
        for number, (start, last) in enumerate(self.ranges):
            if size and start <= first < last:
                return number, first - start // GRAIN * GRAIN, size, dtype
        return 0, 0, 0, dtype

    def take_back(self, parts: list[torch.Tensor]) -> None:
        """What has changed, and nothing else: under masks a span reaches beyond its buffer, and what lies there belongs
        to others, who may have written to it meanwhile."""
        for part, was, (first, last) in zip(parts, self.parts, self.ranges, strict=True):
            changed = (part != was).nonzero().flatten()
            if len(changed):
                _bytes(first, last - first)[changed - first % GRAIN] = part[changed]


def _bytes(first: int, size: int) -> torch.Tensor:
    return torch.frombuffer((ctypes.c_char * size).from_address(first), dtype=torch.uint8)


def evaluate(worker, fn, tensors):
    """Outputs of the planned program: kernels by the worker, the rest by ATen."""
    graph = optimize(trace(fn, *tensors), check=True)
    plan = schedule.plan(graph)
    held = dict(zip(graph.inputs, tensors, strict=True))
    for kernel in plan.kernels:
        places = [held[node] for node in kernel.reads]
        for node in kernel.stores:
            meta = node.meta
            held[node] = torch.empty_strided(meta.shape, meta.stride, dtype=meta.dtype)
            places.append(held[node])
        found = worker.run(triton.render(kernel.nest), places)
        for node, tensor in zip(kernel.stores, found[len(kernel.reads) :], strict=True):
            held[node].copy_(tensor)
    return plan, [held.get(node, held.get(plan.fusion.source(node))) for node in graph.outputs]
