"""Matrix products as nests: thin ones, small ones, and chains over short rows in one kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import graftjit
from graftjit.codegen.kernels import matmul_bf16 as products_bf16

from ..harness import check, make
from ..symbolic import check_open

T = torch.Tensor
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@pytest.fixture(autouse=True)
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a processor without instructions for bfloat16."""
    monkeypatch.setattr(products_bf16, "takes", lambda node: False)


def r(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> T:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def _layers(x: T, *weights: T) -> T:
    for at in range(0, len(weights), 4):
        w, b, scale, shift = weights[at : at + 4]
        x = F.relu(F.layer_norm(F.linear(x, w, b), (w.shape[0],), scale, shift))
    return x


def _weights(layers: int, width: int, dtype: torch.dtype = torch.float32) -> list[T]:
    return [
        r(*shape, dtype=dtype, seed=9 * layer + place)
        for layer in range(layers)
        for place, shape in enumerate(((width, width), (width,), (width,), (width,)))
    ]


# name, function, shapes: each one kernel
THIN: tuple[tuple[str, Callable[..., T], list[tuple[int, ...]]], ...] = (
    ("one row", F.linear, [(1, 100), (33, 100), (33,)]),
    ("a vector", F.linear, [(100,), (33, 100), (33,)]),
    ("no bias", F.linear, [(1, 100), (33, 100)]),
    ("two rows", F.linear, [(2, 100), (33, 100), (33,)]),
    ("eight rows", F.linear, [(8, 100), (33, 100), (33,)]),
    ("one column", F.linear, [(50, 300), (1, 300), (1,)]),
    ("three columns", torch.mm, [(40, 300), (300, 3)]),
    ("activation", lambda x, w, b: F.relu(F.linear(x, w, b)), [(3, 100), (33, 100), (33,)]),
    ("residual", lambda x, w, b, y: F.linear(x, w, b) + y, [(3, 90), (20, 90), (20,), (3, 20)]),
    ("before it", lambda x, w: F.linear(F.relu(x) * 2, w), [(2, 90), (20, 90)]),
    ("three dimensions", lambda x, w, b: F.relu(F.linear(x, w, b)), [(1, 2, 70), (20, 70), (20,)]),
    ("transposed", lambda x, w: x @ w.t(), [(2, 70), (30, 70)]),
    ("expanded row", lambda x, w: x.expand(4, 70) @ w.t(), [(1, 70), (30, 70)]),
    ("expanded column", lambda x, w: x.expand(3, 40) @ w, [(3, 1), (40, 30)]),
    ("every other", lambda x, w: x[:, ::2] @ w[:, ::2].t(), [(2, 128), (12, 128)]),
    ("mv", torch.mv, [(40, 90), (90,)]),
    ("addmv", lambda y, a, x: torch.addmv(y, a, x, beta=0.5, alpha=2), [(40,), (40, 90), (90,)]),
    ("dot", torch.dot, [(1000,), (1000,)]),
    ("long dot", torch.dot, [(200000,), (200000,)]),
    ("bmm", torch.bmm, [(3, 2, 70), (3, 70, 9)]),
    ("heads", lambda q, k: q @ k.transpose(-1, -2), [(2, 3, 1, 64), (2, 3, 20, 64)]),
    ("baddbmm", lambda y, a, b: torch.baddbmm(y, a, b, alpha=3), [(9,), (3, 2, 70), (3, 70, 9)]),
    ("beta", lambda y, a, b: torch.addmm(y, a, b, beta=2), [(2, 1), (2, 70), (70, 9)]),
    ("small", torch.mm, [(12, 18), (18, 14)]),
)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("name", "fn", "shapes"), THIN, ids=[row[0] for row in THIN])
def test_thin_and_small(
    name: str, fn: Callable[..., T], shapes: list[tuple[int, ...]], dtype: torch.dtype
) -> None:
    check(fn, *(r(*shape, dtype=dtype, seed=i) for i, shape in enumerate(shapes)), kernels=1)


def test_what_is_not_added_may_be_nan() -> None:
    nan = torch.full((33,), float("nan"))
    for shape in ((1, 100), (3, 4)):
        x, w = r(*shape), r(33, shape[1])
        check(lambda y, x, w: torch.addmm(y, x, w.t(), beta=0, alpha=0.5), nan, x, w, kernels=1)


@pytest.mark.parametrize(
    ("fn", "shapes"),
    [
        (F.linear, [(64, 512), (512, 512)]),
        (torch.mm, [(1, 512), (512, 512)]),  # the weight lies along n
        (F.linear, [(0, 100), (33, 100)]),
        (F.linear, [(2, 0), (33, 0)]),
        (torch.bmm, [(0, 2, 3), (0, 3, 4)]),
    ],
)
def test_left_to_the_library(fn: Callable[..., T], shapes: list[tuple[int, ...]]) -> None:
    check(fn, *(r(*shape) for shape in shapes), kernels=0, library=1)


