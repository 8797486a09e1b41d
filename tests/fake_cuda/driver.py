"""`fake_driver()`: a libcuda for the fake devices, whose launches Triton's interpreter runs.

`image` is what stands for a cubin: the kernel's text and how a launch has to look, so that a launch with other
threads, parameters on another device, host memory, an address less aligned than promised, or too much shared memory
is refused as a driver or a device would. `Driver.fail` puts an error into any function of the driver.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import pickle
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

from graftjit.codegen.triton.compiler import Binary

from . import native, operators
from .interpreter import Interpreter, Launch, Text
from .memory import memory

SHARED = 1024  # bytes that the fake compiler's kernels ask for
HIDDEN = 2  # pointers that a compiler appends
_CODES = {"assert": 710, "illegal": 700, "misaligned": 716, "invalid": 1, "failed": 719}
_NUMBERS = {"i64": "q", "i32": "i", "fp64": "d", "fp32": "f", "u32": "I", "u64": "Q", "i1": "?"}


class _Launch(ctypes.Structure):
    _fields_ = (
        ("image", ctypes.c_void_p),
        ("image_size", ctypes.c_int64),
        ("name", ctypes.c_char_p),
        ("parameters", ctypes.POINTER(ctypes.c_void_p)),
        ("stream", ctypes.c_void_p),
        ("device", ctypes.c_int32),
        ("grid", ctypes.c_int32 * 3),
        ("block", ctypes.c_int32 * 3),
        ("shared", ctypes.c_int32),
        ("shared_limit", ctypes.c_int32),
    )


_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Launch))


class Launched(NamedTuple):
    """One launch that was made: of which kernel, where, and with which numbers."""

    name: str
    device: int
    stream: int
    programs: int
    numbers: tuple[int | float, ...]


class _Refused(Exception):
    """A launch that a device would not run: a key of `_CODES`, and why."""


def compiled(jobs: Sequence[Mapping[str, Any]]) -> list[Any]:
    """In the place of `cubins.COMPILER`: each kernel's image, with the facts that a compiler tells."""
    found = []
    for job in jobs:
        kernel = SimpleNamespace(**job)
        facts = {
            "name": kernel.name, "cubin": image(kernel, job["capability"]), "ptx": "", "shared": SHARED,
            "warps": kernel.warps, "hidden": HIDDEN, "scratch": 0, "registers": 32, "stack": 0,
        }  # fmt: skip
        found.append(Binary(**{name: facts[name] for name in Binary._fields}))
    return found


def image(kernel: Any, capability: int = 90) -> bytes:
    """What stands for the cubin of a `codegen.triton.renderer.TritonKernel`."""
    text = Text(kernel.name, kernel.source, tuple(kernel.arguments), dict(kernel.constants))
    data = pickle.dumps((tuple(text), tuple(kernel.aligned), 32 * kernel.warps, capability))
    return b"\x7fELFFAKE" + struct.pack("<q", len(data)) + data


@functools.cache
def _interpreter() -> Interpreter:
    return Interpreter(memory().descriptor)


