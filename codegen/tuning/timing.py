"""Timing of kernels: they run on memory of their own, in turns.

In: a nest, and the addresses of kernels that compute it in different ways. Out: a median and
quartiles for each. The memory has the sizes and layouts of the real tensors and comes from the
system for the time of the measurement: no tensor of the user is read or written, and torch's
allocators are not used.
"""

from __future__ import annotations

import ctypes
import mmap
import statistics
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...ir.dataclass import dataclass
from ..loops.extents import is_symbolic
from ..loops.loop_nest import LoopNest

MOST_BYTES = 256 << 20  # of all buffers
SKEW = 64  # the offset of a tensor in its pages
PIECE = 1 << 20
SAMPLE = 100e-6  # the least seconds between two reads of the clock
LEAST, MOST = 5, 25  # the least and the most rounds
# the most distance of the quartiles, relative to the median: with more, the machine is busy with
# something else
NOISE = 0.25

# dtype -> format and numbers that suit all operators: no zeros, none so small or large that it
# overflows
_FLOATS, _WHOLE = (0.75, 1.5, 1.0, 1.25, 0.5), (1, 3, 2, 5, 4)
_FILL: dict[torch.dtype, tuple[str, tuple[Any, ...]]] = {
    torch.float32: ("f", _FLOATS), torch.float64: ("d", _FLOATS), torch.float16: ("e", _FLOATS),
    torch.bfloat16: ("H", (0x3F40, 0x3FC0, 0x3F80, 0x3FA0, 0x3F00)),
    torch.bool: ("B", (1, 0, 1, 1, 0)), torch.uint8: ("B", _WHOLE), torch.int8: ("b", _WHOLE),
    torch.int16: ("h", _WHOLE), torch.int32: ("i", _WHOLE), torch.int64: ("q", _WHOLE),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds per call: the median of the rounds, and the quartiles around it."""

    median: float
    low: float
    high: float


def measurable(nest: LoopNest) -> bool:
    """Whether the nest can run by itself: its sizes are known, and the memory suffices.

    A kernel that reads at computed positions stays in range for all data: see
    `codegen.schedule.fallback`.
    """
    if nest.tiled is not None or is_symbolic([(b.shape, b.stride) for b in nest.buffers]):
        return False
    if nest.scatters:  # there is only one way to write it
        return False
    if is_symbolic((nest.outer, nest.inner)) or any(value.op == "number" for value in nest.values):
        return False
    if 0 in nest.outer + nest.inner or any(b.dtype not in _FILL for b in nest.buffers):
        return False
    return sum(high - low for low, high in spans(nest)) <= MOST_BYTES


def spans(nest: LoopNest) -> list[tuple[int, int]]:
    """For each buffer: the first byte that the nest may access, and the end after the last one,
    relative to its first element.
    """
    found = []
    for buffer in nest.buffers:
        last = sum(
            (size - 1) * stride
            for size, stride in zip(buffer.shape, buffer.stride, strict=True)
            if size
        )
        found.append([0, last + 1])
    used = [value.attr for value in nest.values if value.op == "load" and not value.args]
    used += [(store.buffer, store.index) for store in nest.stores]
    for number, index in used:
        ends = [
            (size - 1) * stride
            for size, stride in zip(nest.outer + nest.inner, index.strides, strict=True)
        ]
        low, high = found[number]
        found[number] = [
            min(low, index.offset + sum(min(end, 0) for end in ends)),
            max(high, index.offset + sum(max(end, 0) for end in ends) + 1),
        ]
    return [
        (low * buffer.dtype.itemsize, high * buffer.dtype.itemsize)
        for (low, high), buffer in zip(found, nest.buffers, strict=True)
    ]


class Scratch:
    """Memory for the buffers of a nest. `addresses`: of their first elements, as an array for a
    kernel.
    """

    def __init__(self, nest: LoopNest) -> None:
        self._pages: list[mmap.mmap] = []
        starts = []
        for buffer, (low, high) in zip(nest.buffers, spans(nest), strict=True):
            pages = mmap.mmap(-1, high - low + 2 * SKEW)
            self._pages.append(pages)
            start = ctypes.addressof(ctypes.c_char.from_buffer(pages)) + SKEW
            fill(start, high - low, buffer.dtype)
            starts.append(start - low)
        self.trouble = ctypes.c_int(0)  # set by a kernel whose checks fail
        starts.append(ctypes.addressof(self.trouble))
        self.addresses = (ctypes.c_void_p * len(starts))(*starts)


def fill(start: int, size: int, dtype: torch.dtype) -> None:
    form, numbers = _FILL[dtype]
    some = struct.pack(f"{len(numbers)}{form}", *numbers)
    piece = some * (PIECE // len(some))
    for at in range(0, size, len(piece)):
        ctypes.memmove(start + at, piece, min(len(piece), size - at))


def run_at(address: int, scratch: Scratch, threads: int) -> Callable[[], None]:
    """A call of the kernel at an address on this memory. Other Python threads may run at the same
    time.
    """
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)
    kernel, buffers = kind(address), scratch.addresses
    return lambda: kernel(buffers, threads, None)


def race(
    runs: Sequence[Callable[[], None]],
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Timing]:
    """Run each of these in turn, round after round, until the time is spent.

    Before the clock starts, each is run once, so that the caches do not depend on the others. Empty
    if the time does not suffice for `LEAST` rounds, or if the times of the first one vary too much:
    there is no guess without a measurement.
    """
    start = clock()
    repeat = []
    for run in runs:
        run()  # pages, caches, threads
        before = clock()
        run()
        repeat.append(max(1, int(SAMPLE / max(clock() - before, 1e-9))))
    samples: list[list[float]] = [[] for _ in runs]
    one_round = 0.0
    while len(samples[0]) < MOST:
        begun = clock()
        if begun - start + one_round * max(1, LEAST - len(samples[0])) > seconds:
            break
        for run, times, found in zip(runs, repeat, samples, strict=True):
            run()
            before = clock()
            for _ in range(times):
                run()
            found.append((clock() - before) / times)
        one_round = clock() - begun
    if len(samples[0]) < LEAST:
        return []
    timings = [_timing(found) for found in samples]
    return timings if timings[0].high - timings[0].low <= NOISE * timings[0].median else []


def _timing(samples: list[float]) -> Timing:
    low, median, high = statistics.quantiles(samples, n=4)
    return Timing(median, low, high)
