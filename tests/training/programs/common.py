"""What the programs about autograd share: a table of them, and tensors that are the same each time.

A program is given `jit`, or the identity in its place, and returns what it has seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class Table(dict[str, Callable[[Any], Any]]):
    """Programs by name; calling it adds one."""

    def __call__(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        self[function.__name__] = function
        return function


def leaf(*shape: int, grad: bool = True) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_(grad)


def base(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return ((x @ w).tanh() * 2).sum(1)


def backward_inside(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """A loss that goes backward where it is made."""
    loss = base(x, w).sum()
    loss.backward()
    return loss
