"""Depthwise convolutions by the kernel of depthwise.h: which ones it takes, that it is as exact as ATen, and never stale."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import graftjit
from graftjit.codegen.kernels import depthwise
from graftjit.runtime.process import hardware as device

from ..harness import check_launches, launched, make, threads
from ..harness import normal as r
from ..symbolic import check_open

T = torch.Tensor
pytestmark = pytest.mark.skipif(
    device.cpu().isa not in device.VECTORS, reason="the kernel is written for AVX-512 and AVX2"
)


def conv(**options: Any) -> Callable[..., T]:
    return lambda x, w, b=None: F.conv2d(x, w, b, groups=x.shape[1], **options)


# name, function, shapes: one launch each
TAKEN: tuple[tuple[str, Callable[..., Any], list[tuple[int, ...]]], ...] = (
    *(
        (f"{k} by {k}, stride {s}, padding {p}", conv(stride=s, padding=p),
         [(2, 11, 21, side), (11, 1, k, k), (11,)])
        for k, s, p, side in (
            (3, 1, 1, 35), (3, 2, 1, 20), (5, 1, 2, 16), (5, 2, 0, 40), (7, 1, 3, 7), (7, 2, 3, 17),
            (2, 1, 0, 18), (4, 2, 3, 33), (3, 3, 1, 50), (9, 1, 4, 70), (1, 1, 0, 9), (1, 2, 0, 9),
        )
    ),
    ("no bias", conv(padding=1), [(2, 9, 12, 20), (9, 1, 3, 3)]),
    ("dilated", conv(dilation=2, padding=2), [(2, 6, 20, 20), (6, 1, 3, 3), (6,)]),
    ("dilated columns", conv(dilation=(1, 3), padding=(1, 2)), [(1, 6, 20, 20), (6, 1, 3, 3)]),
    ("strides 2 and 1", conv(stride=(2, 1), padding=1), [(2, 5, 33, 21), (5, 1, 3, 3), (5,)]),
    ("strides 1 and 5", conv(stride=(1, 5), dilation=2), [(2, 5, 13, 60), (5, 1, 3, 2), (5,)]),
    ("three results a channel", conv(padding=1), [(2, 7, 10, 17), (21, 1, 3, 3), (21,)]),
    ("padding beyond the image", conv(padding=4), [(1, 3, 2, 3), (3, 1, 3, 3), (3,)]),
    ("wide", conv(padding=1), [(1, 3, 5, 2100), (3, 1, 3, 3), (3,)]),
    ("one dimension", lambda x, w, b: F.conv1d(x, w, b, 2, 1, groups=5),
     [(2, 5, 150), (5, 1, 3), (5,)]),
    ("one dimension, causal", lambda x, w: F.conv1d(x, w, None, 1, 3, groups=6)[..., :-3].sigmoid(),
     [(2, 6, 1500), (6, 1, 4)]),
    ("a part of each", lambda x, w: F.conv2d(x[:, 1:4, 2:], w[3:, :, 1:], padding=1, groups=3),
     [(2, 5, 14, 20), (6, 1, 4, 3)]),
    ("a weight turned over", lambda x, w: F.conv2d(x, w.transpose(2, 3), padding=1, groups=6),
     [(2, 6, 12, 12), (6, 1, 3, 5)]),
    ("fused around", lambda x, w, b: F.gelu(F.conv2d(F.relu(x), w, b, padding=1, groups=20)) * 2,
     [(2, 20, 12, 13), (20, 1, 3, 3), (20,)]),
    ("in tiles", lambda x, w, g, b: F.hardswish(
        F.batch_norm(F.conv2d(x, w, None, 2, 2, groups=19), b, g.abs() + 0.5, g, b)) + 1,
     [(3, 19, 57, 57), (19, 1, 5, 5), (19,), (19,)]),
)  # fmt: skip


@pytest.mark.parametrize("case", TAKEN, ids=lambda case: case[0])
def test_taken(case: Any) -> None:
    check_launches(case, depthwise.SYMBOL, 1)


LEFT: tuple[tuple[str, Callable[..., Any], list[tuple[int, ...]]], ...] = (
    ("two channels a group", lambda x, w: F.conv2d(x, w, groups=3), [(2, 6, 9, 9), (6, 2, 3, 3)]),
    ("one channel", conv(), [(2, 1, 9, 9), (6, 1, 3, 3)]),
    ("transposed", lambda x, w: F.conv_transpose2d(x, w, groups=4), [(2, 4, 9, 9), (4, 1, 3, 3)]),
    ("float64", lambda x, w: F.conv2d(x.double(), w.double(), groups=4), [(2, 4, 9, 9), (4, 1, 3, 3)]),
    ("channels last", lambda x, w: F.conv2d(x.to(memory_format=torch.channels_last), w, groups=4),
     [(2, 4, 12, 12), (4, 1, 3, 3)]),
    ("very large", conv(), [(1, 2, 20, 20), (2, 1, 17, 17)]),
)  # fmt: skip


@pytest.mark.parametrize("case", LEFT, ids=lambda case: case[0])
def test_left_to_others(case: Any) -> None:
    check_launches(case, depthwise.SYMBOL, 0)


@pytest.mark.parametrize("size", [3, 7])
def test_errors_are_those_of_aten(size: int) -> None:
    fn = conv(padding=size // 2)
    x, w, b = r(2, 40, 30, 30), r(40, 1, size, size), r(40)
    exact = fn(x.double(), w.double(), b.double())
    (ours,) = make(fn, x, w, b).run(x, w, b)
    error, theirs = (ours - exact).abs(), (fn(x, w, b) - exact).abs()
    assert float(error.max()) <= 2 * float(theirs.max())
    assert float(error.norm()) <= 1.5 * float(theirs.norm())


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_a_weight_that_is_no_number_counts_inside_alone(stride: int, value: float) -> None:
    fn = conv(padding=2, stride=stride)
    x, w, b = r(2, 8, 20, 21).abs(), r(8, 1, 5, 5).abs(), r(8)
    w[:, :, 0, 0] = w[3:5, :, -1, -1] = value
    (ours,) = make(fn, x, w, b).run(x, w, b)
    reached = fn(torch.ones_like(x), (~w.isfinite()).float()) > 0
    assert torch.equal(~ours.isfinite(), reached)
    torch.testing.assert_close(ours, fn(x, w, b), equal_nan=True, rtol=1e-5, atol=1e-5)


def test_an_image_with_nan_and_infinities() -> None:
    x, w = r(2, 8, 20, 20), r(8, 1, 3, 3)
    x[0, 3, 5, 5], x[1, 0, 0, 0], x[1, 2, 19, 4] = torch.nan, torch.inf, -torch.inf
    (ours,) = make(conv(padding=1), x, w).run(x, w)
    torch.testing.assert_close(ours, conv(padding=1)(x, w), equal_nan=True, rtol=1e-4, atol=1e-4)


def test_what_lies_behind_an_image_is_not_read() -> None:
    room = torch.full((2 * 3 * 9 * 9 + 64,), torch.nan)
    x = room[32:-32].view(2, 3, 9, 9).copy_(r(2, 3, 9, 9))
    w = r(3, 1, 3, 3)
    for fn in (conv(padding=2), conv(padding=2, stride=2), conv(padding=2, stride=3)):
        (ours,) = make(fn, x, w).run(x, w)
        torch.testing.assert_close(ours, fn(x, w), rtol=1e-4, atol=1e-4)


def test_batches_that_vary() -> None:
    w, b = r(8, 1, 3, 3), r(8)
    made = check_open(
        lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=1, groups=8)),
        lambda rows: (r(rows, 8, 14, 14), w, b), ((0,), (), ()), (5, 2, 9), library=None,
    )  # fmt: skip
    assert launched(made, depthwise.SYMBOL) == 1


@pytest.mark.parametrize("case", TAKEN[::5], ids=lambda case: case[0])
def test_threads_agree(case: Any) -> None:
    _name, fn, shapes = case
    inputs = [
        r(3 * shape[0], *shape[1:]) if i == 0 else r(*shape) for i, shape in enumerate(shapes)
    ]
    made = make(fn, *inputs)
    found = []
    for count in (1, 2, 3, 8):
        with threads(count):
            found += made.run(*inputs)
    assert all(torch.equal(found[0], other) for other in found)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "in place": lambda model: model[0].weight.add_(1.0),
    "numpy": lambda model: model[0].weight.detach().numpy().fill(0.25),
    "other memory": lambda model: setattr(model[0].weight, "data", r(*model[0].weight.shape)),
    "statistics, data": lambda model: model[1].running_var.data.mul_(3.0),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_between_calls_is_seen(name: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.BatchNorm2d(8), nn.ReLU()).eval()
    compiled = graftjit.compile(model)
    x = r(2, 8, 16, 16)
    with torch.no_grad():
        for _ in range(2):
            before = compiled(x)
        CHANGES[name](model)
        changed = compiled(x)
        assert not torch.equal(changed, before)
        torch.testing.assert_close(changed, model(x), rtol=1e-4, atol=1e-4)
