"""A Whisper-like encoder: two convolutions over time, sinusoidal positions, pre-norm layers (Radford et al., 2022)."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from .attention import Block


def sinusoids(length: int, width: int, slowest: float = 10000.0) -> torch.Tensor:
    step = math.log(slowest) / (width // 2 - 1)
    angles = torch.arange(length)[:, None] * torch.exp(-step * torch.arange(width // 2))[None, :]
    return torch.cat((angles.sin(), angles.cos()), dim=1)


class Whisper(nn.Module):
    """log-mel features [batch, 80, frames] -> states [batch, frames / 2, width]."""

    def __init__(self, frames: int = 200, width: int = 256, layers: int = 3) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(80, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.register_buffer("places", sinusoids(frames // 2, width))
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.gelu(self.conv1(x))
        x = F.gelu(self.conv2(x)).permute(0, 2, 1)
        x = (x + self.places).to(x.dtype)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)
