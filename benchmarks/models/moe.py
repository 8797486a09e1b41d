"""Mixtures of experts: routed by indices, as Mixtral does (sizes depend on data), and dense, with all experts in one product."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class Routed(nn.Module):
    """tokens [count, width] -> the same: each goes to its best two of the experts, one expert after the other."""

    def __init__(self, width: int = 128, inner: int = 256, experts: int = 4) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, inner), nn.SiLU(), nn.Linear(inner, width))
            for _ in range(experts)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = F.softmax(self.gate(x), dim=-1).topk(2, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            token, place = torch.where(chosen == number)
            out.index_add_(0, token, expert(x[token]) * weights[token, place, None])
        return out


class Dense(nn.Module):
    """tokens [count, width] -> the same: all experts on all tokens, weighted by the gate's best two."""

    def __init__(self, width: int = 128, inner: int = 256, experts: int = 4) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, inner) * width**-0.5)
        self.down = nn.Parameter(torch.randn(experts, inner, width) * inner**-0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = F.softmax(self.gate(x), dim=-1)
        weights, chosen = scores.topk(2, dim=-1)
        weights = torch.zeros_like(scores).scatter(1, chosen, weights)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        hidden = F.silu(torch.einsum("tw,ewi->eti", x, self.up))
        return torch.einsum("eti,eiw,te->tw", hidden, self.down, weights)
