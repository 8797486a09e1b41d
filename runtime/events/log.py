"""The log: the events of a process, in order, by the function that they belong to; append-only and bounded.

In: events, each under a key: the state of a code object, or None for the process as a whole. Out: the events of some
keys. What belongs to a state goes together with it, but for the time of `keeping`. A key has its first events and its
latest ones: those between go when there are too many. Guards, and the texts and graphs of programs, go from the oldest
ones when they take too much memory. Both are counted as `dropped`. Used by `Session`.
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
_FIRST = 256  # of these, events that stay for good: what was met first explains the rest
MAX_TEXT_A_KEY = 8 << 20  # bytes, about, of guards, programs' texts and graphs
_A_PART = 400  # bytes of a guard, node or step in an event, about


class _Box:
    """An event in its place; slimmed where it stands."""

    __slots__ = ("event", "serial")

    def __init__(self, serial: int, event: Event) -> None:
        self.serial, self.event = serial, event


@dataclass(slots=True)
class _Shelf:
    """The events of one key. `dropped` counts what the bounds pushed out; `weight`: bytes of texts and graphs, about.

    No lock is taken: a finalizer may run, and emit, at any place, while another thread waits for what its owner holds.
    Each step is one operation of a list or deque; threads that meet here put a few events more among the first."""

    owner: Any  # a weak reference, kept for its callback; None for events of the whole process
    first: list[_Box] = field(default_factory=list)
    latest: deque[_Box] = field(default_factory=lambda: deque(maxlen=MAX_EVENTS_A_KEY - _FIRST))
    dropped: int = 0
    weight: int = 0

    @property
    def boxes(self) -> list[_Box]:
        """All, in order. (A copy of a deque is made at once; a walk over it is not.)"""
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
        """The oldest events lose what takes the memory."""
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
    """Bytes of an event's texts and graphs, about."""
    if isinstance(event, Entered):
        return _A_PART * len(event.guards)
    if type(event) is not Compiled:
        return 0
    nodes = event.sketch.size if event.sketch else 0
    return len(event.source) + _A_PART * (len(event.steps) + nodes)


def _slim(event: Event) -> Event:
    """The event without them."""
    if isinstance(event, Entered):
        programs: Any = {"programs": ()} if type(event) is Adopted else {}
        return dataclasses.replace(
            event, **programs, guards=(), let_go=event.let_go + len(event.guards)
        )
    assert isinstance(event, Compiled)
    return dataclasses.replace(event, steps=(), sketch=None, source="")


class EventLog:
    """Append-only and bounded a key. Keys go by identity: equal code objects are two keys."""

    def __init__(self) -> None:
        self._shelves: dict[int, _Shelf] = {0: _Shelf(None)}
        self._kept: list[_Shelf] | None = None  # of keys that are gone, while `keeping`
        self._serial = itertools.count()
        self.after_fork()

    def after_fork(self) -> None:
        """A lock that another thread held when this process was forked is nobody's here. (One that may be taken
        twice: a finalizer may run, and emit, at any place.)"""
        self._lock = threading.RLock()

    def append(self, event: Event, key: Any = None) -> None:
        """Add an event under a key (anything that can be referred to weakly); None: the process as a whole."""
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
        """Within the block, events outlive their keys: for a report on a whole run, whose functions may be gone."""
        before, self._kept = self._kept, []
        try:
            yield
        finally:
            self._kept = before

    def of(self, keys: Iterable[Any] | None = None, since: int = -1) -> tuple[Event, ...]:
        """The events of these keys in the order in which they happened; None: of all keys. `since`: those after this
        `serial`."""
        found = [box for shelf in self._shelves_of(keys) for box in shelf.boxes]
        found.sort(key=attrgetter("serial"))
        return tuple(box.event for box in found if box.serial > since)

    def serial(self) -> int:
        """A number between those of the events so far and of those to come."""
        return next(self._serial)

    def since(self, serial: int, key: Any) -> list[Event]:
        """The events of a key from there on."""
        shelf = self._shelves.get(id(key))
        boxes = [] if shelf is None else shelf.boxes
        return [box.event for box in boxes if box.serial > serial]

    def dropped(self, keys: Iterable[Any] | None = None) -> int:
        """How many events of these keys are lost to the bound."""
        return sum(shelf.dropped for shelf in self._shelves_of(keys))

    def _shelves_of(self, keys: Iterable[Any] | None) -> list[_Shelf]:
        if keys is None:
            return [*self._shelves.values(), *(self._kept or ())]
        names = dict.fromkeys(0 if key is None else id(key) for key in keys)
        return [self._shelves[name] for name in names if name in self._shelves]

    def clear(self, key: Any = None) -> None:
        """Forget one key, or everything."""
        with self._lock:
            if key is None:
                self._shelves = {0: _Shelf(None)}  # at once: others may be appending
                self._kept = None if self._kept is None else []
            else:
                self._shelves.pop(id(key), None)
