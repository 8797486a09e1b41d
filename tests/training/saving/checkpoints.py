"""What the tests of checkpoints share: programs beside plain Python, blocks, and what is saved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import graftjit
from graftjit.codegen import training


def leaf(*shape: int) -> torch.Tensor:
    made = torch.arange(1.0, 1 + torch.Size(shape).numel(), dtype=torch.float64).reshape(shape)
    return (made / 7).sin().requires_grad_()


def compare(program: Callable[..., Any], breaks: int = 0, code: str = "") -> Any:
    """Run `program(wrap)`, which returns (results, jitted function), in plain Python and jitted."""
    torch.manual_seed(0)
    plain, _ = program(lambda fn: fn)
    torch.manual_seed(0)
    found, jitted = program(graftjit.jit)
    torch.testing.assert_close(found, plain)
    report = jitted.report()
    assert report.break_count >= breaks if breaks else report.break_count == 0, str(report)
    assert code in str(report)
    return jitted


def saved_bytes(y: torch.Tensor, *besides: torch.Tensor) -> int:
    """Bytes of what the node of a compiled result has saved, without these tensors."""
    known = {one.untyped_storage().data_ptr() for one in besides}
    held = {one.untyped_storage().data_ptr(): one for one in y.grad_fn.saved_tensors}
    return sum(one.untyped_storage().nbytes() for at, one in held.items() if at not in known)


class Block(nn.Module):
    def __init__(self, width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(width), nn.Linear(width, 4 * width)
        self.outer, self.drop = nn.Linear(4 * width, width), nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.drop(self.outer(torch.nn.functional.gelu(self.inner(self.norm(x)))))


def blocks_of(count: int, width: int = 8, dropout: float = 0.0) -> nn.ModuleList:
    return nn.ModuleList(Block(width, dropout) for _ in range(count)).double()


def operators_of_backward(function: Any, *args: Any) -> list[str]:
    """The operators of the backward graph."""
    found: list[Any] = []
    real = training.divide

    def noted(*args: Any, **kwargs: Any) -> Any:
        found.append(real(*args, **kwargs))
        return found[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "divide", noted)
        graftjit.jit(function)(*args)
    return [str(node.target) for node in found[0].backward.nodes]
