"""Activations and losses of `graftjit.nn`: cells without parameters, with the defaults of
static-graph systems.

`get_activation` makes one from its name, as for `nn.Dense(..., activation="relu")`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from ..runtime.errors import OptionError, did_you_mean
from .cell import Cell, begin


class ReLU(Cell, torch.nn.ReLU):
    """max(x, 0)"""

    def construct(self, x: Any) -> Any:
        return torch.relu(x)


class GELU(Cell, torch.nn.GELU):
    """x * Phi(x), by the tanh formula if `approximate` is True (the default) or "tanh"."""

    def __init__(self, approximate: bool | str = True) -> None:
        if isinstance(approximate, bool):
            approximate = "tanh" if approximate else "none"
        begin(self, torch.nn.GELU, approximate)

    def construct(self, x: Any) -> Any:
        return F.gelu(x, approximate=self.approximate)


class Sigmoid(Cell, torch.nn.Sigmoid):
    """1 / (1 + exp(-x))"""

    def construct(self, x: Any) -> Any:
        return torch.sigmoid(x)


class Tanh(Cell, torch.nn.Tanh):
    """tanh(x)"""

    def construct(self, x: Any) -> Any:
        return torch.tanh(x)


class Softmax(Cell, torch.nn.Softmax):
    """exp(x) / sum(exp(x)) along `axis`"""

    def __init__(self, axis: int = -1) -> None:
        begin(self, torch.nn.Softmax, axis)

    def construct(self, x: Any) -> Any:
        return torch.softmax(x, self.dim)


class LogSoftmax(Cell, torch.nn.LogSoftmax):
    """log(softmax(x)) along `axis`"""

    def __init__(self, axis: int = -1) -> None:
        begin(self, torch.nn.LogSoftmax, axis)

    def construct(self, x: Any) -> Any:
        return torch.log_softmax(x, self.dim)


class LeakyReLU(Cell, torch.nn.LeakyReLU):
    """x where x >= 0, alpha * x elsewhere"""

    def __init__(self, alpha: float = 0.2) -> None:
        begin(self, torch.nn.LeakyReLU, alpha)

    def construct(self, x: Any) -> Any:
        return F.leaky_relu(x, self.negative_slope)


_ACTIVATIONS: dict[str, Callable[[], Any]] = {
    "relu": ReLU,
    "gelu": GELU,
    "sigmoid": Sigmoid,
    "tanh": Tanh,
    "softmax": Softmax,
    "logsoftmax": LogSoftmax,
    "leakyrelu": LeakyReLU,
    "silu": torch.nn.SiLU,
    "relu6": torch.nn.ReLU6,
    "elu": torch.nn.ELU,
    "hswish": torch.nn.Hardswish,
    "hsigmoid": torch.nn.Hardsigmoid,
}


def get_activation(name: Any) -> Any:
    """A cell by its name. None and callables are returned unchanged. Raises OptionError."""
    if name is None or callable(name):
        return name
    make = _ACTIVATIONS.get(name) if isinstance(name, str) else None
    if make is None:
        raise OptionError(
            f"there is no activation {name!r}"
            + (did_you_mean(name, _ACTIVATIONS) if isinstance(name, str) else ""),
            expected=", ".join(_ACTIVATIONS),
            found=repr(name),
        )
    return make()


# -- losses ----------------------------------------------------------------------------------------


class MSELoss(Cell, torch.nn.MSELoss):
    """mean, sum or all elements of (logits - labels) ** 2"""

    def __init__(self, reduction: str = "mean") -> None:
        begin(self, torch.nn.MSELoss, reduction=reduction)

    def construct(self, logits: Any, labels: Any) -> Any:
        return F.mse_loss(logits, labels, reduction=self.reduction)


class L1Loss(Cell, torch.nn.L1Loss):
    """mean, sum or all elements of abs(logits - labels)"""

    def __init__(self, reduction: str = "mean") -> None:
        begin(self, torch.nn.L1Loss, reduction=reduction)

    def construct(self, logits: Any, labels: Any) -> Any:
        return F.l1_loss(logits, labels, reduction=self.reduction)


class CrossEntropyLoss(Cell, torch.nn.CrossEntropyLoss):
    """Cross entropy of logits [N, C, ...] and labels: classes [N, ...] (any integer type) or
    probabilities [N, C, ...]."""

    def __init__(
        self,
        weight: Any = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        begin(
            self,
            torch.nn.CrossEntropyLoss,
            weight,
            None,
            ignore_index,
            None,
            reduction,
            label_smoothing,
        )

    def construct(self, logits: Any, labels: Any) -> Any:
        if not labels.is_floating_point():
            labels = labels.long()
        return torch.nn.CrossEntropyLoss.forward(self, logits, labels)


class SoftmaxCrossEntropyWithLogits(Cell):
    """Cross entropy of logits [N, C] and labels: classes [N] if `sparse`, else probabilities
    [N, C].

    reduction: "none" ([N] values), "mean" or "sum".
    """

    def __init__(self, sparse: bool = False, reduction: str = "none") -> None:
        super().__init__()
        self.sparse = sparse
        self.reduction = reduction

    def construct(self, logits: Any, labels: Any) -> Any:
        labels = labels.long() if self.sparse else labels
        return F.cross_entropy(logits, labels, reduction=self.reduction)
