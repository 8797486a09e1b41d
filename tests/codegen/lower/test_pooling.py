"""Pooling as kernels: against eager to the bit, over windows, dtypes, orders of memory and special values."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import graftjit
from graftjit import jit
from graftjit.ir.errors import Unsupported

from ..harness import make
from ..symbolic import check_open

POOLS: dict[str, Callable[[torch.Tensor], Any]] = {
    "max": lambda x: F.max_pool2d(x, 2),
    "max places": lambda x: F.max_pool2d(x, 2, return_indices=True),
    "max padded": lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True),
    "max of overlaps": lambda x: F.max_pool2d(x, 3, 1, 1),
    "max up to the end": lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True, return_indices=True),
    "max apart": lambda x: F.max_pool2d(x, (2, 3), 1, dilation=(2, 1), return_indices=True),
    "max padded by one side": lambda x: F.max_pool2d(x, (3, 2), (2, 1), (1, 0)),
    "avg": lambda x: F.avg_pool2d(x, 2),
    "avg padded": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "avg of what is there": lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "avg up to the end": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    "avg there up to the end": lambda x: F.avg_pool2d(x, 3, 2, 1, True, False),
    "avg by a number": lambda x: F.avg_pool2d(x, (2, 3), divisor_override=5),
    "equal parts": lambda x: F.adaptive_avg_pool2d(x, (4, 5)),
    "greatest of equal parts": lambda x: F.adaptive_max_pool2d(x, (4, 5), return_indices=True),
    "max of rows": lambda x: F.max_pool1d(x[0], 3, 2, 1),
    "avg of rows": lambda x: F.avg_pool1d(x[0], 3, 2, 1),
    "max of volumes": lambda x: F.max_pool3d(x[:, None], 2, return_indices=True),
    "avg of volumes": lambda x: F.avg_pool3d(x[:, None], 2, padding=1, count_include_pad=False),
    "equal parts of volumes": lambda x: F.adaptive_avg_pool3d(x[:, None], (3, 6, 5)),
    "of three dimensions": lambda x: F.max_pool2d(x[0], 2, return_indices=True),
}


def some(dtype: torch.dtype = torch.float32, special: bool = False) -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(2, 6, 12, 15, generator=generator).to(dtype)
    if special:
        few = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1.0], dtype=dtype)
        x = few[torch.randint(0, 6, x.shape, generator=generator)]
        x[0, 0] = float("-inf")
    return x


def agree(fn: Callable[..., Any], x: torch.Tensor, kernels: bool = True) -> None:
    try:
        expected = fn(x)
    except NotImplementedError as error:  # and so do we
        with pytest.raises((type(error), Unsupported), match=re.escape(str(error))):
            make(fn, x).run(x)
        return
    found = make(fn, x)
    assert bool(found.library) != kernels
    expected = expected if isinstance(expected, tuple) else (expected,)
    for ours, theirs in zip(found.run(x), expected, strict=True):
        assert ours.stride() == theirs.stride()
        assert torch.equal(ours.nan_to_num(7.0), theirs.nan_to_num(7.0))
        assert torch.equal(ours.isnan(), theirs.isnan())
        if theirs.dtype.is_floating_point:
            assert torch.equal(ours.signbit() & (ours == 0), theirs.signbit() & (theirs == 0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", POOLS)
def test_bits_of_eager(name: str, dtype: torch.dtype) -> None:
    agree(POOLS[name], some(dtype), kernels="parts of vol" not in name or dtype.itemsize > 2)


@pytest.mark.parametrize("name", POOLS)
def test_special_values(name: str) -> None:
    agree(POOLS[name], some(special=True))


@pytest.mark.parametrize("name", [name for name in POOLS if "rows" not in name])
def test_other_orders_of_memory(name: str) -> None:
    agree(POOLS[name], some().contiguous(memory_format=torch.channels_last))
    agree(POOLS[name], some().transpose(2, 3).contiguous().transpose(2, 3))
    agree(POOLS[name], torch.cat([some(), some()], 3)[..., 2:17])


def test_neighbours_are_one_kernel() -> None:
    x = some()
    found = make(lambda x: F.max_pool2d(torch.relu(x - 0.5), 2) * 2 + 1, x)
    assert len(found.kernels) == 1 and not found.library
    assert torch.equal(found.run(x)[0], F.max_pool2d(torch.relu(x - 0.5), 2) * 2 + 1)


def test_open_sizes() -> None:
    def wide(size: int) -> list[torch.Tensor]:
        return [torch.randn(2, 3, 2 * size, size + 4)]

    dims, sizes = ((2, 3),), (6, 15, 40)
    check_open(lambda x: F.max_pool2d(x, 2), wide, dims, sizes, kernels=1)
    check_open(lambda x: F.max_pool2d(x, 3, 2, 1), wide, dims, sizes, kernels=1)
    check_open(lambda x: F.avg_pool2d(x, 3, 2, 1, True, False), wide, dims, sizes, kernels=1)


def test_large_windows_and_unequal_parts_stay_atens() -> None:
    x = some()
    assert make(lambda x: F.avg_pool2d(x, 5), x).library
    assert make(lambda x: F.adaptive_avg_pool2d(x, (5, 4)), x).library


@pytest.mark.parametrize("fn", [POOLS["max padded by one side"], POOLS["avg padded"]])
def test_gradients(fn: Callable[..., Any]) -> None:
    x, y = some().requires_grad_(), some().requires_grad_()
    fn(torch.tanh(x)).square().sum().backward()
    jit(lambda y: fn(torch.tanh(y)).square())(y).sum().backward()
    torch.testing.assert_close(y.grad, x.grad)


@pytest.mark.parametrize("grad", [False, True])
def test_pools_of_rows_lie_as_eagers(grad: bool) -> None:
    """torch takes another branch for tensors of a subclass, as those of a trace are."""
    x = torch.randn(2, 12, 3).transpose(1, 2).requires_grad_(grad)
    for pool in (nn.MaxPool1d(3, 2, 1), nn.MaxPool1d(2, return_indices=True), nn.AvgPool1d(2)):
        expected, found = pool(x), graftjit.compile(pool)(x)
        for ours, theirs in zip(
            *((r if isinstance(r, tuple) else (r,)) for r in (found, expected)), strict=True
        ):
            assert ours.stride() == theirs.stride() and torch.equal(ours, theirs)
