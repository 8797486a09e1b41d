"""Resume functions: the callables that go on after a break, one per place where frames go on.

In: the state of a frame, and the places where the code of a capture resumes it or an inlined
function. Out: callables with states of their own, kept by the state of the frame's beginning.
`unit.Unit` passes a ResumeFunctions to each capture.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..runtime import _native
from . import lazy_modules as lazy

if TYPE_CHECKING:
    from ..capture.capture import BreakRecord

# A loop that breaks at so many steps is followed from each of them; after more, Python takes the
# steps, and the code between the breaks is compiled once.
MOST_PLACES = 4


def first_state(state: Any) -> Any:
    """The state of the frame's beginning, or the state itself if that is gone or the same."""
    return (state.origin and state.origin()) or state


class ResumeFunctions:
    """Makes the resume functions of one capture, and records them in `made` (see
    `shared_entries.Resumes`).

    `state_for(code, origin=...)` makes their states. `scope`: the globals of the frame. `serial`:
    that of the capture's first event.
    """

    def __init__(
        self, state_for: Callable[..., Any], state: Any, scope: dict[str, Any], serial: int = 0
    ) -> None:
        self.serial = serial
        self.made: list[tuple[types.CodeType | None, tuple[Any, ...], Any]] = []
        self._state_for, self._first, self._scope = state_for, first_state(state), scope

    def __call__(
        self,
        code: types.CodeType,
        target: int,
        stack: tuple[str, ...],
        bound: tuple[str, ...],
        places: tuple[Any, ...],
        names: dict[str, Any] | None = None,
        begins: BreakRecord | None = None,
        varying: frozenset[str] = frozenset(),
    ) -> Any:
        """A call of it is the pending call of the resume callable. The same target, stack and set
        of names give the same callable, if the loops are at the same `places`.

        `names`: the globals of an inlined function; `begins`: the reported break of its first
        instruction; `varying`: locals with numbers that differ at each call.
        """
        kept, scope = self._first.resumes, self._scope if names is None else names
        key = (id(code), id(scope), target, stack, bound, places)
        of, found = kept.get(key, (None, None))
        # An id may be reused.
        if found is None or of() is not code:
            made = lazy.resume.resume_code(code, target, stack, bound)
            seen = self._first.places.setdefault((made, id(scope), stack, bound), set())
            seen.add(places)
            follows = len(seen) <= MOST_PLACES
            # A loop reaches the same place through a resume function of a resume function. The code
            # is then equal, and one state serves both.
            equal = (made, id(scope), stack, bound, places if follows else None)
            found = kept.get(equal)
            if found is None:
                found = kept[equal] = self._callable(made, scope)
                state = found.state
                state.span = lazy.ahead.lines_from(code, target)
                state.begins, state.follows = begins, follows
            kept[key] = weakref.ref(code), found
        if varying:
            found.state.varying |= varying
        tail = _native.Tail(found)
        way = (target, stack, bound, places)
        inner = () if names is None else (names, begins)
        self.made.append((None if names is None else code, (*way, *inner), tail))
        return tail

    def _callable(self, made: types.CodeType, scope: dict[str, Any]) -> Any:
        state = self._state_for(made, origin=self._first)
        cells = tuple(types.CellType() for _ in made.co_freevars) or None
        function = types.FunctionType(made, scope, made.co_name, None, cells)
        return _native.Callable(function, state, resume=True)
