"""Backward operators that are loops of ours: beside eager's on edges and kinks, and no further from float64 than twice as far."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import graftjit
from graftjit.runtime.process.session import SESSION

from .beside import fresh, same

EDGES = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    3.0,
    -3.0,
    6.0,
    20.0,
    20.5,
    -20.0,
    88.0,
    -104.0,
    float("inf"),
    float("-inf"),
    float("nan"),
]

POINTWISE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "threshold": lambda x: F.threshold(x, 1.0, 7.0),
    "relu6": F.relu6,
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "elu": lambda x: F.elu(x, 1.5),
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 2.0),
    "softplus": lambda x: F.softplus(x, 2.0, 5.0),
    "hardtanh": lambda x: F.hardtanh(x, -3.0, 1.0),
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "mish": F.mish,
    "logsigmoid": F.logsigmoid,
    "abs": torch.abs,
    "sqrt": torch.sqrt,
    "clamp": lambda x: x.clamp(-1, 3),
}  # fmt: skip

ROWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "softmax": lambda x: x.softmax(-1),
    "softmax of columns": lambda x: x.softmax(0),
    "log_softmax": lambda x: x.log_softmax(-1),
    "layer norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "layer norm of two": lambda x: F.layer_norm(x.view(2, -1, x.shape[-1]), (x.shape[0] // 2, x.shape[1])),
    "mse": lambda x: F.mse_loss(x, x.detach().flip(0)),
    "cross entropy": lambda x: F.cross_entropy(x, torch.arange(x.shape[0]) % x.shape[1]),
    "cross entropy sum": lambda x: F.cross_entropy(x, torch.arange(x.shape[0]) % x.shape[1], reduction="sum"),
    "cross entropy none": lambda x: F.cross_entropy(x, torch.arange(x.shape[0]) % x.shape[1], reduction="none"),
    "some ignored": lambda x: F.cross_entropy(x, torch.where(torch.arange(x.shape[0]) % 3 == 0, -100, 1)),
    "slice": lambda x: x[1:3] * 2 + x[:, -1:].sum(),
    "select": lambda x: x[1] * x[-1] + x[:, 2].sum(),
    "dropout": lambda x: F.dropout(x, 0.3),
}  # fmt: skip


def _gradient(function, x, g):
    return torch.autograd.grad(function(x), x, g)[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise(name: str, dtype: torch.dtype) -> None:
    function = POINTWISE[name]
    x = torch.cat([torch.tensor(EDGES), torch.linspace(-9, 9, 2048)]).to(dtype).requires_grad_()
    g = torch.linspace(0.5, 2, x.numel()).to(dtype)
    # gelu's values at infinity are a listed divergence (tests/test_footguns.py).
    with SESSION.override(check=name != "gelu"):
        found = _gradient(graftjit.jit(function), x, g)
    expected = _gradient(function, x, g)
    assert found.dtype is dtype
    torch.testing.assert_close(found[: len(EDGES)], expected[: len(EDGES)], equal_nan=True)
    if dtype is torch.float64:
        torch.testing.assert_close(found, expected, equal_nan=True, rtol=1e-12, atol=1e-13)
        return
    x64 = x.detach().double().requires_grad_()
    exact = _gradient(function, x64, g.double())[len(EDGES) :]
    told = exact.isfinite()
    scale = float(exact[told].abs().max()) * torch.finfo(dtype).eps
    ours, theirs = (
        float((one[len(EDGES) :].double() - exact)[told].abs().max()) for one in (found, expected)
    )
    assert ours <= 2 * theirs + scale / 2, (ours, theirs)


@pytest.mark.parametrize("shape", [(8, 16), (4, 3), (64, 130), (2, 1)])
@pytest.mark.parametrize("name", ROWS)
def test_rows(name: str, shape: tuple[int, int]) -> None:
    if name == "select" and shape[1] < 3:
        pytest.skip("no such column")
    if name == "some ignored" and shape[1] < 2:
        pytest.skip("no such class")
    same(ROWS[name], torch.randn(shape, requires_grad=True), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "layer norm"])
def test_rows_in_half_precision(name: str) -> None:
    x = torch.randn(16, 100).bfloat16().requires_grad_()
    g = torch.randn(16, 100).bfloat16()
    function = ROWS[name]
    exact = _gradient(function, x.detach().double().requires_grad_(), g.double())
    theirs = _gradient(function, x, g)
    (leaf,) = fresh([x])
    ours = _gradient(graftjit.jit(function), leaf, g)
    error = [float((one.double() - exact).abs().max()) for one in (ours, theirs)]
    assert error[0] <= 2 * error[1] + 1e-3


def test_layer_norm_with_weights() -> None:
    def f(x, w, b):
        return F.layer_norm(x * 2, (32,), w, b).relu()

    x, w, b = (torch.randn(s, requires_grad=True) for s in ((6, 5, 32), (32,), (32,)))
    same(f, x, w, b, rtol=1e-4, atol=1e-5)


def test_a_strange_layout_of_the_gradient() -> None:
    function = graftjit.jit(lambda x: F.gelu(x.softmax(-1)))
    x = torch.randn(6, 8, requires_grad=True)
    for g in (torch.ones(1, 1).expand(6, 8), torch.randn(8, 6).t(), torch.randn(6, 16)[:, ::2]):
        expected = torch.autograd.grad(F.gelu(x.softmax(-1)), x, g)[0]
        torch.testing.assert_close(torch.autograd.grad(function(x), x, g)[0], expected)


def test_a_bag_without_bags() -> None:
    """A backward over no rows, with an index: torch's own kernel reads there what it was given, and is not asked with zeros."""
    bag = torch.nn.EmbeddingBag(5, 3, mode="sum", include_last_offset=True)
    found = graftjit.jit(lambda i, o: bag(i, o))(torch.tensor([1]), torch.tensor([0]))
    assert found.shape == (0, 3) and found.requires_grad
