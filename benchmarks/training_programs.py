"""Programs of training that use autograd in other ways than one loss: `python -m benchmarks.training_programs [NAME...]`.

Two losses, gradients of gradients, checkpoints, custom functions, scaled and accumulated gradients. Each program runs 20 steps
in plain Python and jitted from the same start: losses and parameters must agree. Then steps of both alternate, and the medians
are compared. A program is jitted in two ways: `step`, the whole step with its backward and its optimizer as one function, and
`loss`, the loss alone, whose backward plain Python calls.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import graftjit

STEPS, ROUNDS = 20, 41
grad = torch.autograd.grad
Models = Sequence[nn.Module]
Loss = Callable[..., Any]
# (models, optimizers, loss functions, batch) -> losses
Step = Callable[[Any, Any, Any, Any], Any]


def mlp(*widths: int, act: Callable[[], nn.Module] = nn.ReLU) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inside, outside in itertools.pairwise(widths):
        layers += [nn.Linear(inside, outside), act()]
    return nn.Sequential(*layers[:-1])


# -- two networks against each other


def judged(models: Models, real: torch.Tensor, noise: torch.Tensor) -> tuple[Any, Any]:
    maker, judge = models
    fake = maker(noise)
    right, wrong = judge(real), judge(fake.detach())
    ones, zeros = torch.ones_like(right), torch.zeros_like(wrong)
    of_judge = F.binary_cross_entropy_with_logits(right, ones)
    of_judge = of_judge + F.binary_cross_entropy_with_logits(wrong, zeros)
    return of_judge, F.binary_cross_entropy_with_logits(judge(fake), ones)


def gan(models: Models, optimizers: Any, losses: Any, batch: Any) -> Any:
    of_judge, of_maker = losses[0](models, *batch)
    weights = [list(model.parameters()) for model in models]
    found = grad(of_judge, weights[1], retain_graph=True), grad(of_maker, weights[0])
    for ours, gradients in zip((weights[1], weights[0]), found, strict=True):
        for weight, gradient in zip(ours, gradients, strict=True):
            weight.grad = gradient
    for one in optimizers:
        one.step()
    return of_judge.detach(), of_maker.detach()


# -- two losses over one trunk


def two_losses(models: Models, x: torch.Tensor, label: torch.Tensor) -> tuple[Any, Any]:
    trunk, first, second = models
    hidden = trunk(x)
    return F.cross_entropy(first(hidden), label), F.mse_loss(second(hidden), x)


def two_heads(models: Models, optimizers: Any, losses: Any, batch: Any) -> Any:
    optimizers[0].zero_grad()
    first, second = losses[0](models, *batch)
    first.backward(retain_graph=True)
    second.backward()
    optimizers[0].step()
    return first.detach(), second.detach()


# -- what a class looks at


def scores(models: Models, x: torch.Tensor) -> tuple[Any, Any]:
    features = models[0](x)
    return features, models[1](features.mean((2, 3))).amax(1).sum()


def grad_cam(models: Models, optimizers: Any, losses: Any, batch: Any) -> Any:
    features, score = losses[0](models, *batch)
    (by,) = grad(score, features)
    return ((features * by.mean((2, 3), keepdim=True)).sum(1).relu().detach(),)


# -- gradients of gradients


def wgan_gp(models: Models, real: torch.Tensor, fake: torch.Tensor, part: torch.Tensor) -> Any:
    between = (part * real + (1 - part) * fake).requires_grad_(True)
    out = models[0](between)
    (g,) = grad(out, between, torch.ones_like(out), create_graph=True)
    penalty = ((g.norm(2, dim=1) - 1) ** 2).mean()
    return models[0](fake).mean() - models[0](real).mean() + 10 * penalty


def burgers(models: Models, x: torch.Tensor, t: torch.Tensor) -> Any:
    x, t = x.clone().requires_grad_(), t.clone().requires_grad_()
    u = models[0](torch.cat([x, t], 1))
    ones = torch.ones_like(u)
    u_x, u_t = grad(u, (x, t), ones, create_graph=True)
    (u_xx,) = grad(u_x, x, ones, create_graph=True)
    return ((u_t + u * u_x - 0.01 * u_xx) ** 2).mean()


def by_weights(weights: Sequence[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    for at in range(0, len(weights), 2):
        x = F.linear(torch.tanh(x) if at else x, weights[at], weights[at + 1])
    return x


def maml(models: Models, x: torch.Tensor, y: torch.Tensor) -> Any:
    weights = list(models[0].parameters())
    steps = grad(F.mse_loss(by_weights(weights, x), y), weights, create_graph=True)
    fast = [weight - 0.1 * step for weight, step in zip(weights, steps, strict=True)]
    return F.mse_loss(by_weights(fast, x * 2), y)


# -- what is computed again


def checkpointed(models: Models, x: torch.Tensor) -> Any:
    for block in models:
        x = checkpoint(block, x, use_reentrant=False)
    return x.square().mean()


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return gradient * (s + x * s * (1 - s))


class Act(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Swish.apply(x)  # type: ignore[no-any-return]


def classified(models: Models, x: torch.Tensor, label: torch.Tensor) -> Any:
    return F.cross_entropy(models[0](x), label)


def cast(models: Models, x: torch.Tensor, label: torch.Tensor) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        return F.cross_entropy(models[0](x).float(), label)


# -- steps


def plain(models: Models, optimizers: Any, losses: Any, batch: Any) -> Any:
    optimizers[0].zero_grad()
    loss = losses[0](models, *batch)
    loss.backward()
    optimizers[0].step()
    return (loss.detach(),)


def scaled(models: Models, optimizers: Any, losses: Any, batch: Any) -> Any:
    optimizer, scaler = optimizers
    optimizer.zero_grad()
    loss = losses[0](models, *batch)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return (loss.detach(),)


def accumulated(models: Models, optimizers: Any, losses: Any, batch: Any) -> Any:
    optimizers[0].zero_grad()
    total = torch.zeros(())
    for x, label in zip(*(one.chunk(4) for one in batch), strict=True):
        loss = losses[0](models, x, label) / 4
        loss.backward()
        total += loss.detach()
    nn.utils.clip_grad_norm_(models[0].parameters(), 1.0)
    optimizers[0].step()
    return (total,)


# -- the programs


def adam(models: Models) -> list[Any]:
    # A larger eps than usual: else the rounding of a gradient near zero decides about a whole step.
    return [torch.optim.AdamW([p for one in models for p in one.parameters()], lr=1e-3, eps=1e-4)]


def each_adam(models: Models) -> list[Any]:
    return [one for model in models for one in adam([model])]


def with_scaler(models: Models) -> list[Any]:
    optimizer = torch.optim.AdamW(models[0].parameters(), lr=1e-3, fused=True)
    return [optimizer, torch.amp.GradScaler("cpu", init_scale=256.0)]  # type: ignore[attr-defined]


def layer(width: int) -> nn.Module:
    return nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)


def features() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU()
    )  # fmt: skip


def digits() -> list[torch.Tensor]:
    return [torch.randn(64, 64), torch.randint(0, 10, (64,))]


def pairs() -> list[torch.Tensor]:
    return [torch.randn(64, 2), torch.randn(64, 2), torch.rand(64, 1)]


tanh = nn.Tanh
# name -> (models, their optimizers, loss, step, batch)
PROGRAMS: dict[str, tuple[Callable[[], Models], Callable[[Models], Any], Loss, Step, Callable[[], Any]]] = {
    "GAN": (lambda: [mlp(16, 128, 64), mlp(64, 128, 1)], each_adam, judged, gan,
            lambda: [torch.randn(64, 64), torch.randn(64, 16)]),
    "two heads": (lambda: [mlp(64, 128, 128), mlp(128, 10), mlp(128, 64)], adam, two_losses, two_heads, digits),
    "Grad-CAM": (lambda: [features(), nn.Linear(32, 10)], adam, scores, grad_cam, lambda: [torch.randn(4, 3, 32, 32)]),
    "WGAN-GP": (lambda: [mlp(2, 64, 64, 1, act=tanh)], adam, wgan_gp, plain, pairs),
    "PINN": (lambda: [mlp(2, 64, 64, 64, 1, act=tanh)], adam, burgers, plain,
             lambda: [torch.rand(256, 1), torch.rand(256, 1)]),
    "MAML": (lambda: [mlp(2, 64, 64, 1, act=tanh)], adam, maml, plain, lambda: [torch.randn(64, 2), torch.randn(64, 1)]),
    "checkpoint": (lambda: [layer(64) for _ in range(4)], adam, checkpointed, plain, lambda: [torch.randn(4, 32, 64)]),
    "function": (lambda: [mlp(64, 256, 256, 10, act=Act)], adam, classified, plain, digits),
    "scaler": (lambda: [mlp(64, 256, 256, 10)], with_scaler, cast, scaled, digits),
    "accumulation": (lambda: [mlp(64, 256, 256, 10)], adam, classified, accumulated, digits),
}  # fmt: skip


class Run:
    """A program with its own models. `way`: "", "step" or "loss"."""

    def __init__(self, name: str, models: Models, way: str) -> None:
        _, optimizers, loss, step, self.batch = PROGRAMS[name]
        self.models = copy.deepcopy(models)
        self.optimizers = optimizers(self.models)
        self.jitted: Any = graftjit.jit({"step": step, "loss": loss}[way]) if way else None
        self.losses = [self.jitted if way == "loss" else loss]
        self.step = self.jitted if way == "step" else step

    def __call__(self, batch: Any) -> Any:
        return self.step(self.models, self.optimizers, self.losses, batch)

    def tensors(self) -> Iterator[torch.Tensor]:
        return (p.detach() for model in self.models for p in model.parameters())


def measured(name: str, way: str, rounds: int) -> tuple[float, str]:
    """(time of a jitted step / of a plain one, the row that says so)."""
    torch.manual_seed(0)
    models = PROGRAMS[name][0]()
    runs = Run(name, models, ""), Run(name, models, way)
    for number in range(STEPS):
        torch.manual_seed(number)
        batch = runs[0].batch()
        plainly, ours = (run(batch) for run in runs)
        tolerance = (
            {"rtol": 5e-2, "atol": 5e-3} if name == "scaler" else {"rtol": 2e-3, "atol": 2e-4}
        )
        torch.testing.assert_close(ours, plainly, **tolerance)
    torch.testing.assert_close(list(runs[1].tensors()), list(runs[0].tensors()), **tolerance)
    times: tuple[list[float], list[float]] = [], []
    for _ in range(rounds):
        batch = runs[0].batch()
        for run, found in zip(runs, times, strict=True):
            began = time.perf_counter()
            run(batch)
            found.append(time.perf_counter() - began)
    eager, jitted = (statistics.median(one) for one in times)
    report = runs[1].jitted.report()
    row = (
        f"{name:14}{way:6}{eager * 1e6:10.0f}{jitted * 1e6:10.0f}{jitted / eager:8.2f}"
        f"{report.graph_count:8}{report.break_count:8}{report.recompile_count:8}"
    )
    return jitted / eager, row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[*PROGRAMS, []], metavar="NAME")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(
        f"{'program':14}{'jitted':6}{'eager us':>10}{'ours us':>10}{'ratio':>8}{'graphs':>8}{'breaks':>8}{'again':>8}"
    )
    for way in ("step", "loss"):
        ratios = []
        for name in options.names or PROGRAMS:
            ratio, row = measured(name, way, options.rounds)
            ratios.append(ratio)
            print(row, flush=True)
        print(f"{'geomean':14}{way:6}{math.exp(statistics.fmean(map(math.log, ratios))):28.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
