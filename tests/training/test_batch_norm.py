"""Batch norm that keeps running statistics, in kernels: results, gradients, statistics and their versions as eager's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import graftjit

from .beside import same

T = torch.Tensor


def numbers(*shape: int, seed: int = 7, shift: float = 1.0) -> T:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 2 + shift


LAYOUTS = {
    "plain": numbers(4, 8, 6, 5),
    "channels last": numbers(4, 8, 6, 5).to(memory_format=torch.channels_last),
    "three": numbers(3, 8, 11),
    "two": numbers(5, 8),
    "volumes": numbers(2, 8, 3, 4, 5),
    "turned": numbers(6, 8, 4, 5).permute(3, 1, 0, 2),
}


def statistics(channels: int, dtype: torch.dtype = torch.float32) -> list[T]:
    """Weight, bias, mean, variance."""
    four = [numbers(channels, seed=seed).to(dtype) for seed in range(4)]
    return [four[0].requires_grad_(), four[1].requires_grad_(), four[2], four[3].abs()]


def _joined(x: T, w: T, b: T, m: T, v: T) -> T:
    return (F.batch_norm(x, m, v, w, b, True, 0.3).tanh() + x).sin()


def calls(jitted: Any) -> str:
    """How many kernels and calls of ATen a function was compiled to."""
    text = str(jitted.report())
    return next(line.split("->")[1].strip() for line in text.splitlines() if "operators ->" in line)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.bfloat16, torch.float16))
def test_statistics_and_gradients(layout: str, dtype: torch.dtype) -> None:
    x = LAYOUTS[layout].to(dtype).detach().requires_grad_()
    close = {} if dtype.itemsize > 2 else {"atol": 0.1, "rtol": 0.1}
    jitted = same(_joined, x, *statistics(8, dtype), **close)
    assert "library" not in calls(jitted)
    if dtype.itemsize == 2:  # statistics of their own type
        same(_joined, x, *statistics(8), **close)


@pytest.mark.parametrize("training", (True, False))
def test_what_may_be_missing(training: bool) -> None:
    w, b, m, v = statistics(8)
    x = LAYOUTS["plain"].clone().requires_grad_()
    same(lambda x, m, v: F.batch_norm(x, m, v, None, None, training), x, m, v)
    same(lambda x, w, m, v: F.batch_norm(x, m, v, w, None, training), x, w, m, v)
    same(lambda x, b, m, v: F.batch_norm(x, m, v, None, b, training), x, b, m, v)
    frozen = lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b, training)  # noqa: E731
    same(frozen, x.detach(), w, b, m, v)
    same(frozen, x, w.detach(), b.detach(), m, v)


@pytest.mark.parametrize("momentum", (0.0, 1.0, 0.1))
def test_statistics_that_are_not_finite(momentum: float) -> None:
    w, b, m, v = statistics(8)
    m[1], m[2], v[3] = float("inf"), float("nan"), float("inf")
    x = LAYOUTS["plain"].clone()
    x[0, 5, 1, 1], x[1, 6, 2, 2], x[1, 7, 0, 0] = float("inf"), float("nan"), -float("inf")
    norm = lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b, True, momentum)  # noqa: E731
    found = [one.clone() for one in (m, v)], [one.clone() for one in (m, v)]
    with torch.no_grad():
        ours, theirs = graftjit.jit(norm)(x, w, b, *found[0]), norm(x, w, b, *found[1])
    torch.testing.assert_close((ours, *found[0]), (theirs, *found[1]), equal_nan=True)


def _twice(x: T, w: T, b: T, m: T, v: T) -> T:
    first = F.batch_norm(x, m, v, w, b, True).relu()
    return F.batch_norm(first, m, v, w, b, True, 0.5) * m.sum()


def _read_between(x: T, w: T, b: T, m: T, v: T) -> tuple[T, T, T]:
    before = m + 0
    y = F.batch_norm(x, m, v, w, b, True)
    return y, before, m * 2


def _written_besides(x: T, w: T, b: T, m: T, v: T) -> T:
    m.mul_(0.5)
    v.add_(1)
    return F.batch_norm(x, m, v, w, b, True)


def _views(x: T, w: T, b: T, m: T, v: T) -> T:
    return F.batch_norm(x[:, :4], m[:4], v[4:], w[:4], b[4:], True)


def _own(x: T, w: T, b: T, m: T, v: T) -> tuple[T, T]:
    mine = m * 1
    return F.batch_norm(x, mine, v, w, b, True), mine


def _hidden(x: T, w: T, b: T, m: T, v: T) -> T:
    mine, other = torch.zeros(8), torch.ones(8)
    return F.batch_norm(F.batch_norm(x, mine, other, w, b, True), mine, other, w, b, False)


def _legit(x: T, w: T, b: T, m: T, v: T) -> Any:
    return torch._native_batch_norm_legit(x, w, b, m, v, True, 0.1, 1e-5)[0]


def _trains_then_not(x: T, w: T, b: T, m: T, v: T) -> T:
    return F.batch_norm(F.batch_norm(x, m, v, w, b, True), m, v, w, b, False)


@pytest.mark.parametrize(
    "program",
    (_twice, _read_between, _written_besides, _views, _own, _hidden, _legit, _trains_then_not),
)
def test_what_else_is_done_with_statistics(program: Callable[..., Any]) -> None:
    same(program, LAYOUTS["plain"].clone().requires_grad_(), *statistics(8), rtol=1e-4, atol=1e-4)


@pytest.fixture
def alone() -> Iterator[None]:
    """One thread: channels whose statistics share memory race in eager's own two."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("alone")
