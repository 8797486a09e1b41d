"""Averages of parameters (`torch.optim.swa_utils`) inside and outside a jitted step, and Muon beside AdamW, beside plain
Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn, optim
from torch.optim import swa_utils

import graftjit

from ..steps import batch, step

AVERAGES: dict[str, Callable[[Any], Any]] = {
    "equal": lambda net: swa_utils.AveragedModel(net),
    "equal, lists": lambda net: swa_utils.AveragedModel(
        net, multi_avg_fn=swa_utils.get_swa_multi_avg_fn()
    ),
    "exponential": lambda net: swa_utils.AveragedModel(net, avg_fn=swa_utils.get_ema_avg_fn(0.9)),
    "exponential, lists": lambda net: swa_utils.AveragedModel(
        net, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9)
    ),
    "with buffers": lambda net: swa_utils.AveragedModel(
        net, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True
    ),
    "of the program": lambda net: swa_utils.AveragedModel(
        net, avg_fn=lambda mean, now, count: mean + (now - mean) / (count + 2)
    ),
}


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))


def train(net: Any, opt: Any, mean: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    loss = step(net, opt, x, y)
    mean.update_parameters(net)
    return loss


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("name", AVERAGES)
def test_steps_with_an_average(name: str, inside: bool) -> None:
    jitted = graftjit.jit(train if inside else step)
    found = []
    for compiled in (True, False):
        net = model()
        opt, mean = optim.SGD(net.parameters(), lr=0.1), AVERAGES[name](net)
        found.append([])
        for number in range(8):
            if inside or not compiled:
                (jitted if compiled else train)(net, opt, mean, *batch(number))
            else:
                jitted(net, opt, *batch(number))
                mean.update_parameters(net)
            found[-1] += [t.detach().clone() for t in (*mean.parameters(), *mean.buffers())]
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=2e-5, atol=2e-6)
    assert jitted.report().break_count == 0
    assert jitted.report().graph_count <= 3


def test_statistics_of_an_average() -> None:
    """`update_bn` with a compiled average, and an average evaluated compiled."""
    found = []
    for compiled in (True, False):
        net = model()
        mean = swa_utils.AveragedModel(net)
        mean.update_parameters(net)
        mean.update_parameters(net)
        swa_utils.update_bn([batch(number) for number in range(4)], mean)
        run = graftjit.jit(mean) if compiled else mean
        found.append([run(batch(9)[0]).detach(), *mean.buffers()])
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.skipif(not hasattr(optim, "Muon"), reason="this torch has no Muon")
def test_muon_beside_adamw() -> None:
    """Its orthogonalisation is in bfloat16: bounds are of that dtype, times the rate."""

    def both(net: Any, opts: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for opt in opts:
            opt.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        for opt in opts:
            opt.step()
        return loss.detach()

    jitted = graftjit.jit(both)
    found = []
    for run in (jitted, both):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        matrices = [p for p in net.parameters() if p.dim() == 2]
        others = [p for p in net.parameters() if p.dim() != 2]
        opts = optim.Muon(matrices, lr=0.01, nesterov=True), optim.AdamW(others, lr=0.01)
        for number in range(6):
            run(net, opts, *batch(number))
        found.append([p.detach() for p in net.parameters()])
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-3)
    assert jitted.report().break_count == 0
