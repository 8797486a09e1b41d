"""Backwards of graphs with custom functions in which some results have no gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd import Function

import graftjit

from .functions import Clamped, Once, closed

T = torch.Tensor
Tripled = closed(3.0)


class Shifted(Function):
    """A backward that makes a gradient of nothing."""

    @staticmethod
    def forward(ctx: Any, x: T) -> tuple[T, T]:
        return x * 2, x * 3

    @staticmethod
    def backward(ctx: Any, g: T, h: T) -> T:
        return (g - h) * 0.5 + 1


class Constant(Function):
    """A gradient that does not depend on the one that it is given."""

    @staticmethod
    def forward(ctx: Any, x: T, w: T) -> T:
        return x * w

    @staticmethod
    def backward(ctx: Any, g: T) -> tuple[T, T]:
        return torch.ones_like(g), g * 2


def t(*shape: int) -> T:
    generator = torch.Generator().manual_seed(len(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def _before(x: T, w: T) -> Any:
    y = Tripled.apply(x)
    return y + 1, Once.apply(y.cumsum(0)), y + w


def _beside(x: T, w: T) -> Any:
    y = x + w
    return y * 2, Clamped.apply(y) + Clamped.apply(y * 3), Shifted.apply(y)[0] + y


def _parts(x: T, w: T) -> Any:
    one, other = Shifted.apply(x + w)
    return one * 2, other + 1, one + other


def _constant(x: T, w: T) -> Any:
    y = x + w
    return y * 2, Constant.apply(y, y) + y, Clamped.apply(y)


FORMS: dict[str, Callable[[T, T], Any]] = {
    "before the results": _before,
    "beside the results": _beside,
    "parts of its results": _parts,
    "a gradient of nothing": _constant,
}
CHOICES = ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2))


def _gradients(function: Any, chosen: tuple[int, ...], write: bool = False) -> list[Any]:
    given = t(3, 4), t(4)
    results = function(*given)
    if write:
        with torch.no_grad():
            for one in given:
                one.mul_(2)
    torch.autograd.backward([results[at] for at in chosen], [results[at].detach() for at in chosen])
    return [one.grad for one in given]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("chosen", CHOICES)
def test_some_results_have_no_gradient(form: str, chosen: tuple[int, ...]) -> None:
    function = FORMS[form]
    jitted = graftjit.jit(function)
    for _ in range(2):
        for a, b in zip(_gradients(jitted, chosen), _gradients(function, chosen), strict=True):
            assert (a is None) == (b is None)
            assert a is None or torch.allclose(a, b)
    assert "FB317" not in str(jitted.report())


@pytest.mark.parametrize("function", [_before, _parts])
@pytest.mark.parametrize("chosen", CHOICES)
def test_a_write_past_autograd_to_what_no_backward_reads(
    function: Any, chosen: tuple[int, ...]
) -> None:
    ours = _gradients(graftjit.jit(function), chosen, write=True)
    for a, b in zip(ours, _gradients(function, chosen, write=True), strict=True):
        assert (a is None) == (b is None)
        assert a is None or torch.allclose(a, b)
