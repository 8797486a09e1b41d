"""What a row folds is walked in the order of its memory (`codegen.loops.axis_order`), whatever the order of the dimensions."""

from __future__ import annotations

import pytest
import torch

from graftjit.codegen.cpp import loop_plan as cpp_plan
from graftjit.codegen.loops import loop_nest as loops

from ..harness import check

TURNED = torch.randn(96, 64).t()
CHANNELS = torch.randn(2, 24, 6, 5).contiguous(memory_format=torch.channels_last)
CUBE = torch.randn(7, 33, 40)


def _steps(nest: loops.LoopNest) -> set[int]:
    """The strides of loads along the last folded axis."""
    return {index.strides[-1] for value in nest.values for index in loops.indices_of(value)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
@pytest.mark.parametrize(
    "x", [TURNED, CHANNELS, CUBE.permute(2, 0, 1), CUBE.permute(1, 2, 0)[::2]], ids=["turned", "channels", "cube", "gaps"]
)  # fmt: skip
def test_folds_of_all(x: torch.Tensor, dtype: torch.dtype) -> None:
    x = (x * 10).to(dtype)
    made = check(lambda x: (x.sum(), x.amax(), x.amin(), torch.count_nonzero(x)), x)
    for kernel in made.kernels:
        assert _steps(kernel.nest) == {1}
        assert len(kernel.nest.inner) <= 3


@pytest.mark.parametrize("dims", [(0, 1), (1, 2), (2, 3), (0, 2, 3), (1, 3), (0, 3)])
def test_folds_of_some(dims: tuple[int, ...]) -> None:
    check(lambda x: (x.sum(dims), x.mean(dims), x.amax(dims), x.var(dims)), CHANNELS)
    check(lambda x: x - x.mean(dims, keepdim=True), CHANNELS)


def test_positions_count_in_the_order_of_dimensions() -> None:
    x = torch.zeros(40, 30).t()
    x[3, 7] = x[5, 2] = x[20, 1] = 1.0
    check(lambda x: (x.argmax(), x.argmin(), x.sum()), x, library=None)
    check(lambda x: (x.argmax(0), x.argmax(1), *x.max(0), *x.min(1)), x, library=None)


def test_operands_that_lie_otherwise() -> None:
    x, y = torch.randn(48, 64), torch.randn(64, 48).t()
    check(lambda x, y: (x * y).sum(), x, y)
    check(lambda x, y: ((x * y).sum(1), (x + y).amax(0)), x, y)
    check(lambda x: torch.softmax(x, 1) + x.sum(1, keepdim=True), CHANNELS, library=None)


def _lanes_are_rows(nest: loops.LoopNest) -> bool:
    return cpp_plan.make_plan(nest, 8).lanes_are_rows


def test_lanes_run_where_the_fewest_loads_go_lane_by_lane() -> None:
    mask = torch.rand(7, 33) > 0.3
    made = check(lambda x, m: (x * m[..., None]).sum(1), CUBE, mask)
    assert [_lanes_are_rows(kernel.nest) for kernel in made.kernels] == [True]
    table, rows = torch.randn(50, 40), torch.randint(0, 50, (9, 20))
    made = check(lambda table, rows: table[rows].mean(1), table, rows)
    assert [_lanes_are_rows(kernel.nest) for kernel in made.kernels] == [True]
