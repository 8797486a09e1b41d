"""Background builds: one thread builds kernels while the program runs, and a queue holds the rest.

In: jobs of `codegen.backend`; a job runs a compiler and then exchanges the program. Until a job is
done, calls run operator by operator. The thread exists while there is work. A process that ends
drops the queue and lets the current run finish, so that its result reaches the store. A forked
process starts the remaining jobs at its next `submit` or `wait`.
"""

from __future__ import annotations

import atexit
import collections
import os
import threading
import time
from collections.abc import Callable

from ...runtime.events.progress import displayed

AT_EXIT = 10.0  # seconds that the end of the process waits for the current run

Job = tuple[str, Callable[[], None]]


class Background:
    """The queue of builds, one per process. `wait` raises the exception of a failed job."""

    def __init__(self) -> None:
        self._jobs: collections.deque[Job] = collections.deque()
        self._failed: list[Exception] = []
        self.after_fork()

    def after_fork(self) -> None:
        """Make lock and thread anew: the thread does not exist in the child. Its current job is
        still the first in the queue.
        """
        self._lock = threading.Condition()
        self._thread: threading.Thread | None = None

    def submit(self, title: str, job: Callable[[], None]) -> None:
        """Queue this job. `title`: what is built, for a line on the terminal."""
        with self._lock:
            self._jobs.append((title, job))
            self._begin()

    def _begin(self) -> None:
        """Start the thread if there is work and no thread, also in a forked child whose parent was
        at work.
        """
        if self._jobs and self._thread is None:
            self._thread = threading.Thread(
                target=self._work, name="graftjit: building kernels", daemon=True
            )
            self._thread.start()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until no job is left; False if that takes longer than `seconds`. Raises the
        exception of a failed job.
        """
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
        """Drop the jobs that have not begun, here or in the process that forked this one."""
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
                # it stays in the queue until it is done: see `after_fork`
                title, job = self._jobs[0]
            try:
                with displayed(title):
                    job()
            except Exception as error:
                self._failed.append(error)
            finally:
                with self._lock:
                    self._jobs.popleft()


BACKGROUND = Background()
atexit.register(BACKGROUND.close)
os.register_at_fork(after_in_child=BACKGROUND.after_fork)
