"""Two models of ours, for a run without another library: one that generates, and one with a break."""

from __future__ import annotations

import torch
from torch import nn

from .case import Case, Given, Size, disturbed
from .looks import TOKENS

NEEDS = ""
SIZES = ((2, 8), (3, 13))


class Words(nn.Module):
    """The next word from the mean of those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(50, 16), nn.Linear(16, 50)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.embedding(words).cumsum(1)))

    def generate(self, words: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            for _ in range(TOKENS):
                words = torch.cat([words, self(words)[:, -1:].argmax(-1)], 1)
        return words


class Branching(nn.Module):
    """A number of a tensor decides, which is a break."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer(x)
        return x * 2 if x.mean().item() > 10 else torch.relu(x)


def load() -> None:
    pass


def names() -> list[str]:
    return ["words", "branching"]


def prepared(name: str) -> Case:
    torch.manual_seed(0)
    if name == "words":
        model = disturbed(Words())
        return Case(model, _words, SIZES, generating=lambda: Case(model, _words, SIZES))
    return Case(disturbed(Branching()), _rows, SIZES)


def _words(size: Size, masked: bool) -> Given:
    return (torch.randint(0, 50, size),), {}


def _rows(size: Size, masked: bool) -> Given:
    return (torch.randn(size[0], 8),), {}
