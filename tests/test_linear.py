"""What a first call does grows with the program, not with its square: lines of ours that run are counted, not time."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import graftjit
from graftjit.dispatch import unit

OURS = tuple(
    os.path.dirname(os.path.abspath(sys.modules[name].__file__ or "")) + os.sep
    for name in ("graftjit", "graftjit.ir", "graftjit.runtime")
) + tuple(
    str(Path(graftjit.__file__).resolve().parents[1] / folder) + os.sep
    for folder in ("capture", "codegen")
)


class Lines:
    """Counts the lines of ours that run between `start` and `stop` in this thread."""

    def __init__(self) -> None:
        self.count = 0

    def start(self) -> None:
        sys.settrace(self._call)

    def stop(self) -> None:
        sys.settrace(None)

    def _call(self, frame: Any, event: str, argument: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(OURS) else None

    def _line(self, frame: Any, event: str, argument: Any) -> Any:
        self.count += 1
        return self._line


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Lines:
    """Lines of misses (a call under a tracer would run as written, so the tracer begins inside of it)."""
    lines, plain = Lines(), unit.Unit._guarded_miss

    def miss(self: Any, *arguments: Any) -> Any:
        lines.start()
        try:
            return plain(self, *arguments)
        finally:
            lines.stop()

    monkeypatch.setattr(unit.Unit, "_guarded_miss", miss)
    return lines


def pointwise(n: int) -> tuple[Any, tuple[Any, ...]]:
    """n steps of straight code."""
    steps = ("x = torch.sin(x) + y", "y = x.abs() - y * 0.5", "x = torch.where(x > y, x, y)")
    body = "\n".join(f"    {steps[i % 3]}" for i in range(n))
    scope: dict[str, Any] = {"torch": torch}
    exec(f"def f(x, y):\n{body}\n    return x + y\n", scope)
    return scope["f"], (torch.randn(8), torch.randn(8))


def recurrent(n: int) -> tuple[Any, tuple[Any, ...]]:
    """A loop of n steps, each of them a product and what follows it: kernels that come one after the other."""

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        h = torch.zeros_like(x)
        for _ in range(n):
            h = torch.tanh(h @ w + x) * 0.9 + h * 0.1
        return h

    return f, (torch.randn(4, 64), torch.randn(64, 64) / 16)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(48), nn.Linear(48, 96), nn.Linear(96, 48)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Convolved(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.relu(self.norm(self.conv(x)) + x)


def residual(n: int) -> tuple[Any, tuple[Any, ...]]:
    return nn.Sequential(*(Residual() for _ in range(n))).eval(), (torch.randn(20, 48),)


def convolved(n: int) -> tuple[Any, tuple[Any, ...]]:
    return nn.Sequential(*(Convolved() for _ in range(n))).eval(), (torch.randn(1, 4, 6, 6),)


def updated(n: int) -> tuple[Any, tuple[Any, ...]]:
    """A step of Adam over n parameters of several lengths, which the first step has given a state."""
    parameters = [nn.Parameter(torch.randn(70 + 5 * (at % 6))) for at in range(n)]
    for one in parameters:
        one.grad = torch.randn_like(one)
    optimizer = torch.optim.Adam(parameters, lr=0.01)
    optimizer.step()

    def f() -> torch.Tensor:
        optimizer.step()
        return parameters[0].detach()

    return f, ()


Make = Callable[[int], tuple[Any, tuple[Any, ...]]]
CASES: dict[str, tuple[Make, int]] = {
    "pointwise": (pointwise, 40),
    "recurrent": (recurrent, 15),
    "residual": (residual, 3),
    "convolved": (convolved, 4),
    "updated": (updated, 12),
}


def counted(lines: Lines, make: Make, n: int, backward: bool = False) -> int:
    function, inputs = make(n)
    jitted = graftjit.jit(function)
    lines.count = 0
    result = jitted(*inputs)
    if backward:
        lines.start()
        result.sum().backward()
        lines.stop()
    return lines.count


def growth(lines: Lines, make: Make, n: int, backward: bool = False) -> float:
    """How much more the second doubling costs than the first: 2 for what is linear, 4 for what is quadratic."""
    few, some, many = (counted(lines, make, n * times, backward) for times in (1, 2, 4))
    assert few > 1000, "nothing was compiled"
    return (many - some) / (some - few)


@pytest.mark.parametrize("name", CASES)
def test_forward(name: str, lines: Lines) -> None:
    make, n = CASES[name]
    with torch.no_grad():
        counted(lines, make, 1)  # modules and tables that are made once
        assert growth(lines, make, n) < 2.2


def test_backward(lines: Lines) -> None:
    counted(lines, residual, 1, backward=True)
    assert growth(lines, residual, 3, backward=True) < 2.2
