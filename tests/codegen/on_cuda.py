"""Graphs on `cuda:0` without a device: traced on the CPU, then relabelled; and their programs, run over CPU tensors.

`relabelled(graph)` changes the devices of a graph's values. `written(fn, ...)` plans such a graph and gives each kernel its
text. `Machine` runs the program's steps one by one: ATen on CPU tensors, kernels by Triton's interpreter (`triton.worker`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch

from graftjit.codegen.pipeline import programmed  # noqa: F401  (fills the rules)
from graftjit.codegen.schedule import gpu_kernels as gpu_plan
from graftjit.codegen.schedule import plan as schedule
from graftjit.codegen.schedule.program_writer import spec as spec_of
from graftjit.codegen.triton.dialect import TYPES
from graftjit.ir.graph.interpreter import substitute
from graftjit.ir.graph.nodes import Graph, Meta, Node
from graftjit.ir.passes.pipeline import optimize
from graftjit.ir.symbolic.expr import evaluate
from graftjit.runtime.program.program import (
    Alloc,
    Aten,
    DeviceLaunch,
    Free,
    ProgramSpec,
    Scratch,
    Slot,
    View,
)

from .harness import trace

CUDA = torch.device("cuda", 0)
CPU = torch.device("cpu")
H100 = gpu_plan.Gpu(90, 132)


_SAVES = (torch.ops.aten.native_layer_norm.default, torch.ops.aten.native_batch_norm.default)


def relabelled(graph: Graph, keep: Callable[[Node], bool] = lambda node: False) -> Graph:
    """The graph with its values on `cuda:0`, but for those of the nodes to `keep`. The nodes are changed."""

    def moved(meta: Any) -> Any:
        if isinstance(meta, tuple):
            return tuple(map(moved, meta))
        return replace(meta, device=CUDA) if isinstance(meta, Meta) else meta

    for node in (*graph.inputs, *graph.nodes):
        if not keep(node):
            node.meta = moved(node.meta)
            if node.target in _SAVES and node.meta[0].dtype.itemsize == 2:  # in what it computes in
                first, *saved = node.meta
                node.meta = (first, *(replace(one, dtype=torch.float32) for one in saved))
            if node.op == "get":
                node.meta = node.args[0].meta[node.target]
            node.args, node.kwargs = substitute(
                (node.args, node.kwargs), lambda one: CUDA if one == CPU else one, torch.device
            )
    return graph


class Written:
    """A graph on cuda: its plan, the texts of its kernels, its program."""

    def __init__(self, graph: Graph, of: Any = lambda device: H100) -> None:
        self.graph = optimize(graph, check=True)
        self.plan, self.kernels = gpu_plan.write(self.planned(), of)
        stand = {key: _loaded(number) for number, key in enumerate(self.kernels.texts)}
        addresses = {k.nest.name: 1 for k in self.plan.kernels if k.device.type == "cpu"}
        launches = self.kernels.bound(stand)
        self.spec = spec_of(self.plan, addresses, None, {}, launches)
        self.texts = dict(enumerate(self.kernels.texts.values()))

    def planned(self) -> schedule.Plan:
        return schedule.plan(self.graph)

    @property
    def aten(self) -> list[str]:
        """The calls of ATen, by name."""
        return [str(step.op) for step in self.spec.steps if isinstance(step, Aten)]

    @property
    def launches(self) -> list[DeviceLaunch]:
        return [step for step in self.spec.steps if isinstance(step, DeviceLaunch)]


def _loaded(number: int) -> Any:
    return SimpleNamespace(
        function=number, threads=128, shared=0, hidden=0, keep=None, cached=False
    )


def written(fn: Callable[..., Any], *inputs: torch.Tensor, **more: Any) -> Written:
    return Written(relabelled(trace(fn, *inputs)), **more)


class Machine:
    """Runs programs whose devices are not there."""

    def __init__(self, worker: Any) -> None:
        self.worker = worker

    def run(self, made: Written, *inputs: torch.Tensor) -> list[torch.Tensor]:
        spec: ProgramSpec = made.spec
        self.slots: dict[int, Any] = {**dict(enumerate(inputs)), **spec.constants}
        self.texts: Mapping[int, Any] = made.texts
        self.values = _values(spec, inputs)
        for step in spec.steps:
            if spec.symbols and not isinstance(step, (DeviceLaunch, Free)):
                fields = {
                    name: evaluate(getattr(step, name), self.values)
                    for name in _NUMBERS[type(step)]
                }
                step = replace(step, **fields)
            _RUN[type(step)](self, step)
        return [self.slots[slot] for slot in spec.outputs]

    def alloc(self, step: Alloc) -> None:
        found = torch.empty_strided(step.shape, step.stride, dtype=step.dtype)
        found.untyped_storage().fill_(0xAB)
        self.slots[step.slot] = found

    def scratch(self, step: Scratch) -> None:
        assert step.base >= 0 and step.offset + step.nbytes <= self.slots[step.base].numel()
        self.slots[step.slot] = self.slots[step.base][step.offset : step.offset + step.nbytes]

    def launch(self, step: DeviceLaunch) -> None:
        assert step.device == CUDA
        text = self.texts[step.function]
        places = [self.slots[slot] for slot in step.slots]
        kinds = [(name, _DTYPES[kind[1:]]) for name, kind in text.arguments if kind[0] == "*"]
        places = [
            place
            if place.dtype == dtype
            else place.view(dtype)  # what lies in a workspace is bytes
            for place, (_name, dtype) in zip(places, kinds, strict=True)
        ]
        left = self.worker.run(text, [_alone(place) for place in places], self.values)
        for place, (name, _dtype), found in zip(places, kinds, left, strict=True):
            if name.startswith("out"):
                place.copy_(found)

    def aten(self, step: Aten) -> None:
        args, kwargs = substitute((step.args, step.kwargs), lambda one: self.slots[one.index], Slot)
        args, kwargs = substitute(
            (args, kwargs), lambda one: CPU if one.type == "cuda" else one, torch.device
        )
        found = step.op(*args, **kwargs)
        for slot, result in zip(
            step.results, found if isinstance(found, tuple) else (found,), strict=False
        ):
            if slot is not None:
                self.slots[slot] = result

    def view(self, step: View) -> None:
        base = self.slots[step.base]
        offset = step.offset + (0 if step.absolute else base.storage_offset())
        self.slots[step.slot] = base.as_strided(step.shape, step.stride, offset)

    def free(self, step: Free) -> None:
        for slot in step.slots:
            del self.slots[slot]


def _values(spec: ProgramSpec, inputs: Any) -> dict[str, Any]:
    """The symbols of a program, by name."""
    found = {}
    for symbol, source in spec.symbols.items():
        given = inputs[source[1]]
        found[symbol.name] = given.shape[source[2]] if source[0] == "size" else given
    return found


_NUMBERS: dict[type, tuple[str, ...]] = {
    Alloc: ("shape", "stride"), Scratch: ("offset", "nbytes"), Aten: ("args", "kwargs"),
    View: ("shape", "stride", "offset"),
}  # fmt: skip


def _alone(place: torch.Tensor) -> torch.Tensor:
    """A copy that shares memory with nothing, and lies as the tensor does."""
    return torch.empty_strided(place.shape, place.stride(), dtype=place.dtype).copy_(place)


_DTYPES = {text: dtype for dtype, (_name, text) in TYPES.items()}
_RUN: dict[type, Callable[[Machine, Any], None]] = {
    Alloc: Machine.alloc, Scratch: Machine.scratch, DeviceLaunch: Machine.launch, Aten: Machine.aten,
    View: Machine.view, Free: Machine.free,
}  # fmt: skip
