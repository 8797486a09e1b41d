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
from contextlib import contextmanager
from pathlib import Path

PATIENCE = 300.0  # seconds that a process waits for another one to build a kernel
_PAUSE = 0.02  # seconds between two looks


@contextmanager
def claimed(path: Path) -> Iterator[bool]:
    """Hold the claim. Yields whether another process had it before."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        yield False
        return
    try:
        yield _wait(descriptor)
    finally:
        # The next one finds the kernel: it needs no claim.
        path.unlink(missing_ok=True)
        _release(descriptor)


def _wait(descriptor: int) -> bool:
    """Lock the file, or give up. Whether another process had locked it."""
    end, waited = time.monotonic() + PATIENCE, False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return waited
        except BlockingIOError:
            waited = True
        except OSError:  # a file system without locks
            return waited
        if time.monotonic() > end:
            return waited
        time.sleep(_PAUSE)


def _release(descriptor: int) -> None:
    """Unlock, also for a child process that has inherited the open file, and close."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    except OSError:
        pass
    finally:
        os.close(descriptor)
