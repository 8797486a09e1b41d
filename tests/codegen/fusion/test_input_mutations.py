"""Writes into inputs: kernels store right where the input lies, with eager's values, versions, order and exceptions."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import graftjit

T = torch.Tensor


def grid(*shape: int, dtype: torch.dtype = torch.float32) -> T:
    count = torch.Size(shape).numel()
    return torch.linspace(-2.0, 2.0, count).reshape(shape).to(dtype)


def made(*args: Any) -> tuple[Any, ...]:
    """The same arguments, each tensor by itself in memory of its own, with its strides."""
    return tuple(a.clone() if isinstance(a, T) else copy.deepcopy(a) for a in args)


def beside(function: Callable[..., Any], *args: Any, calls: int = 2) -> str:
    """Run plain and jitted; results, what was written and how often its version moved are the same. The report."""
    jitted = graftjit.jit(function)
    for _ in range(calls):
        both = []
        for one in (function, jitted):
            given = made(*args)
            try:
                found = one(*given)
            except Exception as error:
                found = f"{type(error).__name__}: {error}"
            both.append((given, found))
        (plain, expected), (mine, found) = both
        if isinstance(expected, str):
            assert found == expected
        else:
            torch.testing.assert_close(found, expected)
        for a, b in zip(mine, plain, strict=True):
            if isinstance(b, T):
                torch.testing.assert_close(a, b)
                assert (a.stride(), a._version) == (b.stride(), b._version)
    return str(jitted.report())


def _average(running: T, x: T) -> None:
    running.mul_(0.9).add_(x.mean(0), alpha=0.1)


def _momentum(p: T, buf: T, g: T) -> None:
    buf.mul_(0.9).add_(g)
    p.add_(buf, alpha=-0.1)


def _cache(cache: T, k: T) -> T:
    cache[:, 3] = k * 2
    return cache.sum(-1)


def _two_places(cache: T, k: T) -> T:
    cache[0] = k * 2
    cache[2] = k + 1
    return cache * 2


def _read_between(x: T) -> T:
    a = x * 2
    x.add_(1)
    b = x * 3
    x.mul_(2)
    return a + b + x


# name, function, arguments, kernels
STORED: tuple[tuple[str, Callable[..., Any], tuple[Any, ...], int], ...] = (
    ("one write", lambda x, y: x.add_(y.sin()), (grid(6, 5), grid(6, 5)), 1),
    ("several are one", lambda x: x.add_(1).mul_(2).sub_(3), (grid(6, 5),), 1),
    ("a running average", _average, (grid(5), grid(8, 5)), 2),
    ("momentum", _momentum, (grid(6, 5), grid(6, 5), grid(6, 5)), 1),
    ("a cache", _cache, (grid(2, 5, 4), grid(2, 4)), 2),
    ("two places", _two_places, (grid(3, 5), grid(5)), 3),
    ("read between writes", _read_between, (grid(6, 5),), 1),
    ("transposed", lambda x, y: x.t().add_(y), (grid(6, 5), grid(5, 6)), 1),
    ("another dtype", lambda x, y: x.copy_(y * 3), (grid(6, 5, dtype=torch.bfloat16), grid(6, 5)), 1),
    ("in place of itself", lambda x, y: x.mul_(y).add_(x), (grid(70, 50), grid(70, 50)), 1),
    ("broadcast", lambda x, y: x.copy_(y.cos()), (grid(6, 5), grid(5)), 2),
    ("one number", lambda x: x.add_(1), (torch.tensor(3.0),), 1),
    ("turned over", lambda x: x.copy_(x.t() + 1), (grid(40, 40),), 2),
    ("one of each", lambda x, y: (x.copy_(x.t() + 1), y.mul_(2).sin_()), (grid(40, 40), grid(9)), 3),
    ("moved along", lambda x: x[1:].copy_(x[:-1] * 2), (grid(64, 4),), 2),
    ("a softmax of itself", lambda x: x.copy_(x.softmax(-1)), (grid(16, 100),), 1),
    ("its own mean", lambda x: x.sub_(x.mean(0)), (grid(40, 30),), 1),
    ("also returned", lambda x: (y := x * 2, x.copy_(y))[0], (grid(6, 5),), 1),
)  # fmt: skip


@pytest.mark.parametrize("name", [row[0] for row in STORED])
def test_no_copy_is_left(name: str) -> None:
    _, function, args, kernels = next(row for row in STORED if row[0] == name)
    report = beside(function, *args)
    assert "library" not in report, report
    assert f"-> {kernels} kernel" in report, report


def test_no_epilogue_stores_over_what_its_product_reads() -> None:
    beside(lambda x: x.copy_(torch.tanh(x @ x)), grid(256, 256) / 64)


def test_of_a_part_of_larger_memory() -> None:
    def write(x: T, y: T) -> None:
        x.mul_(y).add_(1)

    jitted = graftjit.jit(write)
    for _ in range(2):
        whole = [grid(8, 8), grid(8, 8)]
        for one, fn in zip(whole, (write, jitted), strict=True):
            fn(one[2:6, 1:5], grid(4, 4))
        torch.testing.assert_close(whole[1], whole[0])


def test_arguments_that_share_memory_are_told_apart() -> None:
    def write(x: T, y: T) -> T:
        x.add_(1)
        return y * 2

    jitted = graftjit.jit(write)
    jitted(grid(4), grid(4))
    for view in (lambda t: t, lambda t: t[:], lambda t: t.flip(0)):
        a, b = grid(4), grid(4)
        torch.testing.assert_close(jitted(a, view(a)), write(b, view(b)))
        torch.testing.assert_close(a, b)


def _first_then_raise(x: T, table: T, index: T) -> T:
    x.add_(1)
    x.mul_(2)
    return F.embedding(index, table) + x[0]


def _raise_then_write(x: T, table: T, index: T) -> T:
    found = F.embedding(index, table) * 2
    x.add_(found[0])
    return found


def _between(x: T, table: T, index: T) -> T:
    x.add_(1)
    found = F.embedding(index, table)
    x.mul_(found[0])
    return found


@pytest.mark.parametrize("function", [_first_then_raise, _raise_then_write, _between])
@pytest.mark.parametrize("at", [1, 99])
def test_what_raises_shows_what_was_written_before(function: Any, at: int) -> None:
    def caught(x: T, table: T, index: T) -> Any:
        return function(x, table, index)

    jitted = graftjit.jit(caught)
    jitted(grid(4), grid(5, 4), torch.tensor([0, 2]))
    tensors = [grid(4), grid(4)]
    found = []
    for x, fn in zip(tensors, (caught, jitted), strict=True):
        try:
            found.append(fn(x, grid(5, 4), torch.tensor([0, at])))
        except IndexError as error:
            found.append(str(error))
    torch.testing.assert_close(tensors[1], tensors[0])
    if isinstance(found[0], str):
        assert found[0] == found[1]
    else:
        torch.testing.assert_close(found[1], found[0])


def test_buffers_of_modules() -> None:
    class Average(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(5))
            self.register_buffer("count", torch.zeros((), dtype=torch.int64))

        def forward(self, x: T) -> T:
            self.mean.lerp_(x.mean(0), 0.1)
            self.count += 1
            return x - self.mean

    plain, other = Average(), Average()
    jitted = graftjit.jit(other)
    for number in range(3):
        x = grid(7, 5) * number
        torch.testing.assert_close(jitted(x), plain(x))
    torch.testing.assert_close(other.mean, plain.mean)
    assert other.count == plain.count == 3
    assert other.mean._version == plain.mean._version
    assert "library" not in str(jitted.report())


def test_with_a_history() -> None:
    """A write that autograd follows, beside a gradient: the forward stores as well."""

    def write(x: T, w: T) -> T:
        x.mul_(0.5)
        return (x * w).sum()

    jitted = graftjit.jit(write)
    for _ in range(2):
        both = []
        for fn in (write, jitted):
            x, w = grid(6), grid(6).requires_grad_()
            fn(x, w).backward()
            both.append((x, w.grad, x._version))
        torch.testing.assert_close(both[1][:2], both[0][:2])
        assert both[1][2] == both[0][2]


def test_symbolic_sizes() -> None:
    def write(x: T, y: T) -> None:
        x.mul_(0.9).add_(y)

    jitted = graftjit.jit(write, dynamic=True)
    for size in (5, 9, 33, 1000):
        a, b = grid(size), grid(size)
        jitted(a, grid(size) * 2)
        write(b, grid(size) * 2)
        torch.testing.assert_close(a, b)
        assert a._version == b._version


def test_inference_tensors_refuse_as_ever() -> None:
    def write(x: T) -> None:
        x.add_(1)

    with torch.inference_mode():
        x = grid(4)
    jitted = graftjit.jit(write)
    jitted(grid(4))
    for fn in (write, jitted):
        with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
            fn(x)
