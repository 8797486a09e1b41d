"""The native part, asked for before anything else of graftjit: without it nothing runs.

Imported first by `graftjit`. An extension that is not built, for another Python, or in a checkout made from other
sources than those beside it, is a `NativeMissing` (an ImportError) that says what to do.
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
    """Raise NativeMissing if the sources beside the extension are not those with the mark `built`."""
    now = native_sources.mark()
    if now and now != built:
        raise NativeMissing(
            "the native part of graftjit was built from other sources than those beside it",
            expected=f"sources with the mark {now}",
            found=f"an extension of those with the mark {built}",
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
