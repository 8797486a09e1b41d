"""A T5-like encoder and decoder: relative position bias by buckets, no scaling, RMS norms, ReLU MLP (Raffel et al., 2019)."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from .llama import RmsNorm


def buckets(
    distance: torch.Tensor, both_ways: bool, count: int = 32, far: int = 128
) -> torch.Tensor:
    """Small distances have a bucket each, larger ones share them on a logarithmic scale."""
    found = torch.zeros_like(distance)
    if both_ways:
        count //= 2
        found = found + (distance > 0).to(torch.long) * count
        distance = distance.abs()
    else:
        distance = -torch.min(distance, torch.zeros_like(distance))
    exact = count // 2
    log = torch.log(distance.float() / exact) / math.log(far / exact) * (count - exact)
    large = torch.clamp(exact + log.to(torch.long), max=count - 1)
    return found + torch.where(distance < exact, distance, large)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (
            nn.Linear(width, width, bias=False) for _ in range(4)
        )

    def split(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)

    def forward(
        self, x: torch.Tensor, seen: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        q, k, v = (
            self.split(self.query(x)),
            self.split(self.key(seen)),
            self.split(self.value(seen)),
        )
        scores = torch.matmul(q, k.transpose(3, 2))
        if bias is not None:
            scores = scores + bias
        attended = F.softmax(scores, dim=-1) @ v
        return self.out(attended.transpose(1, 2).reshape(x.shape))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, crossed: bool) -> None:
        super().__init__()
        self.norm1, self.own = RmsNorm(width), Attention(width, heads)
        self.norm2 = RmsNorm(width) if crossed else None
        self.cross = Attention(width, heads) if crossed else None
        self.norm3 = RmsNorm(width)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: torch.Tensor, bias: torch.Tensor, seen: torch.Tensor | None = None):
        y = self.norm1(x)
        x = x + self.own(y, y, bias)
        if self.cross is not None:
            x = x + self.cross(self.norm2(x), seen, None)
        return x + self.down(F.relu(self.up(self.norm3(x))))


class Stack(nn.Module):
    def __init__(self, width: int, heads: int, layers: int, decoder: bool) -> None:
        super().__init__()
        self.decoder, self.biases = decoder, nn.Embedding(32, heads)
        self.layers = nn.ModuleList(Layer(width, heads, decoder) for _ in range(layers))
        self.norm = RmsNorm(width)

    def bias(self, length: int) -> torch.Tensor:
        places = torch.arange(length)
        distance = places[None, :] - places[:, None]
        bias = self.biases(buckets(distance, not self.decoder)).permute(2, 0, 1).unsqueeze(0)
        if not self.decoder:
            return bias
        hidden = torch.full((length, length), torch.finfo(bias.dtype).min, dtype=bias.dtype)
        return bias + torch.triu(hidden, diagonal=1)

    def forward(self, x: torch.Tensor, seen: torch.Tensor | None = None) -> torch.Tensor:
        bias = self.bias(x.shape[1])
        for layer in self.layers:
            x = layer(x, bias, seen)
        return self.norm(x)


class T5(nn.Module):
    """(tokens of the source, tokens of the target) -> logits."""

    def __init__(
        self, words: int = 2000, width: int = 256, heads: int = 4, layers: int = 2
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.encoder = Stack(width, heads, layers, decoder=False)
        self.decoder = Stack(width, heads, layers, decoder=True)
        self.scale = width**-0.5

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        seen = self.encoder(self.words(source))
        x = self.decoder(self.words(target), seen)
        return F.linear(x * self.scale, self.words.weight)
