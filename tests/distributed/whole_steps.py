"""Whole steps over DistributedDataParallel modules, in eager mode and jitted: what both ranks run.

All numbers are multiples of small powers of two, so sums are exact in any order and results are equal to the bit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

import graftjit

STEPS = 5
PARTS = 3


class Exact(nn.Module):
    def __init__(self, branches: int = 1) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 1)
        self.others = nn.ModuleList(nn.Linear(8, 1) for _ in range(branches - 1))
        self.double()
        generator = torch.Generator().manual_seed(0)
        for one in self.parameters():
            one.data = torch.randint(-8, 9, one.shape, generator=generator).double() / 8

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.first(x)))


class Counting(Exact):
    """With a buffer that the first rank sends to the others before each forward."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.full((), 4.0 * distributed.get_rank()).double())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return super().forward(x) * self.calls / 4


def batch(number: int, rows: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(10 * number + distributed.get_rank())
    x = torch.randint(-1, 2, (rows, 4), generator=generator).double()
    return x, torch.randint(-1, 2, (rows, 1), generator=generator).double()


class Training:
    """`parts`: of a batch, whose gradients are accumulated; all but the last without messages.
    `used`: the step reads a buffer before the forward."""

    def __init__(
        self,
        jit: Callable[[Any], Any],
        inner: nn.Module,
        parts: int,
        used: bool = False,
        **options: Any,
    ):
        model: Any = DistributedDataParallel(inner, bucket_cap_mb=1e-4, **options)
        self.model, self.parts = model, parts
        optimizer = torch.optim.SGD(inner.parameters(), lr=0.25)

        def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            loss = (model(x) * y).sum()
            loss.backward()
            return loss.detach()

        def whole(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = (model(x) * y).sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        def used_before(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = (inner.calls + model(x) * y).sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        def silent(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            with model.no_sync():
                loss = (model(x) * y).sum()
                loss.backward()
            return loss.detach()

        if used:
            whole = used_before
        self.optimizer = optimizer
        self.add, self.whole, self.silent = jit(add), jit(whole), jit(silent)

    def run(self, steps: int = STEPS, inside: bool = False) -> list[torch.Tensor]:
        losses = []
        for number in range(steps):
            x, y = batch(number)
            if self.parts == 1:
                losses.append(self.whole(x, y))
                continue
            self.optimizer.zero_grad()
            for at, some in enumerate(zip(x.chunk(self.parts), y.chunk(self.parts), strict=True)):
                if inside and at + 1 < self.parts:
                    losses.append(self.silent(*some))
                    continue
                with self.model.no_sync() if at + 1 < self.parts else contextlib.nullcontext():
                    losses.append(self.add(*some))
            self.optimizer.step()
        return [*losses, *self.state()]

    def state(self) -> list[torch.Tensor]:
        held = (*self.model.parameters(), *self.model.buffers())
        return [one.detach().clone() for one in held]

    def breaks(self) -> list[tuple[str, str]]:
        steps = (self.whole, self.add, self.silent)
        reports = [step.report() for step in steps if hasattr(step, "report")]
        return [(one.code, one.reason) for report in reports for one in report.breaks]


def training(jit: Any, name: str) -> Training:
    if name.startswith("accumulated"):
        return Training(jit, Exact(), PARTS)
    if name == "unused":
        return Training(jit, Exact(2), 1, find_unused_parameters=True)
    if name.startswith("buffers"):
        return Training(jit, Counting(), 1, name != "buffers")
    return Training(jit, Exact(), 1, **({name: True} if name in OPTIONS else {}))


OPTIONS = ("static_graph", "gradient_as_bucket_view")
NAMES = (
    "plain",
    "accumulated",
    "accumulated_inside",
    "unused",
    "buffers",
    "buffers_used_before",
    "joined",
    *OPTIONS,
)


def results(jit: Any, name: str) -> tuple[list[torch.Tensor], list[tuple[str, str]]]:
    made = training(jit, name)
    if name == "joined":
        made.run(2)
        with Join([made.model]):
            made.run(3 + distributed.get_rank())
        return made.state(), made.breaks()
    return made.run(inside=name == "accumulated_inside"), made.breaks()


def module(compiled: bool) -> tuple[list[torch.Tensor], list[int], list[str]]:
    """A module with buffers: training, no gradient, no messages, and what autograd saves handed to
    hooks, before which the program gives way to plain Python."""
    inner = Counting()
    model: Any = DistributedDataParallel(inner, bucket_cap_mb=1e-4)
    call = graftjit.compile(model) if compiled else model
    optimizer = torch.optim.SGD(inner.parameters(), lr=0.25)
    found: list[torch.Tensor] = []
    for number in range(2 * STEPS):
        x, y = batch(number)
        with contextlib.ExitStack() as around:
            if number % 4 == 1:
                around.enter_context(torch.no_grad())
            if number % 4 == 2:
                around.enter_context(model.no_sync())
            if number == STEPS:
                hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)
                around.enter_context(hooks)
            loss = (call(x) * y).sum()
            if number % 4 != 1:
                loss.backward()
        if number % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
        found += [loss.detach(), *(one.detach().clone() for one in inner.buffers())]
    breaks = [one.code for one in call.report().breaks] if compiled else []
    found += [one.detach().clone() for one in inner.parameters()]
    return found, [one._version for one in inner.buffers()], breaks


def refused(jit: Any) -> str:
    """What the reducer says of a parameter without a gradient, in the second step."""
    made = Training(jit, Exact(2), 1)
    try:
        made.run(2)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:60]}"
    return ""


def all_steps() -> dict[str, Any]:
    """By name: (tensors of eager mode, tensors of the jitted steps, breaks)."""
    found: dict[str, Any] = {}
    for name in NAMES:
        eager, _ = results(lambda one: one, name)
        ours, breaks = results(graftjit.jit, name)
        found[name] = eager, ours, breaks
        graftjit.reset()
        distributed.barrier()
    found["modules"] = module(False)[:2], module(True)
    distributed.barrier()
    found["refused"] = refused(lambda one: one), refused(graftjit.jit)
    return found
