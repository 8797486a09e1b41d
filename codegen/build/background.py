"""Kernels that are built while the program goes on: one thread, and what waits for it.

In: jobs of `codegen.backend`, each a compiler's run and what comes after it. Out: nothing but what a job does when it
is done; until then calls run operator by operator. The thread is there while there is work. A process that ends
drops what waits and lets the run under way finish, for the store's sake; a forked one takes the jobs up at its next.
"""

from __future__ import annotations

import atexit
import collections
import os
import threading
import time
from collections.abc import Callable

from ...runtime.events.progress import told

AT_EXIT = 10.0  # seconds that the end of the process waits for the run under way

Job = tuple[str, Callable[[], None]]


class Background:
    """One a process. A job's exception is raised by the next `wait`."""

    def __init__(self) -> None:
        self._jobs: collections.deque[Job] = collections.deque()
        self._failed: list[Exception] = []
        self.after_fork()

    def after_fork(self) -> None:
        """The thread is not in the child: what it was at is still the first job."""
        self._lock = threading.Condition()
        self._thread: threading.Thread | None = None

    def submit(self, title: str, job: Callable[[], None]) -> None:
        """Have this done soon. `title`: what is built, for a line on the terminal."""
        with self._lock:
            self._jobs.append((title, job))
            self._begin()

    def _begin(self) -> None:
        """A thread, where there is work and none: in a forked child, too, whose parent was at it."""
        if self._jobs and self._thread is None:
            self._thread = threading.Thread(
                target=self._work, name="graftjit: building kernels", daemon=True
            )
            self._thread.start()

    def wait(self, seconds: float | None = None) -> bool:
        """Until nothing is left to do; False if that takes longer. Raises what a job has raised."""
        end = None if seconds is None else time.monotonic() + seconds
        with self._lock:
            self._begin()
            while self._thread is not None:
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._lock.wait(left)
            failed, self._failed = self._failed, []
        if failed:
            raise failed[0]
        return True

    def close(self) -> None:
        """Drop what has not been begun, here or in the process that this one was forked from."""
        with self._lock:
            while len(self._jobs) > (self._thread is not None):
                self._jobs.pop()
        self.wait(AT_EXIT)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._thread = None
                    self._lock.notify_all()
                    return
                title, job = self._jobs[0]  # stays there until it is done: see `after_fork`
            try:
                with told(title):
                    job()
            except Exception as error:
                self._failed.append(error)
            finally:
                with self._lock:
                    self._jobs.popleft()


BACKGROUND = Background()
atexit.register(BACKGROUND.close)
os.register_at_fork(after_in_child=BACKGROUND.after_fork)
