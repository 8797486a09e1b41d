"""Claims: of several processes on a machine that need one kernel, one builds it.

In: the path of a claim, in the folder of the store. Out: a block within which no other process
holds it. A claim is a lock on an open file, which the system releases when its holder ends, however
it ends. Waiting is bounded, so a holder that hangs costs time, and no more: the kernel is then
built twice. Where a file cannot be made or locked, nothing is claimed.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PATIENCE = 300.0  # seconds that a process waits for another one to build a kernel
_PAUSE = 0.02  # seconds between two looks


@contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Hold the claim. Another process may have had it, and built the kernel, shortly before."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        yield
        return
    try:
        _wait(descriptor)
        yield
    finally:
        # The next one finds the kernel: it needs no claim.
        with suppress(OSError):
            path.unlink()
        # Unlocked also for a child process that has inherited the open file.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _wait(descriptor: int) -> None:
    """Lock the file, or give up."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_PAUSE)
        except OSError:  # a file system without locks
            return None
