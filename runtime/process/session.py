"""SESSION: the one runtime state object of the process.

It holds the options as read from the environment, the event log, the kernel store, the warnings already
given, and, a thread, which function the work at hand belongs to. Every room emits its events here. Tests may
put other options in its place with `SESSION.override`.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ..events import events
from ..events.log import EventLog
from ..events.loggers import LOGGER, log, to_stderr
from .options import Options, read_environment

if TYPE_CHECKING:
    from ..events.trace_writer import TraceFile
    from ..store.store import KernelStore


class Session:
    """One a process; see the module's docstring. Options are read at first use, not at import."""

    def __init__(self) -> None:
        self.log = EventLog()
        self.began = time.time_ns()  # files of ours that are younger may not be what runs
        self.left_out: frozenset[str] = frozenset()  # native routes not in use: runtime.tensors
        self._options: Options | None = None
        self._store: KernelStore | None = None
        self._trace: TraceFile | None = None
        self._finishes = False  # whether the end of the process is seen to
        self.totals: Callable[[], Iterable[events.Event]] = (
            tuple  # of all that is alive; the face knows them
        )
        self._trace_failed = False
        self._warned: set[tuple[str, str]] = set()
        self._lock = threading.RLock()
        self._owner = threading.local()
        self.entries = itertools.count(1)  # numbers that the events of one capture share

    def after_fork(self) -> None:
        """Locks that another thread held when this process was forked are nobody's here."""
        self._lock = threading.RLock()
        self._owner = threading.local()
        self.log.after_fork()
        if self._store is not None:
            self._store.after_fork()

    @property
    def options(self) -> Options:
        options = self._options
        if options is None:
            options = self._options = read_environment()
            if options.debug:
                to_stderr(options.debug)
        return options

    @property
    def store(self) -> KernelStore:
        with self._lock:
            if self._store is None:
                from ..store.store import KernelStore

                self._store = KernelStore(self.options.cache_dir, self.options.cache_mib << 20)
            return self._store

    @contextlib.contextmanager
    def override(self, **changes: Any) -> Iterator[Options]:
        """Other options within the block (for tests); the kernel store follows."""
        before, store = self.options, self._store
        self._options = dataclasses.replace(before, **changes)
        if "cache_dir" in changes:
            self._store = None
        self._close_trace()
        try:
            yield self._options
        finally:
            self._options, self._store = before, store
            self._close_trace()

    @contextlib.contextmanager
    def working_for(self, key: Any, frame: str = "", entry: int = 0) -> Iterator[None]:
        """Events of this thread without a key of their own belong to `key` within the block, and to the capture that
        makes `entry`."""
        before = self.owner
        self._owner.current = (key, frame, entry)
        try:
            yield
        finally:
            self._owner.current = before

    @property
    def owner(self) -> tuple[Any, str, int]:
        """(key, frame name, entry) that this thread works for; (None, "", 0) outside of any."""
        return getattr(self._owner, "current", (None, "", 0))

    def emit(self, event: events.Event, key: Any = None) -> None:
        """Record an event under `key`, or under what this thread works for."""
        owner, frame, entry = self.owner
        known: dict[str, Any] = {}
        if key is None:
            key = owner
            if entry and not event.entry:
                known["entry"] = entry
        if not event.frame and frame:
            known["frame"] = frame
        if known:
            event = dataclasses.replace(event, **known)
        self.log.append(event, key)
        options = self.options
        log(event, options.debug)
        if options.trace is not None:
            self._write_trace(event)

    def warn_once(self, code: str, text: str) -> None:
        """Log a warning the first time that this text is met, and record it."""
        with self._lock:
            if (code, text) in self._warned:
                return
            self._warned.add((code, text))
        LOGGER.warning("graftjit [%s] %s", code, text)
        self.emit(events.Warned(code=code, text=text))

    def _write_trace(self, event: events.Event) -> None:
        from ..events.trace_writer import TraceFile

        with self._lock:
            if self._trace_failed:
                return
            try:
                if self._trace is None or self._trace.pid != os.getpid():  # a fork has its own file
                    folder = self.options.trace
                    assert folder is not None
                    self._trace = TraceFile(folder)
                    if not self._finishes:
                        self._finishes = True
                        atexit.register(self._finish_trace)
                self._trace.write(event)
            except OSError as error:
                self._trace_failed = True
                self.warn_once("WN603", f"GRAFTJIT_TRACE cannot be written and is ignored: {error}")

    def _finish_trace(self) -> None:
        """The process ends: what a report would add is in the trace, too."""
        if self.options.trace is not None and self._trace is not None:
            for event in self.totals():
                self._write_trace(event)

    def _close_trace(self) -> None:
        with self._lock:
            if self._trace is not None:
                self._trace.close()
            self._trace, self._trace_failed = None, False


SESSION = Session()
