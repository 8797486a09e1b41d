"""Turns: one thread captures at a time, and what a fork finds of it.

In: a thread that has missed. Out: its turn, for as long as the block lasts; the garbage collector rests meanwhile. A
thread that has its turn already (a finalizer or callback that calls a compiled function) gets none, nor does one that
has waited for very long: their calls run in plain Python.
"""

from __future__ import annotations

import _thread
import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

WAIT = 300.0  # seconds; whoever holds the turn as long as this waits, in the end, for the one who waits here
FORK_WAIT = (
    90.0  # seconds that a fork waits for a capture in another thread: more than a compiler is given
)


class Turns:
    """One a process."""

    def __init__(self) -> None:
        self._resting = False  # the collector has been stopped by us
        self._forking: threading.Lock | None = None  # held for the moment of a fork
        self.after_fork()

    def after_fork(self) -> None:
        """In the child there is this thread only: a turn that another one had there is over."""
        self._lock = threading.Lock()
        self._here = threading.local()
        self.making = threading.RLock()  # for a moment only: two threads make one state
        if self._resting:
            self._resting = False
            gc.enable()

    def before_fork(self) -> None:
        """A child must not find a module half imported: whoever captures, and so imports, finishes first."""
        self._forking = None
        if not self.mine and self._lock.acquire(timeout=FORK_WAIT):
            self._forking = self._lock

    def after_in_parent(self) -> None:
        if self._forking is not None:
            self._forking.release()
            self._forking = None

    @property
    def mine(self) -> bool:
        """Whether this thread has the turn."""
        return getattr(self._here, "mine", False)

    @contextmanager
    def turn(self) -> Iterator[bool]:
        """Whether this thread has got the turn; it has it until the end of the block."""
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
        """Capture makes many small objects that die by themselves; a full collection of torch's heap among them
        costs 50 ms and finds nothing."""
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
    """Whether somebody else may be changing what is looked at here: `threading` knows nothing of threads that the
    program began by `_thread`."""
    return threading.active_count() > 1 or _thread._count() > 0
