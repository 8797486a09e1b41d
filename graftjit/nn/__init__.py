"""Cells and layers with the names and arguments of static-graph programs.

In: static-graph programs that import `nn`. Out: torch modules. Each layer derives from its
counterpart in `torch.nn`, computes through it, and has the same state_dict keys. Other names are
torch's: `nn.Linear` is `torch.nn.Linear`, with torch's arguments. docs/migrating.md lists the
differences.
"""

from __future__ import annotations

from typing import Any

import torch

from ..runtime.errors import did_you_mean
from .activations import (
    GELU,
    CrossEntropyLoss,
    L1Loss,
    LeakyReLU,
    LogSoftmax,
    MSELoss,
    ReLU,
    Sigmoid,
    Softmax,
    SoftmaxCrossEntropyWithLogits,
    Tanh,
    get_activation,
)
from .cell import Cell, CellList, SequentialCell
from .layers import (
    AvgPool2d,
    BatchNorm1d,
    BatchNorm2d,
    Conv2d,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    LayerNorm,
    MaxPool2d,
)
from .training import ForwardValueAndGrad, TrainOneStepCell, WithGradCell, WithLossCell

__all__ = [
    "Cell", "SequentialCell", "CellList", "Flatten", "Dense", "Conv2d", "Embedding",
    "BatchNorm1d", "BatchNorm2d", "LayerNorm", "Dropout", "MaxPool2d", "AvgPool2d",
    "ReLU", "GELU", "Sigmoid", "Tanh", "Softmax", "LogSoftmax", "LeakyReLU",
    "MSELoss", "L1Loss", "CrossEntropyLoss", "SoftmaxCrossEntropyWithLogits", "get_activation",
    "WithLossCell", "ForwardValueAndGrad", "WithGradCell", "TrainOneStepCell",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    found = getattr(torch.nn, name, None)
    if found is None or name.startswith("__"):
        known = [*__all__, *(n for n in dir(torch.nn) if not n.startswith("_"))]
        raise AttributeError(
            f"neither graftjit.nn nor torch.nn has {name!r}" + did_you_mean(name, known)
        )
    return found


def __dir__() -> list[str]:
    return sorted({*__all__, *(n for n in dir(torch.nn) if not n.startswith("_"))})
