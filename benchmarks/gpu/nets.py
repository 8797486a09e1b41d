"""The models that are run on a GPU: those of the CPU benchmarks, larger, and small ones whose time is launches.

`MODELS[name](scale, device)` gives a module in evaluation mode and its inputs; `scale` is "large", "small" or "tiny" (a check of
the harness). `loss_of` gives what a training step of the module minimises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ..models import bert, gpt2, llama, mlp, trained, vision
from ..steps import Loss

Made = tuple[nn.Module, tuple[torch.Tensor, ...]]
# width, heads, layers, words, batch, length
_TEXT: dict[str, tuple[int, ...]] = {
    "large": (768, 12, 2, 8000, 64, 128),
    "small": (256, 4, 3, 2000, 4, 64),
    "tiny": (32, 2, 1, 50, 2, 8),
}
_IMAGES = {"large": (32, 128), "small": (2, 96), "tiny": (2, 32)}  # batch, side


def _tokens(words: int, batch: int, length: int, device: Any) -> torch.Tensor:
    return torch.randint(0, words, (batch, length), device=device)


def _bert(scale: str, device: Any) -> Made:
    width, heads, layers, words, batch, length = _TEXT[scale]
    net = bert.Bert(words, width, heads, layers)
    kinds = torch.randint(0, 2, (batch, length), device=device)
    kept = torch.ones(batch, length, dtype=torch.long)
    kept[1::2, length // 2 :] = 0
    return net, (_tokens(words, batch, length, device), kinds, kept.to(device))


def _gpt2(scale: str, device: Any) -> Made:
    width, heads, layers, words, batch, length = _TEXT[scale]
    return gpt2.Gpt2(words, width, heads, layers), (_tokens(words, batch, length, device),)


def _llama(scale: str, device: Any) -> Made:
    width, heads, layers, words, batch, length = _TEXT[scale]
    net = llama.Llama(words, width, heads, heads // 2, layers)
    return net, (_tokens(words, batch, length, device),)


def _resnet(scale: str, device: Any) -> Made:
    batch, side = _IMAGES[scale]
    widths = {"large": (64, 128, 256, 512), "small": (32, 64, 128, 256), "tiny": (4, 8)}[scale]
    return vision.ResNet(widths), (torch.randn(batch, 3, side, side, device=device),)


def _vit(scale: str, device: Any) -> Made:
    batch, side = _IMAGES[scale]
    width, layers = {"large": (768, 2), "small": (256, 3), "tiny": (32, 1)}[scale]
    return vision.Vit(side, 16, width, layers), (torch.randn(batch, 3, side, side, device=device),)


def _mlp(scale: str, device: Any) -> Made:
    width = {"large": 2048, "small": 256, "tiny": 16}[scale]
    return mlp.Residual(width), (torch.randn(32, width, device=device),)


MODELS: dict[str, Callable[[str, Any], Made]] = {
    "bert": _bert,
    "gpt2": _gpt2,
    "llama": _llama,
    "resnet": _resnet,
    "vit": _vit,
    "mlp": _mlp,
}
LARGE = ("bert", "gpt2", "llama", "resnet", "vit")
HALF = ("bert", "gpt2", "llama", "vit", "mlp")  # in bfloat16 where they are large


def made(name: str, scale: str, device: Any, seed: int) -> Made:
    """The model and its inputs, the same for the same seed."""
    torch.manual_seed(seed)
    net, inputs = MODELS[name](scale, device)
    net = net.to(device).eval()
    if scale == "large" and name in HALF:
        net = net.bfloat16()
        inputs = tuple(one.bfloat16() if one.is_floating_point() else one for one in inputs)
    return net, inputs


def training(net: nn.Module) -> nn.Module:
    """The module with a loss of its results, in training mode without dropout: systems draw other numbers."""
    whole = Loss(net, trained.squares).train()
    for part in whole.modules():
        if isinstance(part, nn.Dropout):
            part.eval()
    return whole
