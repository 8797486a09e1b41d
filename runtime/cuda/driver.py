"""The CUDA driver: detection, loading of cubins, and its errors as exceptions.

`load` makes a function handle of a cubin. A handle belongs to no context, so several devices share
it; it is valid while the `keep` object that `load` returns lives. `prepare` does the work for a
device that should not happen during a call. The native executor launches kernels
(runtime/native/cuda/launch.cpp); `launch` does the same through ctypes, for the mirror. libcuda is
loaded at first use, never at import. Functions and numbers are those of the CUDA Driver API
reference of CUDA 12.0.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import torch

from .. import _native
from ..errors import BuildError
from ..program.program import DeviceLaunch
from ..store.loaded import collections

OLDEST = 12000  # the first version with cuLibraryLoadData
PLAIN_SHARED = 48 << 10  # bytes of shared memory that a kernel may use by default
LIBRARY = "libcuda.so.1"

_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_OUT_OF_MEMORY, _NOT_INITIALIZED, _DEINITIALIZED, _NOT_FOUND = 2, 3, 4, 500
NO_STREAM = -1  # as in runtime/native/cuda/driver.h
_P, _I, _U = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint
_TO_INT, _TO_P = ctypes.POINTER(_I), ctypes.POINTER(_P)

# Required functions with their arguments. Names with _v2 are those of the 64-bit API.
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cuInit": (_U,),
    "cuDriverGetVersion": (_TO_INT,),
    "cuGetErrorName": (_I, ctypes.POINTER(ctypes.c_char_p)),
    "cuGetErrorString": (_I, ctypes.POINTER(ctypes.c_char_p)),
    "cuDeviceGet": (_TO_INT, _I),
    "cuDevicePrimaryCtxRetain": (_TO_P, _I),
    "cuCtxGetCurrent": (_TO_P,),
    "cuCtxGetDevice": (_TO_INT,),
    "cuCtxPushCurrent_v2": (_P,),
    "cuCtxPopCurrent_v2": (_TO_P,),
    "cuCtxSetCurrent": (_P,),
    "cuLibraryLoadData": (_TO_P, _P, _P, _P, _U, _P, _P, _U),
    "cuLibraryGetKernel": (_TO_P, _P, ctypes.c_char_p),
    "cuLibraryUnload": (_P,),
    "cuKernelSetAttribute": (_I, _I, _P, _I),
    "cuLaunchKernel": (_P, _U, _U, _U, _U, _U, _U, _U, _P, _TO_P, _P),
}
# Optional functions.
MORE: dict[str, tuple[Any, ...]] = {
    "cuStreamIsCapturing": (_P, _TO_INT),
    "cuThreadExchangeStreamCaptureMode": (_TO_INT,),
    "cuCtxSynchronize": (),
    "cuKernelGetFunction": (_TO_P, _P),
    "cuFuncLoad": (_P,),
}
STREAM = "aoti_torch_get_current_cuda_stream"
_DEVICE = "aoti_torch_get_current_device_index"  # optional
# Functions for the native part, in the order of `struct CudaDriver`; torch's functions are added
# last.
_NATIVE = (
    "cuLaunchKernel",
    "cuCtxGetCurrent",
    "cuCtxGetDevice",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuCtxSetCurrent",
    "cuStreamIsCapturing",
)

# Errors of an image that this device or driver cannot load.
_UNFIT = {
    200: "the image is not a kernel image",  # CUDA_ERROR_INVALID_IMAGE
    209: "the cubin is for another architecture",  # CUDA_ERROR_NO_BINARY_FOR_GPU
    218: "the image is damaged",  # CUDA_ERROR_INVALID_PTX
    222: "the kernel was made for a newer driver",  # CUDA_ERROR_UNSUPPORTED_PTX_VERSION
    300: "the image is damaged",  # CUDA_ERROR_INVALID_SOURCE
}
# Errors that a kernel causes in its context and that a later call reports: illegal address,
# timeout, assert, stack, instruction, misaligned address, address space, program counter, launch
# failure; memory errors of the device.
_STICKY = frozenset((214, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719))
_LATER = (
    "CUDA kernel errors might be asynchronously reported at some other API call: it may be an"
    " earlier kernel's, of this program or of another.\nFor debugging consider passing"
    " CUDA_LAUNCH_BLOCKING=1"
)
_FORKED = (
    "the CUDA driver is not initialised in this process. Cannot use CUDA in a process that was"
    " forked after CUDA was initialised: use the 'spawn' start method of multiprocessing"
)


class Function(NamedTuple):
    """A loaded kernel: its handle, which is valid while `keep` lives."""

    handle: int
    keep: Any


class Library:
    """A cubin loaded by the driver. After its last reference is gone, a later `load` unloads it,
    since objects of a dead cycle may call each other until the garbage collection ends, and
    kernels that were launched may still run."""

    def __init__(self, handle: int, driver: Driver) -> None:
        self.handle = handle
        self._functions = driver.functions
        self._process = os.getpid()
        self._dead = driver.dead

    def __del__(self, collections: Callable[[], int] = collections) -> None:
        # The default outlives the module's names, which the interpreter's end clears.
        self._dead.append((self, collections()))

    def unload(self) -> None:
        """Unload it and ignore errors. After a fork, the handle belongs to the parent."""
        if os.getpid() == self._process:
            self._functions["cuLibraryUnload"](self.handle)


class Driver:
    """libcuda and torch's function for streams, once found. `DRIVER` is the one of the process."""

    def __init__(self) -> None:
        self.functions: dict[str, Any] = {}
        # with the number of garbage collections at its death
        self.dead: list[tuple[Library, int]] = []
        self._contexts: dict[int, tuple[int, int]] = {}
        self.use()

    def use(self, library: str = LIBRARY, torch_library: str | None = None) -> None:
        """Use this libcuda, and this library for torch's streams. Tests pass others than the real
        ones."""
        self._library, self._torch_library = library, torch_library
        self._reason: str | None = None  # None: not searched yet
        self._process = 0
        self.functions = {}
        self.version = 0  # 12040: CUDA 12.4
        for device in self._contexts:
            _native.driver_context(device, 0, 0)
        self._contexts = {}
        self._prepared: set[tuple[int, int, int]] = set()
        self._captured: dict[int, Any] = {}

    # --- finding it

    def why_not(self) -> str:
        """Why kernels cannot be launched here; "" if they can."""
        if self._reason is None:
            self._process = os.getpid()
            self._reason = self._find()
        if not self._reason and self._process != os.getpid():
            return _FORKED
        return self._reason

    def _find(self) -> str:
        path = self._torch_library
        if path is None:
            path = str(Path(torch.__file__).parent / "lib" / "libtorch_cuda.so")
            if not os.path.exists(path):
                return "this torch is built without CUDA"
        try:
            stream = getattr(ctypes.CDLL(path), STREAM)
        except (OSError, AttributeError) as error:
            return f"torch's CUDA stream cannot be read: {error}"
        stream.argtypes = (ctypes.c_int32, _TO_P)
        try:
            library = ctypes.CDLL(self._library)
        except OSError as error:
            return f"there is no CUDA driver: {error}"
        found = {name: _bound(library, name, kinds) for name, kinds in (FUNCTIONS | MORE).items()}
        # Check the version first: an old driver lacks functions.
        missing = [name for name in FUNCTIONS if found[name] is None]
        get_version = found["cuDriverGetVersion"]
        version = _I(0)
        if get_version is not None and get_version(ctypes.byref(version)) == 0:
            self.version = version.value
        if 0 < self.version < OLDEST:
            return f"the CUDA driver is too old: {self.version_text()}; kernels need 12.0 or newer"
        if missing:
            return f"the CUDA driver lacks {', '.join(missing)}"
        self.functions = {name: one for name, one in found.items() if one is not None}
        self.functions[STREAM] = stream
        if code := self.functions["cuInit"](0):
            return f"the CUDA driver cannot be initialised: {self.describe(code)}"
        own = [*(self.functions.get(name) for name in _NATIVE), stream, _in_torch(_DEVICE)]
        _native.driver_bind(tuple([0 if one is None else _address(one) for one in own]))
        return ""

    def version_text(self) -> str:
        """ "12.4", or "" while unknown."""
        return f"{self.version // 1000}.{self.version % 1000 // 10}" if self.version else ""

    # --- errors

    def describe(self, code: int) -> str:
        """The driver's text for an error code, and the name of the code."""
        if code == NO_STREAM:
            return "torch's current stream cannot be read"
        texts = []
        for name in ("cuGetErrorString", "cuGetErrorName"):
            text = ctypes.c_char_p()
            known = self.functions[name](code, ctypes.byref(text)) == 0 and text.value
            texts.append(text.value.decode() if known and text.value else f"error {code}")
        return f"{texts[0]} ({texts[1]})"

    def fail(self, code: int, doing: str) -> NoReturn:
        """Raise the exception that torch would raise if an operator's kernel failed with this
        error."""
        text = f"CUDA error: {self.describe(code)} while {doing}."
        if code == _OUT_OF_MEMORY:
            raise torch.OutOfMemoryError(
                f"CUDA out of memory. {text} torch.cuda.empty_cache() frees the memory that torch"
                " caches"
            )
        if code in (_NOT_INITIALIZED, _DEINITIALIZED):
            text = f"{text}\n{_FORKED}"
        elif code in _STICKY:
            text = f"{text}\n{_LATER}"
        error = torch.AcceleratorError(text)
        error.error_code = code  # type: ignore[attr-defined]
        raise error

    def call(self, name: str, *args: Any, doing: str) -> None:
        """Call a function of the driver; an error code raises."""
        if code := self.functions[name](*args):
            self.fail(code, doing)

    # --- kernels

    def load(self, cubin: bytes, name: str, shared: int, device: int | None) -> Function:
        if why := self.why_not():
            raise BuildError(f"the kernel {name} cannot be loaded", found=why)
        with self._outside_of_captures():
            self._unload_dead()
            handle = self._try_load(cubin, name)
            library = Library(handle, self)
            kernel = _P()
            code = self.functions["cuLibraryGetKernel"](ctypes.byref(kernel), handle, name.encode())
            if code == _NOT_FOUND:
                raise BuildError(f"the cubin has no kernel of the name {name}")
            self._check_loaded(code, name)
        assert kernel.value is not None
        if device is not None:
            self.prepare(kernel.value, name, shared, device)
        return Function(kernel.value, library)

    def _try_load(self, cubin: bytes, name: str) -> int:
        handle = _P()
        data = ctypes.create_string_buffer(cubin, len(cubin))
        for again in (True, False):
            code = self.functions["cuLibraryLoadData"](
                ctypes.byref(handle), data, None, None, 0, None, None, 0
            )
            # Free torch's cached memory and try again.
            if code != _OUT_OF_MEMORY or not again or not torch.cuda.is_initialized():
                break
            torch.cuda.empty_cache()
        self._check_loaded(code, name)
        assert handle.value is not None
        return handle.value

    def _check_loaded(self, code: int, name: str) -> None:
        if code in _UNFIT:
            raise BuildError(
                f"the kernel {name} cannot be loaded: {_UNFIT[code]}", found=self.describe(code)
            )
        if code:
            self.fail(code, f"loading the kernel {name}")

    def _unload_dead(self) -> None:
        """Unload libraries that died before the last garbage collection: no object can launch their
        kernels."""
        now = collections()
        gone = [one for one in self.dead if one[1] < now]
        if not gone or not self._idle():
            return
        for item in gone:
            self.dead.remove(item)
            self._prepared.clear()  # the driver may reuse a handle
            item[0].unload()

    def _idle(self) -> bool:
        """Wait for the kernels of all devices; False if that is not possible now, for example
        while a CUDA graph is being recorded."""
        if "cuCtxSynchronize" not in self.functions:
            return True
        for device in self._contexts:
            with self.current(device):
                if self.functions["cuCtxSynchronize"]():
                    return False
        return True

    def prepare(self, function: int, name: str, shared: int, device: int) -> None:
        """Prepare a kernel for a device: retain the context, load the code, allow its shared
        memory."""
        if (function, shared, device) in self._prepared:
            return
        if why := self.why_not():
            raise BuildError(f"the kernel {name} cannot be launched", found=why)
        with self._outside_of_captures(), self.current(device) as number:
            if "cuKernelGetFunction" in self.functions:
                inside = _P()
                code = self.functions["cuKernelGetFunction"](ctypes.byref(inside), function)
                if not code and "cuFuncLoad" in self.functions:
                    code = self.functions["cuFuncLoad"](inside)
                self._check_loaded(code, name)
            if shared > PLAIN_SHARED:
                code = self.functions["cuKernelSetAttribute"](
                    _MAX_DYNAMIC_SHARED, shared, function, number
                )
                if code == 1:  # CUDA_ERROR_INVALID_VALUE
                    raise BuildError(
                        f"the kernel {name} needs more shared memory than cuda:{device} has",
                        found=f"{shared} bytes",
                    )
                self._check_loaded(code, name)
        self._prepared.add((function, shared, device))

    def captured(self, keep: Any) -> None:
        """Keep this library loaded for good, since a CUDA graph may replay its kernels."""
        self._captured[id(keep)] = keep

    # --- devices and streams

    def _context(self, device: int) -> tuple[int, int]:
        """The driver's number of a device and its primary context, which torch uses."""
        if device not in self._contexts:
            number, context = _I(), _P()
            doing = f"looking up cuda:{device}"
            self.call("cuDeviceGet", ctypes.byref(number), device, doing=doing)
            self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), number, doing=doing)
            assert context.value is not None
            _native.driver_context(device, number.value, context.value)
            self._contexts[device] = number.value, context.value
        return self._contexts[device]

    @contextlib.contextmanager
    def current(self, device: int) -> Iterator[int]:
        """Make a context of the device current within the block; yields the driver's number of the
        device."""
        number, context = self._context(device)
        doing = f"switching to cuda:{device}"
        before, whose = _P(), _I(-1)
        self.call("cuCtxGetCurrent", ctypes.byref(before), doing=doing)
        if before.value is not None:
            self.call("cuCtxGetDevice", ctypes.byref(whose), doing=doing)
        if whose.value == number:
            yield number
            return
        self.call("cuCtxPushCurrent_v2", context, doing=doing)
        try:
            yield number
        finally:
            self.functions["cuCtxPopCurrent_v2"](ctypes.byref(_P()))

    @contextlib.contextmanager
    def _outside_of_captures(self) -> Iterator[None]:
        """Allow loading and unloading within the block while a CUDA graph is recorded, by switching
        this thread's capture mode to relaxed."""
        exchange = self.functions.get("cuThreadExchangeStreamCaptureMode")
        mode = _I(_RELAXED)
        if exchange is None or exchange(ctypes.byref(mode)):
            yield
            return
        try:
            yield
        finally:
            exchange(ctypes.byref(mode))

    def launch(self, step: DeviceLaunch, values: Sequence[bytes]) -> None:
        """One launch on torch's current stream, with the bytes of each parameter."""
        assert step.device.index is not None
        doing = f"launching the kernel {step.kernel} on {step.device}"
        parameters = [ctypes.create_string_buffer(value, len(value)) for value in values]
        addresses = (_P * len(parameters))(*[ctypes.addressof(one) for one in parameters])
        stream = _P()
        with self.current(step.device.index):
            if self.functions[STREAM](step.device.index, ctypes.byref(stream)):
                self.fail(NO_STREAM, doing)
            if self._records(stream, doing):
                self.captured(step.keep)
            self.call(
                "cuLaunchKernel",
                step.function,
                step.programs,
                1,
                1,
                step.threads,
                1,
                1,
                step.shared,
                stream,
                addresses,
                None,
                doing=doing,
            )

    def _records(self, stream: ctypes.c_void_p, doing: str) -> bool:
        """Whether a CUDA graph is recording the stream. The default (null) stream cannot be
        recorded."""
        if stream.value is None or "cuStreamIsCapturing" not in self.functions:
            return False
        status = _I()
        self.call("cuStreamIsCapturing", stream, ctypes.byref(status), doing=doing)
        return status.value != 0


