"""The supported interpreters, checked once when the runtime is imported.

On any other, `UnsupportedPython` (an ImportError) names the supported versions.
"""

from __future__ import annotations

import sys

from ..errors import UnsupportedPython

SUPPORTED = ((3, 11), (3, 12), (3, 13))


def require_supported(
    version: tuple[int, ...] | None = None,
    name: str | None = None,
    free_threaded: bool | None = None,
) -> None:
    """Raise UnsupportedPython unless this is CPython 3.11, 3.12 or 3.13 with the GIL."""
    version = sys.version_info[:3] if version is None else version
    name = sys.implementation.name if name is None else name
    if free_threaded is None:
        free_threaded = "t" in getattr(sys, "abiflags", "")
    if name == "cpython" and version[:2] in SUPPORTED and not free_threaded:
        return
    words = ", ".join(f"3.{minor}" for _major, minor in SUPPORTED)
    found = f"{name} {'.'.join(map(str, version[:3]))}" + (
        " (free-threaded)" if free_threaded else ""
    )
    raise UnsupportedPython(
        "graftjit cannot run on this Python: it reads the bytecode of certain versions only",
        expected=f"CPython {words}",
        found=found,
        todo=f"use one of CPython {words}, for example: python3.11 -m venv .venv",
    )
