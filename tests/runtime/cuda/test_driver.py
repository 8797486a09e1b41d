"""Launches on a GPU, against a driver that is none (fake_driver.cpp): the native executor and its mirror do the same."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import os
import shutil
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from graftjit.ir.symbolic.expr import Symbol, apply
from graftjit.runtime import _native
from graftjit.runtime.cuda import driver
from graftjit.runtime.errors import BuildError
from graftjit.runtime.executor import lower as executor
from graftjit.runtime.guards import tensor_access as tensors
from graftjit.runtime.program.program import (
    Aten,
    DeviceLaunch,
    Free,
    ProgramSpec,
    Scratch,
    Slot,
)

from ..programs import CPU, alloc, spec

CUDA = torch.device("cuda", 0), torch.device("cuda", 1)
HERE = Path(__file__).parent

pytestmark = pytest.mark.skipif(
    shutil.which(os.environ.get("CXX", "g++")) is None, reason="the driver that is none needs g++"
)


class Fake:
    """What the tests ask of the library. `on_launch` is called with (kernel, parameter addresses, programs)."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.library = ctypes.CDLL(self.path)
        self.library.fake_cuda_log.restype = ctypes.c_char_p
        self.library.fake_cuda_stream.argtypes = (ctypes.c_int, ctypes.c_void_p)
        self.library.fake_cuda_recording.argtypes = (ctypes.c_void_p, ctypes.c_int)
        self._callback: Any = None

    def log(self, *functions: str) -> list[str]:
        """The calls since `forget`, of these functions."""
        lines = self.library.fake_cuda_log().decode().splitlines()
        return [line for line in lines if not functions or line.split(" ")[0] in functions]

    def forget(self) -> None:
        self.library.fake_cuda_forget()

    def fail(self, function: str, code: int, after: int = 0) -> None:
        self.library.fake_cuda_fail(function.encode(), code, after)

    def launches(self) -> list[dict[str, str]]:
        found = []
        for line in self.log("cuLaunchKernel"):
            _function, kernel, *pairs = line.split(" ")
            found.append({"kernel": kernel, **dict(pair.split("=") for pair in pairs)})
        return found

    def on_launch(self, run: Callable[[str, list[int], int], None]) -> None:
        kinds = (ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, ctypes.c_uint)
        kind = ctypes.CFUNCTYPE(None, *kinds, ctypes.c_void_p, ctypes.c_int)

        def called(name: bytes, parameters: Any, count: int, programs: int, *_rest: Any) -> None:
            run(name.decode(), [parameters[i] for i in range(count)], programs)

        self._callback = kind(called)
        self.library.fake_cuda_on_launch(self._callback)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fake_driver") / "libfake.so"
    command = [os.environ.get("CXX", "g++"), "-std=c++20", "-O1", "-shared", "-fPIC"]
    subprocess.run([*command, "-o", path, HERE / "fake_driver.cpp"], check=True)
    return path


@pytest.fixture
def fake(library: Path) -> Iterator[Fake]:
    found = Fake(library)
    found.library.fake_cuda_fresh()
    found.library.fake_cuda_set_device(0)
    driver.DRIVER.use(found.path, found.path)
    yield found
    for device in range(2):
        found.library.fake_cuda_stream(device, None)
    assert found.library.fake_cuda_depth() <= 1, "a context was pushed and not popped"
    gc.collect()
    driver.DRIVER.use()
    driver.DRIVER.dead.clear()


@pytest.fixture(params=["native", "mirror"])
def load(request: pytest.FixtureRequest, fake: Fake) -> Iterator[Any]:
    if request.param == "mirror":
        tensors.bind(["program"])

    def load(spec: ProgramSpec) -> Any:
        found = executor.load(spec)
        assert isinstance(found, _native.Program) == (request.param == "native")
        return found

    yield load
    tensors.bind()


def cubin(*kernels: str, target: str = "sm_90") -> bytes:
    return "\n".join([f"fake-cubin {target}", *kernels]).encode() + b"\0"


def kernel(text: str, shared: int = 0) -> driver.Function:
    """A kernel by its line of a cubin: its name and the sizes of its parameters."""
    return driver.load(cubin(text), text.split(" ")[0], shared)


