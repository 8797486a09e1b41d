"""Callables that share compilations, since guards compare contents and not identities.

Callables share if they have the same configuration and are functions over one code object and one
globals dict (a `def` that a loop runs again, one function jitted twice), or compiled models of one
class. Each has its own unit, report and counters. A miss first checks the shared recipes. If the
guards of a `Recipe` hold in its frame, it makes an entry over the same program, with guards that
have not yet read this model's heap, and with its own resume functions. Since weights are inputs, a
second model of a class compiles nothing.

This keeps no model alive. A recipe that reaches no object of the program (`reachability`) lives as
long as the code or class of its callables; any other lives as long as an entry made from it.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ..ir.dataclass import dataclass, field
from ..runtime import _native
from ..runtime.events import events
from ..runtime.guards.weak_ref import Weak
from ..runtime.guards.weak_rows import module_of
from ..runtime.process.options import JitConfig
from ..runtime.process.session import SESSION
from ..runtime.report.timings import Followed
from ..runtime.weak_callbacks import until_exit
from . import lazy_modules as lazy
from .reachability import keeps_program_alive

if TYPE_CHECKING:
    from ..runtime.guards.dynamic_sizes import Variation
    from ..runtime.guards.mirror import FrameView
    from ..runtime.guards.rows import Row
    from ..runtime.guards.sources import Source

_Key = tuple[int, int, JitConfig]
# Resume functions that replacement code calls: the code that they resume (None: that of the frame),
# the other arguments of `resume_functions.ResumeFunctions`, and its result.
Resumes = tuple[tuple[types.CodeType | None, tuple[Any, ...], Any], ...]
# Events that are emitted again when a recipe is adopted: breaks, fallbacks, symbolic sizes.
_TOLD_AGAIN = (events.GraphBreak, events.Fallback, events.RanPlain, events.Symbolic)
# codes of events about the capture, not about its result
_OF_THE_STATE = ("PL207", "PL212", "PL213", "RC410")


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Recipe:
    """The parts of an entry. `resumes`: the arguments of each resume function that the code calls.
    `emitted`: the events that describe the capture. `programs`: the events of its programs.
    `followed`: the programs themselves, weakly. `seconds`: what the compilation took."""

    kind: str
    rows: tuple[Row, ...]
    inputs: tuple[Source, ...]
    target: Any
    tree: Any
    n_program: int
    rerun: bool
    extent: bool
    # The objects it was made for. It is invalid when one of them is gone.
    held: tuple[Weak, ...]
    resumes: Resumes
    seconds: float = 0.0
    emitted: list[events.Event] = field(default_factory=list)
    programs: list[events.Compiled] = field(default_factory=list)
    followed: list[Followed] = field(default_factory=list)

    def entry(
        self, code: types.CodeType, lost: Callable[[Any], Any] | None = None, target: Any = None
    ) -> Any:
        """A new entry, whose guards remember nothing yet. `lost`: called when an object it was made
        for dies (None: that is already handled). `target`: replacement code with the entry's own
        resume functions."""
        guards = lazy.compiler.compile_rows(self.rows, self.inputs, code)
        made = _native.Entry(
            self.kind,
            guards,
            self.target if target is None else target,
            self.tree,
            n_program_inputs=self.n_program,
            name=code.co_qualname,
            rows=self.rows,
            rerun=self.rerun,
        )
        if self.extent:
            made.extent = True
        held = self.held
        if lost is not None:
            held = tuple(Weak(found, lost) for weak in held if (found := weak()) is not None)
        made.data = Made(self, held, SESSION.owner[2])
        return made

    @property
    def holds_good(self) -> bool:
        return all(weak() is not None for weak in self.held)


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """The data of an entry: its recipe, weak references to the objects it was made for, the number
    of its capture's events, and what resumes the frame at a branch."""

    recipe: Recipe
    held: tuple[Weak, ...]
    number: int = 0
    sides: Any = field(default_factory=dict)  # see `Capture.sides`


@dataclass(slots=True, eq=False)
class _Kept:
    """One recipe. `recipe()` returns it while it is kept, strongly or weakly; `of` is always
    weak."""

    recipe: Callable[[], Recipe | None]
    of: weakref.ref[Recipe]


