"""The workloads, as one table: what is computed, on what, and the bounds that it has to keep.

In: nothing. Out: `WORKLOADS`, rows of a name, the measurements it belongs to, and `make`, which gives the
function or module and its inputs, the same ones for the same seed. Used by `steady_state` (in one process)
and `first_call` (one process a measurement).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Made = tuple[Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Workload:
    """`bounds`: other system -> the most that graftjit's time may be of its time, as the issues ask."""

    name: str
    what: tuple[str, ...]  # of "call", "first", "steady"
    make: Callable[[], Made]
    note: str
    bounds: dict[str, float] = field(default_factory=dict)


def sin_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) + y * 2


def add_eight(a, b, c, d, e, f, g, h):
    return a + b + c + d + e + f + g + h


def chain(x: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(torch.tanh(F.gelu(x)))


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=-1)


def masked_softmax(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return torch.softmax((x * 0.125).masked_fill(mask, float("-inf")), dim=-1)


def layer_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, (x.shape[-1],), w, b)


def residual_layer_norm(x, r, w, b):
    y = x + r
    return y, F.layer_norm(y, (y.shape[-1],), w, b)


def rms_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w


def bias_gelu(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.gelu(x + b, approximate="tanh")


def swiglu(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.silu(x) * y


class Network(nn.Module):
    """Flatten, then 784-512-512-10: the network of the static-graph documents."""

    def __init__(self) -> None:
        super().__init__()
        self.flatten = nn.Flatten()
        self.dense_relu_sequential = nn.Sequential(
            nn.Linear(28 * 28, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dense_relu_sequential(self.flatten(x))


def deep_narrow() -> nn.Module:
    """64 layers of Linear(4) + LayerNorm + ReLU: what is between the operators is what costs."""
    layers = [m for _ in range(64) for m in (nn.Linear(4, 4), nn.LayerNorm(4), nn.ReLU())]
    return nn.Sequential(*layers)


class Block(nn.Module):
    """One transformer block: attention and a gelu MLP, each behind a layer norm."""

    def __init__(self, width: int = 256, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        split = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def on(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Callable[[], Made]:
    """A function on normal random tensors of these shapes."""
    return lambda: (function, tuple(torch.randn(shape) for shape in shapes))


def model(build: Callable[[], nn.Module], *shape: int) -> Callable[[], Made]:
    """A module in evaluation mode on one random tensor."""
    return lambda: (build().eval(), (torch.randn(shape),))


def _masked() -> Made:
    return masked_softmax, (torch.randn(1024, 1024), torch.rand(1024, 1024) > 0.7)


def _stack() -> nn.Module:
    return nn.Sequential(*(Block() for _ in range(4)))


_PEER, _EAGER = "torch.compile", "eager"
_ROWS = (4096, 1024)
_WIDE = (1024,)

WORKLOADS: tuple[Workload, ...] = (
    Workload("sin_add", ("call", "first"), on(sin_add, (8,), (8,)), "sin(x) + y*2 on 8 floats",
             {_EAGER: 1.0}),
    Workload("identity", ("call",), on(lambda x: x, (8,)), "lambda x: x"),
    Workload("add_eight", ("call",), on(add_eight, *[(8,)] * 8), "sum of eight tensors of 8 floats"),
    Workload("network_1", ("call", "first"), model(Network, 1, 1, 28, 28),
             "Flatten+784-512-512-10, batch 1", {_EAGER: 1.0}),
    Workload("network_64", ("call",), model(Network, 64, 1, 28, 28),
             "Flatten+784-512-512-10, batch 64", {_EAGER: 1.0}),
    Workload("deep_narrow", ("call",), model(deep_narrow, 1, 4),
             "64 x (Linear(4) + LayerNorm + ReLU), batch 1"),
    Workload("chain", ("steady",), on(chain, (1 << 20,)), "gelu, tanh, sigmoid on 1M floats",
             {_PEER: 1.25}),
    Workload("softmax", ("steady",), on(softmax, _ROWS), "softmax [4096, 1024]", {_PEER: 1.25}),
    Workload("layer_norm", ("steady",), on(layer_norm, _ROWS, _WIDE, _WIDE), "layer norm [4096, 1024]",
             {_PEER: 1.25}),
    Workload("residual_norm", ("steady",), on(residual_layer_norm, _ROWS, _ROWS, _WIDE, _WIDE),
             "x + r, then layer norm [4096, 1024]"),
    Workload("rms_norm", ("steady",), on(rms_norm, _ROWS, _WIDE), "RMS norm [4096, 1024]"),
    Workload("masked_softmax", ("steady",), _masked, "scale, mask, softmax [1024, 1024]"),
    Workload("bias_gelu", ("steady",), on(bias_gelu, (512, 3072), (3072,)), "gelu-tanh(x + b) [512, 3072]"),
    Workload("swiglu", ("steady",), on(swiglu, (512, 3072), (512, 3072)), "silu(x) * y [512, 3072]"),
    Workload("block", ("steady",), model(Block, 4, 64, 256), "transformer block [4, 64, 256]"),
    Workload("transformer", ("first",), model(_stack, 4, 64, 256), "four transformer blocks"),
)  # fmt: skip

BY_NAME: dict[str, Workload] = {row.name: row for row in WORKLOADS}

# Seconds beyond importing torch that a first call may take: workload -> (empty caches, warm store).
FIRST_CALL_BOUNDS: dict[str, tuple[float, float]] = {"network_1": (1.0, 0.3)}
