"""Conditions on random numbers that their range decides: layers that are never, or always, dropped."""

from __future__ import annotations

import torch
from torch import nn

from ..harness import agrees
from .series import series


class Layers(nn.Module):
    def __init__(self, drop):
        super().__init__()
        self.drop = drop
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            if self.training:
                drawn = torch.rand([])
                if drawn < self.drop:
                    continue
            x = nn.functional.dropout(layer(x), 0.2, self.training)
        return x, torch.rand(2)


def layers(drop):
    torch.manual_seed(4)
    model = Layers(drop)
    return series(lambda x: model(x), [torch.ones(2, 3), torch.zeros(2, 3)])


whole = agrees(graphs=1, breaks=0, recompiles=0, backward=True)


@whole
def test_layers_that_are_never_dropped():
    return layers(0.0)


@whole
def test_layers_that_are_always_dropped():
    return layers(1.0)


@agrees(backward=True)
def test_layers_that_are_dropped_at_times():
    return layers(0.4)


@whole
def test_all_comparisons_outside_of_the_range():
    torch.manual_seed(4)

    def f(x):
        a, b = torch.rand(()), torch.rand_like(x[:1, 0])
        found = [a <= -0.5, a > 1, a >= 0, a == 2, b != -1.0, b >= 1.0, 0 > a, 1.0 > a]
        return x * sum(2**i for i, one in enumerate(found) if one), torch.rand(2)

    return series(f, [torch.ones(2, 3, requires_grad=True)] * 2)


@agrees()
def test_a_number_that_is_written_or_not_drawn_so():
    torch.manual_seed(4)

    def f(x):
        a, b = torch.rand(()), torch.rand(1)
        b.view(()).sub_(3)
        found = [a.sub_(2) < 0, b < 0, torch.randn(()) < 0, torch.rand(()) * 2 < 1]
        return x * sum(2**i for i, one in enumerate(found) if one), torch.rand(2)

    return series(f, [torch.ones(2, 3)] * 3)
