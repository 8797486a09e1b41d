"""Kernels whose text is known beforehand, compiled when graftjit is installed.

The library `_ready` has the kernels of `replaced`, made from `matmul_f32.h`, `matmul_bf16.h` and `convolution.h` by `setup.py` for processors with all
of AVX-512's usual parts. It carries a mark of the text and the flags that each was made from. In: such a kernel's name and text.
Out: its library, or None where there is none, the text is another by now (a checkout), or the processor lacks something:
it is then built like any other. Called by `replaced`.
"""

from __future__ import annotations

import ctypes
import functools
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from ...runtime.process import hardware as device
from ...runtime.store.store import Library
from ..build import flags


def find(symbol: str, text: str) -> Library | None:
    """The library that has this kernel, made from this text."""
    if not (flags.ready_here() and device.cpu().features >= flags.READY_NEEDS):
        return None
    found = _opened()
    if found is None:
        return None
    path, handle = found
    try:
        made_from = ctypes.c_uint32.in_dll(handle, f"{symbol}_made_from").value
        address = ctypes.cast(getattr(handle, symbol), ctypes.c_void_p).value
    except (AttributeError, ValueError):  # a kernel that was written since
        return None
    if address is None or made_from != flags.mark(text):
        return None
    return Library(path, {symbol: address}, path.stat().st_size, True, handle)


@functools.cache
def _opened() -> tuple[Path, ctypes.CDLL] | None:
    for suffix in EXTENSION_SUFFIXES:
        path = Path(__file__).with_name(f"_ready{suffix}")
        if path.is_file():
            try:
                return path, ctypes.CDLL(str(path))
            except OSError:  # no OpenMP in this process: a build of its own brings one
                return None
    return None
