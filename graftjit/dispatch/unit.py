"""Unit: everything compiled for one jitted function, and the handling of misses.

In: misses of the native callable (of the function itself, of its resume functions, and of frames
met by the hook while it runs). Out: entries, published on the state of the code, and events. Only
here do capture, codegen and runtime meet.
"""

from __future__ import annotations

import builtins
import dataclasses
import functools
import os
import time
import traceback
import types
import weakref
from typing import TYPE_CHECKING, Any

import torch

from ..runtime import _native
from ..runtime.errors import Begun, BreakError, CheckError, GraftError, InternalError
from ..runtime.events import events, observers, progress
from ..runtime.guards import weak_rows
from ..runtime.guards.dynamic_sizes import Variation
from ..runtime.guards.weak_ref import Living
from ..runtime.process import beside, faults, own_builtins
from ..runtime.process.options import JitConfig, number_of
from ..runtime.process.own_modules import KEEPER
from ..runtime.process.session import SESSION
from ..runtime.report import timings
from ..runtime.weak_callbacks import until_exit
from . import assumed_branches, paying, unit_events
from . import lazy_modules as lazy
from .capture_lock import TURNS, other_threads
from .eviction import Change, Eviction, change_of
from .refusals import refused
from .resume_functions import ResumeFunctions, first_state
from .shared_entries import (
    SHARED,
    CodeById,
    Made,
    Recipe,
    SharedEntries,
    emit_adopted,
    keep_emitted,
    plain_entry,
    retargeted,
)
from .unit_events import place_of

if TYPE_CHECKING:
    from ..capture.capture import BreakRecord, Capture
    from ..ir.graph.nodes import Graph
    from ..runtime.guards.mirror import FrameView

ATTEMPTS = 3  # attempts at one frame that other threads change meanwhile


