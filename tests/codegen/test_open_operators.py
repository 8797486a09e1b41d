"""Operators of many kinds over many sizes: equal to plain Python, and compiled a few times only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import graftjit


def resized(**options: Any) -> Callable[[Any], Any]:
    return lambda x: F.interpolate(x, **options) + 1


OPERATORS: dict[str, Callable[[Any], Any]] = {
    "nearest": resized(scale_factor=2),
    "nearest, odd": resized(scale_factor=1.7),
    "exact": resized(scale_factor=(0.7, 1.3), mode="nearest-exact"),
    "bilinear": resized(scale_factor=2.0, mode="bilinear"),
    "bilinear, corners": resized(scale_factor=1.5, mode="bilinear", align_corners=True),
    "bilinear, recomputed": resized(scale_factor=1.3, mode="bilinear", recompute_scale_factor=True),
    "bicubic": resized(scale_factor=1.5, mode="bicubic"),
    "area": resized(scale_factor=0.5, mode="area"),
    "to a size": resized(size=(8, 5), mode="bilinear"),
    "to a size of its own": lambda x: F.interpolate(x, size=(x.shape[3], x.shape[2])) * 2,
    "unfold": lambda x: F.unfold(x, 3).sum(-1),
    "unfold with steps": lambda x: F.unfold(x, (2, 3), dilation=2, padding=1, stride=2) + 1,
    "fold": lambda x: F.fold(F.unfold(x, 3), x.shape[2:], 3) * 2,
    "reflect": lambda x: F.pad(x, (1, 2, 3, 1), mode="reflect") * 2,
    "replicate": lambda x: F.pad(x, (1, 2, 3, 1), mode="replicate") * 2,
    "circular": lambda x: F.pad(x, (1, 2, 3, 1), mode="circular") * 2,
    "rfft": lambda x: torch.fft.rfft(x).abs(),
    "rfft2": lambda x: torch.fft.rfft2(x).abs(),
    "rfftn of an inner one": lambda x: torch.fft.rfftn(x, dim=(3, 2)).abs(),
    "there and back": lambda x: torch.fft.irfft(torch.fft.rfft(x), n=x.shape[-1]) + x,
    "fft of complex": lambda x: torch.fft.fft(torch.complex(x, x)).real + 1,
    "cholesky": lambda x: torch.linalg.cholesky(x @ x.mT + 30 * torch.eye(x.shape[2])) * 2,
    "grid": lambda x: F.grid_sample(x, x[..., :2], align_corners=False) * 2,
}


@pytest.mark.parametrize("name", OPERATORS)
def test_sizes_are_symbols(name: str) -> None:
    """Twelve shapes, three compiles at most: one a first shape, one when sizes vary, one spare for a relation of theirs."""
    plain, jitted = OPERATORS[name], graftjit.jit(OPERATORS[name])
    for height in range(6, 18):
        x = torch.randn(2, 3, height, height + 3)
        torch.testing.assert_close(jitted(x), plain(x), rtol=1e-4, atol=1e-4)
    assert jitted.report().graph_count <= 3
    assert jitted.report().break_count == 0


@pytest.mark.parametrize("first", [(5, 3), (2, 7)])
def test_the_lesser_of_two_sizes_is_no_size(first: tuple[int, int]) -> None:
    """qr's factors have the lesser of the two sizes, which is now one of them and now the other."""
    jitted = graftjit.jit(lambda x: [factor * 2 for factor in torch.linalg.qr(x)])
    for rows, columns in (first, (6, 4), (2, 7), (9, 4), (3, 8), (4, 4)):
        x = torch.randn(rows, columns)
        expected = [factor * 2 for factor in torch.linalg.qr(x)]
        torch.testing.assert_close(jitted(x), expected)


def test_a_size_beyond_a_constant_one() -> None:
    """The lesser of an open size and a constant one."""
    jitted = graftjit.jit(lambda x: torch.linalg.svdvals(x) * 2)
    for rows in (2, 3, 5, 6, 7, 9, 12):
        x = torch.randn(rows, 6)
        torch.testing.assert_close(jitted(x), torch.linalg.svdvals(x) * 2)


def test_a_wrong_option_raises_as_in_plain_python() -> None:
    x = torch.ones(1, 2, 5, 6)
    graftjit.mutable(x)
    for options in (
        {"scale_factor": 2, "size": 3},
        {"scale_factor": (2, 2, 2)},
        {"scale_factor": 0.01},
        {"mode": "linear", "scale_factor": 2},
        {"mode": "nearest", "scale_factor": 2, "align_corners": True},
        {},
    ):
        with pytest.raises(Exception) as plain:  # noqa: B017, PT011
            F.interpolate(x, **options)  # type: ignore[arg-type]
        with pytest.raises(plain.type) as jitted:
            graftjit.jit(resized(**options))(x)
        assert str(jitted.value) == str(plain.value)


def test_gradients_of_open_resampling() -> None:
    """Through the operators that ours calls in place of torch's own way."""

    def f(x: Any) -> Any:
        return F.interpolate(x, scale_factor=1.5, mode="bilinear").pow(2).sum()

    jitted = graftjit.jit(f)
    for size in (5, 6, 8, 9):
        x = torch.randn(1, 2, size, size + 1, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        jitted(x).backward()
        f(y).backward()
        torch.testing.assert_close(x.grad, y.grad)
