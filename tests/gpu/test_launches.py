"""Programs on the fake devices, launched through the fake libcuda by the native executor and by its mirror."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from graftjit.ir.symbolic.expr import Symbol
from graftjit.runtime import _native
from graftjit.runtime.cuda import driver
from graftjit.runtime.executor import lower as executor
from graftjit.runtime.guards import tensor_access as tensors
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
from ..fake_cuda.memory import memory
from .scale_kernel import KERNEL

pytestmark = [
    pytest.mark.usefixtures("fake_cuda"),
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None, reason="triton is not installed"
    ),
]

CUDA = torch.device("cuda", 0), torch.device("cuda", 1)
A = torch.ops.aten
F32 = torch.float32


@pytest.fixture
def libcuda(fake_cuda):
    with fake.fake_libcuda() as found:
        driver.DRIVER.use(fake.library_path(), fake.library_path())
        yield found
        driver.DRIVER.use()


@pytest.fixture(params=["native", "mirror"])
def load(request, libcuda):
    if request.param == "mirror":
        tensors.bind(["program"])

    def load(*steps, outputs, n_slots=4):
        found = executor.load(ProgramSpec("test", 1, n_slots, steps, outputs))
        assert isinstance(found, _native.Program) == (request.param == "native")
        return found

    yield load
    tensors.bind()


def scaled(source: int, target: int, device: torch.device = CUDA[0], **more) -> DeviceLaunch:
    """target = 2 tanh(source), 40 elements."""
    handle, keep = driver.load(fake.image(KERNEL), "scale", fake.SHARED, device.index)
    return DeviceLaunch(
        "scale", handle, (source, target), device, 3, 128, fake.SHARED, fake.HIDDEN, (40, 2.0), "qd", keep, **more
    )  # fmt: skip


def expected(x: torch.Tensor) -> torch.Tensor:
    return 2 * x.cpu().tanh()


@pytest.mark.parametrize("device", CUDA)
def test_kernels_workspaces_and_operators(load, libcuda, device):
    """The current device is another one, or the same; it and the stream are as before afterwards."""
    run = load(
        Alloc(1, (1024,), (1,), torch.uint8, device),
        Scratch(2, 256, 160, 1),
        scaled(0, 2, device),
        Alloc(3, (40,), (1,), F32, device),
        scaled(2, 3, device),
        Free((1,)),
        Aten(A.add.Tensor, (Slot(3), Slot(3)), {}, (4,)),
        Aten(A.full.default, ([2], 7.0), {"device": device}, (5,)),
        outputs=(4, 5),
        n_slots=6,
    )
    if isinstance(run, _native.Program):
        assert run.routes == (
            "alloc",
            "scratch",
            "device",
            "alloc",
            "device",
            "free",
            "aten",
            "aten",
        )
    x = torch.randn(40, device=device)
    stream = torch.cuda.Stream(device)
    for current in (None, stream):
        with torch.cuda.stream(current):
            before = torch.cuda.current_device()
            out, full = run(x)
            assert torch.cuda.current_device() == before
        torch.testing.assert_close(out.cpu(), 2 * expected(expected(x)))
        assert out.device == full.device == device and full.tolist() == [7.0, 7.0]
    assert [one.stream for one in libcuda.launches] == [0, 0, *[stream.cuda_stream] * 2]


def test_a_device_without_a_number_is_the_current_one(load):
    run = load(
        Aten(A.full.default, ([2], 7.0), {"device": torch.device("cuda")}, (1,)), outputs=(1,)
    )
    for device in CUDA:
        with torch.cuda.device(device):
            assert run(torch.zeros(1))[0].device == device


def test_a_thread_without_a_context(load, libcuda):
    run = load(scaled(0, 0, writes=(0,)), outputs=(0,))
    x = torch.randn(40, device="cuda")
    wanted, version = expected(x), x._version
    libcuda.set_bare(True)
    (out,) = run(x)
    assert out is x and x._version == version + 1 and libcuda.contexts() == 0
    torch.testing.assert_close(x.cpu(), wanted)
    libcuda.set_bare(False)


def test_memory_that_is_used_up(load, libcuda, capfd):
    """Eager's exception and nothing on stderr; what was to be written then is as it was, and the next call is whole."""
    run = load(
        scaled(0, 0, writes=(0,)),
        Alloc(1, (1 << 20,), (1,), F32, CUDA[0]),
        scaled(0, 0, writes=(0,)),
        outputs=(0,),
    )
    x = torch.randn(40, device="cuda")
    wanted, version = expected(x), x._version
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory(), "limit", memory().used + (1 << 20))
        with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
            run(x)
    torch.testing.assert_close(x.cpu(), wanted)
    assert x._version == version + 1 and not capfd.readouterr().err
    run(x)
    assert x._version == version + 3


def test_open_sizes_are_allocated(load):
    n = Symbol("n", "int", 4)
    steps = Alloc(1, (n, 2 * n), (2 * n, 1), F32, CUDA[1])
    run = executor.load(ProgramSpec("test", 1, 2, (steps,), (1,), symbols={n: ("size", 0, 0)}))
    for size in (3, 0, 5):
        (out,) = run(torch.zeros(size))
        assert (
            out.shape == (size, 2 * size)
            and out.stride() == (2 * size, 1)
            and out.device == CUDA[1]
        )


def test_a_failed_kernel_is_not_the_last_word(load, libcuda):
    """Nothing of it stays: the next call is whole."""
    run = load(Alloc(1, (40,), (1,), F32, CUDA[0]), scaled(0, 1), outputs=(1,))
    x = torch.randn(40, device="cuda")
    libcuda.fail("cuLaunchKernel", 2)
    with pytest.raises(torch.OutOfMemoryError, match="launching the kernel scale on cuda:0"):
        run(x)
    libcuda.fail("cuLaunchKernel", 0)
    torch.testing.assert_close(run(x)[0].cpu(), expected(x))
