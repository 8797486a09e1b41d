"""The capture lock: one thread captures at a time, also across a fork.

In: a thread with a miss. Out: the lock for the duration of a block, during which the garbage
collector is off. A thread that already holds the lock (a finalizer or callback that calls a
compiled function) does not get it, nor does one that has waited too long. Their calls run in plain
Python.
"""

from __future__ import annotations

import _thread
import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# Seconds until a waiting thread gives up, since the owner may in turn be waiting for it.
WAIT = 300.0
# Seconds that a fork waits for a capture in another thread: longer than a compiler may run.
FORK_WAIT = 90.0


class Turns:
    """The capture lock of the process."""

    def __init__(self) -> None:
        self._resting = False  # whether this object disabled the collector
        self._forking: threading.Lock | None = None  # acquired for the duration of a fork
        self.after_fork()

    def after_fork(self) -> None:
        """Make the locks anew after fork: the child has only this thread."""
        self._lock = threading.Lock()
        self._here = threading.local()
        # Held briefly, so that two threads get the same state.
        self.making = threading.RLock()
        if self._resting:
            self._resting = False
            gc.enable()

    def before_fork(self) -> None:
        """Wait for a running capture, which may be importing, so that the child finds no partly
        imported module."""
        self._forking = None
        if not self.mine and self._lock.acquire(timeout=FORK_WAIT):
            self._forking = self._lock

    def after_in_parent(self) -> None:
        if self._forking is not None:
            self._forking.release()
            self._forking = None

    @property
    def mine(self) -> bool:
        """Whether this thread holds the lock."""
        return getattr(self._here, "mine", False)

    @contextmanager
    def turn(self) -> Iterator[bool]:
        """Acquire the lock for the block; yields whether that succeeded."""
        lock, here = self._lock, self._here
        if not lock.acquire(timeout=WAIT):
            yield False
            return
        here.mine = True
        try:
            with self._no_collection():
                yield True
        finally:
            here.mine = False
            lock.release()

    @contextmanager
    def _no_collection(self) -> Iterator[None]:
        """Disable garbage collection. Capture makes many small objects without cycles, and a full
        collection of torch's heap costs 50 ms and frees nothing."""
        self._resting = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if self._resting:
                self._resting = False
                gc.enable()


TURNS = Turns()


def other_threads() -> bool:
    """Whether other threads may change the objects of a frame. `threading` does not count threads
    that the program started with `_thread`."""
    return threading.active_count() > 1 or _thread._count() > 0
