"""The locations of graftjit's own files, in a checkout and installed.

`PACKAGES` has the path of each of the five packages, with a separator at its end. `is_own(file)`
tells whether a file is graftjit's. `GENERATED` begins the file names of code that graftjit writes.
"""

from __future__ import annotations

import os
import sys

PACKAGE_NAMES = ("graftjit", "capture", "codegen", "ir", "runtime")


def _packages() -> dict[str, str]:
    """The folder of each package. The public package is found by its module, since the other four
    are inside it when installed."""
    above = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    face = getattr(sys.modules.get(__name__.partition(".")[0]), "__file__", None)
    found = {name: os.path.join(above, name) + os.sep for name in PACKAGE_NAMES}
    if face:
        found["graftjit"] = os.path.dirname(os.path.abspath(face)) + os.sep
    return found


PACKAGES = _packages()
FOLDERS = tuple(PACKAGES.values())
GENERATED = "<graftjit "


def is_own(file: str) -> bool:
    """Whether a file, by its absolute path, is one of graftjit's."""
    return file.startswith(FOLDERS)
