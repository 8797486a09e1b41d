"""Conditions on random numbers that their range decides: layers that are never, or always, dropped."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import nn

import graftjit

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


class Flagged(Layers):
    """The condition sets a flag; the last layer gives a result on which another depends."""

    def forward(self, x):
        for layer in self.layers:
            skip = False
            if self.training:
                drawn = torch.rand([])
                if drawn < self.drop:
                    skip = True
            if skip:
                found = (None, None)
            else:
                found = (layer(x).tanh(), None)
                x = found[0]
        return x, self.layers[0](x).sin(), torch.rand(2)


def layers(drop, kind=Layers):
    torch.manual_seed(4)
    model = kind(drop)
    return series(lambda x: model(x), [torch.ones(2, 3), torch.zeros(2, 3)])


whole = agrees(graphs=1, breaks=0, recompiles=0, backward=True)


@whole
def test_layers_that_are_never_dropped():
    return layers(0.0)


@whole
def test_layers_that_are_always_dropped():
    return layers(1.0)


@whole
def test_a_flag_that_is_never_set():
    return layers(0.0, Flagged)


@whole
def test_a_flag_that_is_always_set():
    return layers(1.0, Flagged)


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


DRAWS = {
    "item": lambda: torch.rand(1).item(),
    "item of one of several": lambda: torch.rand(3)[1].item(),
    "float64": lambda: torch.rand([], dtype=torch.float64).item(),
    "uniform_": lambda: torch.empty(1).uniform_().item(),
    "one of uniform_": lambda: torch.empty(3).uniform_(0, 1)[1],
    "random": lambda: random.random(),
    "uniform": lambda: random.uniform(0, 1),
    "numpy's rand": lambda: np.random.rand(),
    "numpy's random": lambda: np.random.random(),
    "numpy's uniform": lambda: np.random.uniform(0.0, 1.0),
}


def seeded():
    torch.manual_seed(4)
    random.seed(4)
    np.random.seed(4)


@pytest.mark.parametrize("outside", [0.0, 1.0])
@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_numbers_that_the_range_decides(draw, outside):
    """Each number is drawn, in order, though nothing depends on it."""

    def f(x):
        for _ in range(3):
            if draw() < outside:
                x = x * 2
            else:
                x = x.sin()
        return x, draw()

    graftjit.reset()
    jitted = graftjit.jit(f)
    seeded()
    plain = [f(torch.full((3,), step)) for step in (1.0, 2.0)], draw()
    seeded()
    found = [jitted(torch.full((3,), step)) for step in (1.0, 2.0)], draw()
    assert str(found) == str(plain)
    report = jitted.report()
    assert (report.graph_count, len(report.breaks)) == (1, 0)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: random.uniform(-1, 1),
        lambda: 1 - random.uniform(b=0, a=1),
        lambda: random.gauss(0, 1),
        lambda: np.random.uniform(-1, 1),
        lambda: np.random.randn(),
        lambda: torch.rand(1).sub_(0.5).item(),
        lambda: torch.rand(1).add_(-0.5).view(()).item(),
        lambda: (torch.rand(1) - 0.5).item(),
        lambda: torch.randn(1).item(),
        lambda: torch.empty(1).uniform_(-1, 1),
        lambda: torch.empty(1).uniform_(to=-0.1, **{"from": -1}).item(),
        lambda: torch.empty(2).uniform_().sub_(0.5)[0],
        lambda: torch.zeros(2).view(2, 1)[1].uniform_(-1, 0).item(),
        lambda: torch.bernoulli(torch.tensor(0.5)) - 0.5,
    ],
)
def test_numbers_of_other_ranges(draw):
    def f(x):
        return x * 2 if draw() < 0 else x.sin()

    graftjit.reset()
    jitted = graftjit.jit(f)
    seeded()
    plain = [f(torch.full((3,), step * 1.0)) for step in range(8)]
    seeded()
    assert str([jitted(torch.full((3,), step * 1.0)) for step in range(8)]) == str(plain)


@agrees(breaks=1)
def test_a_number_below_0_that_rounds_to_0():
    """A tensor of float32 is compared with -0.0: 0 is possible."""
    torch.manual_seed(4)

    def f(x):
        drawn = torch.rand([])
        return x * 2 if drawn > -1e-60 else x.sin()

    return series(f, [torch.ones(3)] * 2)


NEVER = {
    "a tensor": lambda: torch.bernoulli(torch.tensor(0.0)),
    "full": lambda: torch.bernoulli(torch.full((1,), 0.0)).item(),
    "zeros": lambda: torch.bernoulli(torch.zeros(3))[2] == 1,
    "less than 1": lambda: torch.bernoulli(torch.ones(())) < 1,
    "bernoulli_": lambda: torch.empty(1).bernoulli_(0.0),
    "of a tensor": lambda: torch.ones(1).bernoulli_(torch.zeros(1)).item(),
    "a number": lambda: torch.bernoulli(torch.ones(1), 0.0),
    "float64": lambda: torch.bernoulli(torch.tensor([0.0], dtype=torch.float64)).item(),
    "half of them, or more": lambda: torch.bernoulli(torch.tensor(0.5)) > 1,
    "whole numbers": lambda: torch.zeros(1, dtype=torch.int64).bernoulli_(0.0) != 0,
}


@pytest.mark.parametrize("draw", NEVER.values(), ids=NEVER)
def test_bits_that_their_probability_decides(draw):
    """Each bit is drawn all the same."""

    def f(x):
        if draw():
            x = x * 2
        return x + 1, torch.rand(2)

    graftjit.reset()
    jitted = graftjit.jit(f)
    seeded()
    plain = [f(torch.full((3,), step)) for step in (1.0, 2.0)], torch.rand(1)
    seeded()
    found = [jitted(torch.full((3,), step)) for step in (1.0, 2.0)], torch.rand(1)
    assert str(found) == str(plain)
    report = jitted.report()
    assert (report.graph_count, len(report.breaks)) == (1, 0)


@agrees()
def test_bits_that_may_be_either():
    torch.manual_seed(4)

    def f(x):
        share = torch.zeros(3)
        share[1] = 0.5
        bits = torch.bernoulli(share)
        other = torch.zeros(()).bernoulli_(0.5)
        later = torch.bernoulli(torch.zeros(2))
        later[0] = 1
        found = [bits[1] == 1, bits[0] == 1, other, later[0], later[1] > 0]
        return x * sum(2**i for i, one in enumerate(found) if one), torch.rand(2)

    return series(f, [torch.ones(2, 3)] * 8)


@agrees(graphs=1, breaks=0, recompiles=0)
def test_a_number_is_drawn_where_one_was_compared():
    def f(x):
        t = torch.zeros(())
        before = t > 0.5
        t.bernoulli_(1.0)
        if before:
            x = x * 3
        if t > 0.5:
            x = x * 2
        return x

    return series(f, [torch.ones(2, 3)] * 3)
