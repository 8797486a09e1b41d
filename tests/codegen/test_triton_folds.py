"""Folds and scans of Triton kernels against eager, in Triton's interpreter: rows, columns, all, lengths around the
tile's; sums and products no further from float64 than twice eager's."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from graftjit.codegen import triton

from .nests import Build
from .triton_worker import Worker

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)


@pytest.fixture(scope="module")
def worker():
    with Worker() as found:
        yield found


def run(worker, build, **options):
    kernel = triton.render(build.nest(), **options)
    return build.outputs(worker.run(kernel, build.tensors))


def close(found, wanted, **tolerance):
    torch.testing.assert_close(found, wanted, equal_nan=True, **tolerance)


# -- scans --------------------------------------------------------------------------------------------

EAGER_SCANS = {
    "sum": lambda x, dim: torch.cumsum(x, dim, dtype=x.dtype),
    "prod": lambda x, dim: torch.cumprod(x, dim, dtype=x.dtype),
    "max": lambda x, dim: torch.cummax(x, dim).values,
    "min": lambda x, dim: torch.cummin(x, dim).values,
}
SCAN_TYPES = (torch.float32, torch.float64, torch.int8, torch.int32, torch.int64, torch.uint8)


def values_for(kind, dtype, shape):
    if not dtype.is_floating_point:
        return torch.randint(0 if dtype == torch.uint8 else -100, 100, shape).to(dtype)
    return torch.rand(shape, dtype=dtype) + 0.5 if kind == "prod" else torch.randn(shape).to(dtype)


def scanned(kind, x, columns=False, turn=""):
    """A scan along the last axis, or the first one."""
    rows = x.t() if columns else x
    build = Build(f"cum{kind}", tuple(rows.shape[:-1]), tuple(rows.shape[-1:]))
    found = build.scan(kind + turn, build.load(rows))
    build.store_to(found, torch.zeros_like(x).t() if columns else torch.zeros_like(x))
    return build, EAGER_SCANS[kind](x, 0 if columns else -1)


def compared(found, wanted):
    tolerance = 1e-12 if wanted.dtype == torch.float64 else 1e-5
    exact = not wanted.dtype.is_floating_point
    close(found.view(wanted.shape), wanted, rtol=0 if exact else tolerance, atol=tolerance)


@needs_triton
@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("kind", EAGER_SCANS)
def test_scans(worker, kind, columns):
    for dtype in SCAN_TYPES:
        for length in (1, 2, 7, 9) if dtype == torch.float32 else (9,):
            x = values_for(kind, dtype, (length, 3) if columns else (3, length))
            build, wanted = scanned(kind, x, columns)
            (found,) = run(worker, build)
            compared(found.t() if columns else found, wanted)
            (found,) = run(worker, build, persistent_limit=4)
            compared(found.t() if columns else found, wanted)


@needs_triton
@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("kind", ["sum", "prod"])
def test_scans_in_turn(worker, kind, columns):
    x = values_for(kind, torch.float64, (17, 3) if columns else (3, 17))
    build, wanted = scanned(kind, x, columns, " in turn")
    kernel = triton.render(build.nest(), persistent_limit=4)
    if columns:  # one element after the other costs nothing where rows lie side by side
        assert "associative_scan" not in kernel.source
    (found,) = build.outputs(worker.run(kernel, build.tensors))
    compared(found.t() if columns else found, wanted)


@needs_triton
def test_long_scans_carry_from_block_to_block(worker):
    x = torch.randn(1, 1030)
    for kind in ("sum", "max"):
        build, wanted = scanned(kind, x)
        kernel = triton.render(build.nest())
        assert "for start" in kernel.source
        compared(build.outputs(worker.run(kernel, build.tensors))[0], wanted)


@needs_triton
@pytest.mark.parametrize("limit", [1024, 4])
def test_nan_and_infinities_in_scans(worker, limit):
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([[1, 5, nan, 7, 2, 9], [-inf, -inf, 3, inf, 4, 1], [-0.0, 0.0, -1, nan, 1, 2]])
    for kind in EAGER_SCANS:
        build, wanted = scanned(kind, x)
        compared(run(worker, build, persistent_limit=limit)[0], wanted)


@needs_triton
@pytest.mark.parametrize("limit", [1024, 4])
def test_a_scan_beside_folds_and_elements(worker, limit):
    """cumsum of a softmax, its largest place, and a scan of what does not move along the row."""
    x, one = torch.randn(3, 10), torch.rand(3, 1)
    build = Build("mixed", (3,), (10,))
    a = build.load(x)
    e = build.op("exp", build.op("sub", a, build.reduce("max", a)))
    share = build.op("div", e, build.reduce("sum", e))
    total = build.scan("sum", share)
    build.store(build.op("mul", total, build.load(one)))
    build.store(build.reduce("max", build.op("sub", total, share)), row=True)
    build.store(build.scan("sum", build.load(one)))
    first, second, third = run(worker, build, persistent_limit=limit)
    share = torch.softmax(x, -1)
    compared(first, share.cumsum(-1) * one)
    compared(second, (share.cumsum(-1) - share).amax(-1))
    compared(third, one.expand(3, 10).cumsum(-1))


def test_scans_compile():
    if not triton.available():
        pytest.skip("triton is not installed")
    build, _wanted = scanned("max", torch.randn(8, 3000))
    build.store(build.scan("sum", build.cast(0, torch.float64)))
    for capability in (80, 90):
        assert triton.compile_kernel(triton.render(build.nest()), capability).cubin
