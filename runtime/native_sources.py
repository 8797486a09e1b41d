"""A mark of the native part's sources: the extension carries that of those it was built from.

Read by `setup.py` on its own, before there is a package: this file imports nothing of ours.
"""

import zlib
from pathlib import Path

FOLDER = Path(__file__).with_name("native")


def mark() -> str:
    """A checksum of all sources in their order; empty where there are none (an installed package)."""
    files = sorted((*FOLDER.rglob("*.cpp"), *FOLDER.rglob("*.h")))
    if not files:
        return ""
    found = 0
    for file in files:
        found = zlib.crc32(
            file.read_bytes(), zlib.crc32(file.relative_to(FOLDER).as_posix().encode(), found)
        )
    return f"{found:08x}"
