"""Libraries of the kernels whose text is fixed: compiled with the package (`libraries`), or built
once per machine.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

from ...ir.dataclass import dataclass
from ...runtime.store.store import Library
from ..build import cxx, flags
from . import libraries as ready


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
        ready.find(symbol, text_of(file))
        or cxx.load(text_of(file), [symbol], symbol.partition("_")[0], covers, stored)
        for symbol, file in pairs
    )
    addresses = {name: at for one in libraries for name, at in one.addresses.items()}
    return Loaded(libraries, addresses)


@functools.cache
def text_of(file: str) -> str:
    """The text of such a kernel."""
    return flags.text_of(file)
