"""Convolutions by the kernel of convolution.h: which ones it takes, that it is as exact as ATen, and never stale."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import graftjit
from graftjit.codegen.kernels import convolution as convolutions
from graftjit.runtime.process import hardware as device

from ..harness import check_launches, launched, make, threads
from ..harness import normal as r
from ..symbolic import check_open

T = torch.Tensor
pytestmark = pytest.mark.skipif(
    device.cpu().isa not in device.VECTORS,
    reason="the kernel is written for AVX-512 and AVX2",
)


@pytest.fixture(autouse=True)
def taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel computes those that it does not pay for, too."""
    monkeypatch.setattr(convolutions, "_pays", lambda node: True)


def conv(**options: Any) -> Callable[..., T]:
    return lambda x, w, b=None: F.conv2d(x, w, b, **options)


def up(**options: Any) -> Callable[..., T]:
    return lambda x, w, b=None: F.conv_transpose2d(x, w, b, **options)


# name, function, shapes: one launch each
TAKEN: tuple[tuple[str, Callable[..., Any], list[tuple[int, ...]]], ...] = (
    ("plain", conv(), [(2, 3, 12, 20), (5, 3, 3, 3), (5,)]),
    ("no bias", conv(padding=1), [(2, 3, 12, 20), (5, 3, 3, 3)]),
    ("rows that are no vectors", conv(padding=1), [(2, 16, 7, 7), (20, 16, 3, 3), (20,)]),
    ("one row of the result", conv(padding=1), [(1, 4, 1, 5), (3, 4, 3, 3), (3,)]),
    ("one by one", conv(), [(2, 30, 9, 11), (17, 30, 1, 1), (17,)]),
    ("one by one, strided", conv(stride=2), [(2, 30, 9, 11), (17, 30, 1, 1), (17,)]),
    ("strided", conv(stride=2, padding=1), [(2, 3, 33, 64), (16, 3, 3, 3), (16,)]),
    ("strides 3 and 1", conv(stride=(3, 1)), [(2, 3, 33, 21), (16, 3, 5, 2), (16,)]),
    ("patches", conv(stride=16), [(1, 3, 64, 48), (24, 3, 16, 16), (24,)]),
    ("dilated", conv(dilation=(2, 3), padding=3), [(2, 6, 20, 20), (9, 6, 3, 3), (9,)]),
    ("deeper than a pass", conv(padding=2), [(1, 70, 10, 10), (13, 70, 5, 5), (13,)]),
    ("more channels than a block", conv(), [(1, 8, 6, 6), (301, 8, 3, 3), (301,)]),
    ("same", conv(padding="same"), [(1, 8, 9, 9), (4, 8, 3, 3), (4,)]),
    ("one dimension", lambda x, w, b: F.conv1d(x, w, b, 2, 1), [(2, 5, 50), (7, 5, 3), (7,)]),
    ("a part of each", lambda x, w: F.conv2d(x[:, 1:4, 2:], w[3:, :, 1:], padding=1),
     [(2, 5, 14, 20), (9, 3, 4, 3)]),
    ("fused around", lambda x, w, b: F.gelu(F.conv2d(F.relu(x), w, b, padding=1)) * 2,
     [(2, 8, 12, 12), (16, 8, 3, 3), (16,)]),
    ("a weight turned over", lambda x, w: F.conv2d(x, w.transpose(0, 1), padding=1),
     [(2, 6, 12, 12), (6, 16, 3, 3)]),
    ("up", up(stride=2, padding=1), [(2, 10, 8, 9), (10, 7, 4, 4), (7,)]),
    ("up, no bias", up(), [(2, 10, 8, 9), (10, 7, 3, 3)]),
    ("up with more on a side", up(stride=3, output_padding=(2, 1)),
     [(2, 10, 5, 9), (10, 7, 4, 2), (7,)]),
    ("up beyond the kernel", up(stride=3, padding=(0, 1)), [(2, 4, 5, 9), (4, 3, 2, 2), (3,)]),
    ("up in one dimension", lambda x, w, b: F.conv_transpose1d(x, w, b, 2, 1),
     [(2, 5, 50), (5, 7, 4), (7,)]),
)  # fmt: skip


@pytest.mark.parametrize("case", TAKEN, ids=lambda case: case[0])
def test_taken(case: Any) -> None:
    check_launches(case, convolutions.SYMBOL, 1)


LEFT: tuple[tuple[str, Callable[..., Any], list[tuple[int, ...]]], ...] = (
    ("groups", conv(groups=2), [(2, 4, 12, 12), (6, 2, 3, 3), (6,)]),
    ("float64", lambda x, w: F.conv2d(x.double(), w.double()), [(2, 4, 12, 12), (6, 4, 3, 3)]),
    ("channels last", lambda x, w: F.conv2d(x.to(memory_format=torch.channels_last), w),
     [(2, 4, 12, 12), (6, 4, 3, 3)]),
    ("a weight in channels last", lambda x, w: F.conv2d(x, w.to(memory_format=torch.channels_last)),
     [(2, 4, 12, 12), (6, 4, 3, 3)]),
    ("three dimensions", lambda x, w: F.conv3d(x, w), [(1, 3, 6, 6, 6), (4, 3, 3, 3, 3)]),
    ("every other column", lambda x, w: F.conv2d(x[..., ::2], w), [(2, 4, 9, 24), (6, 4, 3, 3)]),
    ("very large", conv(), [(1, 2, 20, 20), (3, 2, 17, 17), (3,)]),
    ("up, dilated", up(dilation=2), [(2, 4, 6, 6), (4, 3, 3, 3), (3,)]),
)  # fmt: skip


