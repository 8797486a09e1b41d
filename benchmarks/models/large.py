"""Large graphs, of which the first call is what counts: long straight code, many layers, many steps."""

from __future__ import annotations

import torch
from torch import nn

from .attention import Block

STEPS = 500


def straight(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Pointwise operators one after the other, as generated code has them."""
    return _straight(x, y)


def _written_out(steps: int) -> str:
    kinds = (
        "x = torch.sin(x) + y", "y = torch.tanh(y) - x", "x = torch.where(x > y, x, y)", "y = x.abs() * 0.99",
        "x = torch.exp(-x.abs()) + y",
    )  # fmt: skip
    body = "".join(f"    {kinds[step % len(kinds)]}\n" for step in range(steps))
    return f"def straight(x, y):\n{body}    return x + y\n"


_SCOPE: dict[str, object] = {"torch": torch}
exec(_written_out(STEPS), _SCOPE)
_straight = _SCOPE["straight"]


def loop(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """A recurrence whose steps are unrolled into one graph."""
    h = torch.zeros_like(x)
    for step in range(STEPS):
        h = torch.tanh(h @ w + x * (step % 7)) * 0.9 + h * 0.1
    return h


def layers(count: int = 24, width: int = 64) -> nn.Module:
    return nn.Sequential(*(Block(width) for _ in range(count)))


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions with batch norms, beside the input."""

    def __init__(self, inputs: int, inner: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, inner, 1, bias=False)
        self.conv2 = nn.Conv2d(inner, inner, 3, padding=1, bias=False)
        self.conv3 = nn.Conv2d(inner, outputs, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(inner), nn.BatchNorm2d(inner)
        self.norm3, self.relu = nn.BatchNorm2d(outputs), nn.ReLU()
        self.down = nn.Sequential()
        if inputs != outputs:
            self.down = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.norm1(self.conv1(x)))
        y = self.relu(self.norm2(self.conv2(y)))
        return self.relu(self.norm3(self.conv3(y)) + self.down(x))


def resnet(depths: tuple[int, ...] = (3, 4, 6, 3), width: int = 8) -> nn.Module:
    """A network of the shape of ResNet-50, narrow."""
    found: list[nn.Module] = [
        nn.Conv2d(3, 16, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
    ]  # fmt: skip
    channels = 16
    for stage, depth in enumerate(depths):
        for _ in range(depth):
            found.append(Bottleneck(channels, width << stage, 4 * width << stage))
            channels = 4 * width << stage
    return nn.Sequential(*found, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))
