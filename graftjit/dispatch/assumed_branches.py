"""Branches on tensor data that usually have one outcome.

In: an entry that ends at such a branch and has answered `HOT` calls. Out: the outcomes that these
calls mostly had, by branch, also of the branches after it. `unit.Unit` then captures the frame once
more: one graph that goes on through the branches and checks their outcomes. It takes the place of
the entry, which answers the calls with other outcomes (`Entry.assume`), and comes back if there are
many of them. This waits until the breaks have cost about as much as another compilation
(`paying.pays_now`): until then, the entry is asked about again at twice as many calls.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ..ir.dataclass import dataclass, field
from ..runtime import _native
from ..runtime.process.session import SESSION
from . import lazy_modules as lazy
from . import paying
from .capture_lock import TURNS
from .resume_functions import ResumeFunctions
from .shared_entries import Made

if TYPE_CHECKING:
    from ..runtime.guards.mirror import FrameView
    from .unit import Unit

HOT = 128
# the share of an outcome that is assumed
_USUAL = 0.875
# the share of calls that may have another one somewhere: native code gives the entry up for more
_MOST_LEFT = 0.25
_MOST_STATES = 64


def is_candidate(made: Any) -> bool:
    """Whether a capture ends at a branch on tensor data."""
    return made.kind == "code" and any(one.code == "GB105" for one in made.breaks)


@dataclass(slots=True)
class Past:
    """What the calls of an entry have met since it was made.

    outcomes  branch -> outcome -> its number, in all iterations of a loop and all inlined calls
    lost      seconds between the compiled regions that a graph through all branches would join
    compiled  seconds that compiling those regions took
    """

    outcomes: dict[Any, dict[bool, int]] = field(default_factory=dict)
    lost: float = 0.0
    compiled: float = 0.0

    def note(self, branch: Any, counts: dict[bool, int]) -> None:
        known = self.outcomes.setdefault(branch, {})
        for truth, count in counts.items():
            known[truth] = known.get(truth, 0) + count

    def usual(self, calls: int) -> dict[Any, bool]:
        """The outcomes to assume for each branch that usually has one; none if more of the calls
        would leave the graph than native code accepts (`SEEN_EXITS`)."""
        found, left = {}, 0
        for branch, counts in self.outcomes.items():
            truth = max(counts, key=counts.__getitem__, default=False)
            total = sum(counts.values())
            if branch is not None and counts and counts[truth] >= _USUAL * max(total, 1):
                found[branch] = truth
                left += total - counts[truth]
        return found if left <= _MOST_LEFT * calls else {}


def past_of(entry: Any) -> Past:
    """What the calls of an entry have met, in its own breaks and in those after them."""
    past = Past(compiled=entry.data.recipe.seconds)
    pending, seen = [entry], set[int]()
    while pending and len(seen) < _MOST_STATES:
        one = pending.pop()
        if type(one.data) is not Made or id(one) in seen:
            continue
        seen.add(id(one))
        if one.otherwise is not None:  # a part of the frame already goes through its branches
            pending.append(one.otherwise)
        for branch, sides in one.data.sides.items():
            counts = {truth: _calls(tail.target.state) for truth, tail in sides.items()}
            if len(counts) == 1:  # the other outcome only returns
                ((truth, count),) = counts.items()
                counts[not truth] = max(one.hits - count, 0)
            past.note(branch, counts)
        for code, way, tail in one.data.recipe.resumes:
            state = tail.target.state
            pending += state.entries
            if id(state) not in seen:
                seen.add(id(state))
                past.lost += state.times()[5] * _calls(state)
                past.compiled += _seconds(state)
            # An inlined function breaks at its branch, which is a value guard of what resumes it.
            begins = None if code is None else way[-1]
            if code is not None and begins is not None and begins.code == "GB105":
                past.note(lazy.branches.branch_at(code, way[0]), _outcomes(state))
    return past


def _outcomes(state: Any) -> dict[bool, int]:
    """How often a condition that a resume function begins with had each outcome."""
    counts: dict[bool, int] = {}
    for entry in state.entries:
        row = next((row for row in entry.rows if row.kind == "value"), None)
        if row is not None and row.expected.truth:
            truth = bool(row.expected.outcome)
            counts[truth] = counts.get(truth, 0) + entry.hits
    return counts


def _calls(state: Any) -> int:
    return sum(entry.hits for entry in state.entries)


def _seconds(state: Any) -> float:
    """What compiling the most useful entry of a state took. The others are for other values."""
    used = max(state.entries, key=lambda entry: entry.hits, default=None)
    return used.data.recipe.seconds if used and type(used.data) is Made else 0.0


def better(unit: Unit, state: Any, entry: Any, view: FrameView) -> Any:
    """The entry that assumes the usual outcomes, published in place of `entry`; or None."""
    if entry not in state.entries or _is_busy(unit):
        return None
    past = past_of(entry)
    assumed = past.usual(_calls(state))
    if not assumed or not paying.pays_now(past.lost, past.compiled, unit.config):
        entry.hot_at = 2 * entry.hits
        return None
    with (
        TURNS.turn() as got,
        SESSION.working_for(state, view.code.co_qualname, next(SESSION.entries)),
    ):
        return _made(unit, state, entry, view, assumed) if got else None


def _is_busy(unit: Unit) -> bool:
    return TURNS.mine or unit._refused() is not None


def _made(unit: Unit, state: Any, entry: Any, view: FrameView, assumed: dict[Any, bool]) -> Any:
    started, unit._compiling = time.perf_counter(), 0.0
    resumes = ResumeFunctions(unit.state_for, state, view.globals, SESSION.log.serial())
    made = lazy.capture.capture(
        unit._frame(state, view, assumed),
        unit._backend,
        resumes,
        _native.call_in_extent,
        lambda record: None,
    )
    if made.kind != "direct" or not made.rerun:
        return None
    unit._check_own_frame(made, view)
    spent = time.perf_counter() - started
    stages = {"capture": spent - unit._compiling, "compile": unit._compiling}
    found = unit._entry(state, view.code, made, resumes, stages)
    found.assume(entry, lazy.checks.Left)
    # Reports count the calls of the entries that a state has.
    found.hits, entry.hits = entry.hits, 0
    state.remove(entry)
    paying.arm(state, found, unit.config)
    state.add(found)
    return found
