"""A step of training as a callable: forward, backward, gradients handed out.

In: a module that gives a loss. Out: `Step`, whose call gives (loss, gradient of each parameter) and leaves no `.grad`.
`under` is the same step of a compiled module; the optimizer, which is torch's for every system, is not part of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class Loss(nn.Module):
    """`loss(model(*inputs), label)`, or `loss(model(*inputs))` where there is no label."""

    def __init__(self, model: nn.Module, loss: Callable[..., Any], labels: int = 0) -> None:
        super().__init__()
        self.model, self.loss, self.labels = model, loss, labels

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        given = len(inputs) - self.labels
        return self.loss(self.model(*inputs[:given]), *inputs[given:])


class Step:
    """See the module's docstring."""

    def __init__(self, module: nn.Module, wrapped: Any = None) -> None:
        self.module, self.wrapped = module, module if wrapped is None else wrapped
        self.parameters = [p for p in module.parameters() if p.requires_grad]

    def under(self, wrap: Callable[..., Any]) -> Step:
        return Step(self.module, wrap(self.module))

    def double(self) -> Step:
        return Step(self.module.double())

    def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch.enable_grad():
            loss = self.wrapped(*inputs)
            loss.backward()
        found = [loss.detach()]
        for parameter in self.parameters:
            assert parameter.grad is not None
            found.append(parameter.grad)
            parameter.grad = None
        return tuple(found)


def training(module: nn.Module) -> Step:
    """A step of the module in training mode, without dropout: systems draw other random numbers."""
    for part in module.train().modules():
        if isinstance(part, nn.Dropout):
            part.eval()
    return Step(module)
