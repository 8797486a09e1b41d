"""Room: which entries of one code object stay, and whether one more is worth making.

In: the state at each miss, with the first guard that failed in the nearest entry. Out: yes or no, and, at the limit,
the entry that goes: the one that has answered least of late. A function whose new entries hardly ever answer a second
call is not compiled for ever: a combination must then be met twice, later four times, up to 64 times, before it is
compiled; and whatever comes, one call in so many is. Where a frame is compiled again and again and no tensor operator has
ever been met, an entry gains nothing: of the calls that no entry answers, one in so many is compiled. So nothing is ever
turned off, and what is useful is found.
Kept of a combination are texts and weak references.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from ..ir.dataclass import dataclass

if TYPE_CHECKING:
    from ..runtime.guards.mirror import FrameView
    from ..runtime.guards.rows import Row

PATIENCE = (
    32  # entries that went without use, before new combinations have to be met more than once
)
_DEAD = 4  # what an entry without use counts for when an object that it was made for has died: it can never be of use
_PAYS = 8  # calls that an entry has to answer to have been of use
_MOST = 6  # 64 times at most
_BETWEEN = (
    16  # calls between two that are compiled whatever they bring, for each time that is asked for
)
_BARREN = 16  # entries without a tensor operator, each one anew for its code
_REMEMBERED = 256
_COMPARED = 8  # entries that a call is compared with to say what has changed
_BY_IDENTITY = ("is", "type", "mro")


@dataclass(frozen=True, slots=True)
class Change:
    """What keeps a call from the nearest entry: `row` failed, `now` and `before` in words. `subject`: the object
    itself where it is one that identity decides about; `failed`: the row that failed in each of the newest entries."""

    row: Row
    code: str
    now: str
    before: str
    subject: Any = None
    failed: tuple[tuple[Any, Row], ...] = ()

    @property
    def source(self) -> str:
        from ..runtime.guards.mirror import subject_of

        return subject_of(self.row)


def change_of(entries: tuple[Any, ...], view: FrameView) -> Change | None:
    """The guard that failed in the entry that came nearest, among the newest; None if there is no entry."""
    from ..runtime.guards.mirror import Reader, explain_failure, failure_code, mirror

    nearest: tuple[int, Row] | None = None
    failed = []
    for entry in entries[: -_COMPARED - 1 : -1]:
        index = mirror(entry.rows, view)
        if index >= 0:
            failed.append((entry, entry.rows[index]))
        if index >= 0 and (nearest is None or index > nearest[0]):
            nearest = index, entry.rows[index]
    if nearest is None:
        return None
    row = nearest[1]
    now, before = explain_failure(row, view)
    value = Reader(view)(row.source) if row.kind in _BY_IDENTITY else None
    subject = type(value) if row.kind == "type" else value
    return Change(row, failure_code(row, view), now, before, subject, tuple(failed))


@dataclass(slots=True)
class _Use:
    """Of one entry: answers seen so far, and their sum with old ones counting less."""

    entry: Any
    hits: int = 0
    lately: float = 0.0


class Room:
    """Kept by a state; used by one thread at a time."""

    def __init__(self, limit: int, warned: bool = False) -> None:
        self.limit = limit
        self.useless = 0  # entries that went without having been of use; fewer for each that was
        self.made = 0  # entries so far
        # Of a frame's beginning, over it and what resumes it: whether an entry has a tensor operator, and how many of those
        # without one were made anew for their code.
        self.computes = False
        self.barren = 0
        self._passed = 0
        self.warned = warned
        self._waited = 0
        self._uses: list[_Use] = []
        self._met: OrderedDict[tuple[str, str], tuple[int, Any]] = OrderedDict()

    @property
    def times(self) -> int:
        """How often a combination has to be met before it is compiled."""
        return 1 << min(self.useless // max(self.limit, PATIENCE), _MOST)

    def pays(self, first: Room) -> bool:
        """Whether this call is looked at at all: not where nothing but Python has been found. `first`: the room of the
        frame's beginning."""
        if first.computes or not self.made or first.barren < _BARREN:
            return True
        self._passed += 1
        if self._passed < _BETWEEN << min(first.barren // _BARREN, _MOST):
            return False
        self._passed = 0
        return True

    def add(self, first: Room, computes: bool) -> None:
        """An entry is made; `computes`: with a tensor operator."""
        first.computes |= computes
        first.barren += self.made > 0
        self.made += 1

    def worth(self, change: Change | None) -> bool:
        """Whether an entry is to be made for this call."""
        times = self.times
        if times == 1:
            return True
        self._waited += 1
        if self._waited < _BETWEEN * times and self._meet(change) < times:
            return False
        self._waited = 0
        if change is not None:
            self._met.pop((change.source, change.now), None)
        return True

    def _meet(self, change: Change | None) -> int:
        """How often this combination has been met, with this time."""
        if change is None:
            return 0
        key = change.source, change.now
        times, of = self._met.pop(key, (0, None))
        found = _weak(change.subject) if change.row.kind in _BY_IDENTITY else None
        if found is not None and (of is None or of() is not change.subject):
            times = 0  # another object that is shown by the same words
        self._met[key] = times + 1, found
        if len(self._met) > _REMEMBERED:
            self._met.popitem(last=False)
        return times + 1

    def look(self, entries: tuple[Any, ...]) -> None:
        """Take note of what has answered since the last miss."""
        uses = {id(use.entry): use for use in self._uses}
        self._uses = [uses.get(id(entry)) or _Use(entry) for entry in entries]
        for use in self._uses:
            fresh = use.entry.hits - use.hits
            use.hits += fresh
            use.lately = use.lately * 0.5 ** (1 / self.limit) + fresh

    def least_useful(self, entries: tuple[Any, ...]) -> Any:
        """The entry that goes: the least used of late, the oldest of equals."""
        self.look(entries)
        use = min(self._uses, key=lambda use: use.lately)
        self.gone(use.entry, 1)
        return use.entry

    def dead(self, entry: Any) -> None:
        """What an entry was made for has died."""
        self.gone(entry, _DEAD)

    def gone(self, entry: Any, weight: int) -> None:
        """An entry has been taken out, which counts for so many if it was of no use."""
        self.useless = self.useless + weight if entry.hits < _PAYS else self.useless // 2
        self._uses = [use for use in self._uses if use.entry is not entry]


def _weak(subject: Any) -> Any:
    try:
        return weakref.ref(subject)
    except TypeError:  # builtins and the like: they stay, and are told apart by their words
        return None
