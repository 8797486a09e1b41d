"""Kernels of the driver in CUDA graphs: programs with launches on the fake device, whose recordings run them again."""

from __future__ import annotations

import importlib.util

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import graftjit
from graftjit.codegen.triton.renderer import TritonKernel
from graftjit.runtime.cuda import driver
from graftjit.runtime.cuda.graphs import Facts, Graphed
from graftjit.runtime.executor import lower as executor
from graftjit.runtime.program.program import (
    Alloc,
    Aten,
    DeviceLaunch,
    Free,
    ProgramSpec,
    Scratch,
    Slot,
)

from ..fake_cuda import driver as fake

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)
CUDA = torch.device("cuda", 0)
SOURCE = """\
import triton
import triton.language as tl


@triton.jit
def twice(x, y, block: tl.constexpr):
    place = tl.arange(0, block)
    tl.store(y + place, tl.load(x + place) * 2)
"""
KERNEL = TritonKernel(
    name="twice",
    source=SOURCE,
    arguments=(("x", "*fp32"), ("y", "*fp32"), ("block", "constexpr")),
    constants={"block": 32},
    programs=1,
    aligned=(0, 1),
)


@pytest.fixture
def libcuda(fake_cuda, graphs):
    with fake.fake_libcuda() as found:
        driver.DRIVER.use(fake.library_path(), fake.library_path())
        yield found
        driver.DRIVER.use()


def program(writes: bool):
    """y = relu(4 x + w), by two launches with a workspace between them; or 2 x written over x."""
    function, keep = driver.load(fake.image(KERNEL), "twice", fake.SHARED, 0)

    def launch(source, target, written=()):
        return DeviceLaunch(
            "twice", function, (source, target), CUDA, 1, 128, fake.SHARED, fake.HIDDEN, keep=keep, writes=written
        )  # fmt: skip

    if writes:
        spec = ProgramSpec("write", 2, 2, (launch(0, 0, (0,)),), (0,))
        return Graphed(
            executor.load(spec), Facts(0, 2, given={0: 0}, written=frozenset({0})), print
        )
    steps = (
        Alloc(2, (256,), (1,), torch.uint8, CUDA),
        Scratch(3, 0, 128, 2),
        launch(0, 3),
        Alloc(4, (32,), (1,), torch.float32, CUDA),
        launch(3, 4),
        Free((2, 3)),
        Aten(torch.ops.aten.add.Tensor, (Slot(4), Slot(1)), {}, (5,)),
        Aten(torch.ops.aten.relu.default, (Slot(5),), {}, (6,)),
    )
    spec = ProgramSpec("work", 2, 7, steps, (6,))
    return Graphed(executor.load(spec), Facts(0, 2, steps=4), print)


@torch.no_grad()
def test_kernels_are_replayed_over_new_inputs(libcuda, graphs):
    f, w, kept = program(writes=False), torch.randn(32, device="cuda"), []
    for call in range(7):
        x = torch.randn(32, device="cuda")
        (y,) = f(x, w)
        wanted = torch.relu(4 * x + w)
        torch.testing.assert_close(y, wanted)
        kept.append((y, wanted))
        if call == 4:
            w.mul_(3)
    assert graphs.made == 1 and f.recordings == 1
    for y, wanted in kept:
        torch.testing.assert_close(y, wanted)
    assert {one.name for one in libcuda.launches} == {"twice"}


@torch.no_grad()
def test_a_kernel_that_writes_an_input(libcuda, graphs):
    f = program(writes=True)
    x, other = torch.randn(32, device="cuda"), torch.randn(32, device="cuda")
    wanted = x.clone()
    for _ in range(6):
        version = x._version
        wanted.mul_(2)
        (y,) = f(x, other)
        assert y is x and x._version == version + 1
        torch.testing.assert_close(x, wanted)
    assert graphs.made == 1


# -- whole programs, their kernels from Triton's text ---------------------------------------------------------

SINK = graftjit.JitConfig(exec_mode="sink")


def work(x, w, b):
    y = F.layer_norm(x, x.shape[-1:], w, b)
    return y.softmax(-1), (y * y).sum(0), x


@torch.no_grad()
def test_a_function_of_several_kernels(compiled, graphs):
    f = graftjit.jit(work, config=SINK)
    w, b, kept = torch.randn(24, device="cuda"), torch.randn(24, device="cuda"), []
    for call in range(7):
        x = torch.randn(5, 24, device="cuda")
        found, wanted = f(x, w, b), work(x, w, b)
        assert found[2] is x
        torch.testing.assert_close(found, wanted)
        kept.append((found, wanted))
        if call == 4:
            w.mul_(3)
    assert graphs.made == 1 and compiled, f.report()
    torch.testing.assert_close(*zip(*kept, strict=True))


@torch.no_grad()
def test_a_cache_that_is_written(compiled, graphs):
    """As a decoder's keys are: at one place, by kernels."""

    def step(cache, x, at):
        cache.index_copy_(0, at, x.relu() + 1)
        return (cache * cache).sum(-1)

    f = graftjit.jit(step, config=SINK)
    ours, theirs = (torch.zeros(8, 16, device="cuda") for _ in range(2))
    for call in range(7):
        x, at = torch.randn(1, 16, device="cuda"), torch.tensor([call], device="cuda")
        torch.testing.assert_close(f(ours, x, at), step(theirs, x, at))
        torch.testing.assert_close(ours, theirs)
    assert graphs.made == 1, f.report()


def test_steps_of_training(compiled, graphs):
    def net():
        torch.manual_seed(2)
        layers = nn.Linear(6, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 3)
        return nn.Sequential(*layers).to("cuda")

    ours, theirs = net(), net()
    f = graftjit.compile(ours, config=SINK)
    for _ in range(6):
        x, target = torch.randn(5, 6, device="cuda"), torch.tensor([0, 2, 1, 1, 0], device="cuda")
        for model, called in ((ours, f), (theirs, theirs)):
            model.zero_grad()
            F.cross_entropy(called(x), target).backward()
            with torch.no_grad():
                for one in model.parameters():
                    one.sub_(one.grad, alpha=0.1)
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-5)
    assert graphs.made == 2 and compiled
