"""Libraries of the kernels whose text is fixed: compiled when graftjit is installed, or built once
per machine.

The libraries `flags.READY` have the kernels of `registry`, made by `setup.py`: one for processors
with all usual parts of AVX-512, one for those with AVX2. They carry a checksum of the text and the
flags of each kernel. `find` gives the library for a kernel's name and text, or None if there is
none, if the text has changed (a checkout), or if the processor lacks a feature: `load` then builds
the kernel like any other.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable, Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from ...ir.dataclass import dataclass
from ...runtime.process import hardware
from ...runtime.store.store import Library
from ..build import cxx, flags


@dataclass(frozen=True, slots=True)
class Loaded:
    """Libraries of kernels, and the addresses in them."""

    libraries: tuple[Library, ...]
    addresses: dict[str, int]


def load(
    pairs: Iterable[Sequence[str]], covers: Sequence[str] = (), stored: bool = False
) -> Loaded:
    """The libraries of these (symbol, file); raises as `build.cxx.load` does."""
    libraries = tuple(
        find(symbol, text_of(file))
        or cxx.load(text_of(file), [symbol], symbol.partition("_")[0], covers, stored)
        for symbol, file in pairs
    )
    addresses = {name: at for one in libraries for name, at in one.addresses.items()}
    return Loaded(libraries, addresses)


@functools.cache
def text_of(file: str) -> str:
    """The text of such a kernel."""
    return flags.text_of(file)


def find(symbol: str, text: str) -> Library | None:
    """The library that has this kernel, made from this text."""
    features = hardware.cpu().features
    ready = next((one for one in flags.READY if features >= one.needs), None)
    found = _opened(ready.name) if ready is not None and flags.ready_here() else None
    if ready is None or found is None:
        return None
    path, handle = found
    try:
        made_from = ctypes.c_uint32.in_dll(handle, f"{symbol}_made_from").value
        address = ctypes.cast(getattr(handle, symbol), ctypes.c_void_p).value
    except (AttributeError, ValueError):  # the kernel is newer than the library
        return None
    if address is None or made_from != flags.mark(text, ready):
        return None
    return Library(path, {symbol: address}, path.stat().st_size, True, handle)


@functools.cache
def _opened(name: str) -> tuple[Path, ctypes.CDLL] | None:
    for suffix in EXTENSION_SUFFIXES:
        path = Path(__file__).with_name(f"{name}{suffix}")
        if path.is_file():
            try:
                return path, ctypes.CDLL(str(path))
            except OSError:  # no OpenMP in this process: a build of its own loads one
                return None
    return None