def test_one_tensor_for_both_statistics() -> None:
    """Eager moves the mean of a channel, then its variance from there."""
    w, b, m, _ = statistics(8)
    x = LAYOUTS["plain"].clone().requires_grad_()
    same(lambda x, w, b, m: F.batch_norm(x, m, m, w, b, True), x, w, b, m)
    norm = lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b, True)  # noqa: E731
    jitted, found = graftjit.jit(norm), []
    for one in (norm, jitted):
        memory = torch.arange(1.0, 12.0)
        one(x, w, b, memory[:8], memory[3:])
        found.append(memory)
    torch.testing.assert_close(*found)


def _net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3),
        nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
        nn.BatchNorm1d(5),
    )  # fmt: skip


@pytest.mark.parametrize("sizes", ((6,) * 4, (6, 4, 5, 9, 3, 6)))
def test_a_net_is_trained(sizes: tuple[int, ...]) -> None:
    """Step by step, with batches of one size and of several: parameters, statistics and versions."""
    nets = [_net(), _net()]
    optimizers = [torch.optim.SGD(net.parameters(), 0.05) for net in nets]
    forwards = [nets[0], graftjit.jit(lambda x: nets[1](x))]
    for seed, size in enumerate(sizes):
        x = numbers(size, 3, 7, 7, seed=seed)
        for forward, optimizer in zip(forwards, optimizers, strict=True):
            optimizer.zero_grad()
            forward(x).square().mean().backward()
            optimizer.step()
        for (name, one), other in zip(
            nets[0].state_dict().items(), nets[1].state_dict().values(), strict=True
        ):
            torch.testing.assert_close(
                other, one, rtol=1e-3, atol=1e-4, msg=lambda m: f"{name}: {m}"
            )  # noqa: B023
            assert one._version == other._version, name


@pytest.mark.parametrize("shift", (0.0, 3.0, 300.0))
@pytest.mark.parametrize("shape", ((8, 32, 16, 16), (32, 8, 30, 30), (64, 40)))
def test_errors_are_no_larger_than_twice_eagers(shape: tuple[int, ...], shift: float) -> None:
    """Root mean squares of results, statistics and gradients; means far from zero are where accuracy is lost."""
    x = numbers(*shape, seed=1, shift=shift)
    given, found = numbers(*shape, seed=2), []
    for kind in ("ours", "eager", "exact"):
        norm = nn.BatchNorm1d(shape[1]) if len(shape) == 2 else nn.BatchNorm2d(shape[1])
        norm = norm.double() if kind == "exact" else norm
        leaf = x.detach().to(norm.weight.dtype).requires_grad_()
        forward = graftjit.jit(lambda x: norm(x)) if kind == "ours" else norm  # noqa: B023
        y = forward(leaf)
        y.backward(given.to(y.dtype))
        grads = (leaf.grad, norm.weight.grad, norm.bias.grad)
        found.append([y.detach(), norm.running_mean, norm.running_var, *grads])
    for ours, eager, exact in zip(*found, strict=True):
        errors = [(one - exact).square().mean().sqrt() for one in (ours, eager)]
        assert errors[0] <= 2 * errors[1] + 1e-12
