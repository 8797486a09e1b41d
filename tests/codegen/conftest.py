"""What tests of codegen ask for: an empty kernel store, another processor's vectors, Triton's interpreter."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# name -> flag, bytes of a vector, what the processor must have
SETS = {
    "baseline": ("-march=x86-64", 16, 0),
    "v3": ("-march=x86-64-v3", 32, 256),
    "v4": ("-march=x86-64-v4", 64, 512),
    "v4 in halves": ("-march=x86-64-v4", 32, 512),
}


@pytest.fixture(params=SETS)
def vector_set(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Kernels are made for this set of vector instructions."""
    from graftjit.codegen.build import cxx as build
    from graftjit.runtime.process import hardware as device

    flag, size, bits = SETS[request.param]
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("x86-64 only")
    if device.cpu().vector_bits < bits:
        pytest.skip("this processor has no such vectors")
    monkeypatch.setattr(build, "machine_flags", lambda: (flag,))
    monkeypatch.setattr(build, "vector_bytes", lambda: size)
    return request.param


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    """An empty store."""
    from graftjit.runtime.process.session import SESSION

    with SESSION.override(cache_dir=tmp_path):
        yield SESSION.store


@pytest.fixture(scope="module")
def worker() -> Iterator[Any]:
    """A process that runs kernels in Triton's interpreter."""
    pytest.importorskip("triton", reason="triton is not installed")
    from .triton.worker import Worker

    with Worker() as found:
        yield found