class Unit:
    """One jitted function with its configuration: its states, one per code object, and their
    events."""

    def __init__(self, name: str, config: JitConfig, place: Any = None) -> None:
        self.name = name
        self.config = config
        self.face: weakref.ref[Any] | None = None  # the callable that users have
        self.shared: SharedEntries | None = None  # shares compilations with callables like this one
        # The first line of the function in reports; None: that of its code.
        self.place = place
        # By the id of the code, in order of creation. Weak: a callable keeps its state alive, an
        # entry the states of its resume functions, and a code object that of a frame met by the
        # hook. So a state, its entries and its events die when no code can run them.
        self._states: dict[int, weakref.ref[Any]] = {}
        self._met: CodeById = weakref.WeakValueDictionary()
        # What it computes under transforms of torch.func: see `transforms`.
        self.transformed: dict[Any, Any] = {}
        # States whose misses ran in plain Python because of a replaced builtin, with its name.
        self.unreported: dict[Any, str] = {}
        self._compiling = 0.0  # seconds of this capture spent on compiling its graph
        self._computes = False  # whether its program has kernels or calls a library

    # -- states ------------------------------------------------------------------------------------
    def state_for(self, code: types.CodeType, origin: Any = None) -> Any:
        """The state of a code object in this unit, created at first use.

        `origin` is the state of the frame that this code resumes; the state of the frame's
        beginning keeps those of all its resume functions. The caller must keep the result alive.
        Events are recorded under it.
        """
        with TURNS.making:
            found = self._states.get(id(code))
            state = None if found is None else found()
            # An id may be reused.
            if state is None or state.code is not code:
                state = _native.CodeState(code, self._miss_of(), number_of(self.config))
                state.origin = origin and weakref.ref(first_state(origin))
                state.resumes = {}
                state.eviction = Eviction(self.config.recompile_limit)
                state.budget = paying.Budget()
                # Evidence of values that vary between calls, from the first miss on.
                state.varied = None
                # For a resume function: its lines, and the break before it.
                state.span, state.after = (), None
                # The break of its first instruction, if that has been reported.
                state.begins = None
                # Whether it follows the loop that it resumes, and at which places loops broke.
                state.follows, state.places = True, {}
                # Numbers among its arguments that differ at each call.
                state.varying = frozenset()
                state.followed = []  # programs: see runtime.report.timings
                state.unit = weakref.ref(self)
                state.reported = set()  # reasons why calls without an entry ran in plain Python
                self._states = {key: ref for key, ref in self._states.items() if ref() is not None}
                self._states.pop(id(code), None)
                self._states[id(code)] = weakref.ref(state)
                where = self.place if origin is None and self.place else place_of(code)
                SESSION.emit(events.FrameSeen(frame=code.co_qualname, where=where), state)
            return state

    @property
    def states(self) -> list[Any]:
        """The states whose code can still run, in order of creation."""
        found = (ref() for ref in list(self._states.values()))
        return [state for state in found if state is not None and state.code is not None]

    def meets(self, code: types.CodeType) -> None:
        """Note that the hook met this code below frames of this unit. It asks once about each code
        object between two entries that have frames inside, so what the unit shares notes it too."""
        self._met[id(code)] = code
        if self.shared is not None:
            self.shared.met[id(code)] = code

    def met(self) -> list[types.CodeType]:
        """The code of frames that the hook met below frames of this unit, some of it twice."""
        found = self._met.valuerefs()
        if self.shared is not None and any(state.entries for state in self.states):
            found += self.shared.met.valuerefs()
        return [code for ref in found if (code := ref()) is not None]

    def runs(self, code: types.CodeType) -> bool:
        """Whether the code belongs to the unit: replacement code of an entry, or a frame left to
        plain Python."""
        return any(
            state.code is code or any(entry.target is code for entry in state.entries)
            for state in self.states
        )

    def _miss_of(self) -> Any:
        """The miss callback. It does not keep the unit alive; only running frames outlive it."""
        unit = weakref.ref(self)

        def miss(state: Any, values: tuple, scope: dict, closure: tuple | None) -> Any:
            owner = unit()
            if owner is None:
                return None
            try:
                return owner.miss(state, values, scope, closure)
            except Exception as error:
                if isinstance(error, GraftError) and not isinstance(error, InternalError):
                    raise
                return owner._fault(state, error)

        return miss

    def reset(self) -> None:
        """Drop all entries and events."""
        self.transformed.clear()
        for state in self.states:
            for entry in state.entries:
                self._forget(entry)
            state.clear()
            state.eviction = Eviction(state.eviction.limit, state.eviction.warned)
            state.budget = paying.Budget()
            state.varied = None
            if self.shared is not None:
                self.shared.place(_at(state)).varied = None
            self._let_go(state)
            state.reported.clear()
            state.followed = []
            SESSION.log.clear(state)

    def _forget(self, entry: Any) -> None:
        """Make an entry's recipe unavailable to other callables."""
        if self.shared is not None:
            self.shared.forget(entry)

    def _let_go(self, state: Any) -> None:
        """Make callables drop the function of the entry that they ran last, since it may be
        removed."""
        made = [one for one in list(state.resumes.values()) if type(one) is not tuple]
        for one in (self.face() if self.face else None, *made):
            if one is not None:
                one.forget()

    # -- a miss ------------------------------------------------------------------------------------
    def miss(self, state: Any, values: tuple, scope: dict, closure: tuple | None) -> Any:
        """Capture the frame, publish the entry and return it. None: run plain Python this time."""
        replaced = own_builtins.replaced()
        if replaced:
            self.unreported[state] = replaced
            return None
        code = state.code
        if TURNS.mine:
            return None
        self._tell_late()
        beside.leave_ours_alone()
        found = self._under_transforms(state)
        if found is not None:
            return found
        refused = self._refused()
        if refused is not None:
            self._tell_plain(state, *refused)
            return None
        before = state.entries
        entry = next(SESSION.entries)
        with TURNS.turn() as got, SESSION.working_for(state, code.co_qualname, entry):
            if not got:
                self._tell_plain(state, "PL212", "another thread has been compiling for minutes")
                return None
            view = _view(code, values, scope, closure)
            found = _made_meanwhile(state, before, view)
            found = found or self._guarded_miss(state, code, view)
            KEEPER.remember()  # modules that the miss has imported
            return found

    def _refused(self) -> tuple[str, str] | None:
        """Why nothing may be captured now."""
        return refused()

    def _under_transforms(self, state: Any) -> Any:
        """An entry for a call under transforms of torch.func; None if there is none."""
        if torch._C._functorch.peek_interpreter_stack() is None or SESSION.options.disable:
            return None
        face = self.face() if self.face else None
        if face is None or face.__wrapped__.__code__ is not state.code:
            return None
        return lazy.transforms.entry_for(self, state, lazy.compiler, face.__wrapped__)

    def _tell_late(self) -> None:
        """Report calls that ran in plain Python while a builtin was replaced. At that time graftjit
        could not run."""
        while self.unreported:
            state, name = self.unreported.popitem()
            self._tell_plain(state, "PL209", f"active: the program's own builtins.{name}")

    def _tell_plain(self, state: Any, code: str, reason: str) -> None:
        """Report a reason once. No entry is made, so that each call comes here again."""
        if reason not in state.reported:
            state.reported.add(reason)
            kind = events.RanPlain if code == "PL206" else events.Fallback  # for good, or for now
            event = kind(code=code, reason=reason, where=place_of(state.code))
            with SESSION.working_for(state, state.code.co_qualname):
                SESSION.emit(event)

    def _tell_unpaid(self, state: Any, reason: str) -> None:
        """Report once that recompiles are put off; the numbers in the reason change."""
        if paying.UNPAID not in state.reported:
            state.reported.add(paying.UNPAID)
            self._tell_plain(state, paying.UNPAID, reason)

    def _guarded_miss(self, state: Any, code: types.CodeType, view: FrameView) -> Any:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                if not state.eviction.pays(first_state(state).eviction):
                    self._tell_plain(state, "PL207", "compiled often, and never with a kernel")
                    return None
                adopted = self._adopted(state, code, view)
                if adopted is not None:
                    return adopted
                unpaid = paying.put_off(state, first_state(state), self.config)
                if unpaid is not None:
                    self._tell_unpaid(state, unpaid)
                    return None
                change = change_of(state.entries, view)
                if not state.eviction.worth(change):
                    times = f"combinations that occurred fewer than {state.eviction.times} times"
                    self._tell_plain(state, "PL207", times)
                    return None
                return self._made(state, code, view, change)
            except Changing as error:
                self._tell_plain(state, "PL213", str(error))
                if attempt == ATTEMPTS:
                    return None
            # An internal error: report it and run the frame in plain Python.
            except Exception as error:
                if isinstance(error, GraftError) and not isinstance(error, InternalError):
                    raise
                if attempt == ATTEMPTS or not other_threads():
                    return self._fault(state, error)
                faults.let_go(error)
        return None

    def _made(
        self, state: Any, code: types.CodeType, view: FrameView, change: Change | None
    ) -> Any:
        """Capture, evict, publish."""
        frame = self._frame(state, view)
        started, self._compiling, self._computes = time.perf_counter(), 0.0, False
        resumes = ResumeFunctions(self.state_for, state, view.globals, SESSION.log.serial())
        with progress.displayed(f"compiling {self.name}"):
            made = lazy.capture.capture(
                frame, self._backend, resumes, _native.call_in_extent, self._strict
            )
        spent = time.perf_counter() - started
        stages = {"capture": spent - self._compiling, "compile": self._compiling}
        first = first_state(state)
        first.budget.add(spent, again=bool(state.entries), inside=state is not first)
        self._accept(made)
        self._check_own_frame(made, view)
        if change is not None:
            unit_events.recompiled(state, change, view)
        self._make_room(state, change)
        state.eviction.add(first.eviction, self._computes)
        return self._publish(state, code, made, resumes, stages)

    def _frame(self, state: Any, view: FrameView, assumed: dict[Any, bool] | None = None) -> Any:
        return lazy.capture.FrameInput(
            state.code,
            tuple(view.locals_vector),
            view.globals,
            view.closure,
            self._varied(state, view),
            self.config.claims_compiling,
            state.follows,
            assumed,
        )

    def _accept(self, made: Capture) -> None:
        """Raise BreakError if this unit has no use for such a capture."""

    def _check_own_frame(self, made: Capture, view: FrameView) -> None:
        """Check that the guards hold for their own frame, unless another thread has changed it."""
        index = lazy.mirror.mirror(made.rows, view)
        if index < 0:
            return
        row = made.rows[index]
        now, before = lazy.mirror.explain_failure(row, view)
        if other_threads():
            raise Changing(f"{row.source or row.kind} was changed by another thread meanwhile")
        raise CheckError(
            f"a guard does not hold on its own frame: {row.source} is {now}, guarded as {before}"
        )

    def _varied(self, state: Any, view: FrameView) -> Any:
        """The evidence of what varies between calls of this code, including this miss."""
        shared = self.shared is not None and self.shared.one_function
        holder = self.shared.place(_at(state)) if self.shared is not None and shared else state
        varied = holder.varied  # read once: another thread may reset it
        if varied is None:
            varied = holder.varied = Variation(self.config.dynamic)
        varied.mark_locals(state.varying)
        known = [entry.rows for entry in state.entries]
        if shared:
            known += [recipe.rows for recipe in holder.recipes]
        varied.observe(known, lazy.mirror.Reader(view))
        return varied

    def _publish(
        self,
        state: Any,
        code: types.CodeType,
        made: Capture,
        resumes: ResumeFunctions,
        stages: dict[str, float],
    ) -> Any:
        """Make the entry, emit its events, and publish it to calls and to callables that share."""
        entry = self._entry(state, code, made, resumes, stages)
        recipe = entry.data.recipe
        if assumed_branches.is_candidate(made):
            entry.data = dataclasses.replace(entry.data, sides=made.sides)
            entry.hot_at = assumed_branches.HOT
        paying.arm(state, entry, self.config)
        state.add(entry)
        # Such a frame may inspect any values, so its recipe is not shared.
        looks = made.plain is not None and made.plain.code == "GB132"
        if self.shared is not None and not looks:
            keep_emitted(recipe, SESSION.log.since(resumes.serial, state), state)
            self.shared.place(_at(state)).add(recipe, (code, self.shared.owner()))
        return entry

    def _entry(
        self,
        state: Any,
        code: types.CodeType,
        made: Capture,
        resumes: ResumeFunctions,
        stages: dict[str, float],
    ) -> Any:
        """Make the entry and emit its events."""
        started = time.perf_counter()
        lost = until_exit(functools.partial(_drop_dead, weakref.ref(state), _weak(self.shared)))
        rows, inputs, held = weak_rows.hold_weakly(made.rows, made.inputs, lost)
        target = made.code if made.kind == "code" else made.program
        unit_events.resumed(resumes.made, made.breaks)
        recipe = Recipe(
            made.kind,
            tuple(rows),
            tuple(inputs),
            target,
            made.tree,
            made.n_program,
            made.rerun,
            made.plain is not None and made.plain.code != "PL204",
            held,
            tuple(resumes.made),
            sum(stages.values()),
        )
        entry = recipe.entry(code)
        if recipe.extent or made.breaks:
            _native.ask_for_owners()
        stages["guards"] = time.perf_counter() - started
        unit_events.captured(state, code, made, stages)
        observers.publish(lambda: observers.published(state, made, resumes.made, stages))
        return entry

    def _adopted(self, state: Any, code: types.CodeType, view: FrameView) -> Any:
        """An entry made from a recipe that the unit shares, or None."""
        if self.shared is None:
            return None
        recipe = self.shared.place(_at(state)).find(view, state.entries)
        if recipe is None:
            return None
        lost = until_exit(functools.partial(_drop_dead, weakref.ref(state), None))
        resumes = ResumeFunctions(self.state_for, state, view.globals)
        target = retargeted(recipe, resumes, code)
        unit_events.resumed(
            resumes.made, [e for e in recipe.emitted if type(e) is events.GraphBreak]
        )
        entry = recipe.entry(code, lost, target)
        if recipe.extent or resumes.made:
            _native.ask_for_owners()
        self._make_room(state, None)
        emit_adopted(recipe)
        timings.follow_too(state, recipe.followed)
        paying.arm(state, entry, self.config)
        state.add(entry)
        return entry

    def _backend(self, graph: Graph) -> Any:
        """The graph's program: the native program itself where there is one, so that a hit runs no
        Python between guards and kernels."""
        started = time.perf_counter()
        try:
            progress.detail(f"kernels for {len(graph.nodes)} operators")
            # A default device must affect only the program's own tensors.
            with torch._C.DisableTorchFunction():
                compiled = lazy.backend.compile_graph(graph, self.config)
            self._computes |= compiled.computes
            return compiled.program
        finally:
            self._compiling += time.perf_counter() - started

    def _strict(self, record: BreakRecord) -> None:
        if not self.config.strict or record.code in events.HARMLESS_FRAMES:
            return
        raise BreakError(
            f"graph break in {self.name}: {record.reason}",
            where=record.where,
            expected="one graph (fullgraph=True or jit_syntax_level='STRICT')",
            found=record.code,
            todo=f"`python -m graftjit codes {record.code}` explains the break and how to fix it",
        )

    def _make_room(self, state: Any, change: Change | None) -> None:
        """Evict the least useful entry at the limit. Each eviction is reported, and the first one
        is a warning with its cure."""
        eviction: Eviction = state.eviction
        full = len(state.entries) >= eviction.limit
        while len(state.entries) >= eviction.limit:
            gone = eviction.least_useful(state.entries)
            self._forget(gone)
            state.remove(gone)
            self._let_go(first_state(state))
            reason = f"{eviction.limit} entries: the least useful one is evicted for a new one"
            SESSION.emit(events.Fallback(code="RC410", reason=reason, where=place_of(state.code)))
        if (full or eviction.useless >= eviction.limit) and not eviction.warned:
            eviction.warned = True
            SESSION.warn_once(
                "WN601", f"{self.name}: {unit_events.named(state, _too_many(eviction, change))}"
            )

    def _fault(self, state: Any, error: Exception) -> Any:
        if SESSION.options.check:
            raise error
        text = "".join(traceback.format_exception(error))
        event = events.RanPlain(
            code="PL205",
            reason=f"{type(error).__name__}: {error}",
            where=place_of(state.code),
            detail=text,
        )
        faults.safely(SESSION.emit, event, state)
        faults.warn_of_fault(self.name, error)
        faults.let_go(error)
        try:
            entry = plain_entry(state.code)
            state.add(entry)
            return entry
        # No guards can be made, so the next call comes here again.
        except Exception as another:
            faults.warn_of_fault(self.name, another)
            return None

    def counted(self) -> list[tuple[Any, events.Counted]]:
        """The totals for a report, one row per state."""
        self._tell_late()
        states = self.states
        return [(state, row) for state in states if (row := unit_events.counted(state)) is not None]