def launch(text: str, slots: tuple[int, ...], programs: Any = 1, **more: Any) -> DeviceLaunch:
    found = kernel(text, more.get("shared", 0))
    fields = {"device": CUDA[0], "threads": 128, "shared": 0, "keep": found.keep, **more}
    return DeviceLaunch(text.split(" ")[0], found.handle, slots, programs=programs, **fields)


def pointers(*tensors: torch.Tensor) -> str:
    return ",".join(struct.pack("Q", tensor.data_ptr()).hex() for tensor in tensors)


# --- what arrives


def test_parameters_arrive_byte_for_byte(load, fake):
    """Pointers with their storage offset, the numbers by their kinds, null for what is hidden."""
    numbers = (-5, 2**40, 0.1, 0.1, 7)
    step = launch(
        "k 8 8 4 8 4 8 8 8 8",
        (1, 0),
        3,
        threads=64,
        shared=1024,
        hidden=2,
        numbers=numbers,
        kinds="iqfdq",
    )
    run = load(spec(1, 2, alloc(1, 8), step, outputs=(1,)))
    x = torch.randn(16)[4:]
    (out,) = run(x)
    (got,) = fake.launches()
    packed = [struct.pack(*pair).hex() for pair in zip("iqfdq", numbers, strict=True)]
    assert got == {
        "kernel": "k", "device": "0", "grid": "3,1,1", "block": "64,1,1", "shared": "1024", "stream": "0",
        "parameters": ",".join([pointers(out, x), *packed, "0" * 16, "0" * 16]),
    }  # fmt: skip


def test_a_kernel_computes(load, fake):
    def axpy(name: str, parameters: list[int], programs: int) -> None:
        out, x = (ctypes.c_void_p.from_address(one).value for one in parameters[:2])
        scale = ctypes.c_float.from_address(parameters[2]).value
        for i in range(8):
            value = ctypes.c_float.from_address(x + 4 * i).value
            ctypes.c_float.from_address(out + 4 * i).value = scale * value

    fake.on_launch(axpy)
    step = launch("axpy 8 8 4", (1, 0), numbers=(2.5,), kinds="f")
    run = load(spec(1, 2, alloc(1, 8), step, outputs=(1,)))
    x = torch.randn(8)
    assert torch.equal(run(x)[0], 2.5 * x)


def test_symbolic_numbers_and_grids(load, fake):
    """Sizes are read at each call; an integer for a float is converted; an empty grid is no launch."""
    n, scale = Symbol("n", "int", 4), Symbol("s", "float", 0.5)
    blocks = apply("floordiv", n + 127, 128)
    step = launch("k 8 4 8 8 4", (0,), blocks, numbers=(n, n * n, n, scale), kinds="iqdf")
    symbols = {n: ("size", 0, 0), scale: ("number", 1)}
    run = load(spec(1, 1, step, outputs=(0,), symbols=symbols, n_numbers=1))
    for size in (1, 128, 129, 0):
        x = torch.zeros(size)
        fake.forget()
        run(x, 0.3)
        numbers = (
            struct.pack("i", size),
            struct.pack("q", size * size),
            struct.pack("d", size),
            struct.pack("f", 0.3),
        )
        expected = [] if not size else [",".join([pointers(x), *(one.hex() for one in numbers)])]
        assert [one["parameters"] for one in fake.launches()] == expected
        assert [one["grid"] for one in fake.launches()] == [f"{-(-size // 128)},1,1"] * bool(size)


