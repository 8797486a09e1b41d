"""What may go wrong between a graph and a GPU: eager's exception, or a stated fallback with eager's values."""

from __future__ import annotations

import pytest
import torch

import graftjit
from graftjit.codegen.triton import cubins
from graftjit.codegen.triton.compiler import Fault
from graftjit.runtime.cuda.driver import DRIVER

from ..fake_cuda import driver as fake
from ..fake_cuda.memory import memory
from .fake_programs import cuda, same


def _program(x, y):
    x = x * 2 + y
    return x.softmax(-1), x.sum(0)


def _codes(compiled):
    return {note.code for note in graftjit.report(compiled).notes}


def _falls_back(code):
    compiled = graftjit.jit(_program)
    x, y = cuda(4, 5), cuda(5)
    for _ in range(2):
        same(compiled(x, y), _program(x, y))
    assert code in _codes(compiled), str(graftjit.report(compiled))


def test_without_a_driver_operators_are_atens(fake_gpu):
    DRIVER.use("libcuda_that_is_not_there.so", fake.library_path())
    _falls_back("FB319")
    assert not fake_gpu.launches


def test_with_an_old_driver_operators_are_atens(fake_gpu):
    fake_gpu.set_version(11080)
    _falls_back("FB319")
    assert not fake_gpu.launches


def test_a_driver_that_does_not_start(fake_gpu):
    fake_gpu.fail("cuInit", 100)
    _falls_back("FB319")


def test_a_compiler_that_fails(fake_gpu, monkeypatch, tmp_path):
    from graftjit.runtime.process.session import SESSION

    monkeypatch.setattr(cubins, "COMPILER", lambda jobs: [Fault("no register is left")] * len(jobs))
    with SESSION.override(cache_dir=tmp_path, check=False):  # which lets nothing fall back
        compiled = graftjit.jit(_program)
        x, y = cuda(4, 7), cuda(7)
        same(compiled(x, y), _program(x, y))
    assert not fake_gpu.launches
    assert any("no register is left" in str(note) for note in graftjit.report(compiled).notes)


def test_a_launch_that_fails_is_told_and_python_runs_the_frame(fake_gpu):
    compiled = graftjit.jit(_program)
    x, y = cuda(4, 5), cuda(5)
    same(compiled(x, y), _program(x, y))
    fake_gpu.fail("cuLaunchKernel", 701)
    same(compiled(x, y), _program(x, y))
    assert "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES" in str(graftjit.report(compiled))
    fake_gpu.fail("cuLaunchKernel", 0)
    launches = len(fake_gpu.launches)
    same(compiled(x, y), _program(x, y))
    assert len(fake_gpu.launches) > launches


def _writes(x, y):
    x.mul_(y.exp())
    return torch.cat([x * i for i in range(1, 20)]), x.sum()


def test_memory_that_runs_out_raises_and_nothing_is_done_twice(fake_gpu, monkeypatch):
    compiled = graftjit.jit(_writes)
    x, y = cuda(100, 60), cuda(100, 60)
    compiled(x.clone(), y)
    plain = x.clone()
    monkeypatch.setattr(memory(), "limit", memory().used + 60000)
    before = x._version
    with pytest.raises(torch.OutOfMemoryError):
        compiled(x, y)
    monkeypatch.setattr(memory(), "limit", 1 << 30)
    wanted = plain if x._version == before else plain * y.exp()
    torch.testing.assert_close(x, wanted)
    used = memory().used
    same(compiled(x.clone(), y), _writes(x.clone(), y))
    assert memory().used == used


def test_no_context_is_left_behind(fake_gpu):
    compiled = graftjit.jit(lambda x, y: (x * 2 + 1, y.exp() * 3))
    x, y = cuda(4), cuda(4, index=1)
    for bare in (False, True):
        fake_gpu.set_bare(bare)
        for index in (0, 1):
            with torch.cuda.device(index):
                same(compiled(x, y), (x * 2 + 1, y.exp() * 3))
        assert not fake_gpu.contexts()
        assert fake_gpu.current_context() == 1  # torch's device, as after a kernel of torch's
    assert {launch.device for launch in fake_gpu.launches} == {0, 1}


def test_launches_are_on_the_callers_stream(fake_gpu):
    compiled = graftjit.jit(_program)
    x, y = cuda(4, 5), cuda(5)
    compiled(x, y)
    stream = torch.cuda.Stream()
    fake_gpu.launches.clear()
    with torch.cuda.stream(stream):
        compiled(x, y)
    assert {launch.stream for launch in fake_gpu.launches} == {stream.cuda_stream}
