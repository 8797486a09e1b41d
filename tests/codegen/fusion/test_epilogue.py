"""Epilogues: what follows a product or a convolution of ours is done to its tiles, with the very values of a kernel apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import graftjit
from graftjit.codegen.fusion import epilogue
from graftjit.codegen.kernels import convolution as convolutions
from graftjit.codegen.kernels import matmul_f32 as products
from graftjit.runtime.process import hardware as device
from graftjit.runtime.program.program import Launch

from ..harness import Made, check, launched, make
from ..harness import normal as r
from ..symbolic import check_open

T = torch.Tensor
pytestmark = pytest.mark.skipif(
    device.cpu().isa not in device.VECTORS,
    reason="the kernels are written for AVX-512 and AVX2",
)


@pytest.fixture(autouse=True)
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine whose library is the slower one."""
    monkeypatch.setattr(device, "slow_mkl", lambda: True)


def launches(made: Made) -> int:
    return sum(isinstance(step, Launch) for step in made.spec.steps)


def _all(results: Any) -> tuple[T, ...]:
    return results if isinstance(results, tuple) else (results,)


def norm(x: T, w: T, mean: T, var: T, g: T, b: T) -> T:
    return F.batch_norm(F.conv2d(x, w, padding=1), mean, var.abs(), g, b)


def two_norms(x: T, w: T, v: T, mean: T, var: T, g: T, b: T) -> T:
    """A residual that is convolved too: the later one of the two has the epilogue."""
    one = F.batch_norm(F.conv2d(x, w, padding=1), mean, var.abs(), g, b)
    return F.relu(one + F.batch_norm(F.conv2d(x, v), mean, var.abs(), b, g))


