"""The devices of this folder's tests: a real GPU where there is one (`make test-gpu`), and the fake one for what can be shown
without (`fake_cuda`).

`cuda_device` is the one or the other: tests that ask for it run on both kinds of machine. `real_cuda` is a GPU alone.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ..fake_cuda import device
from ..fake_cuda.driver import Driver

ELF = b"\x7fELF"  # what the store knows cubins by


def pytest_collection_finish(session: pytest.Session) -> None:
    """Autograd counts devices once, before its first backward: they must be there by then."""
    wanted = {"fake_cuda", "fake_gpu", "cuda_device"}
    if not device.why_not() and any(
        wanted & set(getattr(item, "fixturenames", ())) for item in session.items
    ):
        device.prepare()


def pytest_runtest_logfinish(nodeid: str) -> None:
    """End the process of a test that lost the GPU's context (an illegal address, an assertion):
    all later tests would fail in it. Under pytest-xdist another worker goes on behind this test."""
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        return
    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        sys.__stderr__.write(f"{nodeid} lost the GPU's context: {error}\n")
        if "PYTEST_XDIST_WORKER" in os.environ:
            os._exit(3)
        pytest.exit("the GPU's context is lost", returncode=3)


@pytest.fixture
def fake_cuda() -> Iterator[None]:
    """Two CUDA devices over host memory, `torch.cuda` with stand-ins."""
    if reason := device.why_not():
        pytest.skip(reason)
    with device.fake_cuda():
        yield


@pytest.fixture
def fake_gpu(fake_cuda: None) -> Iterator[Driver]:
    """The fake devices with kernels: what is launched runs in Triton's interpreter."""
    pytest.importorskip("triton", reason="triton is not installed")
    from ..fake_cuda.driver import fake_gpu as kernels

    with kernels() as driver:
        yield driver


@pytest.fixture
def compiled(
    fake_cuda: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[list[str]]:
    """The fake driver, with its images in place of cubins; the names of the kernels that were asked for."""
    from graftjit.codegen.triton import cubins
    from graftjit.runtime.cuda import driver
    from graftjit.runtime.process.session import SESSION

    from ..fake_cuda import driver as fake

    names: list[str] = []

    def compiler(jobs: list[dict[str, Any]]) -> list[Any]:
        names.extend(job["name"] for job in jobs)
        made = [(job, ELF + fake.image(SimpleNamespace(**job))) for job in jobs]
        return [
            (job["name"], image, "", fake.SHARED, job["warps"], fake.HIDDEN, 0, 30, 0)
            for job, image in made
        ]

    def load(image: bytes, *facts: Any) -> Any:
        return driver.load(image.removeprefix(ELF), *facts)

    monkeypatch.setattr(cubins, "COMPILER", compiler)
    monkeypatch.setattr(cubins, "PROCESS", cubins._Process())
    monkeypatch.setattr(cubins, "driver", SimpleNamespace(load=load))
    with fake.fake_libcuda(), SESSION.override(cache_dir=tmp_path / "store"):
        driver.DRIVER.use(fake.library_path(), fake.library_path())
        yield names
        driver.DRIVER.use()


@pytest.fixture
def real_cuda() -> torch.device:
    """A GPU."""
    if not torch.cuda.is_available():
        pytest.skip("no GPU: this runs under `make test-gpu`")
    return torch.device("cuda", 0)


@pytest.fixture
def cuda_device(request: pytest.FixtureRequest) -> torch.device:
    """A GPU where there is one, else the fake device."""
    if not torch.cuda.is_available():
        request.getfixturevalue("fake_cuda")
    return torch.device("cuda", 0)


@pytest.fixture
def graphs(cuda_device: torch.device, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The class of CUDA graphs, on either device. `made`: how many there were; `refuses`: what a recording ends with."""
    from graftjit.runtime.cuda import graphs as cuda_graph
    from graftjit.runtime.cuda import streams as cuda_streams

    monkeypatch.setattr(cuda_graph, "_DEVICES", {})
    monkeypatch.setattr(cuda_streams, "CUDA", cuda_streams.Cuda())  # with streams of its own
    if torch.version.cuda is None:
        from ..fake_cuda.graphs import recording

        monkeypatch.setattr(cuda_streams.Cuda, "hand_over", lambda *_: None)
        spare = staticmethod(lambda *_: contextlib.nullcontext())
        monkeypatch.setattr(cuda_streams.Cuda, "spare_generator", spare)
        with recording() as made:
            yield made
        return

    class Counted(torch.cuda.CUDAGraph):
        made = 0
        refuses: BaseException | None = None

        def capture_begin(self, *args: Any, **kwargs: Any) -> None:
            Counted.made += 1
            super().capture_begin(*args, **kwargs)

        def capture_end(self) -> None:
            super().capture_end()
            if Counted.refuses is not None:
                raise Counted.refuses

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Counted)
    yield Counted