class Place:
    """Recipes, newest last, for frames that begin with one code object: the callable's (`at` is
    None), or that of a resume function. Only the thread with the capture lock uses it; a dying
    object may remove recipes at any time."""

    def __init__(self, at: types.CodeType | None, limit: int) -> None:
        self.at, self.limit = at, limit
        # Evidence of values that vary between calls of one function.
        self.varied: Variation | None = None
        self._kept: list[_Kept] = []

    def add(self, recipe: Recipe, apart: tuple[Any, ...]) -> None:
        """Keep a recipe, strongly only if it reaches no object of the program and none of
        `apart`."""
        if not _can_be_made_again(recipe):
            return
        of = weakref.ref(recipe, until_exit(functools.partial(_prune, weakref.ref(self))))
        things = (recipe.rows, recipe.inputs, recipe.target, recipe.tree, recipe.emitted)
        kept = of if keeps_program_alive(things, apart) else functools.partial(_itself, recipe)
        self._kept = [*self._kept, _Kept(kept, of)][-self.limit :]

    def find(self, view: FrameView, known: tuple[Any, ...]) -> Recipe | None:
        """A recipe whose guards hold in this frame and of which `known` has no entry: one with
        fewer breaks first, then the newest."""
        mine = {id(entry.data.recipe) for entry in known if type(entry.data) is Made}
        for recipe in sorted(self.recipes, key=_loss):
            if id(recipe) not in mine and lazy.mirror.mirror(recipe.rows, view) < 0:
                return recipe
        return None

    @property
    def recipes(self) -> list[Recipe]:
        """The valid recipes, newest first."""
        found = [kept.recipe() for kept in reversed(self._kept)]
        return [recipe for recipe in found if recipe is not None and recipe.holds_good]

    def forget(self, recipe: Recipe) -> None:
        """Remove this recipe, so that no other callable adopts it."""
        self._kept = [kept for kept in self._kept if kept.of() is not recipe]

    def prune(self) -> None:
        """Remove recipes whose objects are gone."""
        alive = {id(recipe) for recipe in self.recipes}
        self._kept = [kept for kept in self._kept if id(kept.of()) in alive]
        if self.varied is not None:
            self.varied.forget_dead()


# Code objects by id, which are not kept.
CodeById = weakref.WeakValueDictionary[int, types.CodeType]


@dataclass(eq=False)
class SharedEntries:
    """What callables share. `one_function`: they are the same function made again, so that
    values that vary between calls of one may vary between calls of the next. Sizes of one model are
    no evidence about another."""

    limit: int
    owner: Callable[[], Any]
    one_function: bool
    places: list[Place] = field(default_factory=list)
    # What the hook met below their frames.
    met: CodeById = field(default_factory=weakref.WeakValueDictionary)

    def place(self, at: types.CodeType | None) -> Place:
        found = next((place for place in self.places if place.at == at), None)
        if found is None:
            found = Place(at, self.limit)
            self.places = [*self.places, found]
        return found

    def forget(self, entry: Any) -> None:
        """Remove this entry's recipe, so that no other callable adopts it."""
        if type(entry.data) is Made:
            for place in self.places:
                place.forget(entry.data.recipe)

    def prune(self) -> None:
        for place in self.places:
            place.prune()

    def clear(self) -> None:
        self.places = []

    def __len__(self) -> int:
        return sum(len(place.recipes) for place in self.places)


def _prune(of: weakref.ref[Place], _reference: Any) -> None:
    place = of()
    if place is not None:
        place.prune()


def _loss(recipe: Recipe) -> int:
    """How much it leaves to Python: 0 nothing, 1 the part after a break, 2 everything."""
    return 2 if recipe.kind == "plain" else int(bool(recipe.resumes))


def _itself(recipe: Recipe) -> Recipe:
    return recipe


def _can_be_made_again(recipe: Recipe) -> bool:
    """Whether each resume function that the code calls is one of its constants."""
    if recipe.kind != "code":
        return True
    constants = {id(value) for value in _constants(recipe.target)}
    return all(id(made) in constants for _, _, made in recipe.resumes)


def _constants(code: types.CodeType) -> Iterator[Any]:
    """Its constants, and those of the code that it runs for the rest of inlined functions."""
    for value in code.co_consts:
        yield value
        if type(value) is types.CodeType:
            yield from _constants(value)