def test_addresses_that_a_kernel_does_not_take(load, fake):
    """Another kernel does, which is made once."""
    made = []

    def general() -> tuple[int, int]:
        made.append(kernel("any 8 8"))
        return made[-1].handle, 64

    step = launch("wide 8 8", (1, 0), aligned=(1,), general=general)
    run = load(spec(1, 2, alloc(1, 8), step, outputs=(1,)))
    memory = torch.randn(64)
    start = -(memory.data_ptr() // 4) % 4  # of the first element at a multiple of 16 bytes
    for offset, name, times in (
        (0, "wide", 0),
        (4, "wide", 0),
        (1, "any", 1),
        (6, "any", 1),
        (8, "wide", 1),
    ):
        fake.forget()
        x = memory[start + offset :][:8]
        (out,) = run(x)
        (got,) = fake.launches()
        assert (got["kernel"], got["shared"], len(made)) == (
            name,
            "64" if name == "any" else "0",
            times,
        )
        assert got["parameters"] == pointers(out, x)


def test_a_kernel_for_any_address_that_cannot_be_made(load, fake):
    def general() -> tuple[int, int]:
        raise BuildError("no compiler")

    run = load(spec(1, 1, launch("wide 8", (0,), aligned=(0,), general=general), outputs=(0,)))
    memory = torch.randn(64)
    start = -(memory.data_ptr() // 4) % 4
    with pytest.raises(BuildError, match="no compiler"):
        run(memory[start + 1 :])
    run(memory[start:])
    assert [one["kernel"] for one in fake.launches()] == ["wide"]


def test_what_a_launch_cannot_take_at_a_call(load, fake):
    n = Symbol("n", "int", 4)
    symbols = {n: ("number", 1)}
    grid = spec(1, 1, launch("k 8", (0,), n), outputs=(0,), symbols=symbols, n_numbers=1)
    run = load(grid)
    run(torch.zeros(1), 2**31 - 1)
    run(torch.zeros(1), -3)
    assert [one["grid"] for one in fake.launches()] == ["2147483647,1,1"]
    with pytest.raises(
        RuntimeError, match="k needs 2147483648 programs, and a launch takes 2147483647"
    ):
        run(torch.zeros(1), 2**31)
    narrow = launch("k 8 4", (0,), numbers=(n,), kinds="i")
    run = load(spec(1, 1, narrow, outputs=(0,), symbols=symbols, n_numbers=1))
    run(torch.zeros(1), -(2**31))
    with pytest.raises(OverflowError, match="a number of the kernel k is beyond 32 bits"):
        run(torch.zeros(1), 2**31)


@pytest.mark.parametrize(
    "change, said",
    [
        ({"programs": 2**31}, "at most 2147483647"),
        ({"device": CPU}, "a device without CUDA"),
        ({"device": torch.device("cuda")}, "a device without CUDA"),
        ({"threads": 0}, "0 threads"),
        ({"threads": 2048}, "1 to 1024"),
        ({"numbers": (1,), "kinds": ""}, "numbers of other kinds"),
        ({"numbers": (1.5,), "kinds": "q"}, "numbers of other kinds"),
        ({"numbers": (2**31,), "kinds": "i"}, "numbers of other kinds"),
        ({"numbers": (1,), "kinds": "x"}, "numbers of other kinds"),
        ({"hidden": 2000}, "at most 1024"),
    ],
)
def test_what_is_refused_beforehand(fake, change, said):
    step = dataclasses.replace(launch("k 8", (0,)), **change)
    with pytest.raises(BuildError, match=said):
        executor.load(spec(1, 1, step, outputs=(0,)))


def test_scratch_lies_in_a_tensor(load, fake):
    """Of this call, at its offset, also where that is an expression; freed like other tensors."""
    n = Symbol("n", "int", 4)
    for offset in (256, 64 * n):
        steps = (
            alloc(1, 4096, dtype=torch.uint8),
            Scratch(2, offset, 128, 1),
            Scratch(3, 0, 64, 1),
            launch("k 8 8 8 8", (0, 1, 2, 3)),
            Free((1,)),
        )
        symbols = {n: ("size", 0, 0)}
        run = load(spec(1, 4, *steps, outputs=(0,), symbols=symbols))
        fake.forget()
        run(torch.zeros(4))
        words = fake.launches()[0]["parameters"].split(",")
        _, base, first, second = (struct.unpack("Q", bytes.fromhex(word))[0] for word in words)
        assert first == base + 256 and second == base


def test_versions_move(load, fake):
    run = load(spec(2, 2, launch("k 8 8", (0, 1), writes=(0,)), outputs=(0,)))
    x, y = torch.zeros(4), torch.zeros(4)
    before = x._version
    assert run(x, y)[0] is x
    assert x._version == before + 1 and y._version == 0
    empty = load(spec(1, 1, launch("k 8", (0,), 0, writes=(0,)), outputs=(0,)))
    empty(x)
    assert x._version == before + 2


# --- devices and streams


def test_streams_are_asked_for_once_a_call_and_device(load, fake):
    steps = [launch("k 8", (0,), device=CUDA[device]) for device in (0, 1, 0, 1)]
    run = load(spec(1, 1, *steps, outputs=(0,)))
    fake.library.fake_cuda_stream(0, 0x70)
    fake.library.fake_cuda_stream(1, 0x80)
    fake.forget()
    run(torch.zeros(1))
    assert [(one["device"], one["stream"]) for one in fake.launches()] == [
        ("0", "112"),
        ("1", "128"),
    ] * 2
    if isinstance(run, _native.Program):
        assert len(fake.log("aoti_torch_get_current_cuda_stream")) == 2
    fake.library.fake_cuda_stream(0, None)
    fake.forget()
    run(torch.zeros(1))
    assert fake.launches()[0]["stream"] == "0"


@pytest.mark.parametrize("current", [-1, 0, 1])
def test_a_device_is_turned_to_and_back(load, fake, current):
    """Only where another is current, or a thread has none yet; an operator between finds the current one."""
    aten = torch.ops.aten
    seen = []
    first, last = launch("k 8", (0,), device=CUDA[1]), launch("k 8", (0,), device=CUDA[1])
    between = Aten(aten.add.Tensor, (Slot(0), Slot(0)), {}, (1,))
    run = load(spec(1, 2, first, first, between, last, outputs=(1,)))
    fake.on_launch(lambda *_: seen.append(fake.library.fake_cuda_device()))
    fake.library.fake_cuda_set_device(current)
    fake.forget()
    run(torch.ones(1))
    assert seen == [1, 1, 1]
    assert fake.library.fake_cuda_device() == current
    fake.library.fake_cuda_set_device(0)
    pushed = len(fake.log("cuCtxPushCurrent"))
    if isinstance(run, _native.Program):
        assert pushed == (0 if current == 1 else 2)
        assert len(fake.log("cuCtxGetCurrent")) == 2
    else:
        assert pushed == (0 if current == 1 else 3)


def test_nothing_in_a_call_but_launches(fake):
    """No synchronisation and no question to the device, so that a CUDA graph can record a call."""
    run = executor.load(spec(1, 1, *[launch("k 8", (0,))] * 3, outputs=(0,)))
    fake.library.fake_cuda_stream(0, 0x70)
    fake.forget()
    run(torch.zeros(1))
    names = [line.split(" ")[0] for line in fake.log()]
    assert names == [
        "cuCtxGetCurrent", "aoti_torch_get_current_cuda_stream", "cuStreamIsCapturing",
        "cuLaunchKernel", "cuLaunchKernel", "cuLaunchKernel",
    ]  # fmt: skip


def test_threads(load, fake):
    """Each has its own current device and stream; parameters of calls at the same time do not mix."""
    run = load(spec(2, 2, launch("k 8 8", (0, 1)), outputs=(0,)))
    failed: list[str] = []

    def work(number: int) -> None:
        fake.library.fake_cuda_stream(0, number)
        x, y = torch.zeros(1), torch.zeros(1)
        for _ in range(100):
            run(x, y)
        made[number] = pointers(x, y)
        kept.append((x, y))
        if fake.library.fake_cuda_depth() != 0:
            failed.append(f"thread {number}")

    made: dict[int, str] = {}
    kept: list[Any] = []
    fake.forget()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not failed
    got = [(int(one["stream"]), one["parameters"]) for one in fake.launches()]
    assert len(got) == 400 and set(got) == set(made.items())


# --- kernels


def test_shared_memory_is_asked_for_above_the_plain_limit(fake):
    plain, large = (
        launch("small 8", (0,), shared=48 << 10),
        launch("large 8", (0,), shared=100 << 10),
    )
    other = dataclasses.replace(large, device=CUDA[1])
    fake.forget()
    for _ in range(2):
        executor.load(spec(1, 1, plain, large, other, large, outputs=(0,)))
    assert fake.log("cuKernelSetAttribute") == [
        "cuKernelSetAttribute 8 102400 large 0",
        "cuKernelSetAttribute 8 102400 large 1",
    ]
    too_large = launch("huge 8", (0,), shared=300 << 10)
    with pytest.raises(BuildError, match=r"more shared memory than cuda:0 has(.|\n)*307200 bytes"):
        executor.load(spec(1, 1, too_large, outputs=(0,)))
    with pytest.raises(BuildError, match="more shared memory than cuda:1 has"):
        driver.load(cubin("huge 8"), "huge", 300 << 10, 1)


def test_a_library_goes_with_its_last_program(fake):
    """At a later load, and not before the garbage collector is through."""
    run = executor.load(spec(1, 1, launch("k 8", (0,)), outputs=(0,)))
    assert fake.library.fake_cuda_libraries() == 1
    gc.collect()
    other = kernel("other 8")
    assert fake.library.fake_cuda_libraries() == 2
    run(torch.zeros(1))
    del run
    assert fake.library.fake_cuda_libraries() == 2
    gc.collect()
    more = kernel("more 8")
    assert fake.library.fake_cuda_libraries() == 2
    assert other.keep.handle != more.keep.handle


@pytest.mark.parametrize("code", [0, 900])
def test_a_library_goes_when_the_device_is_idle(fake, code):
    """Kernels that were launched may still run. 900: a CUDA graph is being recorded."""
    run = executor.load(spec(1, 1, launch("k 8", (0,)), outputs=(0,)))
    run(torch.zeros(1))
    del run
    gc.collect()
    fake.forget()
    if code:
        fake.fail("cuCtxSynchronize", code)
    kept = kernel("other 8")
    calls = [line.split()[0] for line in fake.log()]
    assert fake.library.fake_cuda_libraries() == (2 if code else 1)
    assert ("cuLibraryUnload" in calls) == (not code)
    assert code or calls.index("cuCtxSynchronize") < calls.index("cuLibraryUnload")
    del kept


def test_a_running_program_keeps_its_library(fake):
    """Also where its last reference goes during the call."""
    holder = [executor.load(spec(1, 2, alloc(1, 1), *[launch("k 8", (0,))] * 2, outputs=(1,)))]

    def drop(*_: Any) -> None:
        if holder:
            holder.clear()
            gc.collect()
            kernel("other 8")

    fake.on_launch(drop)
    holder[0](torch.zeros(1))
    assert len(fake.launches()) == 2


@pytest.mark.parametrize("status", [0, 1])
def test_what_a_graph_has_recorded_stays(load, fake, status):
    """A CUDA graph replays kernels after their program has gone."""
    run = load(spec(1, 1, launch("k 8", (0,)), outputs=(0,)))
    fake.library.fake_cuda_stream(0, 0x70)
    fake.library.fake_cuda_recording(0x70, status)
    run(torch.zeros(1))
    run(torch.zeros(1))
    del run
    gc.collect()
    other = kernel("other 8")
    assert fake.library.fake_cuda_libraries() == 1 + status
    del other


def test_loading_is_allowed_while_a_graph_is_recorded(fake):
    fake.forget()
    found = driver.load(cubin("k 8"), "k", 0, 0)
    modes = fake.log("cuThreadExchangeStreamCaptureMode")
    assert [line.split(" ")[1] for line in modes] == ["2", "0", "2", "0"]
    assert found.handle


# --- errors


def test_out_of_memory(load, fake):
    """As eager says it; the call before it and the call after it are whole, and what was not begun is not done."""
    run = load(spec(1, 1, *[launch("k 8", (0,), writes=(0,))] * 2, outputs=(0,)))
    x = torch.zeros(4)
    fake.fail("cuLaunchKernel", 2, after=1)
    with pytest.raises(
        torch.OutOfMemoryError, match=r"CUDA out of memory.*launching the kernel k on cuda:0"
    ):
        run(x)
    assert x._version == 1  # the first launch was done, the second was not begun
    fake.library.fake_cuda_reset()
    run(x)
    assert x._version == 3 and len(fake.launches()) == 2


@pytest.mark.parametrize(
    "code, said",
    [
        (700, r"an illegal memory access was encountered \(CUDA_ERROR_ILLEGAL_ADDRESS\).*\n.*an earlier kernel's"),
        (710, r"device-side assert triggered.*\n.*an earlier kernel's(.|\n)*CUDA_LAUNCH_BLOCKING=1"),
        (3, r"initialization error.*\n.*forked(.|\n)*spawn"),
        (1, r"invalid argument \(CUDA_ERROR_INVALID_VALUE\) while launching the kernel k on cuda:0\.$"),
        (4711, r"error 4711"),
    ],
)  # fmt: skip
def test_other_errors(load, fake, code, said):
    run = load(spec(1, 1, launch("k 8", (0,)), outputs=(0,)))
    fake.fail("cuLaunchKernel", code)
    with pytest.raises(torch.AcceleratorError, match=f"CUDA error: {said}") as caught:
        run(torch.zeros(1))
    assert caught.value.error_code == code


@pytest.mark.parametrize(
    "function",
    ["cuCtxGetCurrent", "cuCtxGetDevice", "cuCtxPushCurrent", "cuStreamIsCapturing", "cuCtxPopCurrent"],
)  # fmt: skip
def test_an_error_around_a_launch(fake, function):
    aten = torch.ops.aten
    between = Aten(aten.add.Tensor, (Slot(0), Slot(0)), {}, (1,))
    run = executor.load(spec(1, 2, launch("k 8", (0,), device=CUDA[1]), between, outputs=(1,)))
    fake.library.fake_cuda_stream(1, 0x70)
    fake.fail(function, 700)
    with pytest.raises(torch.AcceleratorError, match="an illegal memory access"):
        run(torch.zeros(1))
    fake.library.fake_cuda_set_device(0)
    fake.library.fake_cuda_reset()
    run(torch.zeros(1))


def test_torch_does_not_tell_its_stream(load, fake):
    run = load(spec(1, 1, launch("k 8", (0,)), outputs=(0,)))
    fake.fail("aoti_torch_get_current_cuda_stream", 1)
    with pytest.raises(torch.AcceleratorError, match="torch's current stream cannot be read"):
        run(torch.zeros(1))


def test_images_that_do_not_fit(fake):
    with pytest.raises(BuildError, match=r"made for|another architecture(.|\n)*NO_BINARY_FOR_GPU"):
        driver.load(cubin("k 8", target="sm_80"), "k")
    with pytest.raises(BuildError, match=r"INVALID_IMAGE"):
        driver.load(b"\x7fELF\0", "k")
    with pytest.raises(BuildError, match="no kernel of the name j"):
        driver.load(cubin("k 8"), "j")
    fake.fail("cuLibraryLoadData", 2)
    with pytest.raises(torch.OutOfMemoryError, match="loading the kernel k"):
        driver.load(cubin("k 8"), "k")


# --- is there a driver


def test_no_driver_is_looked_for_without_need():
    text = (
        "import graftjit, torch, sys; run = graftjit.jit(lambda x: x.relu() + 1); run(torch.ones(4));"
        "print('graftjit.runtime.cuda.driver' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_reasons(fake, tmp_path):
    assert driver.available() == ""
    assert driver.DRIVER.version_text() == "12.4"
    driver.DRIVER.use(str(tmp_path / "libcuda.so.1"), fake.path)
    assert "there is no CUDA driver" in driver.available()
    with pytest.raises(BuildError, match="there is no CUDA driver"):
        driver.load(cubin("k 8"), "k")
    driver.DRIVER.use(fake.path, str(tmp_path / "libtorch_cuda.so"))
    assert "torch's CUDA stream cannot be read" in driver.available()
    fake.library.fake_cuda_version(11080)
    driver.DRIVER.use(fake.path, fake.path)
    assert driver.available() == "the CUDA driver is too old: 11.8; kernels need 12.0 or newer"
    fake.library.fake_cuda_reset()
    fake.fail("cuInit", 100)
    driver.DRIVER.use(fake.path, fake.path)
    assert "no CUDA-capable device is detected" in driver.available()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_does_not_use_its_parents_driver(fake):
    run = executor.load(spec(1, 1, launch("k 8", (0,)), outputs=(0,)))
    child = os.fork()
    if child == 0:
        try:
            assert "forked" in driver.available()
            del run
            gc.collect()
            fake.forget()
            for one, _ in driver.DRIVER.dead:
                one.unload()
            os._exit(7 if fake.log() else 0)
        except BaseException:
            os._exit(8)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
