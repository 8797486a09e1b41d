"""`torch.equal` and `torch.allclose`: conditions on tensor data like any other one."""

from __future__ import annotations

import torch
from torch import nn

from ..harness import agrees, t


@agrees(graphs=1, breaks=0)
def test_comparisons_that_are_only_given():
    def f(x, y):
        nan = x.clone()
        nan[0] = float("nan")
        return (
            torch.equal(x, y),
            x.equal(x),
            torch.equal(x, x.double()),
            torch.equal(x, x[:2]),
            torch.equal(nan, nan),
            torch.allclose(nan, nan),
            nan.allclose(nan, equal_nan=True),
            torch.allclose(x, y, 0.5, atol=1e-3),
            torch.equal(x[:0], y[:0]),
        ), x + 1

    steps = [lambda: (t(3), t(3)), lambda: (t(3), t(3) + 1e-4), lambda: (t(3), t(3) * 2)]
    return f, (t(3), t(3)), steps


@agrees(graphs=2, breaks=0, recompiles=1)
def test_comparisons_of_buffers_decide():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", torch.ones(3))

        def forward(self, x):
            if torch.allclose(self.scale, torch.ones(3)):
                self.scale.mul_(2)
                return x
            if torch.equal(self.scale, torch.ones(3) * 2):
                return x * self.scale
            return x + 1

    module = Scaled()
    return lambda x: module(x), (t(3),)


@agrees(codes=("GB105",))
def test_a_comparison_of_products_decides():
    def f(x):
        return x + 1 if torch.allclose(x @ x, x.T @ x) else x * 2

    return f, (t(3, 3),)


@agrees(codes=("GB108", "GB112"))
def test_tensors_that_cannot_be_compared():
    def f(x):
        try:
            return torch.allclose(x, x[:2])
        except RuntimeError as error:
            return str(error), x + 1

    return f, (t(3),)


@agrees(codes=("GB108",))
def test_dtypes_that_cannot_be_compared():
    def f(x):
        try:
            return torch.allclose(x, x.double())
        except RuntimeError:
            return x + 1

    return f, (t(3),)
