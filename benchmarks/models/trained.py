"""What the training workloads and the tests of whole trainings learn: digits drawn by hand, and the characters of a text.

`digits(n)` are images of the ten figures below, each shifted and with noise; `TEXT` was written for this file. The models: a
perceptron and a convolutional net for the images, and a small transformer over characters.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from .attention import Block

FIGURES = """
.###. ..#.. .###. ####. ...#. ##### .###. ##### .###. .###.
#...# .##.. #...# ....# ..##. #.... #.... ....# #...# #...#
#..## ..#.. ....# ....# .#.#. ####. #.... ...#. #...# #...#
#.#.# ..#.. ..##. .###. #..#. ....# ####. ..#.. .###. .####
##..# ..#.. .#... ....# ##### ....# #...# ..#.. #...# ....#
#...# ..#.. #.... ....# ...#. #...# #...# ..#.. #...# ....#
.###. .###. ##### ####. ...#. .###. .###. ..#.. .###. .###.
"""

TEXT = """
A graft is a small thing. The gardener cuts a slip from one tree and sets it into another, binds the two with bast, and
waits. Nothing is to be seen for a while; then the wood takes, and the branch bears what it bore before, only sooner,
for the roots below are old and strong. So it is with a program. It was written in a language that looks at every name
each time it meets it, and forgives whatever is done to it meanwhile. One stretch of it is cut out, made anew from
harder wood, and set back into its place. Whoever calls it must not feel the difference but in time. If the tree is
moved, if somebody ties a ribbon to a twig or saws off a bough, the graft has to know, and where it cannot know, it
has to give way. A fruit that looks right and is not is worse than none. The patient gardener writes down what was
cut, and where, and why the one slip took and the other did not; and next spring reads it again.
"""


def digits(count: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """(images [count, 1, 12, 12] of 0 to 1 with noise, labels [count])."""
    generator = torch.Generator().manual_seed(seed)
    rows = [line.split() for line in FIGURES.strip().splitlines()]
    shapes = torch.tensor([[[c == "#" for c in row[d]] for row in rows] for d in range(10)])
    labels = torch.randint(0, 10, (count,), generator=generator)
    images = 0.2 * torch.randn(count, 1, 12, 12, generator=generator)
    places = torch.randint(0, 6, (count, 2), generator=generator).tolist()
    for image, label, (down, right) in zip(images, labels.tolist(), places, strict=True):
        image[0, down : down + 7, right : right + 5] += shapes[label]
    return images, labels


def characters(count: int, length: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """(pieces of the text as numbers [count, length], the characters that follow each)."""
    known = sorted(set(TEXT))
    text = torch.tensor([known.index(c) for c in TEXT])
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(0, len(TEXT) - length - 1, (count, 1), generator=generator)
    pieces = text[starts + torch.arange(length + 1)]
    return pieces[:, :-1].contiguous(), pieces[:, 1:].contiguous()


def perceptron() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(144, 64), nn.ReLU(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10)
    )


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(144, 10),
    )  # fmt: skip


def large_convolutions() -> nn.Module:
    """The same kind of net over [n, 3, 16, 16]."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 64, 10),
    )  # fmt: skip


class Characters(nn.Module):
    """numbers of characters [batch, length] -> logits of the next ones."""

    def __init__(self, width: int = 32, heads: int = 4, layers: int = 2, length: int = 32) -> None:
        super().__init__()
        words = len(set(TEXT))
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, heads, causal=True) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.words(tokens) + self.places(places)
        return self.head(self.norm(self.blocks(x)))


def next_word(logits: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of [batch, length, words] beside the words that follow."""
    return F.cross_entropy(logits.flatten(0, 1), words.flatten())


def squares(found: torch.Tensor | tuple[torch.Tensor, ...]) -> torch.Tensor:
    """A loss of results alone."""
    parts = found if isinstance(found, tuple) else (found,)
    return torch.stack([part.square().mean() for part in parts]).sum()
