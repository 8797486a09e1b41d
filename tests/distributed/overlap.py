"""When the buckets of a reducer are ready, beside the end of the backward: what both ranks run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

import graftjit
from graftjit.runtime.autograd.joint_program import JointProgram
from graftjit.runtime.executor.slices import Passing

WIDTH = 96
BLOCKS = 6
STEPS = 4


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(WIDTH, 2 * WIDTH), nn.LayerNorm(2 * WIDTH)
        self.back = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.back(nn.functional.gelu(self.norm(self.linear(x))))


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(Block() for _ in range(BLOCKS)))


class Clock:
    """Notes when each bucket of the reducer is ready, and when each part of the backward begins."""

    def __init__(self) -> None:
        self.ready: list[float] = []
        self.begun: list[float] = []

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Until the end: the beginnings of slices, and of backwards that are not divided."""
        with pytest.MonkeyPatch.context() as patch:
            for kind, name in ((Passing, "next"), (JointProgram, "backwards")):
                patch.setattr(kind, name, self._noted(getattr(kind, name)))
            yield

    def _noted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any) -> Any:
            self.begun.append(time.perf_counter())
            return method(*args)

        return noted

    def ring(self, bucket: Any) -> Any:
        self.ready.append(time.perf_counter())
        work = distributed.all_reduce(bucket.buffer(), async_op=True)
        return work.get_future().then(lambda done: done.value()[0])


def buckets(where: str, **config: Any) -> dict[str, Any]:
    """`where`: "inside" (the module of DistributedDataParallel is compiled), "outside" or "eager"."""
    inner, options = net(), graftjit.JitConfig(**config)
    if where == "inside":
        inner = graftjit.compile(inner, config=options)
    model: Any = DistributedDataParallel(inner, bucket_cap_mb=0.07)
    clock = Clock()
    model.register_comm_hook(None, lambda _state, bucket: clock.ring(bucket))
    if where == "outside":
        model = graftjit.compile(model, config=options)
    found: dict[str, Any] = {"gradients": []}
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(10 * step + distributed.get_rank())
        model.zero_grad()
        loss = model(torch.randn(512, WIDTH, generator=generator)).square().mean()
        clock.ready.clear()
        with clock.watching():
            loss.backward()
        ends = max(clock.begun, default=0.0)
        found["early"] = sum(one < ends for one in clock.ready), len(clock.ready)
        found["gradients"].append([one.grad.clone() for one in model.parameters()])
    if where != "eager":
        found["report"] = str(model.report() if where == "outside" else inner.report())
    return found


def all_of_them() -> dict[str, Any]:
    return {
        "eager": buckets("eager"),
        "inside": buckets("inside"),
        "outside": buckets("outside"),
        "undivided": buckets("inside", segments=1),
    }
