"""Kin: callables for which one compilation is enough, since guards hold contents and not identities.

Functions over one code object and one set of globals are kin (a `def` that a loop runs again, one function jitted
twice), and so are the models of one class that `compile` was given; in one configuration. Each has a unit, a report and
counters of its own. A miss of one first asks what has been compiled for the others: where the guards of such a `Recipe`
hold in its frame, an entry over the same program is made, with guards that have yet to read this model's heap, and
with resume functions of its own. Weights are inputs, so a second model of a class compiles nothing.

Nothing of a model stays because of this. A recipe that leads to no object of the program (`keeping`) lives as long as
the code or class that the kin share; any other as long as an entry does that was made of it.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
import types
import weakref
from collections.abc import Callable, Iterable
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
from .reachability import keeps_program_alive

if TYPE_CHECKING:
    from ..runtime.guards.dynamic_sizes import Variation
    from ..runtime.guards.mirror import FrameView
    from ..runtime.guards.rows import Row
    from ..runtime.guards.sources import Source

_Key = tuple[int, int, JitConfig]
# Resume functions that replacement code calls: (target, stack, bound) of `Unit._resumer`, and what it gave.
Resumes = tuple[tuple[tuple[int, tuple[str, ...], tuple[str, ...]], Any], ...]
# What is told again when a recipe is taken over: where its graphs end, what runs slower, what varies.
_TOLD_AGAIN = (events.GraphBreak, events.Fallback, events.RanPlain, events.Symbolic)
_OF_THE_STATE = ("PL207", "PL212", "PL213", "RC410")  # codes of what happened while it was made


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Recipe:
    """What an entry is made of. `resumes`: the way to each resume function that the code calls; `told`: the events
    that say what was captured; `programs`: those of what was compiled, and `followed` the programs themselves, weakly."""

    kind: str
    rows: tuple[Row, ...]
    inputs: tuple[Source, ...]
    target: Any
    tree: Any
    n_program: int
    rerun: bool
    extent: bool
    held: tuple[Weak, ...]  # what it was made for: it holds no longer when one of these is gone
    resumes: Resumes
    told: list[events.Event] = field(default_factory=list)
    programs: list[events.Compiled] = field(default_factory=list)
    followed: list[Followed] = field(default_factory=list)

    def entry(
        self, code: types.CodeType, lost: Callable[[Any], Any] | None = None, target: Any = None
    ) -> Any:
        """An entry of its own: its guards remember nothing yet. `lost`: what to call when an object it was made for
        is gone (None: that is seen to); `target`: replacement code with resume functions of its own."""
        from ..runtime.guards.compiler import compile_rows

        guards = compile_rows(self.rows, self.inputs, code)
        made = _native.Entry(
            self.kind, guards, self.target if target is None else target, self.tree,
            n_program_inputs=self.n_program, name=code.co_qualname, rows=self.rows, rerun=self.rerun,
        )  # fmt: skip
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
    """What an entry keeps besides: what it was made of, the references to what it was made for, and the number that
    the events of its capture have."""

    recipe: Recipe
    held: tuple[Weak, ...]
    number: int = 0


@dataclass(slots=True, eq=False)
class _Kept:
    """One recipe: `recipe` gives it as long as it is there, `of` is weak in any case."""

    recipe: Callable[[], Recipe | None]
    of: weakref.ref[Recipe]


class Place:
    """Recipes, newest last, for the frames that begin with one code: that of the callable (`at` is None) or of a
    resume function. Used by the thread that has the turn to capture; an object that dies may take recipes out at
    any time."""

    def __init__(self, at: types.CodeType | None, limit: int) -> None:
        self.at, self.limit = at, limit
        self.varied: Variation | None = (
            None  # evidence of what varies between calls of one function
        )
        self._kept: list[_Kept] = []

    def add(self, recipe: Recipe, apart: tuple[Any, ...]) -> None:
        """Keep what was made; it must lead to none of `apart`."""
        if not _can_be_made_again(recipe):
            return
        of = weakref.ref(recipe, until_exit(functools.partial(_prune, weakref.ref(self))))
        things = (recipe.rows, recipe.inputs, recipe.target, recipe.tree, recipe.told)
        kept = of if keeps_program_alive(things, apart) else functools.partial(_itself, recipe)
        self._kept = [*self._kept, _Kept(kept, of)][-self.limit :]

    def find(self, view: FrameView, known: tuple[Any, ...]) -> Recipe | None:
        """A recipe whose guards hold in this frame, one with fewer breaks first, then the newest; not one of the
        entries in `known`."""
        from ..runtime.guards.mirror import mirror

        mine = {id(entry.data.recipe) for entry in known if type(entry.data) is Made}
        for recipe in sorted(self.recipes, key=_loss):
            if id(recipe) not in mine and mirror(recipe.rows, view) < 0:
                return recipe
        return None

    @property
    def recipes(self) -> list[Recipe]:
        """Those that may still hold, newest first."""
        found = [kept.recipe() for kept in reversed(self._kept)]
        return [recipe for recipe in found if recipe is not None and recipe.holds_good]

    def forget(self, recipe: Recipe) -> None:
        """This recipe is for nobody else any more."""
        self._kept = [kept for kept in self._kept if kept.of() is not recipe]

    def prune(self) -> None:
        """An object is gone that recipes may have been made for."""
        alive = {id(recipe) for recipe in self.recipes}
        self._kept = [kept for kept in self._kept if id(kept.of()) in alive]
        if self.varied is not None:
            self.varied.forget_dead()


@dataclass(eq=False)
class Kin:
    """What callables that are kin share. `one_function`: they are one function made again, so that what varied
    between calls of one may vary between those of the next; sizes of a model are no evidence about another one."""

    limit: int
    owner: Callable[[], Any]
    one_function: bool
    places: list[Place] = field(default_factory=list)
    met: list[weakref.ref[types.CodeType]] = field(
        default_factory=list
    )  # by the hook, below their frames

    def place(self, at: types.CodeType | None) -> Place:
        found = next((place for place in self.places if place.at == at), None)
        if found is None:
            found = Place(at, self.limit)
            self.places = [*self.places, found]
        return found

    def forget(self, entry: Any) -> None:
        """The recipe of this entry is for nobody else any more."""
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
    """What it leaves to Python: nothing, what follows a break, all."""
    return 2 if recipe.kind == "plain" else int(bool(recipe.resumes))


def _itself(recipe: Recipe) -> Recipe:
    return recipe


def _can_be_made_again(recipe: Recipe) -> bool:
    """Whether each resume function that the code calls is one of its constants."""
    if recipe.kind != "code":
        return True
    constants = {id(value) for value in recipe.target.co_consts}
    return all(id(made) in constants for _, made in recipe.resumes)


def retargeted(recipe: Recipe, resume: Callable[..., Any], code: types.CodeType) -> Any:
    """The recipe's replacement code over resume functions that `resume` makes for this code."""
    if recipe.kind != "code" or not recipe.resumes:
        return recipe.target
    own = {id(made): resume(code, *way) for way, made in recipe.resumes}
    constants = tuple(own.get(id(value), value) for value in recipe.target.co_consts)
    return recipe.target.replace(co_consts=constants)