@pytest.mark.parametrize("case", LEFT, ids=lambda case: case[0])
def test_left_to_aten(case: Any) -> None:
    check_launches(case, convolutions.SYMBOL, 0)


@pytest.mark.parametrize("channels", [3, 16, 64, 128, 300])
@pytest.mark.parametrize("transposed", [False, True])
def test_errors_are_those_of_aten(channels: int, transposed: bool) -> None:
    fn = up(stride=2, padding=1) if transposed else conv(padding=1)
    x, b = r(2, channels, 16, 16), r(24)
    w = r(channels, 24, 4, 4) if transposed else r(24, channels, 3, 3)
    exact = fn(x.double(), w.double(), b.double())
    (ours,) = make(fn, x, w, b).run(x, w, b)
    error, theirs = (ours - exact).abs(), (fn(x, w, b) - exact).abs()
    assert float(error.max()) <= 2 * float(theirs.max())
    assert float(error.norm()) <= 1.5 * float(theirs.norm())


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("fn", [conv(padding=1), up(stride=2, padding=1)], ids=["down", "up"])
def test_a_weight_that_is_no_number_counts_inside_alone(fn: Callable[..., T], value: float) -> None:
    x, w, b = r(2, 8, 20, 20).abs(), r(8, 8, 4, 4).abs(), r(8)
    w[:, :, 0, 0] = w[3:5, :, -1, -1] = value
    (ours,) = make(fn, x, w, b).run(x, w, b)
    reached = fn(torch.ones_like(x), (~w.isfinite()).float()) > 0
    assert torch.equal(~ours.isfinite(), reached)
    torch.testing.assert_close(ours, fn(x, w, b), equal_nan=True, rtol=1e-5, atol=1e-5)


def test_an_image_with_nan_and_infinities() -> None:
    x, w = r(2, 8, 20, 20), r(8, 8, 3, 3)
    x[0, 3, 5, 5], x[1, 0, 0, 0], x[1, 2, 19, 4] = torch.nan, torch.inf, -torch.inf
    (ours,) = make(conv(padding=1), x, w).run(x, w)
    torch.testing.assert_close(ours, conv(padding=1)(x, w), equal_nan=True, rtol=1e-4, atol=1e-4)


def test_what_lies_behind_an_image_is_not_read() -> None:
    room = torch.full((2 * 3 * 9 * 9 + 64,), torch.nan)
    x = room[32:-32].view(2, 3, 9, 9).copy_(r(2, 3, 9, 9))
    w = r(4, 3, 3, 3)
    for fn in (conv(padding=2), conv(padding=2, stride=2), conv(padding=2, stride=3)):
        (ours,) = make(fn, x, w).run(x, w)
        torch.testing.assert_close(ours, fn(x, w), rtol=1e-4, atol=1e-4)


def test_batches_that_vary() -> None:
    w, b = r(16, 8, 3, 3), r(16)
    made = check_open(
        lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=1)),
        lambda rows: (r(rows, 8, 14, 14), w, b), ((0,), (), ()), (5, 2, 9), library=None,
    )  # fmt: skip
    assert launched(made, convolutions.SYMBOL) == 1


@pytest.mark.parametrize("case", TAKEN[4::4], ids=lambda case: case[0])
def test_threads_agree(case: Any) -> None:
    _name, fn, shapes = case
    inputs = [r(*(4 * n if i < 2 else n for i, n in enumerate(shape))) for shape in shapes]
    made = make(fn, *inputs)
    found = []
    for count in (1, 2, 3, 8):
        with threads(count):
            found += made.run(*inputs)
    assert all(torch.equal(found[0], other) for other in found)


def _fused_step(model: nn.Module) -> None:
    torch.manual_seed(3)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    torch.optim.AdamW(model.parameters(), lr=0.1, fused=True).step()


def _other_parameter(model: nn.Module) -> None:
    model[0].weight = nn.Parameter(r(*model[0].weight.shape, seed=9))


# What changes weights or statistics, seen by versions, by pointers, or by neither.
CHANGES: dict[str, Callable[[Any], Any]] = {
    "in place": lambda model: model[0].weight.add_(1.0),
    "data": lambda model: model[0].weight.data.mul_(0.5),
    "numpy": lambda model: model[0].weight.detach().numpy().fill(0.25),
    "dlpack": lambda model: torch.from_dlpack(model[0].weight.detach()).zero_(),
    "storage": lambda model: model[0].weight.untyped_storage().fill_(62),
    "fused AdamW": _fused_step,
    "load_state_dict": lambda model: model.load_state_dict(
        {name: value * 2 for name, value in model.state_dict().items()}
    ),
    "another parameter": _other_parameter,
    "other memory": lambda model: setattr(model[0].weight, "data", r(*model[0].weight.shape)),
    "statistics": lambda model: model[1].running_mean.add_(1.0),
    "statistics, data": lambda model: model[1].running_var.data.mul_(3.0),
    "train": lambda model: model.train(),
    "a bias of the norm": lambda model: model[1].bias.data.fill_(2.0),
}


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_between_calls_is_seen(name: str, level: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.ConvTranspose2d(8, 4, 4, 2, 1),
    ).eval()  # fmt: skip
    compiled = graftjit.compile(model, config=graftjit.JitConfig(jit_level=level))
    x = r(2, 4, 16, 16)
    with torch.no_grad():
        for _ in range(2):
            before = compiled(x)
        CHANGES[name](model)
        changed = compiled(x)
        assert not torch.equal(changed, before)
        torch.testing.assert_close(changed, model(x), rtol=1e-4, atol=1e-4)


def test_a_lower_precision_asked_for_is_atens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "medium")
    assert launched(make(conv(), r(1, 4, 9, 9), r(4, 4, 3, 3)), convolutions.SYMBOL) == 0
