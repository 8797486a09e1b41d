"""A training step run jitted and in plain Python: model, batches, optimizers, and the comparison after each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import graftjit

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda ps: torch.optim.SGD(ps, lr=0.1),
    "momentum": lambda ps: torch.optim.SGD(
        ps, lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.01
    ),
    "nesterov": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda ps: torch.optim.Adam(ps, lr=0.01),
    "amsgrad": lambda ps: torch.optim.Adam(ps, lr=0.01, amsgrad=True, weight_decay=0.1),
    "adamw": lambda ps: torch.optim.AdamW(ps, lr=0.01, weight_decay=0.1),
}


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def batch(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(number)
    return torch.randn(5, 4, generator=generator), torch.randn(5, 1, generator=generator)


def step(net: Any, opt: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    opt.zero_grad()
    loss = ((net(x) - y) ** 2).mean()
    loss.backward()
    opt.step()
    return loss


class Beside:
    """A function of (model, optimizer, *batch) run jitted and as it is, each over a model of its own."""

    def __init__(self, function: Any, optimizer: str = "sgd", make: Any = model, **options: Any):
        self.function, self.jitted = function, graftjit.jit(function, **options)
        self.nets = [make() for _ in range(2)]
        self.opts = [OPTIMIZERS[optimizer](net.parameters()) for net in self.nets]
        self.offsets: dict[Any, int] = {}

    def run(self, number: int) -> None:
        found = []
        for fn, net, opt in zip((self.jitted, self.function), self.nets, self.opts, strict=True):
            before = [p.grad for p in net.parameters()]
            out = fn(net, opt, *batch(number))
            kept = [a is p.grad for a, p in zip(before, net.parameters(), strict=True)]
            found.append((out, kept))
        torch.testing.assert_close(found[0][0], found[1][0])
        assert found[0][1] == found[1][1]
        self.compare()

    def compare(self) -> None:
        for number, (p, q) in enumerate(
            zip(self.nets[0].parameters(), self.nets[1].parameters(), strict=True)
        ):
            self._same((number, "value"), p, q)
            self._same((number, "grad"), p.grad, q.grad)
            mine, theirs = (o.state.get(one, {}) for o, one in zip(self.opts, (p, q), strict=True))
            assert list(mine) == list(theirs)
            for name, value in theirs.items():
                self._same((number, name), mine[name], value)

    def _same(self, key: Any, a: Any, b: Any) -> None:
        if not isinstance(b, torch.Tensor):
            assert a is b is None
            return
        torch.testing.assert_close(a, b, rtol=2e-5, atol=1e-6)
        assert a.stride() == b.stride()
        assert (a.requires_grad, a.is_leaf, type(a)) == (b.requires_grad, b.is_leaf, type(b))
        # One that a graph has made begins at version 0; from then on both count alike.
        offset = a._version - b._version
        assert self.offsets.setdefault((key, id(a)), offset) == offset

    def whole(self) -> Beside:
        text = str(self.jitted.report())
        assert "no graph breaks" in text, text
        assert "FB301" not in text, text
        return self
