"""Branches on tensor data that usually have one outcome.

In: an entry that ends at such a branch and has answered `HOT` calls. Out: the outcomes that these
calls mostly had, by branch, also of the branches after it. `unit.Unit` then captures the frame once
more: one graph that goes on through the branches and checks their outcomes. It takes the place of
the entry, which answers the calls with other outcomes (`Entry.assume`), and comes back if there are
many of them.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

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
_MOST_STATES = 64


def is_candidate(made: Any) -> bool:
    """Whether a capture ends at a branch on tensor data."""
    return made.kind == "code" and any(one.code == "GB105" for one in made.breaks)


def usual_outcomes(entry: Any) -> dict[Any, bool]:
    """The branches after an entry that usually have one outcome."""
    found: dict[Any, bool] = {}
    pending, seen = [entry], set[int]()
    while pending and len(seen) < _MOST_STATES:
        one = pending.pop()
        if type(one.data) is not Made or id(one) in seen:
            continue
        seen.add(id(one))
        if one.otherwise is not None:  # a part of the frame already goes through its branches
            pending.append(one.otherwise)
        for branch, sides in one.data.sides.items():
            counts = {truth: _calls(tail) for truth, tail in sides.items()}
            if len(counts) == 1:  # the other outcome only returns
                ((truth, count),) = counts.items()
                counts[not truth] = max(one.hits - count, 0)
            _note(found, branch, counts)
        for code, way, tail in one.data.recipe.resumes:
            state = tail.target.state
            pending += state.entries
            # An inlined function breaks at its branch, which is a value guard of what resumes it.
            begins = None if code is None else way[-1]
            if code is not None and begins is not None and begins.code == "GB105":
                branch = lazy.branches.branch_at(code, way[0])
                _note(found, branch, _outcomes(state))
    return found


def _note(found: dict[Any, bool], branch: Any, counts: dict[bool, int]) -> None:
    usual = max(counts, key=counts.__getitem__, default=False)
    if branch is not None and counts and counts[usual] >= _USUAL * max(sum(counts.values()), 1):
        found[branch] = usual


def _outcomes(state: Any) -> dict[bool, int]:
    """How often a condition that a resume function begins with had each outcome."""
    counts: dict[bool, int] = {}
    for entry in state.entries:
        row = next((row for row in entry.rows if row.kind == "value"), None)
        if row is not None and row.expected.truth:
            truth = bool(row.expected.outcome)
            counts[truth] = counts.get(truth, 0) + entry.hits
    return counts


def _calls(tail: Any) -> int:
    return sum(entry.hits for entry in tail.target.state.entries)


def better(unit: Unit, state: Any, entry: Any, view: FrameView) -> Any:
    """The entry that assumes the usual outcomes, published in place of `entry`; or None."""
    assumed = usual_outcomes(entry)
    if not assumed or entry not in state.entries or _is_busy(unit):
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
