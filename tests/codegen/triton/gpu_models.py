"""The model set for GPUs: small BERT, GPT-2, Llama, ResNet and ViT, forward and backward, as plans with Triton kernels.

Graphs are captured on the CPU and relabelled (`on_cuda`). Used by test_gpu_models.py, and by itself, from the root:

    python -m tests.codegen.triton.gpu_models --compile 90 80

renders every kernel and compiles each text once for sm_90 and for sm_80, in processes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any
from unittest import mock

import torch

import graftjit
from benchmarks.models import bert, gpt2, llama, vision
from graftjit.codegen import pipeline as planned
from graftjit.codegen.plan_cache import cache as kept_plans
from graftjit.codegen.schedule import gpu_kernels as gpu_plan
from graftjit.codegen.schedule import plan as schedule
from graftjit.codegen.triton import compiler as triton_compile
from graftjit.ir.graph.nodes import Graph
from graftjit.ir.passes.pipeline import optimize
from graftjit.runtime.process.session import SESSION

from ..on_cuda import H100, relabelled

Made = tuple[torch.nn.Module, tuple[torch.Tensor, ...]]


def words(*shape: int) -> torch.Tensor:
    return torch.randint(0, 100, shape)


MODELS: dict[str, Callable[[], Made]] = {
    "bert": lambda: (bert.Bert(words=100, width=64, layers=2), (words(2, 16), words(2, 16) % 2, words(2, 16) % 2)),
    "gpt2": lambda: (gpt2.Gpt2(), (words(2, 16),)),
    "llama": lambda: (llama.Llama(), (words(2, 16),)),
    "resnet": lambda: (vision.ResNet(), (torch.randn(2, 3, 32, 32),)),
    "vit": lambda: (vision.Vit(), (torch.randn(2, 3, 96, 96),)),
}  # fmt: skip


@contextmanager
def recorded() -> Iterator[list[Graph]]:
    """The graphs that are planned meanwhile, as they come; they run as ATen's operators."""
    found: list[Graph] = []

    def record(graph: Graph, *_more: Any, **_named: Any) -> Any:
        found.append(graph)
        made = schedule.plan(graph, fuse=False)
        return planned._Planned(graph, planned._Clock({}), graph, made, kinds=frozenset())

    with (
        mock.patch.object(planned, "_planned", record),
        mock.patch.object(kept_plans, "key_of", lambda graph: None),
    ):
        yield found


def graphs(name: str, autocast: bool = False) -> list[Graph]:
    """Forward and backward of a model in training, on cuda."""
    torch.manual_seed(0)
    module, inputs = MODELS[name]()
    with (
        SESSION.override(check=False),  # what the CPU gives is no matter here
        recorded() as found,
        torch.autocast("cpu", torch.bfloat16, enabled=autocast),
    ):
        results = graftjit.jit(module)(*inputs)
        results = results if isinstance(results, (tuple, list)) else (results,)
        sum(result.float().square().mean() for result in results).backward()
    assert found, "nothing was planned: is `planned._planned` still what plans?"
    return [optimize(relabelled(graph), check=True) for graph in found]


class Texts:
    """The kernels of a model. `declined`: why some operators stay ATen's."""

    def __init__(self, name: str, autocast: bool = False) -> None:
        self.texts: dict[str, Any] = {}
        self.launches, self.graphs = 0, 0
        self.declined: list[str] = []
        self.plans: list[schedule.Plan] = []

        def record_declined(event: Any, key: Any = None) -> None:
            if getattr(event, "code", "") == "FB318":
                self.declined.append(event.reason)

        made = graphs(name, autocast)
        with mock.patch.object(SESSION, "emit", record_declined):
            for graph in made:
                plan, written = gpu_plan.write(schedule.plan(graph), lambda device: H100)
                self.plans.append(plan)
                self.launches += sum(len(one.parts) for one in written.launches.values())
                self.texts |= written.texts
        self.graphs = len(made)


def compiled(text: Any, capability: int) -> str:
    """What is wrong with a text, "" where it becomes a cubin."""
    try:
        made = triton_compile.compile_kernel(text, capability)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[-2000:]
    return "" if made.cubin else "an empty cubin"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compile", type=int, nargs="*", default=[], metavar="CAPABILITY")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("models", nargs="*", default=[])
    options = parser.parse_args()
    failed, every = 0, {}
    for name in options.models or MODELS:
        for autocast in (False, True):
            found = Texts(name, autocast)
            every |= found.texts
            kind = "bfloat16" if autocast else "float32"
            print(f"{name:8} {kind:9} {found.graphs} graphs, {found.launches} launches, {len(found.texts)} texts,"
                  f" {len(found.declined)} declined", flush=True)  # fmt: skip
            for reason in sorted(set(found.declined)):
                print(f"    {reason}")
            failed += len(found.declined)
    print(f"{len(every)} texts apart in all")
    for capability in options.compile:
        failed += _compile_all(list(every.values()), capability, options.processes)
    return 1 if failed else 0


def _compile_all(texts: list[Any], capability: int, processes: int) -> int:
    start, failed = time.perf_counter(), 0
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for text, wrong in zip(
            texts, pool.map(compiled, texts, [capability] * len(texts)), strict=True
        ):
            if wrong:
                failed += 1
                print(f"{text.name}: {wrong}\n{text.source}")
    import triton

    print(f"sm_{capability}: {len(texts) - failed} of {len(texts)} compile, {failed} fail, in"
          f" {time.perf_counter() - start:.0f} s (triton {triton.__version__}, torch {torch.__version__})")  # fmt: skip
    return failed


if __name__ == "__main__":
    sys.exit(main())