def test_what_is_dear_to_compute_follows_in_vectors() -> None:
    x, w, b = r(1, 100), r(33, 100), r(33)
    check(lambda x, w, b: F.gelu(F.linear(x, w, b)), x, w, b, kernels=2)


def test_other_types_are_left_to_the_library() -> None:
    for dtype in (torch.int64, torch.complex64):
        a, b = (torch.arange(12).reshape(3, 4).to(dtype) for _ in range(2))
        check(lambda a, b: a @ b.t(), a, b, kernels=0, library=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("k", [100, 784, 5000])
@pytest.mark.parametrize("rows", [1, 3])
def test_error_is_no_larger_than_eagers(rows: int, k: int, dtype: torch.dtype) -> None:
    x, w, b = r(rows, k, dtype=dtype), r(64, k, dtype=dtype), r(64, dtype=dtype)
    exact = F.linear(x.double(), w.double(), b.double())
    (ours,) = make(F.linear, x, w, b).run(x, w, b)
    unit = torch.finfo(dtype).eps * float(exact.abs().max())
    error = [float((y.double() - exact).abs().max()) for y in (ours, F.linear(x, w, b))]
    assert error[0] <= 2 * error[1] + unit


# name, function, shapes
ROWS: tuple[tuple[str, Callable[..., Any], list[tuple[int, ...]]], ...] = (
    ("linear", F.linear, [(2, 4), (5, 4), (5,)]),
    ("two linear", lambda x, w, v: F.linear(F.relu(F.linear(x, w)), v), [(3, 4), (8, 4), (2, 8)]),
    ("softmax", lambda x, w: F.linear(x, w).softmax(-1), [(3, 4), (6, 4)]),
    ("log softmax", lambda x, w: F.linear(x, w).log_softmax(-1), [(20, 4), (6, 4)]),
    ("residual", lambda x, w, b: F.gelu(F.linear(x, w, b)) + x, [(3, 4), (4, 4), (4,)]),
    ("mean", lambda x, w: F.linear(x, w).mean(-1), [(3, 4), (6, 4)]),
    ("kept", lambda x, w: (y := F.linear(x, w)) - y.amax(-1, keepdim=True), [(3, 4), (6, 4)]),
    ("sum of all columns", lambda x, w: F.linear(x, w).view(3, 2, 3).sum((1, 2)), [(3, 4), (6, 4)]),
    ("deviation", lambda x, w: (y := F.linear(x, w)) / y.std(-1, keepdim=True), [(3, 4), (6, 4)]),
    ("both results", lambda x, w: (y := F.linear(x, w), F.relu(y)), [(3, 4), (6, 4)]),
    ("groups", lambda x, w: F.layer_norm(F.linear(x, w).view(3, 2, 4), (4,)), [(3, 4), (8, 4)]),
    ("three dimensions", lambda x, w: F.silu(F.linear(x, w)).softmax(-1), [(2, 3, 4), (6, 4)]),
    ("one row of three", lambda x, w: F.silu(F.linear(x, w)) + 1, [(1, 1, 4), (6, 4)]),
    ("gate", lambda x, w: (y := F.linear(x, w))[:, :3] * y[:, 3:].sigmoid(), [(5, 4), (6, 4)]),
    ("chunks", lambda x, w: torch.stack(F.linear(x, w).chunk(2, -1)).sum(0), [(5, 4), (6, 4)]),
    ("swapped columns", lambda x, w: F.linear(x, w).view(5, 2, 3).mT + 1, [(5, 4), (6, 4)]),
    ("rows turned", lambda x, w: F.linear(x, w).t() + 1, [(5, 4), (5, 4)]),
    ("other rows", lambda x, w: F.linear(x, w) + F.linear(x, w)[:1], [(5, 4), (6, 4)]),
    ("other order", lambda x, w: F.linear(x, w).view(2, 3, 6).transpose(0, 1) * 2, [(6, 4), (6, 4)]),
    ("square", lambda x, w: F.linear(x, w) @ F.linear(x, w), [(4, 4), (4, 4)]),
    ("vector", lambda x, w, v: F.relu(F.linear(x, w)) @ v, [(6, 4), (4, 4), (4,)]),
    ("bmm", lambda a, b: torch.bmm(a, b).relu(), [(6, 3, 2), (6, 2, 4)]),
    ("bmm of both", lambda a, b: torch.bmm(y := torch.bmm(a, b), y), [(6, 3, 2), (6, 2, 3)]),
    ("strided rows", lambda x, w: F.relu(x[::2, 1:] @ w), [(10, 5), (4, 3)]),
    ("expanded", lambda x, w: F.relu(x.expand(7, 4) @ w), [(1, 4), (4, 3)]),
    ("bias for rows", lambda x, w, y: F.relu(F.linear(x, w) + y), [(5, 4), (3, 4), (5, 1)]),
    ("row sums", lambda x, w, y: F.linear(x, w) * y[:, None], [(5, 4), (3, 4), (5,)]),
    ("mask", lambda x, w: (y := F.linear(x, w)).masked_fill(y > 0, -1.0), [(5, 4), (3, 4)]),
    ("where", lambda x, w: torch.where((y := F.linear(x, w)) > 0, y, y.exp()), [(5, 4), (3, 4)]),
    ("cat", lambda x, w: torch.cat([F.linear(x, w).relu(), x * 2], -1), [(5, 4), (3, 4)]),
    ("place", lambda x, w: F.linear(x, w).tril() + torch.arange(3.0), [(5, 4), (3, 4)]),
    ("constant", lambda x, w: F.linear(x, w) + torch.ones(3), [(5, 4), (3, 4)]),
    ("columns of all", lambda x, w: F.linear(x, w).softmax(0), [(5, 4), (3, 4)]),
    ("many rows", lambda x, w, b: F.relu(F.linear(x, w, b)), [(5000, 4), (8, 4), (8,)]),
    ("far rows", lambda x, w: F.linear(x, w).relu(), [(70000, 2), (3, 2)]),
)  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize(("name", "fn", "shapes"), ROWS, ids=[row[0] for row in ROWS])
def test_short_rows(
    name: str, fn: Callable[..., Any], shapes: list[tuple[int, ...]], dtype: torch.dtype
) -> None:
    inputs = [r(*shape, dtype=dtype, seed=i) for i, shape in enumerate(shapes)]
    check(fn, *inputs, library=None if name in ("cat", "chunks") else 0)


@pytest.mark.parametrize("rows", [1, 2, 4, 16, 37])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_layers_are_one_kernel(rows: int, dtype: torch.dtype) -> None:
    check(_layers, r(rows, 4, dtype=dtype), *_weights(3, 4, dtype), kernels=1)


def test_many_layers_are_few_equal_kernels() -> None:
    made = check(_layers, r(1, 4), *_weights(24, 4))
    texts = {made.source.count(f" {kernel.nest.name}(") for kernel in made.kernels}
    assert 2 <= len(made.kernels) <= 5
    assert texts == {0, 1}  # what is equal is there once


OPEN: tuple[tuple[str, Callable[..., Any], list[tuple[int, ...]]], ...] = (
    ("linear", lambda x, w: F.relu(F.linear(x, w)), [(4,), (6, 4)]),
    ("softmax", lambda x, w: F.linear(x, w).softmax(-1) + 1, [(4,), (6, 4)]),
    ("two", lambda x, w, v: F.linear(F.linear(x, w).tanh(), v), [(4,), (6, 4), (2, 6)]),
    ("large", F.linear, [(200,), (60, 200)]),
)


@pytest.mark.parametrize(("name", "fn", "shapes"), OPEN, ids=[row[0] for row in OPEN])
def test_open_number_of_rows(
    name: str, fn: Callable[..., Any], shapes: list[tuple[int, ...]]
) -> None:
    others = [r(*shape, seed=i) for i, shape in enumerate(shapes[1:])]
    check_open(
        fn,
        lambda n: [r(n, *shapes[0]), *others],
        [[0], *([] for _ in others)],
        (9, 2, 3, 17, 64, 1000),
        kernels=0 if name == "large" else 1,
        library=1 if name == "large" else 0,
    )


def test_weights_that_change_between_calls_are_seen() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 90),
                                torch.nn.ReLU(), torch.nn.Linear(90, 30)).eval()  # fmt: skip
    compiled, x = graftjit.jit(model), r(2, 4)
    first, last = model[0], model[-1]
    other = {name: value * 2 for name, value in model.state_dict().items()}
    changes: tuple[Callable[[], Any], ...] = (
        lambda: None,
        lambda: first.weight.mul_(2),
        lambda: last.bias.data.add_(1),
        lambda: setattr(last.weight, "data", r(30, 90)),
        lambda: first.weight.set_(r(4, 4)),
        lambda: model.load_state_dict(other),
        lambda: setattr(last, "weight", torch.nn.Parameter(r(90, 30).t())),
    )
    with torch.no_grad():
        for change in changes:
            change()
            torch.testing.assert_close(compiled(x), model(x))


def test_autocast() -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 100)
    ).eval()
    compiled = graftjit.jit(model)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for rows in (1, 3):
            ours, theirs = compiled(r(rows, 4)), model(r(rows, 4))
            assert ours.dtype == theirs.dtype
            torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)