def _after_fork() -> None:
    """Make locks anew after fork: their owners do not exist in the child."""
    TURNS.after_fork()
    SESSION.after_fork()
    SHARED.after_fork()


os.register_at_fork(
    before=TURNS.before_fork, after_in_parent=TURNS.after_in_parent, after_in_child=_after_fork
)
UNITS: Living[Unit] = Living()


class Changing(Exception):
    """Another thread changes the inputs of a frame during its capture."""


def _made_meanwhile(state: Any, before: tuple[Any, ...], view: FrameView) -> Any:
    """The entry that another thread made while this one waited, if it matches this call."""
    fresh = [entry for entry in state.entries if entry not in before]
    return next((entry for entry in fresh if lazy.mirror.mirror(entry.rows, view) < 0), None)


def _weak(shared: SharedEntries | None) -> weakref.ref[SharedEntries] | None:
    return None if shared is None else weakref.ref(shared)


def _at(state: Any) -> types.CodeType | None:
    """The key of this state's frames among those of its callable: see `shared_entries.Place`."""
    return None if state.origin is None else state.code


def _drop_dead(
    of: weakref.ref[Any], shared_of: weakref.ref[SharedEntries] | None, _reference: Any
) -> None:
    """Remove the entries of a state that were made for a dead object."""
    shared = None if shared_of is None else shared_of()
    if shared is not None:
        shared.prune()
    state = of()
    if state is None:
        return
    for entry in state.entries:
        if type(entry.data) is Made and any(one() is None for one in entry.data.held):
            state.remove(entry)
            state.eviction.dead(entry)