class Driver:
    """What tests ask of the driver that `fake_driver` gives.

    launches    in order
    errors      texts of what went wrong in kernels and launches; a test that means them clears the list
    interpret   False: kernels are recorded and not run
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self.launches: list[Launched] = []
        self.errors: list[str] = []
        self.interpret = True
        self._library = library
        self._lock = threading.Lock()
        self._images: dict[bytes, tuple[Text, tuple[int, ...], int, int]] = {}

    def fail(self, function: str, code: int, after: int = 0) -> None:
        """From the call after `after` others on, the function gives this code (0: all is well again)."""
        self._library.fake_driver_fail(function.encode(), code, after)

    def calls(self, function: str) -> int:
        """How often it was called."""
        return int(self._library.fake_driver_calls(function.encode()))

    def set_version(self, version: int) -> None:
        """What the driver says it is (13000: CUDA 13.0)."""
        self._library.fake_driver_version(version)

    def set_bare(self, bare: bool) -> None:
        """Whether threads begin without a current context, as one that has asked nothing of CUDA's."""
        self._library.fake_driver_bare(bare)

    def current_context(self) -> int:
        """The number of this thread's current context: a device's index + 1, or 0 for none."""
        return int(self._library.fake_driver_current())

    def contexts(self) -> int:
        """How many contexts this thread has pushed and not popped."""
        return int(self._library.fake_driver_contexts())

    def launched(self, launch: Any) -> int:
        """What `cuLaunchKernel` calls."""
        try:
            with self._lock:
                self._run(launch.contents)
        except _Refused as refused:
            code, why = refused.args
            self.errors.append(why)
            return _CODES[code]
        except Exception as error:  # nothing may leave a C function
            self.errors.append(f"{type(error).__name__}: {error}")
            return _CODES["failed"]
        return 0

    def _run(self, launch: _Launch) -> None:
        raw = ctypes.string_at(launch.image, launch.image_size)
        if raw not in self._images:
            text, aligned, threads, capability = pickle.loads(raw)
            self._images[raw] = (Text(*text), aligned, threads, capability)
        kernel, aligned, threads, _capability = self._images[raw]
        _check_shape(kernel, launch, threads)
        kinds = [kind for _name, kind in kernel.arguments if kind != "constexpr"]
        pointers, numbers = [], []
        for place, kind in enumerate(kinds):
            address = launch.parameters[place]
            if kind.startswith("*"):
                (pointer,) = struct.unpack("<q", ctypes.string_at(address, 8))
                pointers.append(_pointer(kernel, place, pointer, aligned, launch.device))
            else:
                form = "<" + _NUMBERS[kind]
                numbers += struct.unpack(form, ctypes.string_at(address, struct.calcsize(form)))
        for place in range(len(kinds), len(kinds) + HIDDEN):
            if ctypes.string_at(launch.parameters[place], 8) != bytes(8):
                raise _Refused("failed", f"{kernel.name}: a hidden parameter is not null")
        self.launches.append(
            Launched(kernel.name, launch.device, launch.stream or 0, launch.grid[0], tuple(numbers))
        )
        if self.interpret:
            self._interpret(Launch(kernel, pointers, numbers, tuple(launch.grid)))

    def _interpret(self, launch: Launch) -> None:
        if operators.RECORDER:  # a graph is recorded: its replays run the kernel
            operators.RECORDER[-1].__self__.launch(lambda: self._run_now(launch))
            return
        self._run_now(launch)

    def _run_now(self, launch: Launch) -> None:
        error = _interpreter().run(launch)
        if error:
            kind = "illegal" if "_Outside" in error else "failed"
            kind = "assert" if "AssertionError" in error else kind
            raise _Refused(kind, f"{error}\n{launch.kernel.source}")


def _check_shape(kernel: Text, launch: _Launch, threads: int) -> None:
    if tuple(launch.block) != (threads, 1, 1):
        raise _Refused(
            "invalid", f"{kernel.name}: {tuple(launch.block)} threads instead of {threads}"
        )
    if launch.shared != SHARED or launch.shared > launch.shared_limit:
        raise _Refused("invalid", f"{kernel.name}: {launch.shared} bytes of shared memory")


def _pointer(
    kernel: Text, place: int, pointer: int, aligned: tuple[int, ...], device: int
) -> tuple[int, int, int]:
    name = kernel.arguments[place][0]
    block = memory().block_of(pointer)
    if block is None:
        raise _Refused("illegal", f"{kernel.name}: {name} = {pointer:#x} is no device memory")
    if memory().device_of(block[0]) != device:
        raise _Refused("illegal", f"{kernel.name}: {name} is of another device than {device}")
    if place in aligned and pointer % 16:
        raise _Refused("misaligned", f"{kernel.name}: {name} = {pointer:#x}")
    return (pointer, *block)


@functools.cache
def library_path() -> str:
    """Where the library lies that stands for libcuda.so.1, and has torch's function for streams."""
    return native.library("driver.cpp")


@contextlib.contextmanager
def fake_libcuda() -> Iterator[Driver]:
    """The library alone, within a block of `fake_cuda()`: its users need `library_path()`.

    What went wrong in a kernel and was not cleared from `errors` is an AssertionError at its end.
    """
    library, guard = ctypes.CDLL(library_path()), native.guard()
    driver = Driver(library)
    callback = _CALLBACK(driver.launched)
    library.fake_driver_reset()
    library.fake_driver_bind(callback, guard.fake_cuda_device, guard.fake_cuda_stream)
    try:
        yield driver
        assert not driver.errors, "\n".join(driver.errors)
        assert not driver.contexts(), "a context was pushed and not popped"
    finally:
        library.fake_driver_reset()


@contextlib.contextmanager
def fake_gpu() -> Iterator[Driver]:
    """The whole road from a graph to launches, within a block of `fake_cuda()`: graftjit's driver is the fake library, and
    what compiles kernels makes images for it. They lie in a kernel store of their own."""
    from graftjit.codegen.triton import cubins
    from graftjit.runtime.cuda.driver import DRIVER
    from graftjit.runtime.process.session import SESSION

    store = Path(os.environ["GRAFTJIT_CACHE_DIR"]) / "fake_cuda" / "store"
    with contextlib.ExitStack() as stack:
        driver = stack.enter_context(fake_libcuda())
        stack.enter_context(SESSION.override(cache_dir=store))
        stack.enter_context(mock.patch.object(cubins, "COMPILER", compiled))
        stack.callback(cubins.PROCESS.clear)
        stack.callback(DRIVER.use)
        DRIVER.use(library_path(), library_path())
        yield driver
