"""Large float32 products by the kernel of matmul_f32.h: which ones it takes, and that it is as exact as the library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import graftjit
from graftjit.codegen.kernels import matmul_f32 as products
from graftjit.runtime.process import hardware as device

from ..harness import check_launches, launched, make
from ..harness import normal as r
from ..symbolic import check_open

T = torch.Tensor


@pytest.fixture(autouse=True)
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine whose library is the slower one."""
    monkeypatch.setattr(device, "slow_mkl", lambda: True)


# name, function, shapes: one launch each
TAKEN: tuple[tuple[str, Callable[..., Any], list[tuple[int, ...]]], ...] = (
    ("linear", F.linear, [(48, 64), (96, 64), (96,)]),
    ("no bias", F.linear, [(48, 64), (96, 64)]),
    ("every tail", F.linear, [(67, 403), (91, 403), (91,)]),
    ("five rows", F.linear, [(5, 512), (96, 512), (96,)]),
    ("few rows and every tail", F.linear, [(13, 403), (91, 403), (91,)]),
    ("few rows of a part", lambda x, w: x[1:18, 3:520] @ w[::2, 1:518].t(), [(19, 530), (192, 530)]),
    ("few rows that fill vectors", F.linear, [(32, 512), (96, 512), (96,)]),
    ("few rows, added whole", lambda y, x, w: torch.addmm(y, x, w.t()),
     [(20, 70), (20, 300), (70, 300)]),
    ("few rows, fused around", lambda x, w, b: F.gelu(F.linear(F.relu(x), w, b)) * 2,
     [(24, 300), (96, 300), (96,)]),
    ("a few rows left", F.linear, [(17, 64), (64, 64), (64,)]),
    ("deeper than a pass", F.linear, [(30, 1031), (64, 1031), (64,)]),
    ("higher than a block", F.linear, [(401, 40), (60, 40), (60,)]),
    ("three dimensions", F.linear, [(3, 20, 64), (96, 64), (96,)]),
    ("mm", torch.mm, [(50, 70), (70, 64)]),
    ("a part of each", lambda x, w: x[3:, 2:60] @ w[2:60, 5:69], [(50, 70), (70, 80)]),
    ("a weight in every other row", lambda x, w: x @ w[::2].t(), [(50, 70), (128, 70)]),
    ("bmm", torch.bmm, [(3, 30, 70), (3, 70, 64)]),
    ("bmm of transposed", lambda q, k: q @ k.transpose(1, 2), [(3, 30, 70), (3, 64, 70)]),
    ("heads", lambda q, k: torch.bmm(q.transpose(0, 1), k), [(30, 3, 70), (3, 70, 64)]),
    ("repeated", lambda q, k: torch.bmm(q.expand(3, -1, -1), k), [(1, 30, 70), (3, 70, 64)]),
    ("baddbmm", torch.baddbmm, [(3, 1, 64), (3, 30, 70), (3, 70, 64)]),
    ("baddbmm whole", torch.baddbmm, [(3, 30, 64), (3, 30, 70), (3, 70, 64)]),
    ("addmm whole", torch.addmm, [(30, 64), (30, 70), (70, 64)]),
    ("addmm one row", torch.addmm, [(1, 64), (30, 70), (70, 64)]),
    ("fused around", lambda x, w, b: F.gelu(F.linear(F.relu(x), w, b)) * 2,
     [(48, 64), (96, 64), (96,)]),
)  # fmt: skip


@pytest.mark.parametrize("case", TAKEN, ids=lambda case: case[0])
def test_taken(case: Any) -> None:
    check_launches(case, products.SYMBOL, 1)


LEFT: tuple[tuple[str, Callable[..., Any], list[tuple[int, ...]]], ...] = (
    ("scaled", lambda y, x, w: torch.addmm(y, x, w, alpha=2), [(64,), (48, 64), (64, 64)]),
    ("not added", lambda y, x, w: torch.addmm(y, x, w, beta=0), [(64,), (48, 64), (64, 64)]),
    ("a column added", torch.addmm, [(48, 1), (48, 64), (64, 64)]),
    ("left along m", lambda x, w: x.t() @ w, [(64, 48), (64, 64)]),
    ("few columns", torch.mm, [(500, 64), (64, 12)]),
    ("float64", lambda x, w: x.double() @ w.double(), [(48, 64), (64, 64)]),
    ("nothing", torch.mm, [(0, 64), (64, 64)]),
)


@pytest.mark.parametrize("case", LEFT, ids=lambda case: case[0])
def test_left_to_aten(case: Any) -> None:
    check_launches(case, products.SYMBOL, 0)


@pytest.mark.parametrize("rows", [64, 24])
@pytest.mark.parametrize("depth", [64, 256, 512, 1024, 3072])
def test_errors_are_those_of_the_library(depth: int, rows: int) -> None:
    x, w, b = r(rows, depth), r(128, depth, seed=1) / depth**0.5, r(128)
    exact = F.linear(x.double(), w.double(), b.double())
    (ours,) = make(F.linear, x, w, b).run(x, w, b)
    error, theirs = (ours - exact).abs(), (F.linear(x, w, b) - exact).abs()
    assert float(error.max()) <= 2 * float(theirs.max())
    assert float(error.norm()) <= 1.5 * float(theirs.norm())


def test_nan_and_infinities() -> None:
    x, w = r(48, 64), r(64, 96)
    x[3, 5], x[7, 1], w[9, 40] = torch.nan, torch.inf, -torch.inf
    (ours,) = make(torch.mm, x, w).run(x, w)
    torch.testing.assert_close(ours, x @ w, equal_nan=True, rtol=1e-5, atol=1e-5)


def test_sizes_that_vary() -> None:
    def fn(x: T, w: T, b: T) -> T:
        return F.relu(F.linear(x, w, b))

    w, b = r(96, 64), r(96)
    made = check_open(
        fn, lambda rows: (r(rows, 64), w, b), ((0,), (), ()), (48, 5, 130, 2), library=None
    )
    assert launched(made, products.SYMBOL) == 1


def test_a_weight_written_between_calls_is_read() -> None:
    layer = torch.nn.Linear(64, 64)
    compiled = graftjit.compile(layer)
    x = r(32, 64)
    with torch.no_grad():
        compiled(x)
        for change in (
            lambda: layer.weight.add_(1.0),
            lambda: layer.weight.data.mul_(0.5),
            lambda: setattr(layer.weight, "data", r(64, 64, seed=7)),
            lambda: layer.weight.detach().numpy().fill(0.25),
        ):
            change()
            torch.testing.assert_close(compiled(x), layer(x), rtol=1e-5, atol=1e-5)


def test_threads_agree() -> None:
    x, w, before = r(200, 300), r(300, 130), torch.get_num_threads()
    made = make(torch.mm, x, w)
    try:
        found = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found += made.run(x, w)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


def test_a_lower_precision_asked_for_is_atens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "medium")
    assert launched(make(torch.mm, r(48, 64), r(64, 64)), products.SYMBOL) == 0
