"""A checksum of the native sources, which the extension stores when it is built.

`setup.py` imports this file before the package exists, so it imports nothing of graftjit.
"""

import zlib
from pathlib import Path

FOLDER = Path(__file__).with_name("native")


def mark() -> str:
    """A checksum of all sources in order; "" if there are none (an installed package)."""
    files = sorted((*FOLDER.rglob("*.cpp"), *FOLDER.rglob("*.h")))
    if not files:
        return ""
    found = 0
    for file in files:
        found = zlib.crc32(
            file.read_bytes(), zlib.crc32(file.relative_to(FOLDER).as_posix().encode(), found)
        )
    return f"{found:08x}"
