"""Atomic file writes.

In: a path and bytes. Out: the complete file, moved into place by one rename. A concurrent reader
finds the old or the new file, and a full disk leaves no partial file.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def write_whole(path: Path, data: bytes, scratch_folder: Path, scratch_prefix: str) -> None:
    """Write `path` through a scratch file in a folder on the same file system. Raises OSError."""
    descriptor, scratch = tempfile.mkstemp(dir=scratch_folder, prefix=scratch_prefix)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(descriptor, 0o644)
        os.replace(scratch, path)
    except OSError:
        # The first error is the one to report.
        with contextlib.suppress(OSError):
            os.unlink(scratch)
        raise