def tell(recipe: Recipe) -> None:
    """That an entry was taken over, with what its maker was told."""
    for event in recipe.told:
        names = (f.name for f in dataclasses.fields(event) if f.name not in ("at", "entry"))
        told = {name: getattr(event, name) for name in names}
        if type(event) is events.Captured:
            told.pop("seconds")
            SESSION.emit(events.Adopted(**told, programs=tuple(recipe.programs)))
        else:
            SESSION.emit(type(event)(**told))


def keep_told(recipe: Recipe, found: Iterable[events.Event], state: Any) -> None:
    """What is told when the recipe is taken over, of the events of the capture that made it."""
    found = list(found)
    recipe.told.extend(worth_telling(found))
    recipe.programs.extend(event for event in found if type(event) is events.Compiled)
    recipe.followed.extend(one for one in state.followed if one.entry == SESSION.owner[2])


def worth_telling(found: Iterable[events.Event]) -> tuple[events.Event, ...]:
    """Of the events of one capture those that belong to its recipe."""
    return tuple(
        event
        for event in found
        if type(event) is events.Captured
        or (isinstance(event, _TOLD_AGAIN) and getattr(event, "code", "") not in _OF_THE_STATE)
    )


# -- who is kin of whom ------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Row:
    """One set of kin in the table; `module`: that of their globals, or None where they live without one and the kin
    as long as a unit."""

    owner: weakref.ref[Any]
    module: weakref.ref[types.ModuleType] | None
    kin: Callable[[], Kin | None]


class _Table:
    """The kin of a process, by what they share. It holds no code, class or module."""

    def __init__(self) -> None:
        self._rows: dict[_Key, _Row] = {}
        self._lock = threading.RLock()

    def after_fork(self) -> None:
        self._lock = threading.RLock()

    def of(self, owner: Any, scope: dict[str, Any], config: JitConfig) -> Kin:
        """The kin of a callable: `owner` is its code, or the class of the model that it runs; `scope` its globals."""
        key = id(owner), id(scope), config
        with self._lock:
            row = self._rows.get(key)
            kin = None if row is None or row.owner() is not owner else row.kin()
            module = module_of(scope)
            if kin is not None and row is not None:
                same = (
                    row.module is None if module is None else row.module and row.module() is module
                )
                if same:
                    return kin
            return self._new(key, owner, module)

    def _new(self, key: _Key, owner: Any, module: types.ModuleType | None) -> Kin:
        drop = until_exit(functools.partial(self._drop, key))
        shared = weakref.ref(owner, drop)
        kin = Kin(key[2].recompile_limit, shared, isinstance(owner, types.CodeType))
        if module is None:
            row = _Row(shared, None, weakref.ref(kin, drop))
        else:
            row = _Row(shared, weakref.ref(module, drop), lambda: kin)
        self._rows[key] = row
        return kin

    def _drop(self, key: _Key, reference: Any) -> None:
        row = self._rows.get(key)
        if row is not None and any(reference is one for one in (row.owner, row.module, row.kin)):
            self._rows.pop(key, None)

    def forget(self) -> None:
        """What has been compiled so far is for nobody else any more."""
        with self._lock:
            for row in list(self._rows.values()):
                kin = row.kin()
                if kin is not None:
                    kin.clear()

    def __len__(self) -> int:
        return len(self._rows)


KIN = _Table()
