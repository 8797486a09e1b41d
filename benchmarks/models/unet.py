"""A U-Net: an encoder, a decoder, and at each level what the encoder saw beside it (Ronneberger
et al., 2015)."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


def _twice(inputs: int, outputs: int) -> nn.Sequential:
    """Two 3x3 convolutions, each with a batch norm and ReLU."""
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers += [nn.Conv2d(channels, outputs, 3, padding=1, bias=False),
                   nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]  # fmt: skip
    return nn.Sequential(*layers)


class Unet(nn.Module):
    """images [batch, 3, side, side] -> logits [batch, classes, side, side]."""

    def __init__(self, width: int = 32, levels: int = 4, classes: int = 2) -> None:
        super().__init__()
        widths = [width << level for level in range(levels + 1)]
        self.first = _twice(3, width)
        self.down = nn.ModuleList(_twice(a, 2 * a) for a in widths[:-1])
        self.wider = nn.ModuleList(nn.ConvTranspose2d(2 * a, a, 2, 2) for a in widths[-2::-1])
        self.up = nn.ModuleList(_twice(2 * a, a) for a in widths[-2::-1])
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        kept = []
        for level in self.down:
            kept.append(x)
            x = level(F.max_pool2d(x, 2))
        for wider, level, beside in zip(self.wider, self.up, reversed(kept), strict=True):
            x = level(torch.cat((beside, wider(x)), dim=1))
        return self.head(x)
