"""Jitted programs called with many sizes: right, fused, and compiled a few times only."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import graftjit

SIZES = (6, 8, 11, 3, 40, 64, 100, 7, 16, 999)


def r(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


class Attention(nn.Module):
    """With views, permutations and a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.o, self.norm = nn.Linear(16, 48), nn.Linear(16, 16), nn.LayerNorm(16)

    def forward(self, x: Any) -> Any:
        batch, steps, width = x.shape
        q, k, v = self.q(self.norm(x)).view(batch, steps, 3, 4, 4).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.o(y.transpose(1, 2).reshape(batch, steps, width))


MLP = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
CNN = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
    nn.Linear(32, 5),
).eval()  # fmt: skip
ATTENTION = Attention().eval()


def rotary(x: Any) -> Any:
    angle = torch.arange(x.shape[1]).float()[:, None] * (torch.arange(4).float() / 4)
    left, right = x[..., :4], x[..., 4:]
    cos, sin = angle.cos(), angle.sin()
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)


def halves(x: Any) -> Any:
    half = x.shape[0] // 2
    return x[:half] * x[half : 2 * half] + x[:half].sum()


def standard(x: Any) -> Any:
    return (x - x.mean(0)) / (x.std(0) + 1e-5), x.shape[0], x.numel()


def in_place(x: Any) -> Any:
    y = x * 2
    y[1:] += x[:-1]
    y[0] = 0
    return y


# name, function, arguments of a size, graphs at most
ROWS: tuple[tuple[str, Callable[..., Any], Callable[[int], tuple[Any, ...]], int], ...] = (
    ("mlp", MLP, lambda n: (r(n, 8),), 3),
    ("cnn", CNN, lambda n: (r(n, 3, 4, 4),), 2),
    ("attention steps", ATTENTION, lambda n: (r(2, n, 16),), 3),
    ("attention batch", ATTENTION, lambda n: (r(n, 5, 16),), 3),
    ("softmax", lambda x: F.softmax(x.sin(), -1), lambda n: (r(3, n),), 2),
    ("layer norm", lambda x: F.layer_norm(x, (8,)), lambda n: (r(n, 8),), 2),
    ("both", lambda x, y: (x * y).sum(0), lambda n: (r(n, n + 1), r(n, n + 1)), 2),
    ("cat", lambda x, y: torch.cat([x, y], 1) * 2, lambda n: (r(n, 4), r(n, 5)), 2),
    ("rotary", rotary, lambda n: (r(2, n, 8),), 3),
    ("halves", halves, lambda n: (r(n, 3),), 3),
    ("standard", standard, lambda n: (r(n, 3),), 3),
    ("in place", in_place, lambda n: (r(n, 4),), 3),
    ("embedding", lambda x: F.embedding(x, r0).sum(1), lambda n: (torch.randint(0, 50, (n, 3)),), 2),
    ("loss", lambda x: F.cross_entropy(x, torch.zeros(x.shape[0], dtype=torch.long)),
     lambda n: (r(n, 4),), 2),
    ("float", lambda x, a: x * a + 1, lambda n: (r(8), n * 0.37), 4),
    ("int", lambda x, a: x * a + 1, lambda n: (r(8), n), 4),
)  # fmt: skip
r0 = r(50, 8)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_many_sizes_few_graphs(row: Any) -> None:
    _name, fn, make, graphs = row
    fast = graftjit.compile(fn) if isinstance(fn, nn.Module) else graftjit.jit(fn)
    with torch.no_grad():
        for size in SIZES:
            arguments = make(size)
            found, expected = fast(*arguments), fn(*arguments)
            torch.testing.assert_close(found, expected, rtol=3e-4, atol=3e-5)
    report = graftjit.report(fast)
    assert report.graph_count <= graphs and report.break_count == 0, report.text()
    assert report.libraries  # fused, not operator by operator


def test_sizes_from_many_threads() -> None:
    """One program runs at several sizes at once; each run has numbers and memory of its own."""

    def plain(x: Any) -> Any:
        return F.softmax((x * 2).sum(1, keepdim=True) + x, 0).t().sum(0)

    fast = graftjit.jit(plain)
    wrong: list[int] = []
    with torch.no_grad():
        for n in (5, 9, 17):
            fast(r(n, 8))

    def work(seed: int) -> None:
        with torch.no_grad():
            for step in range(60):
                x = r(2 + (seed * 37 + step * 13) % 300, 8)
                if not torch.allclose(fast(x), plain(x), rtol=1e-4, atol=1e-5):
                    wrong.append(x.shape[0])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert graftjit.report(fast).graph_count <= 3


def test_a_divisor_that_is_zero_at_the_size_that_costs_are_weighed_with() -> None:
    def first(x: Any) -> Any:
        return x.sin()[: 600 // (x.shape[0] - 128)] * 2 + 1

    compiled = graftjit.jit(first)
    for size in (200, 210, 230, 260):
        x = r(size)
        torch.testing.assert_close(compiled(x), first(x))
    assert compiled.report().graph_count == 2 and not compiled.report().notes
