"""Files that are there whole or not at all.

In: a path and its bytes. Out: the file, put in place at once: whoever reads meanwhile finds the old one or the new
one, and a full disk leaves no half of it.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def write_whole(path: Path, data: bytes, scratch_folder: Path, scratch_prefix: str) -> None:
    """Write `path` by way of a scratch file in a folder of the same file system. Raises OSError."""
    descriptor, scratch = tempfile.mkstemp(dir=scratch_folder, prefix=scratch_prefix)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(descriptor, 0o644)
        os.replace(scratch, path)
    except OSError:
        with contextlib.suppress(OSError):  # what went wrong first is what is told
            os.unlink(scratch)
        raise
