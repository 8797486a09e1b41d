"""Products of few rows of bfloat16 by the kernel of matmul_bf16.h: which ones it takes, its errors, and that it is never stale."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import graftjit
from graftjit.codegen.kernels import matmul_bf16 as products_bf16
from graftjit.runtime.process import hardware as device
from graftjit.runtime.program.program import Launch

from ..harness import launched, make, threads
from ..harness import normal as r
from ..symbolic import check_open

T = torch.Tensor
pytestmark = pytest.mark.skipif(
    not {"avx512_bf16", "avx512bw"} <= device.cpu().features,
    reason="the kernel is one instruction of AVX-512",
)
SYMBOL = products_bf16.SYMBOL


def h(*shape: int, seed: int = 0) -> T:
    return r(*shape, seed=seed).bfloat16()


def halves(shapes: list[tuple[int, ...]]) -> list[T]:
    return [h(*shape, seed=place) for place, shape in enumerate(shapes)]


def agree(ours: T, theirs: T, exact: T) -> None:
    """As exact as eager, to which a unit in the last place may lie between."""
    error, known = (ours.double() - exact).abs(), (theirs.double() - exact).abs()
    assert ours.dtype == theirs.dtype and ours.stride() == theirs.stride()
    assert float(error.max()) <= 2 * float(known.max())
    assert float(error.norm()) <= 1.2 * float(known.norm())


def check(fn: Callable[..., T], inputs: list[T]) -> None:
    (ours,) = make(fn, *inputs).run(*inputs)
    agree(ours, fn(*inputs), fn(*(x.double() for x in inputs)))


# name, function, shapes: one launch each
TAKEN: tuple[tuple[str, Callable[..., Any], list[tuple[int, ...]]], ...] = (
    ("linear", F.linear, [(16, 256), (96, 256), (96,)]),
    ("no bias", F.linear, [(16, 256), (96, 256)]),
    ("every tail", F.linear, [(13, 403), (91, 403), (91,)]),
    ("fewer columns than are met together", F.linear, [(64, 301), (3, 301), (3,)]),
    ("shallower than a step", F.linear, [(40, 17), (77, 17), (77,)]),
    ("three dimensions", F.linear, [(2, 5, 256), (96, 256), (96,)]),
    ("a part of each", lambda x, w: F.linear(x[3:, 2:260], w[5:69, 1:259]), [(20, 300), (80, 300)]),
    ("every other row", lambda x, w: F.linear(x[::2], w[::2]), [(40, 270), (128, 270)]),
    ("repeated rows", lambda x, w: torch.mm(x.expand(20, -1), w.t()), [(1, 270), (128, 270)]),
    ("one row added", lambda y, x, w: torch.addmm(y, x, w.t()), [(1, 64), (30, 270), (64, 270)]),
    ("all added", lambda y, x, w: torch.addmm(y, x, w.t()), [(30, 64), (30, 270), (64, 270)]),
    ("bmm", lambda q, k: torch.bmm(q, k.transpose(1, 2)), [(3, 20, 70), (3, 65, 70)]),
    ("baddbmm", lambda y, q, k: torch.baddbmm(y, q, k.transpose(1, 2)),
     [(3, 1, 65), (3, 20, 70), (3, 65, 70)]),
)  # fmt: skip


@pytest.mark.parametrize("case", TAKEN, ids=lambda case: case[0])
def test_taken(case: Any) -> None:
    _name, fn, shapes = case
    inputs = halves(shapes)
    assert launched(make(fn, *inputs), SYMBOL) == 1
    check(fn, inputs)


LEFT: tuple[tuple[str, Callable[..., Any], list[T]], ...] = (
    ("float32", F.linear, [r(16, 256), r(96, 256)]),
    ("float16", F.linear, [r(16, 256).half(), r(96, 256).half()]),
    ("a weight along n", torch.mm, [h(16, 256), h(256, 96)]),
    ("rows that are not in order", lambda x, w: F.linear(x.t(), w), [h(256, 16), h(96, 256)]),
    ("every other element", lambda x, w: F.linear(x, w[:, ::2]), [h(16, 256), h(96, 512)]),
    ("scaled", lambda y, x, w: torch.addmm(y, x, w.t(), alpha=2), [h(96), h(16, 256), h(96, 256)]),
    ("a column added", lambda y, x, w: torch.addmm(y, x, w.t()), [h(16, 1), h(16, 256), h(96, 256)]),
    ("many rows", F.linear, [h(600, 256), h(96, 256)]),
    ("nothing", F.linear, [h(0, 256), h(96, 256)]),
)  # fmt: skip


@pytest.mark.parametrize("case", LEFT, ids=lambda case: case[0])
def test_left_to_aten(case: Any) -> None:
    _name, fn, inputs = case
    made = make(fn, *inputs)
    assert launched(made, SYMBOL) == 0
    torch.testing.assert_close(made.run(*inputs)[0], fn(*inputs))


def test_a_processor_without_the_instruction(monkeypatch: pytest.MonkeyPatch) -> None:
    here = device.cpu()
    without = replace(here, features=here.features - {"avx512_bf16"})
    monkeypatch.setattr(device, "cpu", lambda: without)
    assert launched(make(F.linear, h(16, 256), h(96, 256)), SYMBOL) == 0


@pytest.mark.parametrize("rows", [*range(1, 20), 23, 31, 47, 48, 49, 50, 64, 70])
def test_any_number_of_rows(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products_bf16, "_pays", lambda node: True)
    inputs = halves([(rows, 261), (107, 261), (107,)])
    assert launched(make(F.linear, *inputs), SYMBOL) == 1
    check(F.linear, inputs)


@pytest.mark.parametrize("depth", [1, 2, 31, 33, 64, 1000, 1023, 4097])
def test_errors_are_those_of_the_library(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products_bf16, "_pays", lambda node: True)
    inputs = [h(20, depth), (h(128, depth) / depth**0.5).bfloat16(), h(128)]
    check(F.linear, inputs)


def test_nan_and_infinities() -> None:
    x, w, b = h(16, 256), h(96, 256), h(96)
    x[3, 5], x[7, 255], w[9, 40], b[70] = torch.nan, torch.inf, -torch.inf, torch.nan
    (ours,) = make(F.linear, x, w, b).run(x, w, b)
    torch.testing.assert_close(ours, F.linear(x, w, b), equal_nan=True, rtol=1e-2, atol=1e-2)


def test_what_lies_behind_a_row_is_not_read() -> None:
    x, w = (torch.full((rows * 70 + 64,), torch.nan).bfloat16() for rows in (9, 37))
    left = x[32:-32].view(9, 70)[:, :67].copy_(h(9, 67))
    right = w[32:-32].view(37, 70)[:, :67].copy_(h(37, 67))
    made = make(F.linear, left, right)
    assert launched(made, SYMBOL) == 1
    assert made.run(left, right)[0].isfinite().all()


# name, function of the product, extra inputs
EPILOGUES: tuple[tuple[str, Callable[..., T], list[T]], ...] = (
    ("gelu", lambda y: F.gelu(y), []),
    ("silu, scaled", lambda y: F.silu(y) * 2, []),
    ("residual", lambda y, x: x + y, [h(13, 91, seed=5)]),
    ("float32", lambda y: y.float() * 1.1, []),
    ("a mask", lambda y: y > 0.5, []),
    ("a scale for each column", lambda y, g: y * g, [h(91, seed=6)]),
)


@pytest.mark.parametrize("case", EPILOGUES, ids=lambda case: case[0])
def test_what_follows_is_done_to_tiles(case: Any) -> None:
    """With the values of the operators one by one over the rounded product."""
    _name, after, more = case
    x, w, b = h(13, 260), h(91, 260), h(91)

    def fn(x: T, w: T, b: T, *more: T) -> T:
        return after(F.linear(x, w, b), *more)

    made = make(fn, x, w, b, *more)
    steps = [step for step in made.spec.steps if isinstance(step, Launch)]
    assert [step.kernel for step in steps] == [SYMBOL]
    (product,) = make(F.linear, x, w, b).run(x, w, b)
    (ours,) = made.run(x, w, b, *more)
    torch.testing.assert_close(ours, after(product, *more))


def test_sizes_that_vary() -> None:
    w, b = h(96, 256), h(96)
    made = check_open(
        lambda x, w, b: F.relu(F.linear(x, w, b)), lambda rows: (h(rows, 256), w, b),
        ((0,), (), ()), (48, 5, 130, 2), library=None,
    )  # fmt: skip
    assert launched(made, SYMBOL) == 1


def test_threads_agree() -> None:
    inputs = halves([(62, 600), (75, 600), (75,)])
    made, found = make(F.linear, *inputs), []
    assert launched(made, SYMBOL) == 1
    for count in (1, 2, 3, 8):
        with threads(count):
            found += made.run(*inputs)
    assert all(torch.equal(found[0], other) for other in found)


# What changes a weight, seen by its version, by its pointer, or by neither.
CHANGES: dict[str, Callable[[Any], Any]] = {
    "in place": lambda layer: layer.weight.add_(1.0),
    "data": lambda layer: layer.weight.data.mul_(0.5),
    "numpy": lambda layer: layer.weight.detach().view(torch.int16).numpy().fill(0x3E80),
    "dlpack": lambda layer: torch.from_dlpack(layer.weight.detach()).zero_(),
    "storage": lambda layer: layer.weight.untyped_storage().fill_(62),
    "other memory": lambda layer: setattr(layer.weight, "data", h(96, 256, seed=7)),
    "bias": lambda layer: layer.bias.data.fill_(2.0),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_between_calls_is_seen(name: str) -> None:
    layer = torch.nn.Linear(256, 96).bfloat16()
    compiled, x = graftjit.compile(layer), h(16, 256)
    with torch.no_grad():
        before = compiled(x)
        assert torch.equal(before, compiled(x))
        CHANGES[name](layer)
        changed = compiled(x)
        assert not torch.equal(changed, before)
        torch.testing.assert_close(changed, layer(x))
