"""The fake devices' memory: one mapping that the interpreter's process shares, at the same address.

So a kernel that Triton's interpreter runs in another process reads and writes what the tensors here hold, by the
pointers that the driver was given, and a pointer to host memory is known for what it is. Blocks are aligned as
those of CUDA's caching allocator; memory that is new, or was freed, holds ones in all bits (nan, -1).
"""

from __future__ import annotations

import bisect
import ctypes
import functools
import mmap
import os
import threading
import weakref
from collections import defaultdict

import torch

ADDRESS = 0x5000_0000_0000
SIZE = 16 << 30  # of addresses; pages come when they are touched
ALIGNMENT = 512
_FIXED_NOREPLACE, _NORESERVE = 0x100000, 0x4000

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
]  # fmt: skip


def map_memory(descriptor: int) -> None:
    """Map the memory file at its address."""
    found = _libc.mmap(
        ADDRESS,
        SIZE,
        mmap.PROT_READ | mmap.PROT_WRITE,
        mmap.MAP_SHARED | _FIXED_NOREPLACE | _NORESERVE,
        descriptor,
        0,
    )
    if found != ADDRESS:
        raise OSError(ctypes.get_errno(), "the fake devices' memory cannot be mapped")


class Memory:
    """Blocks of the mapping, each of them in use or free; `limit`: bytes that may be in use at a time."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("fake_cuda")
        os.ftruncate(self.descriptor, SIZE)
        map_memory(self.descriptor)
        self.limit = SIZE
        self.used = 0
        self._end = ADDRESS
        self._free: defaultdict[int, list[int]] = defaultdict(list)
        self._starts: list[int] = []
        self._sizes: dict[int, int] = {}
        self._devices: dict[int, int] = {}
        self._lock = threading.RLock()  # a collection in here may free blocks

    def allocate(self, size: int, device: int) -> ctypes.Array[ctypes.c_char]:
        """A buffer that gives its block back when nobody holds it."""
        rounded = -(-size // ALIGNMENT) * ALIGNMENT
        with self._lock:
            if self.used + rounded > self.limit:
                raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} bytes.")
            free = self._free[rounded]
            if free:
                address = free.pop()
            else:
                address, self._end = self._end, self._end + rounded
                if self._end > ADDRESS + SIZE:
                    raise torch.OutOfMemoryError("the fake devices' addresses are used up")
            bisect.insort(self._starts, address)
            self._sizes[address] = size
            self._devices[address] = device
            self.used += rounded
        ctypes.memset(address, 0xFF, rounded)
        block = (ctypes.c_char * size).from_address(address)
        weakref.finalize(block, self._release, address, rounded).atexit = False
        return block

    def _release(self, address: int, rounded: int) -> None:
        with self._lock:
            ctypes.memset(address, 0xFF, rounded)
            self._starts.pop(bisect.bisect_left(self._starts, address))
            del self._sizes[address]
            self._free[rounded].append(address)
            self.used -= rounded

    def block_of(self, pointer: int) -> tuple[int, int] | None:
        """Address and size of the block in use in which a pointer points; None: host memory, or freed."""
        with self._lock:
            place = bisect.bisect_right(self._starts, pointer) - 1
            if place < 0:
                return None
            address = self._starts[place]
            size = self._sizes[address]
        return (address, size) if pointer < address + max(size, 1) else None

    def device_of(self, address: int) -> int:
        """The device of a block."""
        return self._devices[address]


@functools.cache
def memory() -> Memory:
    """That of this process: both devices share it."""
    return Memory()
