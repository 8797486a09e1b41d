"""A step jitted and as it is, each over a net and an optimizer of its own: what the tests of this folder share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn, optim

import graftjit

from ..steps import batch, step

Made = Callable[[Any], optim.Optimizer]


class Net(nn.Module):
    """Two layers that share a weight, and a parameter that takes no part."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.last, self.unused = nn.Linear(4, 1), nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.second(torch.tanh(self.first(x)))))


class Pair:
    """A step jitted and as it is, each over a net and an optimizer of its own."""

    def __init__(self, make: Made, groups: Any = None, function: Any = step) -> None:
        self.function, self.jitted = function, graftjit.jit(function)
        self.nets = [Net(), Net()]
        self.opts = [make(net.parameters() if groups is None else groups(net)) for net in self.nets]
        self.states: dict[Any, Any] = {}
        self.versions: dict[Any, int] = {}

    def run(self, number: int) -> None:
        found = [
            fn(net, opt, *batch(number))
            for fn, net, opt in zip((self.jitted, self.function), self.nets, self.opts, strict=True)
        ]
        close(found[0], found[1])
        self.compare()

    def settles(self, steps: int) -> None:
        """Run steps: none breaks, and the ones after the third compile nothing."""
        for number in range(steps):
            self.run(number)
            if number == 2:
                before = self.compiles()
        assert self.breaks() == []
        assert self.compiles() == before

    def compare(self) -> None:
        for (name, p), q in zip(
            self.nets[0].named_parameters(), self.nets[1].parameters(), strict=True
        ):
            self.same((name, "value"), p, q)
            self.same((name, "grad"), p.grad, q.grad)
            mine, theirs = self.opts[0].state.get(p, {}), self.opts[1].state.get(q, {})
            assert list(mine) == list(theirs), name
            for key, value in theirs.items():
                self.same((name, key), mine[key], value)
                if isinstance(value, torch.Tensor):  # both go on with theirs, or neither does
                    before = self.states.get((name, key), (None, None))
                    assert (before[0] is mine[key]) == (before[1] is value), (name, key)
                    self.states[name, key] = mine[key], value
        for mine, theirs in zip(self.opts[0].param_groups, self.opts[1].param_groups, strict=True):
            assert list(mine) == list(theirs)
            for key in mine.keys() - {"params"}:
                if isinstance(theirs[key], tuple) and None in theirs[key]:
                    assert mine[key] == theirs[key]
                    continue
                close(torch.as_tensor(mine[key] or 0), torch.as_tensor(theirs[key] or 0))
                assert type(mine[key]) is type(theirs[key])

    def same(self, key: Any, a: Any, b: Any) -> None:
        if not isinstance(b, torch.Tensor):
            assert type(a) is type(b), key
            assert a == b or a == pytest.approx(b), key
            return
        close(a, b)
        assert (a.dtype, a.stride(), a.requires_grad, a.is_leaf, type(a)) == (
            b.dtype, b.stride(), b.requires_grad, b.is_leaf, type(b),
        ), key  # fmt: skip
        # One that a graph has made begins at version 0; from then on both count alike.
        offset = a._version - b._version
        assert self.versions.setdefault((key, id(a)), offset) == offset, key

    def compiles(self) -> int:
        return self.jitted.report().graph_count

    def breaks(self) -> list[str]:
        return [f"{row.code} {row.reason}" for row in self.jitted.report().breaks]


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-6)
