"""A Mamba-like model: causal depthwise convolution, input-dependent state-space parameters, the scan as a loop over time
(Gu and Dao, 2023; the reference form, as it runs where its own kernels are missing)."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from .llama import RmsNorm


class Mixer(nn.Module):
    def __init__(self, width: int, states: int = 8, rank: int = 8, kernel: int = 4) -> None:
        super().__init__()
        self.inner, self.states, self.rank = 2 * width, states, rank
        self.into = nn.Linear(width, 2 * self.inner, bias=False)
        self.conv = nn.Conv1d(self.inner, self.inner, kernel, groups=self.inner, padding=kernel - 1)
        self.parameters_of = nn.Linear(self.inner, rank + 2 * states, bias=False)
        self.step = nn.Linear(rank, self.inner)
        decays = torch.arange(1, states + 1, dtype=torch.float32).repeat(self.inner, 1)
        self.log_decay, self.skip = nn.Parameter(decays.log()), nn.Parameter(torch.ones(self.inner))
        self.out = nn.Linear(self.inner, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[1]
        u, gate = self.into(x).transpose(1, 2).chunk(2, dim=1)
        u = F.silu(self.conv(u)[..., :length])
        sizes = [self.rank, self.states, self.states]
        step, b, c = self.parameters_of(u.transpose(1, 2)).split(sizes, dim=-1)
        step = F.softplus(self.step(step)).transpose(1, 2)  # [batch, inner, length]
        decay = torch.exp(-torch.exp(self.log_decay)[None, :, None, :] * step[..., None])
        push = step[..., None] * b[:, None, :, :] * u[..., None]
        state, found = torch.zeros_like(push[:, :, 0]), []
        for t in range(length):
            state = decay[:, :, t] * state + push[:, :, t]
            found.append((state * c[:, t, None, :]).sum(-1))
        y = torch.stack(found, dim=-1) + u * self.skip[None, :, None]
        return self.out((y * F.silu(gate)).transpose(1, 2))


class Mamba(nn.Module):
    """tokens [batch, length] -> logits."""

    def __init__(self, words: int = 1000, width: int = 96, layers: int = 2) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.norms = nn.ModuleList(RmsNorm(width) for _ in range(layers))
        self.mixers = nn.ModuleList(Mixer(width) for _ in range(layers))
        self.norm, self.head = RmsNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens)
        for norm, mixer in zip(self.norms, self.mixers, strict=True):
            x = x + mixer(norm(x))
        return self.head(self.norm(x))