def retargeted(recipe: Recipe, resume: Callable[..., Any], code: types.CodeType) -> Any:
    """The recipe's replacement code with resume functions that `resume` makes for this code."""
    if recipe.kind != "code" or not recipe.resumes:
        return recipe.target
    own = {id(made): resume(of or code, *way) for of, way, made in recipe.resumes}
    return _with(recipe.target, own)


def _with(code: types.CodeType, own: dict[int, Any]) -> types.CodeType:
    """The code with other constants: address of the old one -> the new one."""

    def new(value: Any) -> Any:
        if type(value) is types.CodeType:
            return _with(value, own)
        return own.get(id(value), value)

    constants = tuple(map(new, code.co_consts))
    same = all(map(operator.is_, constants, code.co_consts))
    return code if same else code.replace(co_consts=constants)


def emit_adopted(recipe: Recipe) -> None:
    """Emit that an entry was adopted, with the events of the original capture."""
    for event in recipe.emitted:
        names = (f.name for f in dataclasses.fields(event) if f.name not in ("at", "entry"))
        emitted = {name: getattr(event, name) for name in names}
        if type(event) is events.Captured:
            emitted.pop("seconds")
            SESSION.emit(events.Adopted(**emitted, programs=tuple(recipe.programs)))
        else:
            SESSION.emit(type(event)(**emitted))


def keep_emitted(recipe: Recipe, found: Iterable[events.Event], state: Any) -> None:
    """Keep the events of a capture that are emitted again when its recipe is adopted."""
    found = list(found)
    recipe.emitted.extend(worth_repeating(found))
    recipe.programs.extend(event for event in found if type(event) is events.Compiled)
    recipe.followed.extend(one for one in state.followed if one.entry == SESSION.owner[2])


def worth_repeating(found: Iterable[events.Event]) -> tuple[events.Event, ...]:
    """The events of a capture that belong to its recipe."""
    return tuple(
        event
        for event in found
        if type(event) is events.Captured
        or (isinstance(event, _TOLD_AGAIN) and getattr(event, "code", "") not in _OF_THE_STATE)
    )


# -- the table
@dataclass(frozen=True, slots=True)
class _Row:
    """A row of the table. `module`: the module of the callables' globals; without one (None), the
    row lives as long as a unit."""

    owner: weakref.ref[Any]
    module: weakref.ref[types.ModuleType] | None
    shared: Callable[[], SharedEntries | None]


class _Table:
    """All `SharedEntries` of the process. It keeps no code, class or module alive."""

    def __init__(self) -> None:
        self._rows: dict[_Key, _Row] = {}
        self._lock = threading.RLock()

    def after_fork(self) -> None:
        self._lock = threading.RLock()

    def of(self, owner: Any, scope: dict[str, Any], config: JitConfig) -> SharedEntries:
        """What a callable shares with others. `owner` is its code, or the class of its model,
        `scope` its globals."""
        key = id(owner), id(scope), config
        with self._lock:
            row = self._rows.get(key)
            shared = None if row is None or row.owner() is not owner else row.shared()
            module = module_of(scope)
            if shared is not None and row is not None:
                same = (
                    row.module is None if module is None else row.module and row.module() is module
                )
                if same:
                    return shared
            return self._new(key, owner, module)

    def _new(self, key: _Key, owner: Any, module: types.ModuleType | None) -> SharedEntries:
        drop = until_exit(functools.partial(self._drop, key))
        held = weakref.ref(owner, drop)
        shared = SharedEntries(key[2].recompile_limit, held, isinstance(owner, types.CodeType))
        if module is None:
            row = _Row(held, None, weakref.ref(shared, drop))
        else:
            row = _Row(held, weakref.ref(module, drop), lambda: shared)
        self._rows[key] = row
        return shared

    def _drop(self, key: _Key, reference: Any) -> None:
        row = self._rows.get(key)
        if row is not None and any(reference is one for one in (row.owner, row.module, row.shared)):
            self._rows.pop(key, None)

    def forget(self) -> None:
        """Drop all recipes."""
        with self._lock:
            for row in list(self._rows.values()):
                shared = row.shared()
                if shared is not None:
                    shared.clear()

    def __len__(self) -> int:
        return len(self._rows)


SHARED = _Table()


def plain_entry(code: types.CodeType) -> Any:
    """An entry without guards that runs the original code."""
    return _native.Entry("plain", lazy.compiler.compile_rows([], [], code), None, None, rows=[])
