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
    "antialiased": resized(scale_factor=0.5, mode="bilinear", antialias=True),
    "antialiased to a size": resized(size=(8, 5), mode="bicubic", antialias=True),
    "kron": lambda x: torch.kron(x, torch.ones(2, 3)) + 1,
    "kron of two": lambda x: x[0, 0].kron(x[1, 1]) * 2,
    "gradient": lambda x: [one * 2 for one in torch.gradient(x[0, 0])],
    "gradient along one": lambda x: torch.gradient(x, spacing=0.5, dim=-2)[0] * 2,
    "cov": lambda x: torch.cov(x[0, 0]) * 2,
    "cov of one": lambda x: x.reshape(-1).cov(correction=0) * 2,
    "corrcoef": lambda x: torch.corrcoef(x[0, 0]) * 2,
    "corrcoef of one": lambda x: torch.corrcoef(x[0, 0, 0]) * 2,
    "logspace": lambda x: torch.logspace(0, 1, x.shape[2])[:, None] * x,
    "linspace": lambda x: torch.linspace(0, 1, x.shape[2])[:, None] * x,
    "window": lambda x: torch.hann_window(x.shape[3]) * x,
    "one_hot": lambda x: F.one_hot(torch.arange(x.shape[2]), x.shape[3]) * 2,
    "stft": lambda x: torch.stft(
        x[0].reshape(3, -1), 16, 4, window=torch.hann_window(16), return_complex=True
    ).abs(),
    "stft of one, normalized": lambda x: (
        x.reshape(-1).stft(8, normalized=True, return_complex=True, center=False).abs()
    ),
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


STEPS: dict[str, Callable[[Any], Any]] = {
    name: OPERATORS[name]
    for name in (
        "cov",
        "corrcoef",
        "kron",
        "kron of two",
        "gradient along one",
        "stft",
        "stft of one, normalized",
        "antialiased",
    )
}


@pytest.mark.parametrize("name", STEPS)
def test_gradients_over_sizes(name: str) -> None:
    plain, jitted = STEPS[name], graftjit.jit(STEPS[name])
    for height in range(6, 12):
        x = torch.randn(2, 3, height, height + 3)
        found, expected = x.clone().requires_grad_(), x.clone().requires_grad_()
        weight = torch.randn_like(plain(x))
        (jitted(found) * weight).sum().backward()
        (plain(expected) * weight).sum().backward()
        torch.testing.assert_close(found.grad, expected.grad, rtol=1e-3, atol=1e-3)
    assert jitted.report().graph_count <= 3


REFUSED: dict[str, Callable[[Any], Any]] = {
    "kron of a list": lambda x: torch.kron(x, [1, 2]),
    "kron of what does not lie so": lambda x: torch.kron(x.mT, x.mT),
    "gradient along no dimension": lambda x: torch.gradient(x, dim=7),
    "gradient of two orders": lambda x: torch.gradient(x, edge_order=3),
    "gradient of one element": lambda x: torch.gradient(x[..., :1], dim=-1),
    "stft of less than a frame": lambda x: torch.stft(
        x[0, 0], 64, center=False, return_complex=True
    ),
    "stft of too many dimensions": lambda x: torch.stft(x, 4, return_complex=True),
    "stft that pads too much": lambda x: torch.stft(x[0, 0], 64, return_complex=True),
    "stft without a step": lambda x: torch.stft(x[0, 0], 4, 0, return_complex=True),
    "stft as numbers": lambda x: torch.stft(x[0, 0], 4),
    "cov of three dimensions": lambda x: torch.cov(x[0]),
    "cov with weights": lambda x: torch.cov(x[0, 0], fweights=torch.ones(3, dtype=torch.int64)),
    "too few classes": lambda x: F.one_hot(torch.arange(x.shape[3]), x.shape[2]),
    "less than no points": lambda x: torch.linspace(0, 1, x.shape[2] - x.shape[3]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_raises_over_sizes(name: str) -> None:
    plain, jitted = REFUSED[name], graftjit.jit(REFUSED[name])
    for height in range(6, 12):
        x = torch.randn(2, 3, height, height + 3)
        assert described(jitted, x) == described(plain, x)


def described(function: Callable[[Any], Any], x: Any) -> Any:
    try:
        found = function(x)
    except Exception as error:
        return type(error), str(error)
    return [
        (one.shape, one.dtype, one.stride())
        for one in (found if isinstance(found, (list, tuple)) else [found])
    ]