def _in_torch(name: str) -> Any:
    """A function of torch's part without devices, or None."""
    path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    return getattr(ctypes.CDLL(str(path)), name, None) if path.exists() else None


def _bound(library: ctypes.CDLL, name: str, kinds: tuple[Any, ...]) -> Any:
    function = getattr(library, name, None)
    if function is not None:
        function.argtypes = kinds
    return function


def _address(function: Any) -> int:
    return ctypes.cast(function, _P).value or 0


DRIVER = Driver()


def available() -> str:
    """Why kernels cannot be launched in this process; "" if they can."""
    return DRIVER.why_not()


def load(cubin: bytes, name: str, shared: int = 0, device: int | None = None) -> Function:
    """The kernel `name` of a cubin: `handle, keep = load(...)`.

    `shared`: bytes of dynamic shared memory per launch. `device`: a device to prepare the kernel
    for; loading a program does this for its devices. Raises BuildError if there is no driver or the
    image does not fit the device, torch.OutOfMemoryError, or torch.AcceleratorError.
    """
    return DRIVER.load(cubin, name, shared, device)


def prepare(function: int, name: str, shared: int, device: int) -> None:
    """See `Driver.prepare`."""
    DRIVER.prepare(function, name, shared, device)


def captured(keep: Any) -> None:
    """`Driver.captured`, for the native executor."""
    DRIVER.captured(keep)


def fail(code: int, doing: str) -> NoReturn:
    """`Driver.fail`, for the native executor."""
    DRIVER.fail(code, doing)
