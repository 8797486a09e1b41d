"""The event log of a process: append-only and bounded.

In: events, each under a key: the state of a code object, or None for the whole process. Out: the
events of some keys, in order. The events of a state are dropped with it, except within `keeping`.
The log keeps the first and the latest events of each key and drops those in between. If guards,
program texts and graphs use too much memory, they are removed from the oldest events. Both losses
are counted in `dropped`. `Session` owns the log.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any

from ...ir.dataclass import dataclass, field
from ..weak_callbacks import until_exit
from .events import Adopted, Compiled, Entered, Event

MAX_EVENTS_A_KEY = 1024
# So many first events are kept for good, since they explain the later ones.
_FIRST = 256
MAX_TEXT_A_KEY = 8 << 20  # approximate bytes of guards, program texts and graphs
_A_PART = 400  # approximate bytes of a guard, node or step in an event


class _Box:
    """A mutable holder of an event, so that the event can be replaced by a smaller one."""

    __slots__ = ("event", "serial")

    def __init__(self, serial: int, event: Event) -> None:
        self.serial, self.event = serial, event


@dataclass(slots=True)
class _Shelf:
    """The events of one key. `dropped` counts events lost to the limits. `weight`: approximate
    bytes of texts and graphs.

    There is no lock, because a finalizer may run and emit an event anywhere, while another thread
    waits for the lock's owner. Each step is one operation on a list or deque; a race between
    threads only keeps a few more events among the first.
    """

    owner: Any  # a weak reference, kept for its callback; None for the whole process
    first: list[_Box] = field(default_factory=list)
    latest: deque[_Box] = field(default_factory=lambda: deque(maxlen=MAX_EVENTS_A_KEY - _FIRST))
    dropped: int = 0
    weight: int = 0

    @property
    def boxes(self) -> list[_Box]:
        """All boxes, in order. Copying a deque is atomic, iterating over it is not."""
        return [*self.first, *self.latest.copy()]

    def append(self, serial: int, event: Event) -> None:
        if len(self.first) < _FIRST:
            self.first.append(_Box(serial, event))
        else:
            if len(self.latest) == self.latest.maxlen:
                self.dropped += 1
            self.latest.append(_Box(serial, event))
        added = _weight(event)
        if added:
            self.weight += added
            if self.weight > MAX_TEXT_A_KEY:
                self._slim(serial)

    def _slim(self, newest: int) -> None:
        """Remove texts and graphs from the oldest events."""
        boxes = self.boxes
        weight = sum(_weight(box.event) for box in boxes)
        for box in boxes:
            if weight <= MAX_TEXT_A_KEY or box.serial == newest:
                break
            of_this = _weight(box.event)
            if of_this:
                box.event = _slim(box.event)
                weight -= of_this
                self.dropped += 1
        self.weight = weight


def _weight(event: Event) -> int:
    """The approximate size in bytes of an event's texts and graphs."""
    if isinstance(event, Entered):
        return _A_PART * len(event.guards)
    if type(event) is not Compiled:
        return 0
    nodes = event.sketch.size if event.sketch else 0
    return len(event.source) + _A_PART * (len(event.steps) + nodes)


def _slim(event: Event) -> Event:
    """The event without its texts and graphs."""
    if isinstance(event, Entered):
        programs: Any = {"programs": ()} if type(event) is Adopted else {}
        return dataclasses.replace(
            event, **programs, guards=(), let_go=event.let_go + len(event.guards)
        )
    assert isinstance(event, Compiled)
    return dataclasses.replace(event, steps=(), sketch=None, source="")


class EventLog:
    """Append-only log with a limit per key. Keys are compared by identity: equal code objects are
    two keys."""

    def __init__(self) -> None:
        self._shelves: dict[int, _Shelf] = {0: _Shelf(None)}
        self._kept: list[_Shelf] | None = None  # of dead keys, within `keeping`
        self._serial = itertools.count()
        self.after_fork()

    def after_fork(self) -> None:
        """Make the lock anew after fork: its owner does not exist in the child. The lock is
        reentrant, since a finalizer may run and emit an event anywhere."""
        self._lock = threading.RLock()

    def append(self, event: Event, key: Any = None) -> None:
        """Add an event under a key that supports weak references; None: the whole process."""
        shelf = self._shelves.get(0 if key is None else id(key)) or self._new_shelf(key)
        shelf.append(next(self._serial), event)

    def _new_shelf(self, key: Any) -> _Shelf:
        name = id(key)
        with self._lock:
            shelf = self._shelves.get(name)
            if shelf is None:
                shelf = _Shelf(weakref.ref(key, until_exit(lambda _ref: self._drop(name))))
                self._shelves[name] = shelf
            return shelf

    def _drop(self, name: int) -> None:
        shelf = self._shelves.pop(name, None)
        if shelf is not None and self._kept is not None:
            self._kept.append(shelf)

    @contextlib.contextmanager
    def keeping(self) -> Iterator[None]:
        """Keep the events of keys that die within the block, for a report on a whole run."""
        before, self._kept = self._kept, []
        try:
            yield
        finally:
            self._kept = before

    def of(self, keys: Iterable[Any] | None = None, since: int = -1) -> tuple[Event, ...]:
        """The events of these keys (None: all keys) in order, after the serial `since`."""
        found = [box for shelf in self._shelves_of(keys) for box in shelf.boxes]
        found.sort(key=attrgetter("serial"))
        return tuple(box.event for box in found if box.serial > since)

    def serial(self) -> int:
        """A serial greater than that of every logged event."""
        return next(self._serial)

    def since(self, serial: int, key: Any) -> list[Event]:
        """The events of a key after this serial."""
        shelf = self._shelves.get(id(key))
        boxes = [] if shelf is None else shelf.boxes
        return [box.event for box in boxes if box.serial > serial]

    def dropped(self, keys: Iterable[Any] | None = None) -> int:
        """The number of events of these keys that were lost to the limits."""
        return sum(shelf.dropped for shelf in self._shelves_of(keys))

    def _shelves_of(self, keys: Iterable[Any] | None) -> list[_Shelf]:
        if keys is None:
            return [*self._shelves.values(), *(self._kept or ())]
        names = dict.fromkeys(0 if key is None else id(key) for key in keys)
        return [self._shelves[name] for name in names if name in self._shelves]

    def clear(self, key: Any = None) -> None:
        """Drop the events of one key, or all."""
        with self._lock:
            if key is None:
                self._shelves = {0: _Shelf(None)}  # in one step: other threads may append
                self._kept = None if self._kept is None else []
            else:
                self._shelves.pop(id(key), None)
