"""Level O2 on the fake device: which products have kernels of ours is measured, told, remembered, and right."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import graftjit
from graftjit.codegen.schedule import gpu_kernels as gpu_plan
from graftjit.codegen.triton import matmul as triton_product
from graftjit.codegen.tuning import gpu as tune_gpu
from graftjit.codegen.tuning.timing import Timing
from graftjit.runtime.events.events import Compiled

from .fake_programs import cuda, same

pytestmark = pytest.mark.usefixtures("fake_gpu")
O2 = graftjit.JitConfig(jit_level="O2")


def _linear(x, w, b):
    return F.gelu(F.linear(x, w, b))


def _tensors():
    torch.manual_seed(3)
    return cuda(96, 128), cuda(96, 128), cuda(96)


@pytest.fixture
def races(monkeypatch, tmp_path):
    """What is measured: the ways in order. `fastest`: the one that wins."""

    class Races:
        fastest = 1
        seen: list[int] = []

    def race(runs, seconds):
        Races.seen.append(len(runs))
        for run in runs:
            run()
        first = [Timing(1e-5, 0.9e-5, 1.1e-5)] * len(runs)
        first[Races.fastest] = Timing(2e-6, 1.9e-6, 2.1e-6)
        return first

    Races.seen = []
    few = triton_product.CONFIGURATIONS[-1:]
    monkeypatch.setattr(triton_product, "CONFIGURATIONS", few)
    monkeypatch.setattr(tune_gpu, "RACE", race)
    return Races


@pytest.mark.parametrize("fastest", [0, 1])
def test_the_faster_way_is_taken(races, fastest, monkeypatch):
    monkeypatch.setattr(tune_gpu.cpu, "remembered", lambda *_: None)
    races.fastest = fastest
    given = _tensors()
    fast = graftjit.jit(_linear, config=O2)
    same(fast(*given), _linear(*given))
    assert races.seen == [2]
    (emitted,) = graftjit.report(fast).schedules
    assert (emitted.chosen == "library") == (fastest == 0) and not emitted.remembered
    (emitted,) = (e for e in graftjit.report(fast).events if isinstance(e, Compiled))
    assert emitted.library == 1 - fastest and emitted.kernels == 1


def test_times_are_remembered(races):
    given = _tensors()
    for _ in range(2):
        graftjit.reset()
        fast = graftjit.jit(_linear, config=O2)
        same(fast(*given), _linear(*given))
    (emitted,) = graftjit.report(fast).schedules
    assert emitted.remembered and len(races.seen) <= 1


def _softmax(x):
    return torch.softmax(x * 2, -1), x.exp()


def test_tiles_are_chosen_by_measurement(races, monkeypatch):
    monkeypatch.setattr(tune_gpu.cpu, "remembered", lambda *_: None)
    monkeypatch.setattr(tune_gpu, "BYTES", 1 << 10)
    torch.manual_seed(3)
    given = cuda(12, 200)
    found, planned, write = {}, [], gpu_plan.write

    def noted(*args):
        planned.append(write(*args))
        return planned[-1]

    monkeypatch.setattr(gpu_plan, "write", noted)
    for races.fastest in (0, 1):
        graftjit.reset()
        fast = graftjit.jit(_softmax, config=O2)
        same(fast(given), _softmax(given))
        emitted = [one for one in graftjit.report(fast).schedules if "softmax" in one.name]
        found[emitted[0].chosen] = sorted(planned[-1][1].texts)
    assert len(found) == 2 and "default" in found, found
    one, other = found.values()
    assert one != other  # another text
