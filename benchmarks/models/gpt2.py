"""A GPT-2-like decoder: learned positions, pre-norm layers, causal attention written out, tied head (Radford et al., 2019)."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads, self.width = heads, width
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)
        causal = torch.tril(torch.ones(length, length, dtype=torch.bool))
        self.register_buffer("causal", causal.view(1, 1, length, length), persistent=False)

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(x).split(self.width, dim=2)
        )
        scores = torch.matmul(q, k.transpose(-1, -2)) / (v.shape[-1] ** 0.5)
        lowest = torch.finfo(scores.dtype).min
        lowest = torch.full([], lowest, dtype=scores.dtype, device=scores.device)
        scores = torch.where(self.causal[:, :, :length, :length], scores, lowest)
        attended = self.dropout(F.softmax(scores, dim=-1)) @ v
        return self.dropout(self.out(attended.transpose(1, 2).reshape(batch, length, width)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attend(self.norm1(x))
        hidden = F.gelu(self.up(self.norm2(x)), approximate="tanh")
        return x + self.dropout(self.down(hidden))


class Gpt2(nn.Module):
    """tokens [batch, length] -> logits."""

    def __init__(
        self, words: int = 2000, width: int = 256, heads: int = 4, layers: int = 3
    ) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(128, width)
        self.layers = nn.ModuleList(Layer(width, heads, 128) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device).unsqueeze(0)
        x = self.words(tokens) + self.places(places)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))
