"""Models of images: a vision transformer (Dosovitskiy et al., 2020), a residual network (He et al., 2015), a convolutional
autoencoder, and the residual block of a diffusion U-Net (Ho et al., 2020)."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from .attention import Block


class Vit(nn.Module):
    """images [batch, 3, side, side] -> logits."""

    def __init__(
        self, side: int = 96, patch: int = 16, width: int = 256, layers: int = 3, heads: int = 4
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, (side // patch) ** 2 + 1, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 100)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.first.expand(x.shape[0], -1, -1), x), dim=1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


class BasicBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = None
        if stride != 1 or inputs != outputs:
            conv = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)
            self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = x if self.shortcut is None else self.shortcut(x)
        x = self.relu(self.norm1(self.conv1(x)))
        return self.relu(self.norm2(self.conv2(x)) + kept)


class ResNet(nn.Module):
    """images [batch, 3, side, side] -> logits. Running statistics are those of random images, as after training."""

    def __init__(self, widths: tuple[int, ...] = (32, 64, 128, 256), depth: int = 2) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, widths[0], 7, stride=2, padding=3, bias=False)
        self.norm, self.pool = nn.BatchNorm2d(widths[0]), nn.MaxPool2d(3, stride=2, padding=1)
        blocks: list[nn.Module] = []
        before = widths[0]
        for stage, width in enumerate(widths):
            for number in range(depth):
                blocks.append(BasicBlock(before, width, 2 if stage and not number else 1))
                before = width
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(before, 100)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.uniform_(module.weight, 0.5, 1.5)
                nn.init.normal_(module.bias, std=0.1)
                module.running_mean.normal_(std=0.1)
                module.running_var.uniform_(0.5, 1.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(F.relu(self.norm(self.stem(x))))
        x = F.adaptive_avg_pool2d(self.blocks(x), (1, 1))
        return self.head(torch.flatten(x, 1))


class Autoencoder(nn.Module):
    """images [batch, 1, side, side] -> images: strided convolutions down, transposed ones up."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv2d(1, width, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(2 * width, 4 * width, 3, stride=2, padding=1), nn.LeakyReLU(0.2),
        )  # fmt: skip
        self.up = nn.Sequential(
            nn.ConvTranspose2d(4 * width, 2 * width, 4, stride=2, padding=1), nn.ELU(),
            nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1), nn.ReLU(),
            nn.ConvTranspose2d(width, 1, 4, stride=2, padding=1), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.up(self.down(x))


class UnetBlock(nn.Module):
    """(features [batch, inputs, h, w], time [batch, 128]) -> features, twice as large by interpolation."""

    def __init__(self, inputs: int = 64, outputs: int = 128, groups: int = 16) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(groups, inputs), nn.GroupNorm(groups, outputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time, self.skip = nn.Linear(128, outputs), nn.Conv2d(inputs, outputs, 1)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        y = self.conv1(F.silu(self.norm1(x)))
        y = y + self.time(F.silu(time))[:, :, None, None]
        y = self.conv2(self.dropout(F.silu(self.norm2(y))))
        return F.interpolate(y + self.skip(x), scale_factor=2.0, mode="nearest")
