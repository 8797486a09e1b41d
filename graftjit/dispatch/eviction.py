"""Eviction: the entries of a code object that are kept, and whether to make another one.

In: the state at each miss, with the first failed guard of the nearest entry. Out: whether to
compile, and, at the limit, the entry to evict: the least recently useful one.

Compilation is throttled, never disabled. If new entries of a function hardly ever answer a second
call, a combination must be met twice before it is compiled, later 4 times, up to 64 times; in any
case one call in a certain number is compiled. If a frame is compiled repeatedly and never has a
kernel (or calls a library), an entry gains nothing, so only one in a number of missed calls is
compiled. For a combination, only texts and weak references are kept.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from ..ir.dataclass import dataclass
from . import lazy_modules as lazy

if TYPE_CHECKING:
    from ..runtime.guards.mirror import FrameView
    from ..runtime.guards.rows import Row

# So many useless evicted entries raise the number of times that a combination must be met.
PATIENCE = 32
# Weight of a useless entry that died because an object it was made for died.
_DEAD = 4
_PAYS = 8  # calls that an entry must answer to count as useful
_MOST = 6  # exponent of the largest number of times: 64
# Times this number, the calls after which one is compiled in any case.
_BETWEEN = 16
_BARREN = 4  # repeated entries of a frame without a kernel before it is throttled
_REMEMBERED = 256
_COMPARED = 8  # newest entries with which a missed call is compared
_BY_IDENTITY = ("is", "type", "mro")


@dataclass(frozen=True, slots=True)
class Change:
    """The difference between a call and the nearest entry: `row` failed; `now` and `before` as
    text. `subject`: the object itself, if identity decides. `failed`: the failed row of each of the
    newest entries."""

    row: Row
    code: str
    now: str
    before: str
    subject: Any = None
    failed: tuple[tuple[Any, Row], ...] = ()

    @property
    def source(self) -> str:
        return lazy.mirror.subject_of(self.row)


def change_of(entries: tuple[Any, ...], view: FrameView) -> Change | None:
    """The failed guard of the nearest entry among the newest ones; None if there is no entry."""
    nearest: tuple[int, Row] | None = None
    failed = []
    for entry in entries[: -_COMPARED - 1 : -1]:
        index = lazy.mirror.mirror(entry.rows, view)
        if index >= 0:
            failed.append((entry, entry.rows[index]))
        if index >= 0 and (nearest is None or index > nearest[0]):
            nearest = index, entry.rows[index]
    if nearest is None:
        return None
    row = nearest[1]
    now, before = lazy.mirror.explain_failure(row, view)
    value = lazy.mirror.Reader(view)(row.source) if row.kind in _BY_IDENTITY else None
    subject = type(value) if row.kind == "type" else value
    return Change(row, lazy.mirror.failure_code(row, view), now, before, subject, tuple(failed))


@dataclass(slots=True)
class _Use:
    """The use of one entry: its hits so far, and their sum with exponential decay."""

    entry: Any
    hits: int = 0
    lately: float = 0.0


class Eviction:
    """The eviction data of a state. Only the thread with the capture lock uses it."""

    def __init__(self, limit: int, warned: bool = False) -> None:
        self.limit = limit
        self.useless = 0  # evicted useless entries; halved when a useful one is evicted
        self.made = 0  # entries made so far
        # For the state of the frame's beginning, summed with its resume functions: whether an entry
        # has a kernel, and the number of recompiled entries.
        self.computes = False
        self.barren = 0
        self._passed = 0
        self.warned = warned
        self._waited = 0
        self._uses: list[_Use] = []
        self._met: OrderedDict[tuple[str, str], tuple[int, Any]] = OrderedDict()

    @property
    def times(self) -> int:
        """The number of times that a combination must be met before it is compiled."""
        return 1 << min(self.useless // max(self.limit, PATIENCE), _MOST)

    def pays(self, first: Eviction) -> bool:
        """Whether to consider this call: not if the frame never had a kernel. `first`: the
        data of the frame's beginning."""
        if first.computes or not self.made or first.barren < _BARREN:
            return True
        self._passed += 1
        if self._passed < _BETWEEN << min(first.barren // _BARREN, _MOST):
            return False
        self._passed = 0
        return True

    def add(self, first: Eviction, computes: bool) -> None:
        """Count a new entry. `computes`: it has a kernel."""
        first.computes |= computes
        first.barren += self.made > 0
        self.made += 1

    def worth(self, change: Change | None) -> bool:
        """Whether to make an entry for this call."""
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
        """The number of times that this combination was met, including this time."""
        if change is None:
            return 0
        key = change.source, change.now
        times, of = self._met.pop(key, (0, None))
        found = _weak(change.subject) if change.row.kind in _BY_IDENTITY else None
        if found is not None and (of is None or of() is not change.subject):
            times = 0  # another object with the same text
        self._met[key] = times + 1, found
        if len(self._met) > _REMEMBERED:
            self._met.popitem(last=False)
        return times + 1

    def look(self, entries: tuple[Any, ...]) -> None:
        """Update the use of entries since the last miss."""
        uses = {id(use.entry): use for use in self._uses}
        self._uses = [uses.get(id(entry)) or _Use(entry) for entry in entries]
        for use in self._uses:
            fresh = use.entry.hits - use.hits
            use.hits += fresh
            use.lately = use.lately * 0.5 ** (1 / self.limit) + fresh

    def least_useful(self, entries: tuple[Any, ...]) -> Any:
        """The entry to evict: the least recently used; among equals, the oldest."""
        self.look(entries)
        use = min(self._uses, key=lambda use: use.lately)
        self.gone(use.entry, 1)
        return use.entry

    def dead(self, entry: Any) -> None:
        """Count an entry that died with an object it was made for."""
        self.gone(entry, _DEAD)

    def gone(self, entry: Any, weight: int) -> None:
        """Count the removal of an entry, with this weight if it was useless."""
        self.useless = self.useless + weight if entry.hits < _PAYS else self.useless // 2
        self._uses = [use for use in self._uses if use.entry is not entry]


def _weak(subject: Any) -> Any:
    try:
        return weakref.ref(subject)
    # Builtins without weak references: they live on, and their text distinguishes them.
    except TypeError:
        return None
