"""A step of training as a callable.

In: a module that gives a loss. Out: `Step`, forward and backward: its call gives (loss, gradient of each parameter) and leaves
no `.grad`; `under` is the same step of a compiled module. And `Whole`, one function of `zero_grad`, forward, backward and the
optimizer's step, compiled as it stands: its call gives the loss and changes the parameters, with a rate so small that as many
calls as a measurement makes stay near the start. What systems are compared by is `outcome`, one step from the start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, AdamW, Optimizer

OPTIMIZERS: dict[str, Callable[[Any], Optimizer]] = {
    "AdamW": lambda parameters: AdamW(parameters, lr=1e-5),
    "SGD, momentum": lambda parameters: SGD(parameters, lr=1e-4, momentum=0.9, weight_decay=1e-4),
}


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

    def outcome(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """What the step does, from the state it was made in."""
        return self(*inputs)

    def updated(self) -> list[torch.Tensor]:
        """What a call reads and writes in place."""
        return []


class Whole(Step):
    """See the module's docstring."""

    def __init__(self, module: nn.Module, optimizer: str, wrap: Callable[..., Any] | None = None):
        made = OPTIMIZERS[optimizer](module.parameters())

        def step(*inputs: torch.Tensor) -> torch.Tensor:
            made.zero_grad()
            loss = module(*inputs)
            loss.backward()
            made.step()
            return loss.detach()

        super().__init__(module, step if wrap is None else wrap(step))
        self.name, self.optimizer = optimizer, made
        self.start = [value.detach().clone() for value in self._module_state()]

    def under(self, wrap: Callable[..., Any]) -> Whole:
        return Whole(self.module, self.name, wrap)

    def double(self) -> Whole:
        return Whole(self.module.double(), self.name)

    def __call__(self, *inputs: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            return self.wrapped(*inputs)

    def outcome(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """(loss, gradients, the module's floats, the optimizer's moments) after one step from the start."""
        with torch.no_grad():
            for value, first in zip(self._module_state(), self.start, strict=True):
                value.copy_(first)
            for value in self._optimizer_state():
                value.zero_()
        loss = self(*inputs)
        found = [loss, *self._gradients(), *self._module_state(), *self._moments()]
        return tuple(value.detach().clone() for value in found if value.is_floating_point())

    def updated(self) -> list[torch.Tensor]:
        return [*self.parameters, *self._optimizer_state(), *self._gradients()]

    def _gradients(self) -> list[torch.Tensor]:
        return [p.grad for p in self.parameters if p.grad is not None]

    def _module_state(self) -> list[torch.Tensor]:
        return [*self.module.parameters(), *self.module.buffers()]

    def _optimizer_state(self) -> list[torch.Tensor]:
        """Its tensors: moments, and counts of steps, which are float32 whatever the parameters are."""
        states = [self.optimizer.state.get(one, {}) for one in self.parameters]
        return [v for state in states for v in state.values() if isinstance(v, torch.Tensor)]

    def _moments(self) -> list[torch.Tensor]:
        return [value for value in self._optimizer_state() if value.dim()]


def _without_dropout(module: nn.Module) -> nn.Module:
    """The module in training mode; systems draw other random numbers."""
    for part in module.train().modules():
        if isinstance(part, nn.Dropout):
            part.eval()
    return module


def training(module: nn.Module) -> Step:
    """Forward and backward of the module."""
    return Step(_without_dropout(module))


def whole(module: nn.Module, optimizer: str) -> Whole:
    """A whole step of the module."""
    return Whole(_without_dropout(module), optimizer)


def outcome(function: Callable[..., Any], inputs: tuple[Any, ...]) -> Any:
    """What systems are compared by: what a call gives, and of a step what it does."""
    return function.outcome(*inputs) if isinstance(function, Step) else function(*inputs)
