"""Kernels for the vector sets of other processors: what math.h writes differently for each is right on all."""

from __future__ import annotations

import platform

import pytest
import test_operators as operators
import torch
import torch.nn.functional as F
from harness import check

from graftjit.codegen import build
from graftjit.runtime import device

# name -> flag, bytes of a vector, what the processor must have
SETS = {
    "baseline": ("-march=x86-64", 16, 0),
    "v3": ("-march=x86-64-v3", 32, 256),
    "v4": ("-march=x86-64-v4", 64, 512),
    "v4 in halves": ("-march=x86-64-v4", 32, 512),
}


@pytest.fixture(params=SETS)
def vector_set(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    flag, size, bits = SETS[request.param]
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("x86-64 only")
    if device.cpu().vector_bits < bits:
        pytest.skip("this processor has no such vectors")
    monkeypatch.setattr(build, "machine_flags", lambda: (flag,))
    monkeypatch.setattr(build, "vector_bytes", lambda: size)
    return request.param


def test_operators_on_special_values(vector_set: str) -> None:
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x = operators.values((5, 47), dtype)
        functions = list(operators.UNARY.values())
        check(lambda x: tuple(fn(x) for fn in functions[:24]), x, library=None)
    x, y = operators.values((5, 47), torch.float32), operators.values((5, 47), torch.float32, 1)
    check(lambda x, y: (x.maximum(y), x.minimum(y), x.fmax(y), x.fmin(y)), x, y)


def test_rounding_of_narrow_floats(vector_set: str) -> None:
    """Every float16 and bfloat16, and floats on both sides of the middle between two of them."""
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    for dtype in (torch.float16, torch.bfloat16):
        narrow = bits.view(dtype)
        exact = narrow.float()[narrow.isfinite()]
        around = torch.stack([exact, exact * 1.0001, exact * (1 + 2**-9), exact * (1 + 2**-12)])
        check(lambda x: x.float() * 0.5, narrow, library=None)
        check(lambda x, dtype=dtype: (x * 1.5).to(dtype), around, library=None)
        check(lambda x: x + x * 0.25, narrow, library=None)


def test_reductions_and_normalizations(vector_set: str) -> None:
    x = torch.randn(37, 83)
    x[3, 5] = torch.nan
    for y in (x, x.t().contiguous().t()):
        check(lambda x: (x.amax(-1), x.sum(-1), x.argmax(-1), torch.softmax(x, -1)), y)
        check(lambda x: F.layer_norm(x, (83,)) + torch.tanh(x), y)
