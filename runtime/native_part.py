"""The native part, asked for before anything else of graftjit: without it nothing runs.

Imported first by `graftjit`. An extension that is not built, or for another Python, is a `NativeMissing` (an
ImportError) that says what to do.
"""

from __future__ import annotations

import importlib
import sys

import torch  # noqa: F401  (the extension looks into its libraries)

from .errors import NativeMissing

try:
    importlib.import_module("._native", __package__)
except ImportError as error:
    raise NativeMissing(
        "the native part of graftjit cannot be loaded",
        expected=f"an extension built for {sys.implementation.cache_tag}",
        found=str(error),
        todo="pip install --force-reinstall graftjit; in a checkout: make, or"
        " python setup.py build_ext --inplace (both need a C++ compiler)",
    ) from error
