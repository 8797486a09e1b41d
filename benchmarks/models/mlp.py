"""Networks of linear layers: the seed network of the static-graph documents, a deep and narrow one, a gated one."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


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


class Residual(nn.Module):
    """Pre-norm residual layers of Linear, GELU, Linear, and a head; for bfloat16 as well."""

    def __init__(self, width: int = 256, layers: int = 3, classes: int = 16) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.ups = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(layers))
        self.downs = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(layers))
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for norm, up, down in zip(self.norms, self.ups, self.downs, strict=True):
            x = x + down(F.gelu(up(norm(x))))
        return self.head(x)
