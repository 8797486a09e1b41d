"""SESSION: the runtime state object of the process.

It holds the options read from the environment, the event log, the kernel store, the warnings
already issued, and for each thread the function that it works for. All packages emit events through
it. Tests override options with `SESSION.override`.
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
    """The state of a process; see the module's docstring. Options are read at first use."""

    def __init__(self) -> None:
        self.log = EventLog()
        # Source files of graftjit that are younger may differ from the loaded code.
        self.began = time.time_ns()
        # Native routes not in use: see runtime.guards.tensor_access.
        self.left_out: frozenset[str] = frozenset()
        self._options: Options | None = None
        self._store: KernelStore | None = None
        self._trace: TraceFile | None = None
        self._finishes = False  # whether an exit handler is registered
        # Totals of everything alive, for a trace; `graftjit` sets this function.
        self.totals: Callable[[], Iterable[events.Event]] = tuple
        self._trace_failed = False
        self._warned: set[tuple[str, str]] = set()
        self._lock = threading.RLock()
        self._owner = threading.local()
        self.entries = itertools.count(1)  # numbers shared by the events of one capture

    def after_fork(self) -> None:
        """Make the locks anew after fork: their owners do not exist in the child."""
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
                # `store` imports this file
                from ..store.store import KernelStore

                self._store = KernelStore(self.options.cache_dir, self.options.cache_mib << 20)
            return self._store

    @contextlib.contextmanager
    def override(self, **changes: Any) -> Iterator[Options]:
        """Other options within the block, for tests. The kernel store follows `cache_dir`."""
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
        """Within the block, events of this thread without a key belong to `key` and to the capture
        of `entry`."""
        before = self.owner
        self._owner.current = (key, frame, entry)
        try:
            yield
        finally:
            self._owner.current = before

    @property
    def owner(self) -> tuple[Any, str, int]:
        """(key, frame name, entry) that this thread works for, or (None, "", 0)."""
        return getattr(self._owner, "current", (None, "", 0))

    def emit(self, event: events.Event, key: Any = None) -> None:
        """Record an event under `key`, or under the key that this thread works for."""
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
        """Log and record a warning, once per text."""
        with self._lock:
            if (code, text) in self._warned:
                return
            self._warned.add((code, text))
        LOGGER.warning("graftjit [%s] %s", code, text)
        self.emit(events.Warned(code=code, text=text))

    def _write_trace(self, event: events.Event) -> None:
        # loaded at first use: few processes write a trace
        from ..events.trace_writer import TraceFile

        with self._lock:
            if self._trace_failed:
                return
            try:
                # a forked process has its own file
                if self._trace is None or self._trace.pid != os.getpid():
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
        """At exit, add the totals of a report to the trace."""
        if self.options.trace is not None and self._trace is not None:
            for event in self.totals():
                self._write_trace(event)

    def _close_trace(self) -> None:
        with self._lock:
            if self._trace is not None:
                self._trace.close()
            self._trace, self._trace_failed = None, False


SESSION = Session()