STATS = [(20,)] * 4
# name, function, shapes, launches of all
CASES: tuple[tuple[str, Callable[..., Any], list[tuple[int, ...]], int], ...] = (
    ("norm and relu", lambda *a: norm(*a).relu(), [(2, 8, 14, 14), (20, 8, 3, 3), *STATS], 1),
    ("norm and residual", lambda y, *a: F.silu(norm(*a) + y),
     [(2, 20, 13, 11), (2, 8, 13, 11), (20, 8, 3, 3), *STATS], 1),
    ("two norms", two_norms, [(2, 8, 9, 9), (20, 8, 3, 3), (20, 8, 1, 1), *STATS], 2),
    ("more channels than a block", lambda x, w, b: F.conv2d(x, w, b).tanh(),
     [(1, 8, 7, 6), (301, 8, 3, 3), (301,)], 1),
    ("strides and passes", lambda x, w, b: F.gelu(F.conv2d(x, w, b, 2, 1)),
     [(2, 70, 21, 17), (13, 70, 5, 5), (13,)], 1),
    ("one dimension", lambda x, w, b: F.relu(F.conv1d(x, w, b, 2, 1)), [(2, 5, 50), (7, 5, 3), (7,)], 1),
    ("a scale for each place", lambda x, w, s: F.conv2d(x, w) * s,
     [(2, 3, 12, 20), (5, 3, 3, 3), (10, 18)], 1),
    ("a scale for each image", lambda x, w, s: F.conv2d(x, w) * s.sigmoid(),
     [(3, 3, 12, 20), (5, 3, 3, 3), (3, 1, 1, 1)], 2),
    ("another dtype", lambda x, w: F.conv2d(x, w).relu().to(torch.bfloat16),
     [(2, 3, 12, 20), (5, 3, 3, 3)], 1),
    ("doubles", lambda x, w: F.conv2d(x, w).double() * 1.1, [(2, 3, 12, 20), (5, 3, 3, 3)], 1),
    ("a mask", lambda x, w: F.conv2d(x, w) > 0.5, [(2, 3, 12, 20), (5, 3, 3, 3)], 1),
    ("two results", lambda x, w: (lambda y: (y.relu(), y.sigmoid()))(F.conv2d(x, w)),
     [(2, 3, 12, 20), (5, 3, 3, 3)], 1),
    ("itself returned", lambda x, w: (lambda y: (y, y.relu()))(F.conv2d(x, w)),
     [(2, 3, 12, 20), (5, 3, 3, 3)], 1),
    ("itself read later", lambda x, w: (lambda y: (y.exp(), y.sort(-1)[0]))(F.conv2d(x, w)),
     [(2, 3, 12, 20), (5, 3, 3, 3)], 1),
    ("parts of a cat", lambda x, w, v: torch.cat([F.conv2d(x, w).relu(), F.conv2d(x, v).sigmoid()], 1),
     [(2, 3, 12, 20), (5, 3, 3, 3), (6, 3, 3, 3)], 2),
    ("into other sizes", lambda x, w: F.conv2d(x, w).relu().view(2, 5, -1) * 2,
     [(2, 3, 12, 20), (5, 3, 3, 3)], 1),
    ("one after the other", lambda x, w, v: F.conv2d(F.conv2d(x, w).relu(), v).relu(),
     [(2, 3, 12, 20), (5, 3, 3, 3), (6, 5, 3, 3)], 2),
    ("linear and gelu", lambda x, w, b: F.gelu(F.linear(x, w, b)), [(67, 403), (91, 403), (91,)], 1),
    ("linear and residual", lambda x, w, b, y: F.linear(x, w, b) + y,
     [(401, 40), (60, 40), (60,), (401, 60)], 1),
    ("tokens and places", lambda x, w, p: F.linear(x, w) + p, [(3, 20, 64), (96, 64), (20, 96)], 1),
    ("bmm and a mask", lambda q, k, m: torch.bmm(q, k) / 8 + m, [(3, 30, 70), (3, 70, 64), (30, 64)], 1),
    ("scales of rows", lambda x, w, s: F.linear(x, w) * s.exp(), [(3, 20, 64), (96, 64), (3, 20, 1)], 2),
    ("gated", lambda x, w, v: F.silu(F.linear(x, w)) * F.linear(x, v), [(50, 64), (96, 64), (96, 64)], 2),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_values_are_those_of_a_kernel_apart(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _name, fn, shapes, count = case
    inputs = [r(*shape, seed=place) for place, shape in enumerate(shapes)]
    made = make(fn, *inputs)
    with torch.no_grad():
        torch.testing.assert_close(made.run(*inputs), _all(fn(*inputs)), rtol=1e-4, atol=1e-4)
    assert launches(made) == count and any(kernel.host for kernel in made.kernels)
    monkeypatch.setattr(epilogue, "hosted", lambda steps, follows, *rest: (steps, follows))
    apart = make(fn, *inputs)
    assert launches(apart) > count
    for threads in (1, 2, 3):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            both = zip(made.run(*inputs), apart.run(*inputs), strict=True)
        finally:
            torch.set_num_threads(before)
        assert all(torch.equal(one, other) for one, other in both)


LEFT: tuple[tuple[str, Callable[..., Any], list[tuple[int, ...]]], ...] = (
    ("transposed", lambda x, w: F.conv_transpose2d(x, w, stride=2).relu(), [(2, 6, 8, 9), (6, 7, 4, 4)]),
    ("a norm of the row", lambda x, w: F.layer_norm(F.linear(x, w), (96,)), [(48, 64), (96, 64)]),
    ("read across", lambda x, w: (lambda y: (y + y.transpose(2, 3)).relu())(F.conv2d(x, w)),
     [(2, 3, 12, 12), (5, 3, 3, 3)]),
    ("a part of it", lambda x, w: F.conv2d(x, w)[:, :, 2:].relu(), [(2, 3, 12, 12), (5, 3, 3, 3)]),
    ("turned over", lambda x, w: F.conv2d(x, w).transpose(2, 3).contiguous(), [(2, 3, 12, 13), (5, 3, 3, 3)]),
    ("a residual that lies otherwise", lambda x, w, y: F.conv2d(x, w) + y.transpose(2, 3),
     [(2, 3, 12, 13), (5, 3, 3, 3), (2, 5, 11, 10)]),
    ("one place", lambda x, w: F.conv2d(x, w).relu(), [(2, 300, 3, 3), (50, 300, 3, 3)]),
    ("needed before", lambda x, w: (lambda y: y * y.amax((1, 2, 3), keepdim=True))(F.conv2d(x, w)),
     [(2, 3, 12, 12), (5, 3, 3, 3)]),
)  # fmt: skip


@pytest.mark.parametrize("case", LEFT, ids=lambda case: case[0])
def test_a_kernel_of_its_own(case: Any) -> None:
    _name, fn, shapes = case
    made = check(fn, *(r(*shape) for shape in shapes), library=None)
    assert not any(kernel.host for kernel in made.kernels)


def test_what_is_no_number_counts_inside_alone() -> None:
    x, w = r(2, 8, 20, 20).abs(), r(8, 8, 4, 4).abs()
    w[:, :, 0, 0] = torch.nan
    fn = lambda x, w: F.conv2d(x, w, padding=1) * 2 + 1  # noqa: E731
    made = make(fn, x, w)
    assert launches(made) == 1
    (ours,) = made.run(x, w)
    reached = F.conv2d(torch.ones_like(x), w.isnan().float(), padding=1) > 0
    assert torch.equal(ours.isnan(), reached)
    torch.testing.assert_close(ours, fn(x, w), equal_nan=True, rtol=1e-5, atol=1e-5)


def test_an_operand_that_is_written_between() -> None:
    """The result is made of the weight as it was."""

    def step(x: T, w: T) -> T:
        y = F.linear(x, w)
        w.mul_(2.0)
        return y.relu() + w.sum()

    plain, ours = r(96, 64), r(96, 64)
    compiled = graftjit.jit(step)
    for _ in range(3):
        x = r(48, 64)
        torch.testing.assert_close(compiled(x, ours), step(x, plain), rtol=1e-4, atol=1e-2)
        assert torch.equal(ours, plain)


def test_sizes_that_vary() -> None:
    w, v, s = r(16, 8, 3, 3), r(96, 64), r(16, 1, 1)
    made = check_open(
        lambda x, w, s: F.relu(F.conv2d(x, w, padding=1) * s + 1),
        lambda rows: (r(rows, 8, 14, 14), w, s), ((0,), (), ()), (5, 2, 9), library=None,
    )  # fmt: skip
    assert launched(made, convolutions.SYMBOL) == launches(made) == 1
    made = check_open(
        lambda x, w: F.gelu(F.linear(x, w)) * x.shape[0],
        lambda rows: (r(rows, 64), v), ((0,), ()), (50, 64, 131), library=None,
    )  # fmt: skip
    assert launched(made, products.SYMBOL) == launches(made) == 1


def test_a_model_whose_statistics_move() -> None:
    torch.manual_seed(0)
    block = nn.Sequential(nn.Conv2d(6, 12, 3, padding=1), nn.BatchNorm2d(12), nn.GELU())
    model = nn.Sequential(block, nn.Conv2d(12, 6, 3, padding=1), nn.BatchNorm2d(6)).eval()
    compiled, x = graftjit.compile(model), r(2, 6, 16, 16)
    for turn in range(4):
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
            model.train()(x)  # moves the statistics in place
            model.eval()[0][1].running_var = torch.full((12,), 1.0 + turn)
            model[2].weight.data.mul_(1.5)
    assert model[2].running_mean.abs().sum() > 0
