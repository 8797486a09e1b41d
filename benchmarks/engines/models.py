"""The models of the comparison: batch 1, float32, inference, random weights.

`Model.make()` gives a module in evaluation mode and what it is called with, the same for a seed
in each process. Those of torchvision come from `zoo.torchvision_models`, with pictures of 224 and
statistics of a batch in their batch norms; the others from `benchmarks.models`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from ..models import bert, gpt2, llama, mamba, mlp, recurrent, t5, unet, vision, whisper
from ..zoo import torchvision_models
from ..zoo.case import calibrated

Made = tuple[nn.Module, tuple[torch.Tensor, ...]]
SEED = 0
SIDE = 224


@dataclass(frozen=True, slots=True)
class Model:
    """`build` gives module and inputs; raises ImportError where a library is missing."""

    name: str
    note: str
    build: Callable[[], Made]

    def make(self) -> Made:
        torch.manual_seed(SEED)
        module, inputs = self.build()
        return module.eval(), inputs


def _pictures(name: str) -> Callable[[], Made]:
    """A model of torchvision."""

    def build() -> Made:
        torchvision_models.load()
        case = calibrated(torchvision_models.pictures(name, (3, SIDE, SIDE), 1))
        inputs, _named = case.given((1, SIDE), masked=False, seed=SEED)
        return case.model, inputs

    return build


def _on(build: Callable[[], nn.Module], *shapes: tuple[int, ...]) -> Callable[[], Made]:
    """A module on normal random tensors."""
    return lambda: (build(), tuple(torch.randn(shape) for shape in shapes))


def _reading(
    build: Callable[[], nn.Module], words: int, *shapes: tuple[int, ...]
) -> Callable[[], Made]:
    """A module on tokens."""
    return lambda: (build(), tuple(torch.randint(0, words, shape) for shape in shapes))


def _unet() -> nn.Module:
    """With other statistics in its batch norms than those of no training."""
    module = unet.Unet()
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            assert part.running_mean is not None and part.running_var is not None
            part.running_mean.normal_(std=0.1)
            part.running_var.uniform_(0.5, 1.5)
    return module


def _vit() -> nn.Module:
    return vision.Vit(SIDE, 16, 384, 12, 6)


def _bert() -> Made:
    kept = (torch.arange(64) < 50).long()[None]
    module = bert.Bert(words=30522, width=768, heads=12, layers=12)
    return module, (torch.randint(0, 30522, (1, 64)), torch.randint(0, 2, (1, 64)), kept)


def _gpt2() -> nn.Module:
    return gpt2.Gpt2(words=50257, width=768, heads=12, layers=12)


def _llama() -> nn.Module:
    return llama.Llama(words=32000, width=768, heads=12, groups=4, layers=8)


def _lstm() -> nn.Module:
    return nn.LSTM(256, 512, num_layers=2, batch_first=True)


_IMAGE = f"[1, 3, {SIDE}, {SIDE}]"

MODELS: tuple[Model, ...] = (
    Model("mlp_b64", "784-512-512-10 [64, 784]", _on(mlp.Network, (64, 1, 28, 28))),
    Model("resnet18", f"torchvision {_IMAGE}", _pictures("resnet18")),
    Model("resnet50", f"torchvision {_IMAGE}", _pictures("resnet50")),
    Model("mobilenet_v3_large", f"torchvision {_IMAGE}", _pictures("mobilenet_v3_large")),
    Model("efficientnet_b0", f"torchvision {_IMAGE}", _pictures("efficientnet_b0")),
    Model("convnext_tiny", f"torchvision {_IMAGE}", _pictures("convnext_tiny")),
    Model("shufflenet", f"torchvision {_IMAGE}, x1.0", _pictures("shufflenet_v2_x1_0")),
    Model("vit_small", f"patches of 16, 12 layers of 384 {_IMAGE}", _on(_vit, (1, 3, SIDE, SIDE))),
    Model("swin_t", f"torchvision {_IMAGE}", _pictures("swin_t")),
    Model("unet", "widths 32 to 512 [1, 3, 128, 128]", _on(_unet, (1, 3, 128, 128))),
    Model("bert", "12 layers of 768, padding mask [1, 64]", _bert),
    Model("gpt2", "12 layers of 768 [1, 64]", _reading(_gpt2, 50257, (1, 64))),
    Model("llama", "8 layers of 768 [1, 64]", _reading(_llama, 32000, (1, 64))),
    Model("llama_1tok", "8 layers of 768 [1, 1]", _reading(_llama, 32000, (1, 1))),
    Model("lstm", "nn.LSTM, 2 layers of 512 [1, 64, 256]", _on(_lstm, (1, 64, 256))),
    Model("mlp_b1", "784-512-512-10 [1, 784]", _on(mlp.Network, (1, 1, 28, 28))),
    Model("t5", "2 + 2 layers of 256 [1, 64], [1, 32]", _reading(t5.T5, 2000, (1, 64), (1, 32))),
    Model("whisper", "3 layers of 256, 200 frames", _on(whisper.Whisper, (1, 80, 200))),
    Model("mamba", "2 layers of 96, scan of 40", _reading(mamba.Mamba, 1000, (1, 40))),
    Model("lstm_loop", "an LSTM cell, 24 steps [1, 24, 64]", _on(recurrent.LstmLoop, (1, 24, 64))),
    Model("autoencoder", "convolutions [1, 1, 64, 64]", _on(vision.Autoencoder, (1, 1, 64, 64))),
)

BY_NAME: dict[str, Model] = {model.name: model for model in MODELS}