def _too_many(eviction: Eviction, change: Change | None) -> str:
    """The warning at the limit, with what varies and the cure."""
    what = ""
    if change is not None:
        where = change.row.where
        place = "" if where is None else f"{where.shown}:{where.line}: "
        what = f" ({place}{change.source} is now {change.now}, before {change.before})"
    return (
        f"{eviction.limit} entries, and calls still bring new combinations of values{what};"
        " from here on each"
        " new entry evicts the least useful one. Pass what varies as a tensor, or raise"
        " JitConfig(recompile_limit=...); the report lists all recompiles"
    )


def _view(code: types.CodeType, values: tuple, scope: dict, closure: tuple | None) -> FrameView:
    found = scope.get("__builtins__", builtins)
    names = found.__dict__ if isinstance(found, types.ModuleType) else found
    return lazy.mirror.FrameView(code, values, scope, names, closure)


def check(
    state: Any, entry: Any, guards: Any, values: tuple, scope: dict, closure: Any, verdict: int
) -> None:
    """GRAFTJIT_CHECK: compare the mirror with the native guard program."""
    if own_builtins.replaced():
        return
    view = _view(state.code, values, scope, closure)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return lazy.mirror.check_verdict(entry.rows, view, verdict)
        except CheckError:
            # Another thread may have changed the values between the two checks.
            if attempt == ATTEMPTS or not other_threads():
                raise
            verdict = guards.check(values, scope, closure)


def on_hot(state: Any, entry: Any, values: tuple, scope: dict, closure: tuple | None) -> Any:
    """A better entry in place of one that has answered many calls, or None."""
    unit = state.unit()
    if unit is None or own_builtins.replaced() or torch._C._functorch.peek_interpreter_stack():
        return None
    view = _view(state.code, values, scope, closure)
    try:
        return assumed_branches.better(unit, state, entry, view)
    except Exception as error:
        faults.warn_of_fault(unit.name, error, "The branch stays a graph break: results are right.")
        return None


def on_rerun(state: Any, entry: Any, error: BaseException) -> None:
    """Report that a compiled program raised. The frame then runs in plain Python, which raises its
    own exception."""
    if own_builtins.replaced() and error.__class__ is not Begun:
        # The replaced builtin may be the reason, and reporting could fail for the same reason.
        return
    event = faults.of_a_run(state.code.co_qualname, error)
    faults.safely(SESSION.emit, dataclasses.replace(event, where=place_of(state.code)), state)
