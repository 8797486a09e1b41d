"""Families of kernels on a device beside eager on the same device: values (errors beside eager's against float64), dtypes, strides.

Small shapes run on the fake device, too; sizes of many tiles, and all dtypes and layouts there, need a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F

import graftjit

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
SLACK = {torch.float64: 1e-12, torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
SIZES = {"small": (6, 40), "odd": (257, 1023), "long": (5, 70001), "tall": (40009, 8), "wide": (512, 4096)}  # fmt: skip


class Case(NamedTuple):
    """`function` of so many matrices of one shape, and of what `more` makes for that shape."""

    function: Callable[..., Any]
    matrices: int = 1
    more: Callable[[int, int, str], tuple[torch.Tensor, ...]] = lambda rows, columns, device: ()


def _vectors(rows, columns, device):
    return torch.randn(columns, device=device), torch.randn(columns, device=device)


def _places(rows, columns, device):
    return (torch.randint(0, rows, (rows,), device=device),)


def _targets(rows, columns, device):
    return (torch.randint(0, columns, (rows,), device=device),)


def _rms(x, w, _b):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w


CASES: dict[str, Case] = {
    "chain": Case(lambda x: F.gelu(x) * torch.sigmoid(x) + torch.tanh(x).abs().sqrt()),
    "two": Case(lambda x, y: torch.where(x > y, x * 2 - y, y.clamp(-1, 1)), 2),
    "broadcast": Case(lambda x, w, b: torch.relu(x * w + b) - x[:, :1], 1, _vectors),
    "transposed": Case(lambda x, y: x.t() * 2 + y.t().abs(), 2),
    "compare": Case(lambda x, y: ((x < y) & (x > 0), (x == x).any(), (x > 3).all()), 2),
    "softmax": Case(lambda x: x.softmax(-1)),
    "softmax of columns": Case(lambda x: x.softmax(0)),
    "log_softmax": Case(lambda x: (x * 0.5).log_softmax(-1)),
    "layer_norm": Case(lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b), 1, _vectors),
    "rms_norm": Case(_rms, 1, _vectors),
    "residual norm": Case(lambda x, y, w, b: F.layer_norm(x + y, x.shape[-1:], w, b), 2, _vectors),
    "sums": Case(lambda x: (x.sum(0), x.sum(1), x.abs().sum())),
    "means": Case(lambda x: (x.mean(0), x.var(1), x.std(), x.square().mean())),
    "extremes": Case(lambda x: (x.amax(0), x.amin(1), x.argmax(1), x.argmin(0), x.max())),
    "logsumexp": Case(lambda x: (x.logsumexp(1), x.logsumexp(0))),
    "cross_entropy": Case(lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1), 1, _targets),
    "cumsum": Case(lambda x: (x.cumsum(1), x.cumsum(0))),
    "gather": Case(lambda x, p: (x[p] * 2, F.embedding(p, x)), 1, _places),
    "scatter": Case(lambda x, p: torch.zeros_like(x).index_add(0, p, x), 1, _places),
    "cat": Case(lambda x, y: torch.cat((x, y * 2, x[:, :3]), 1), 2),
    "moves": Case(lambda x: (x.roll(1, 0) + x.flip(1), F.pad(x, (1, 2)), x[1:, ::2] + 1)),
    "casts": Case(lambda x: (x.int(), x.double() * 2, x.half().float(), x > 0, (x * 3).to(torch.int64))),
    "several": Case(lambda x, y: (x + y, (x * y).sum(-1), (x - y).amax(0)), 2),
}  # fmt: skip
LAYOUTS: dict[str, Callable[[int, int, str], torch.Tensor]] = {
    "plain": lambda r, c, device: torch.randn(r, c, device=device),
    "turned": lambda r, c, device: torch.randn(c, r, device=device).t(),
    "sliced": lambda r, c, device: torch.randn(r + 1, 2 * c, device=device)[1:, ::2],
    "behind": lambda r, c, device: torch.randn(r * c + 3, device=device)[3:].view(r, c),
    "one row": lambda r, c, device: torch.randn(1, c, device=device).expand(r, c),
}


def made(case: Case, size: str, layout: str, dtype: torch.dtype, device: Any) -> tuple[Any, ...]:
    torch.manual_seed(1)
    rows, columns = SIZES[size]
    matrices = [LAYOUTS[layout](rows, columns, device).to(dtype) for _ in range(case.matrices)]
    if layout == "one row":
        matrices = [one[:1].clone().expand(rows, columns) for one in matrices]
    rest = case.more(rows, columns, device)
    return *matrices, *(one.to(dtype) if one.is_floating_point() else one for one in rest)


def flat(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else list(value)


def compare(function: Callable[..., Any], inputs: tuple[Any, ...], compiled: Any) -> None:
    """As eager, and no further from the truth than twice as far as eager is."""
    wide = tuple(
        one.double() if isinstance(one, torch.Tensor) and one.is_floating_point() else one
        for one in inputs
    )
    found, eager, exact = (flat(f(*xs)) for f, xs in ((compiled, inputs), (function, inputs), (function, wide)))  # fmt: skip
    for own, other, truth in zip(found, eager, exact, strict=True):
        assert (own.dtype, own.shape, own.stride()) == (other.dtype, other.shape, other.stride())
        assert own.device == other.device
        if not other.is_floating_point():
            wrong = (own != other).sum().item()  # places of equal values, roundings at a half
            assert wrong <= other.numel() * 1e-3, f"{wrong} of {other.numel()}"
            continue
        assert torch.equal(own.isnan(), other.isnan())
        scale = max(1.0, truth.abs().max().item() if truth.numel() else 0.0)
        error, allowed = (
            (one.double() - truth).nan_to_num().abs().max().item() for one in (own, other)
        )
        assert error <= 2 * allowed + SLACK[other.dtype] * scale, f"{error}, eager {allowed}"


def check(name: str, size: str, layout: str, dtype: torch.dtype, device: Any) -> None:
    case = CASES[name]
    inputs = made(case, size, layout, dtype, device)
    compiled = graftjit.jit(case.function, dynamic=False)
    with torch.no_grad():
        compare(case.function, inputs, compiled)
        compare(case.function, inputs, compiled)
    seen = compiled.report()
    assert seen.graph_count >= 1, str(seen)
    if torch.version.cuda is not None:
        assert not [row for row in seen.notes if row.code in ("FB303", "FB306", "FB319")], str(seen)


NAMES = list(CASES)


@pytest.mark.parametrize("name", NAMES)
def test_families(cuda_device, name):
    check(name, "small", "plain", torch.float32, cuda_device)


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "plain"])
@pytest.mark.parametrize("name", ["chain", "two", "softmax", "sums", "layer_norm", "cat"])
def test_layouts(cuda_device, name, layout):
    check(name, "small", layout, torch.float32, cuda_device)


@pytest.mark.parametrize("dtype", FLOATS[1:], ids=str)
@pytest.mark.parametrize("name", ["chain", "softmax", "layer_norm", "sums"])
def test_dtypes(cuda_device, name, dtype):
    check(name, "small", "plain", dtype, cuda_device)


@pytest.mark.parametrize("size", [name for name in SIZES if name != "small"])
@pytest.mark.parametrize("name", NAMES)
def test_sizes_of_many_tiles(real_cuda, name, size):
    check(name, size, "plain", torch.float32, real_cuda)


# Each family in each dtype and each layout, not in all pairs of them.
PAIRS = [
    pytest.param(name, layout, dtype, id=f"{name}-{layout}-{dtype}")
    for family, name in enumerate(NAMES)
    for place, layout in enumerate(LAYOUTS)
    for kind, dtype in enumerate(FLOATS)
    if (family + place) % len(FLOATS) == kind
]


@pytest.mark.parametrize(("name", "layout", "dtype"), PAIRS)
def test_layouts_and_dtypes_of_many_tiles(real_cuda, name, layout, dtype):
    check(name, "odd", layout, dtype, real_cuda)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool], ids=str)  # fmt: skip
def test_integers(cuda_device, dtype):
    def work(x, y):
        z = torch.where(x > y, x, y)
        if dtype == torch.bool:
            return z, x & y, x ^ y, z.sum(0), z.any(1)
        return (
            z // 3,
            z % (y.abs() + 1).clamp(min=1),
            x + y,
            x * y,
            z.sum(0),
            z.amax(1),
            x & y,
            x ^ y,
            z << 1,
        )

    torch.manual_seed(2)
    low = 0 if dtype in (torch.uint8, torch.bool) else -100
    high = 2 if dtype == torch.bool else 100
    x, y = (torch.randint(low, high, (33, 65), device=cuda_device).to(dtype) for _ in range(2))
    compiled = graftjit.jit(work)
    for _ in range(2):
        for own, other in zip(compiled(x, y), work(x, y), strict=True):
            assert own.dtype == other.dtype and torch.equal(own, other)


def test_infinities_nans_and_zeros(cuda_device):
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([[0.0, -0.0, inf, -inf, nan, 1e-45, 3e38, -1.0]], device=cuda_device).repeat(
        4, 1
    )

    def work(x):
        return (
            x * 2,
            x.abs().sqrt(),
            x.exp(),
            x.clamp(-1, 1),
            x.amax(1),
            x.sum(1),
            x.nan_to_num(),
            x.sign(),
            x.relu(),
        )

    compiled = graftjit.jit(work)
    for own, other in zip(compiled(x), work(x), strict=True):
        torch.testing.assert_close(own, other, equal_nan=True)
        kept = ~other.isnan()
        assert torch.equal(own.signbit()[kept], other.signbit()[kept])


def test_random_numbers(cuda_device):
    def work(x):
        return F.dropout(x, 0.3) * 2, torch.rand_like(x) + 1, torch.randn_like(x)

    compiled = graftjit.jit(work)
    x = torch.ones(1000, device=cuda_device)
    for seed in range(3):
        results = []
        for function in (compiled, work):
            torch.cuda.manual_seed(seed)
            results.append((*function(x), *function(x)))
        for own, other in zip(*results, strict=True):
            torch.testing.assert_close(own, other)


def test_sizes_that_vary(cuda_device):
    def work(x, w):
        return (x * w).softmax(-1) + x.sum(0)

    compiled = graftjit.jit(work, dynamic=True)
    for rows, columns in ((3, 17), (5, 17), (64, 33), (1, 5), (129, 64), (3, 1030)):
        x, w = (
            torch.randn(rows, columns, device=cuda_device),
            torch.randn(columns, device=cuda_device),
        )
        torch.testing.assert_close(compiled(x, w), work(x, w), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["chain", "softmax", "layer_norm", "cross_entropy", "gather", "sums", "cat", "cumsum", "transposed"])  # fmt: skip
def test_gradients(cuda_device, name):
    case = CASES[name]

    def loss(*inputs):
        parts = [one for one in flat(case.function(*inputs)) if one.is_floating_point()]
        return sum((one * one).sum() for one in parts)

    compiled = graftjit.jit(loss)
    for _ in range(2):
        found = []
        for function in (compiled, loss):
            inputs = made(case, "small", "plain", torch.float32, cuda_device)
            inputs = tuple(x.requires_grad_() if x.is_floating_point() else x for x in inputs)
            value = function(*inputs)
            value.backward()
            found.append([value.detach(), *[x.grad for x in inputs if x.is_floating_point()]])
        for own, other in zip(*found, strict=True):
            torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-5)


def _hard(rows, columns, device):
    """Rows with infinities, nan, and a maximum in the last element."""
    x = torch.randn(rows, columns, device=device) * 3
    x[1, : columns // 2] = -torch.inf
    x[2] = -torch.inf
    x[3, columns // 3] = torch.inf
    x[4, columns - 5] = torch.nan
    x[5, -1] = 500.0
    return x


def test_rows_that_several_programs_hold(cuda_device):
    x = _hard(40, 17000, cuda_device)
    compiled = graftjit.jit(lambda x: x.softmax(-1))
    torch.testing.assert_close(compiled(x), x.softmax(-1), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("columns", [1 << 15, 50257, 1 << 17, 1 << 18])
def test_many_rows_that_several_programs_hold(real_cuda, columns, dtype):
    """More programs than the device has space for, again and again."""
    x = _hard((1 << 27) // columns, columns, real_cuda).to(dtype)
    w, b = _vectors(0, columns, real_cuda)
    w, b = w.to(dtype), b.to(dtype)
    functions = (
        lambda x: x.softmax(-1),
        lambda x: x.log_softmax(-1),
        lambda x: F.layer_norm(x, x.shape[-1:], w, b),
        lambda x: x * (x.amax(-1, keepdim=True) + x.abs().mean(-1, keepdim=True)),
    )
    for function in functions:
        compiled, wanted = graftjit.jit(function), function(x)
        for _ in range(20):
            torch.testing.assert_close(compiled(x), wanted, equal_nan=True)


def test_bytes_beyond_what_32_bits_count(real_cuda):
    """More than 2**31 elements."""
    n = (1 << 31) + 4096
    if torch.cuda.mem_get_info()[0] < 3 * n:
        pytest.skip("the device has not that much memory free")
    x = torch.ones(n, dtype=torch.int8, device=real_cuda)
    x[-1] = 5
    found = graftjit.jit(lambda x: x * 2 + 1)(x)
    assert found[-1].item() == 11 and found[0].item() == 3 and found[1 << 30].item() == 3
