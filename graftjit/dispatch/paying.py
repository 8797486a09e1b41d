"""What pays: entries slower than plain Python, and recompiles that cost more than they save.

In: an entry that was just made, the verdict of its trials (`runtime/native/frame/trials.h`), and a
miss. Out: entries that are armed, given up and taken up again; whether to compile now; the events.
`JitConfig(never_slower=False)` and GRAFTJIT_TRIALS=0 turn all of it off, and so does
GRAFTJIT_CHECK, under which times mean nothing.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch

from ..runtime.events import events
from ..runtime.process.options import JitConfig, by_number
from ..runtime.process.session import SESSION
from .unit_events import place_of

if TYPE_CHECKING:
    from collections.abc import Iterable

FREE = 8  # recompiles of a frame and its resume functions that are made in any case
# and those of the resume functions alone, if they took `_MUCH` seconds and none of them is useful
FREE_INSIDE = 3
_MUCH = 1.0
_USEFUL = 8  # calls that an entry must answer to count as useful
_TRUST = 4  # so many useful entries are assumed before there is evidence
_SHARE = 0.5  # recompiles take at most this part of the time, if all of them are useful
_LEAST = 0.01  # and this part if none is
_COMPILER = 0.25  # seconds that another graph takes to compile, at least
_LONGEST = 10.0  # seconds until a paused state asks again
SLOWER, UNPAID = "PL214", "PL215"


def applies(config: JitConfig) -> bool:
    options = SESSION.options
    return config.never_slower and not config.strict and options.trials and not options.check


def arm(state: Any, entry: Any, config: JitConfig) -> None:
    """Have some calls of an entry run as written. Not those of resume functions, which are the rest
    of a call; nor where plain Python needs more memory than the program allows."""
    if state.origin is None and applies(config) and _comparable(config) and entry.kind != "plain":
        entry.arm()


def _comparable(config: JitConfig) -> bool:
    """Whether times can be compared: work on a device goes on after a call. Programs that want the
    same bits in each run get no plain calls between others."""
    if config.memory_budget is not None or torch.are_deterministic_algorithms_enabled():
        return False
    return not torch.cuda.is_initialized()


def judged(state: Any, entry: Any, slower: bool, compiled: float, plain: float) -> bool:
    """Whether to give an entry up, or to take it up again; reports it."""
    config = by_number(state.config)
    if state.code is None or not (applies(config) and _comparable(config)):
        return False
    if slower:
        reason = f"compiled {_shown(compiled)}, as written {_shown(plain)}"
        event = events.Fallback(code=SLOWER, reason=reason, where=place_of(state.code))
        SESSION.emit(event, state)
    return True


class Budget:
    """The recompiles of one frame and its resume functions: their number and seconds.

    What varies at the beginning of a frame is what callers pass. They may pass each of some values
    once before they want all of them to be fast. What varies inside (which number came out of a
    tensor, how long a list has become) often has no end.
    """

    def __init__(self) -> None:
        self.made = self.made_inside = 0
        self.spent = self.spent_inside = 0.0
        self._all = 0.0  # with the first compilation of each place
        self._began: float | None = None

    def add(self, seconds: float, again: bool, inside: bool = False) -> None:
        """Count a compilation. `again`: its place had an entry before. `inside`: that is a resume
        function."""
        if self._began is None:
            self._began = time.monotonic() - seconds
        self._all += seconds
        if again:
            self.made += 1
            self.spent += seconds
            self.made_inside += inside
            self.spent_inside += seconds if inside else 0.0

    def _is_free(self, inside: bool, useful: bool) -> bool:
        many = self.made_inside >= FREE_INSIDE and self.spent_inside >= _MUCH
        return self.made < FREE and not (inside and many and not useful)

    def wait(self, states: Iterable[Any], won: float, inside: bool = False) -> float:
        """Seconds until the program has run for so long that another recompile may be made. `won`:
        the part of its time that compiled calls save. `inside`: it is of a resume function."""
        used = [
            sum(entry.hits >= _USEFUL and not entry.slower for entry in state.entries)
            for state in states
            if len(state.entries) > 1
        ]
        if self._began is None or self._is_free(inside, any(used)):
            return 0.0
        useful = sum(max(0, number - 1) for number in used)
        share = _SHARE * (useful + _TRUST) / (self.made + _TRUST)
        share = max(_LEAST, min(share, won))
        return self.spent / share - (time.monotonic() - self._began - self._all)


def pays_now(lost: float, compiled: float, config: JitConfig) -> bool:
    """Whether to compile in place of what has worked so far: once that has cost as much as it takes
    to compile. So both together cost at most twice what the better choice would have.

    lost      seconds that the entries so far have cost
    compiled  what compiling them took; less, where the store had their kernels
    """
    return not applies(config) or lost >= max(compiled, _COMPILER)


def put_off(state: Any, first: Any, config: JitConfig) -> str | None:
    """The reason why nothing is compiled for this miss, or None. It also pauses further misses.

    `first`: the state of the frame's beginning, which has the budget.
    """
    if not state.entries or not applies(config):
        return None
    resumes = [one for one in list(first.resumes.values()) if type(one) is not tuple]
    states = [first, *(one.state for one in resumes)]
    wait = first.budget.wait(states, _won(first), inside=state is not first)
    if wait <= 0:
        return None
    state.pause(min(wait, _LONGEST))
    budget = first.budget
    return f"{budget.made} recompiles took {_shown(budget.spent)}, and few of them are used again"


def _won(first: Any) -> float:
    """The part of plain Python's time that calls of this frame save; 1.0 while that is unknown."""
    known = [(entry.hits, ratio) for entry in first.entries if (ratio := entry.trials()[-1])]
    hits = sum(n for n, _ in known)
    return sum(n * max(0.0, 1 - ratio) for n, ratio in known) / hits if hits else 1.0


def _shown(seconds: float) -> str:
    """A time with three digits, in a unit that suits it."""
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"
