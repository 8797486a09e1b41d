"""Trainings of DistributedDataParallel modules, each in eager mode and compiled: what both ranks run.

A training takes `jit` and `compile` (of graftjit, or functions that give back their argument) and returns the losses
and parameters of some steps.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

import graftjit

Compiler = Callable[[Any], Any]
STEPS = 4


class Net(nn.Module):
    """Two branches, of which `forward` may leave one unused."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.norm = nn.LayerNorm(16)
        self.last = nn.Linear(16, 1)
        self.other = nn.Linear(16, 1)

    def forward(self, x: torch.Tensor, both: bool = True) -> torch.Tensor:
        hidden = self.norm(torch.tanh(self.first(x)))
        return self.last(hidden) + self.other(hidden) if both else self.last(hidden)


def net() -> Net:
    torch.manual_seed(0)
    return Net()


def parallel(model: nn.Module, **options: Any) -> Any:
    """With buckets of a hundred bytes, so that backwards are divided."""
    return DistributedDataParallel(model, bucket_cap_mb=1e-4, **options)


def batch(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(10 * number + distributed.get_rank())
    x = torch.randn(6, 8, generator=generator)
    return x, x.sum(1, keepdim=True)


def trained(model: Any, step: Callable[..., Any], steps: int = STEPS) -> list[torch.Tensor]:
    """The losses, then the parameters, after `step(x, y)` and SGD's update for each batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for number in range(steps):
        optimizer.zero_grad()
        losses.append(step(*batch(number)).detach())
        optimizer.step()
    return [*losses, *(one.detach().clone() for one in model.parameters())]


def stepping(model: Any, **kwargs: Any) -> Callable[..., Any]:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = nn.functional.mse_loss(model(x, **kwargs), y)
        loss.backward()
        return loss

    return step


def outside(jit: Compiler, compile: Compiler, **options: Any) -> Any:
    model = parallel(compile(net()), **options)
    return trained(model, stepping(model))


def inside(jit: Compiler, compile: Compiler, **options: Any) -> Any:
    model = compile(parallel(net(), **options))
    return trained(model, stepping(model))


def whole_step(jit: Compiler, compile: Compiler, **options: Any) -> Any:
    model = parallel(net(), **options)
    return trained(model, jit(stepping(model)))


def static_graph(jit: Compiler, compile: Compiler) -> Any:
    return outside(jit, compile, static_graph=True)


def static_graph_step(jit: Compiler, compile: Compiler) -> Any:
    return whole_step(jit, compile, static_graph=True)


def bucket_views(jit: Compiler, compile: Compiler) -> Any:
    return outside(jit, compile, gradient_as_bucket_view=True)


def bucket_views_step(jit: Compiler, compile: Compiler) -> Any:
    return whole_step(jit, compile, gradient_as_bucket_view=True)


def unused(jit: Compiler, compile: Compiler) -> Any:
    model = parallel(compile(net()), find_unused_parameters=True)
    return trained(model, stepping(model, both=distributed.get_rank() == 0))


def unused_step(jit: Compiler, compile: Compiler) -> Any:
    model = parallel(net(), find_unused_parameters=True)
    return trained(model, jit(stepping(model, both=False)))


def wrapped_later(jit: Compiler, compile: Compiler) -> Any:
    """The step is compiled before the reducer exists."""
    inner = net()
    holder = [inner]
    step = jit(lambda x, y: stepping(holder[0])(x, y))
    trained(inner, step, steps=2)
    for one in inner.parameters():
        distributed.broadcast(one.data, 0)
    holder[0] = parallel(inner)
    return trained(holder[0], step)


def model_wrapped_later(jit: Compiler, compile: Compiler) -> Any:
    inner = compile(net())
    trained(inner, stepping(inner), steps=2)
    for one in inner.parameters():
        distributed.broadcast(one.data, 0)
    model = parallel(inner)
    return trained(model, stepping(model))


def armed(jit: Compiler, compile: Compiler) -> Any:
    """The reducer waits for gradients, and a jitted step differentiates the module inside it."""
    model = parallel(net())
    step = jit(stepping(model.module))

    def both(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        model(x)
        return step(x, y)

    return trained(model, both)


def armed_later(jit: Compiler, compile: Compiler) -> Any:
    """As `armed`, with a step that was compiled before the reducer existed, and that runs after it ended."""
    inner = net()
    step = jit(stepping(inner))
    trained(inner, step, steps=2)
    for one in inner.parameters():
        distributed.broadcast(one.data, 0)
    model: Any = parallel(inner)

    def both(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        model(x)
        return step(x, y)

    found = trained(model, both)
    model = None
    trained(inner, step, steps=2)
    for one in inner.parameters():
        distributed.all_reduce(one.data)
    return found + [one.detach().clone() for one in inner.parameters()]


def accumulated(jit: Compiler, compile: Compiler) -> Any:
    model = parallel(compile(net()))
    return trained(model, _accumulating(model, lambda one: one))


def accumulated_step(jit: Compiler, compile: Compiler) -> Any:
    model = parallel(net())
    return trained(model, _accumulating(model, jit))


def _accumulating(model: Any, jit: Compiler) -> Callable[..., Any]:
    step = jit(stepping(model))

    def several(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for number, (part, target) in enumerate(zip(x.chunk(3), y.chunk(3), strict=True)):
            with model.no_sync() if number < 2 else contextlib.nullcontext():
                loss = step(part, target)
        return loss

    return several


def communicated(jit: Compiler, compile: Compiler) -> Any:
    model = parallel(compile(net()))
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    return trained(model, stepping(model))


def joined(jit: Compiler, compile: Compiler) -> Any:
    model = parallel(compile(net()))
    with Join([model]):
        trained(model, stepping(model), steps=3 + distributed.get_rank())
    return [one.detach().clone() for one in model.parameters()]


TRAININGS = {
    one.__name__: one
    for one in (
        *(outside, inside, whole_step, static_graph, static_graph_step, bucket_views),
        *(bucket_views_step, unused, unused_step, wrapped_later, model_wrapped_later, armed),
        *(armed_later, accumulated, accumulated_step, communicated, joined),
    )
}


def all_trainings() -> dict[str, Any]:
    """By name: (tensors of eager mode, tensors of the compiled training), or the text of an exception."""
    found: dict[str, Any] = {}
    for name, training in TRAININGS.items():
        try:
            eager = training(lambda one: one, lambda one: one)
            found[name] = eager, training(graftjit.jit, graftjit.compile)
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
        graftjit.reset()
        distributed.barrier()
    return found
