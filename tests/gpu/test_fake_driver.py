"""The fake libcuda itself: kernels run over the fake devices' memory, and what a device would refuse is refused."""

from __future__ import annotations

import ctypes
import importlib.util

import pytest
import torch

from ..fake_cuda import driver as fake
from .scale_kernel import KERNEL

pytestmark = [
    pytest.mark.usefixtures("fake_cuda"),
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None, reason="triton is not installed"
    ),
]


@pytest.fixture
def libcuda(fake_cuda):
    with fake.fake_libcuda() as driver:
        yield driver


@pytest.fixture
def launch(libcuda):
    """Launches KERNEL and gives the driver's code."""
    library = ctypes.CDLL(fake.library_path())
    loaded, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    image = fake.image(KERNEL)
    assert not library.cuLibraryLoadData(ctypes.byref(loaded), image, None, None, 0, None, None, 0)
    assert not library.cuLibraryGetKernel(ctypes.byref(kernel), loaded, b"scale")

    def run(x, y, size, stream=None, threads=128):
        null = ctypes.c_void_p()
        values = [ctypes.c_void_p(x), ctypes.c_void_p(y), ctypes.c_int64(size)]
        values += [ctypes.c_double(2), null, null]
        parameters = (ctypes.c_void_p * 6)(*[ctypes.addressof(value) for value in values])
        return library.cuLaunchKernel(
            kernel, 3, 1, 1, threads, 1, 1, fake.SHARED, ctypes.c_void_p(stream), parameters, None
        )

    return run


def test_a_kernel_runs_over_the_devices_memory(libcuda, launch):
    x, y = torch.randn(40, device="cuda"), torch.zeros(48, device="cuda")
    assert launch(x.data_ptr(), y.data_ptr(), 40) == 0
    torch.testing.assert_close(y[:40], x.tanh() * 2)
    assert not y[40:].any()
    assert libcuda.launches == [fake.Launched("scale", 0, 0, 3, (40, 2.0))]


REFUSED = {
    "host memory": (lambda x, y: (torch.ones(40).data_ptr(), y.data_ptr(), 40), 700),
    "beyond its memory": (lambda x, y: (x.data_ptr(), y.data_ptr(), 41), 700),
    "another device": (lambda x, y: (x.data_ptr(), torch.ones(40, device="cuda:1").data_ptr(), 40), 700),
    "misaligned": (lambda x, y: (x.data_ptr(), y[1:].data_ptr(), 39), 716),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_device_would_not_do_is_refused(libcuda, launch, case):
    x, y = torch.randn(40, device="cuda"), torch.zeros(40, device="cuda")
    arguments, code = REFUSED[case]
    assert launch(*arguments(x, y), threads=128) == code
    assert len(libcuda.errors) == 1
    assert launch(x.data_ptr(), y.data_ptr(), 40) == code  # the context is lost
    libcuda.errors.clear()


def test_threads_and_streams_are_looked_at(libcuda, launch):
    x, y = torch.randn(40, device="cuda"), torch.zeros(40, device="cuda")
    assert launch(x.data_ptr(), y.data_ptr(), 40, threads=64) == 1
    libcuda.errors.clear()
    assert launch(x.data_ptr(), y.data_ptr(), 40, stream=torch.cuda.Stream(1).cuda_stream) == 400
    assert launch(x.data_ptr(), y.data_ptr(), 40, stream=torch.cuda.Stream().cuda_stream) == 0
    assert libcuda.launches[-1].stream


def test_errors_can_be_asked_for(libcuda, launch):
    x = torch.randn(40, device="cuda")
    libcuda.fail("cuLaunchKernel", 2, after=1)
    assert launch(x.data_ptr(), x.data_ptr(), 40) == 0
    assert launch(x.data_ptr(), x.data_ptr(), 40) == 2
    libcuda.fail("cuLaunchKernel", 0)
    assert launch(x.data_ptr(), x.data_ptr(), 40) == 0
    assert libcuda.calls("cuLaunchKernel") == 3
