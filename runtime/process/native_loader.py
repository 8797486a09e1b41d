"""Loads the native extension, without which nothing of graftjit runs.

`graftjit` imports this module first. It raises `NativeMissing` (an ImportError that tells what to
do) if the extension is not built, is for another Python, or, in a checkout, was built from other
sources than the present ones.
"""

from __future__ import annotations

import importlib
import sys

import torch  # noqa: F401  (the extension looks into its libraries)

from .. import native_sources
from ..errors import NativeMissing

TODO = (
    "pip install --force-reinstall graftjit; in a checkout: make, or"
    " python setup.py build_ext --inplace (both need a C++ compiler)"
)


def require_these_sources(built: str) -> None:
    """Raise NativeMissing if the sources beside the extension do not have the mark `built`."""
    now = native_sources.mark()
    if now and now != built:
        raise NativeMissing(
            "the native part of graftjit was built from other sources than the installed ones",
            expected=f"an extension built from sources with the checksum {now}",
            found=f"an extension built from sources with the checksum {built}",
            todo=TODO,
        )


try:
    native = importlib.import_module(".._native", __package__)
except ImportError as error:
    raise NativeMissing(
        "the native part of graftjit cannot be loaded",
        expected=f"an extension built for {sys.implementation.cache_tag}",
        found=str(error),
        todo=TODO,
    ) from error
require_these_sources(native.SOURCES)
