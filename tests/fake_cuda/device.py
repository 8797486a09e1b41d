"""`fake_cuda()`: two CUDA devices for as long as its block is open, computed by the CPU over host memory.

Needs a build of torch without CUDA and a C++ compiler; `why_not()` says what is missing. What torch cannot
forget (a device guard, operators of the CUDA key) stays in the process and speaks of no device between blocks;
it must be there before autograd's first backward: `prepare()`, at collection. `torch.cuda` gets stand-ins.
"""

from __future__ import annotations

import contextlib
import functools
import os
import types
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch

from graftjit.runtime.process import skipped_files

from . import native, operators

DEVICES = 2


def why_not() -> str:
    """The reason why there can be no fake device here, "" where there can be one."""
    if torch.version.cuda is not None or torch.version.hip is not None:
        return "this build of torch has CUDA's own kernels"
    return "" if native.compiler() else "there is no C++ compiler"


@functools.cache
def prepare() -> list[Any]:
    """What stays: at most once a process."""
    native.guard()
    return operators.install()


class Properties:
    """What `torch.cuda.get_device_properties` gives: an H100's figures."""

    name = "Fake H100"
    major, minor = 9, 0
    total_memory = 80 << 30
    multi_processor_count = 132
    warp_size = 32
    max_threads_per_multi_processor = 2048
    regs_per_multiprocessor = 65536
    shared_memory_per_block = 48 << 10
    shared_memory_per_block_optin = 227 << 10
    shared_memory_per_multiprocessor = 228 << 10
    L2_cache_size = 50 << 20
    is_integrated = False
    is_multi_gpu_board = False


class Stream:
    """A stream: work is done when the call returns, so it orders nothing. `cuda_stream`: its handle."""

    def __init__(self, device: Any = None, priority: int = 0, stream_id: int | None = None) -> None:
        index = _index(device)
        self.device_index, self.device = index, torch.device("cuda", index)
        self.stream_id = Stream.made = Stream.made + 1 if stream_id is None else stream_id
        self.priority = priority

    made = 0

    @property
    def cuda_stream(self) -> int:
        return self.stream_id << 8 | self.device_index if self.stream_id else 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.cuda_stream == other.cuda_stream

    def __hash__(self) -> int:
        return hash(self.cuda_stream)

    def synchronize(self) -> None: ...

    def wait_stream(self, stream: Stream) -> None: ...

    def query(self) -> bool:
        return True


_CURRENT: dict[int, Stream] = {}


def _index(device: Any = None) -> int:
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        device = device.index
    return int(native.guard().fake_cuda_device()) if device is None else int(device)


def _current_stream(device: Any = None) -> Stream:
    index = _index(device)
    return _CURRENT.get(index) or Stream(index, stream_id=0)


def _set_stream(stream: Stream) -> None:
    _CURRENT[stream.device_index] = stream
    native.guard().fake_cuda_set_stream(stream.device_index, stream.stream_id)


@contextlib.contextmanager
def _stream(stream: Stream | None) -> Iterator[None]:
    if stream is None:
        yield
        return
    before = _current_stream(stream.device_index)
    _set_stream(stream)
    try:
        yield
    finally:
        _set_stream(before)


def _exchange(device: int) -> int:
    return int(native.guard().fake_cuda_exchange_device(device))


def _seed_all(seed: int) -> None:
    for generator in operators.GENERATORS:
        generator.manual_seed(seed)


def _nothing(*args: Any, **kwargs: Any) -> None: ...


def _stand_ins() -> dict[str, Callable[..., Any] | Any]:
    generators = operators.GENERATORS
    found = {
        "_lazy_init": _nothing,
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: DEVICES,
        "current_device": _index,
        "set_device": lambda device: _exchange(_index(device)) and None,
        "_exchange_device": _exchange,
        "_maybe_exchange_device": _exchange,
        "get_device_capability": lambda device=None: (9, 0),
        "get_device_name": lambda device=None: Properties.name,
        "get_device_properties": lambda device=None: Properties(),
        "is_bf16_supported": lambda including_emulation=True: True,
        "default_generators": generators,
        "manual_seed": lambda seed: generators[_index()].manual_seed(seed) and None,
        "manual_seed_all": _seed_all,
        "synchronize": _nothing,
        "empty_cache": _nothing,
        "Stream": Stream,
        "stream": _stream,
        "set_stream": _set_stream,
        "current_stream": _current_stream,
        "default_stream": lambda device=None: Stream(_index(device), stream_id=0),
        "is_current_stream_capturing": lambda: False,
        "memory_allocated": lambda device=None: 0,
        "max_memory_allocated": lambda device=None: 0,
    }
    for stand_in in found.values():
        if isinstance(stand_in, types.FunctionType):
            stand_in.__module__ = "torch.cuda"  # as those whose place they take
    return found


@contextlib.contextmanager
def fake_cuda() -> Iterator[None]:
    """Two devices, `cuda:0` current, generators seeded as by a program's start."""
    prepare()
    guard = native.guard()
    with contextlib.ExitStack() as stack:
        for name, stand_in in _stand_ins().items():
            stack.enter_context(mock.patch.object(torch.cuda, name, stand_in))
        # Python that stands for C++ is nobody's frame.
        skipped = (*skipped_files._SKIPPED_FOLDERS, f"{native.HERE}{os.sep}")
        stack.enter_context(mock.patch.object(skipped_files, "_SKIPPED_FOLDERS", skipped))
        guard.fake_cuda_present(1)
        stack.callback(guard.fake_cuda_present, 0)
        stack.callback(guard.fake_cuda_exchange_device, 0)
        stack.callback(_CURRENT.clear)
        for index in range(DEVICES):
            stack.callback(guard.fake_cuda_set_stream, index, 0)
        _seed_all(0)
        yield
