"""The symbolic machine: walks a frame's instructions over Values.

In: a code object with real arguments, each with its Source. Out: a graph (through the tracer),
guard rows, ordered effects, and the state of the frame at its end or at a break. `capture.capture`
drives it. The opcode families are in `handlers*`, the meaning of operations in `data_model`,
`types` and `models`.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from ...ir.location import Location
from ...ir.passes.defer_writes import check_first
from ...ir.trace.tracer import Tracer
from ...runtime import own_files, safe_access
from ...runtime.guards.dynamic_sizes import Variation
from ...runtime.guards.relations import can_hold
from ...runtime.guards.rows import Row
from ...runtime.guards.sources import Source
from ...runtime.process.skipped_files import WALKED
from ...runtime.process.wrappers import TORCH_FOLDER
from ..breaks import Break, BreaksInside, MustBePython, PlainFrame, Thrown
from ..bytecode.decoder import Instr
from ..data_model import attributes, conditional, frame_inspection
from ..exact_type import is_kind
from ..operations import calls, operators
from ..operations import truth as truths
from ..types.exceptions import raised, value_of
from ..values import symbolic_numbers
from ..values import wrap as wrapping
from ..values.effects import SetGlobal, Written
from ..values.frames import Frame, Scope
from ..values.value import Cell, Const, Dict, Sequence, Tensor, Unread, Value
from ..values.walk_state import Guards, Handling, Heap, Journal, Later
from ..values.wrap import has_nan
from .unmodelled import UNMODELLED

if TYPE_CHECKING:
    from ..torch_models.function_modes import Entered
    from ..torch_models.nested_traces import Inner

MAX_INSTRUCTIONS = 400_000
MAX_DEPTH = 64
# Files of torch and of graftjit that compute for the program: layers and functions.
LIBRARY = (
    TORCH_FOLDER,
    *(own_files.PACKAGES["graftjit"] + name for name in ("nn" + os.sep, "ops.py")),
    WALKED,
)

Handler = Callable[["Machine", "Frame", Instr], None]
HANDLERS: dict[str, Handler] = {}


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Register the handler of these normal-form instructions."""

    def register(function: Handler) -> Handler:
        for name in names:
            HANDLERS[name] = function
        return function

    return register


class Machine:
    """One capture of one root frame. A restart makes a new machine."""

    # Whether `torch.compiler.is_compiling()` returns True.
    claims_compiling = False
    claimed = False  # whether it was called and returned True
    # Whether the function that is entered next gives the result of a call instruction.
    passing = False
    # Whether the steps of iterators from outside are followed (see `outside_iterators`).
    follows_iterators = True

    def __init__(self, tracer: Tracer, root_scope: Scope, varied: Variation | None = None) -> None:
        self.root_tracer = tracer
        self.facts = tracer.facts
        self.facts.can_hold = can_hold
        self.facts.refuse = symbolic_numbers.refuse
        this = weakref.ref(self)  # facts live as long as an entry

        def may_require() -> bool:
            machine = this()
            return machine is not None and machine.may_check()

        self.facts.may_require = may_require
        self.numbers = symbolic_numbers._Numbers()
        self.varied = varied or Variation(dynamic=False)
        # The tracer of the current walk: the root's, or the innermost of `inner`.
        self.tracer = tracer
        self.inner: list[Inner] = []
        self.modes: list[Entered] = []  # active torch function modes, innermost last
        self.later = Later()
        self.root_scope = root_scope
        self.heap = Heap()
        self.journal = Journal()
        self.guards = Guards(scopes={id(root_scope.names): Source("globals", None, None)})
        self.handling = Handling()
        self.contexts: list[Any] = []
        self.inputs: list[Tensor] = []
        self.frames: list[Frame] = []
        self.where: Location | None = None
        self.root_index = 0
        self.grad_before = torch.is_grad_enabled()
        # how many frames are below the function that an effect runs again
        self.repeated = 0
        # functions around that are being differentiated (see `differentiating`)
        self.differentiating = 0
        # an operator that may raise came after something that must then have happened
        self.fragile = False
        # the program would see that a hook for saved tensors raises, before the frame ends
        self.saves_observed = False
        # suspended where a handler waits for them
        self.open_generators: set[Frame] = set()
        # where tensor data was asked for -> operators behind it
        self.asked: dict[Any, int] = {}
        self.questions = self.count = self.activity = 0  # `questions`: answered before the graph
        self.walks_generators = True
        # See `data_model.conditional`: bodies of loops that are being walked, places of all of
        # them, and of those that are ordinary branches; `nonzero()` of a vector -> the vector.
        self.open_bodies: list[Any] = []
        self.has_bodies: set[Any] = set()
        self.chosen: Any = None  # tensors that bodies replace
        self.not_skipped: set[Any] = set()
        self.by_data: set[Any] = set()
        self.rows_of: dict[Any, Any] = {}
        self.row_steps = 0  # steps of loops over such rows
        self.positions: dict[Any, int] = {}  # those rows -> their number
        # branches on tensor data whose outcome the graph assumes
        self.assumed: dict[Any, bool] = {}
        # instructions counted before one that is known to break -> why (see `emit.continuations`)
        self.stops: dict[int, Break] = {}
        # the same for instructions that Python must run -> code and reason of the break
        self.refused: dict[int, tuple[str, str]] = {}

    @property
    def users_line(self) -> Location | None:
        """The user's line of the current operation.

        Operations of torch's own Python, or of a layer of ours (`Linear.forward` calls a function),
        are reported at the line that called it, which a reader can change.
        """
        if not self.frames or not self.frames[-1].code.co_filename.startswith(LIBRARY):
            return self.where
        for frame in reversed(self.frames):
            if not frame.code.co_filename.startswith(LIBRARY):
                return frame.decoded.instrs[frame.pc - 1].where  # its call
        return self.where

    def position(self, value: Value) -> Value | None:
        """The number that a row of `nonzero()` of a vector holds, in a loop over such rows."""
        if not isinstance(value, Tensor) or value.ghost._store.written:
            return None
        known = self.positions.get(value.ghost._node)
        return None if known is None else Const(known)

    def may_check(self) -> bool:
        """Whether the program may check a number after what it has done: if the check fails, Python
        runs the frame again."""
        self.fragile = True
        return not self.tracer.mutates or self.tracer.writes_can_wait

    def may_raise(self) -> bool:
        """Whether the last operators may raise after what the program has done."""
        if not self.tracer.mutates or self.tracer.writes_can_wait:
            return True
        if self.inner or self.modes or self.tracer is not self.root_tracer:
            return False
        return check_first().covers(self.tracer)  # type: ignore[no-any-return]

    # -- guards ------------------------------------------------------------------------------------
    def guard(self, kind: str, source: Source | None, expected: Any) -> None:
        """Add a row, once per kind and source (and expected value, for some kinds)."""
        about = kind.startswith("no_") or kind in (
            "same",
            "distinct",
            "own_dict",
            "value",
            "element",
        )
        key = (kind, source, expected if about else None)
        if key not in self.guards.rows:
            self.guards.rows[key] = Row(kind, source, expected, self.users_line)

    def guard_all(self, guards: tuple[tuple[str, Any, Any], ...]) -> None:
        for guard in guards:
            self.guard(*guard)

    def wrap(self, value: Any, source: Source) -> Value:
        """The Value of a real object at `source`, with the guards that make its use safe."""
        return wrapping.wrap(self, value, source)

    # -- globals -----------------------------------------------------------------------------------
    def load_global(self, scope: Scope, name: str) -> Value:
        key = (id(scope.names), name)
        self.later.read(scope.names, name)
        self.heap.read.add(key)
        if key in self.heap.globals:
            stored = self.heap.globals[key]
            if stored is not None:
                return stored
        elif name in scope.names:
            source = (
                Source("global", None, name)
                if scope.source is None
                else Source("item", scope.source, name)
            )
            return self.wrap(scope.names[name], source)
        elif scope.source is None:
            self.guard("no_global", None, name)
        else:
            self.guard("no_item", scope.source, name)
        found = self.builtin(scope, name)
        if found is None:
            raise Break("GB108", f"NameError: name {name!r} is not defined")
        return found

    def builtin(self, scope: Scope, name: str) -> Value | None:
        """The builtin of a name as a frame sees it; the frame itself may have stored it."""
        key = (id(scope.builtins), name)
        self.heap.read.add(key)
        if key in self.heap.globals:
            return self.heap.globals[key]
        if name in scope.builtins:
            return self.wrap(scope.builtins[name], Source("builtin", None, name))
        return None

    def store_global(
        self, scope: Scope, name: str, value: Value | None, module: Value | None = None
    ) -> None:
        self.later.written(scope.names, name)
        self.unhook(scope.names.get(name))
        self.heap.globals[id(scope.names), name] = value
        self.heap.keep.append(scope.names)
        self.journal.effects.append(SetGlobal(scope, name, value, module))

    # -- cells -------------------------------------------------------------------------------------
    def real_cell(self, cell: Any, source: Source) -> Cell:
        """The Cell of a pre-existing closure cell."""
        known = self.heap.known.get(id(cell))
        if isinstance(known, Cell):
            if known.source is not None and known.source != source:
                self.guard("same", source, known.source)
            return known
        made = Cell(origin=cell, source=source)
        self.heap.known[id(cell)] = made
        self.heap.keep.append(cell)
        try:
            content = cell.cell_contents
        except ValueError:
            self.guard("unbound_cell", source, None)
        else:
            made.content = _LazyContent(content, Source("contents", source, None))
        return made

    def load_cell(self, cell: Cell) -> Value:
        if cell.source is not None:
            self.later.read(cell.origin, "")
        if isinstance(cell.content, _LazyContent):
            cell.content = self.wrap(cell.content.real, cell.content.at)
        if cell.content is None:
            raise Break("GB108", "NameError: a closure variable is not bound")
        return cell.content

    def variable(self, frame: Frame, name: str) -> Value | None:
        """A local of a frame at its start, including those in cells."""
        if name in frame.cells:
            return self.load_cell(frame.cells[name])
        return frame.locals.get(name)

    def store_cell(self, cell: Cell, value: Value | None) -> None:
        self.later.written(cell.origin, "")
        self.unhook(cell.content)
        cell.content = value
        if cell.source is not None and not cell.changed:
            cell.changed = True
            self.journal.effects.append(Written(cell))

    def changed(self, container: Any) -> None:
        """Note a write to a pre-existing container: its final content is an effect."""
        self.activity += 1
        if container.source is not None and not container.changed:
            container.changed = True
            self.journal.effects.append(Written(container))

    def rewritten(self, container: Any) -> None:
        """Note a write to a whole pre-existing container, which may drop all that it held."""
        self.changed(container)
        if container.source is not None and not container.whole:
            container.whole = True
            for kind, items in _HELD:
                if isinstance(getattr(container, "origin", None), kind):
                    for item in items(container.origin):
                        self.unhook(item)

    def unhook(self, held: Any) -> None:
        """Note that a place outside drops an object: the frame may hold the last reference."""
        before = len(self.journal.gone)
        self.let_go(held)
        self.journal.unhooked += self.journal.gone[before:]

    def must_be_python(self, code: str, reason: str) -> MustBePython:
        """What to raise if it turns out that Python must run the instruction of this moment."""
        stop = MustBePython(self.root_index, code, reason)
        if len(self.frames) > 1:
            stop.begun = self.frames[-1].begun
            stop.inlined = (self.where,) if self.where is not None else ()
        return stop

    def let_go(self, held: Any) -> None:
        """Note that the program may drop an old object: weak references may show it."""
        if isinstance(held, Value):
            # A number has no weak references, and to read its value would bind the entry to it.
            if held.source is None or isinstance(held, symbolic_numbers.SymbolicNumber):
                return
            held = held.origin if isinstance(held, Tensor) else getattr(held, "value", held)
        if type(held) not in wrapping.CONST_TYPES:
            self.journal.gone.append(held)

    def forget_steps(self) -> None:
        """Forget what is known of inlined functions by its step: the next walk takes others."""
        self.stops.clear()
        self.refused.clear()

    def may_be_gone(self, referent: Any) -> bool:
        """Whether something that the frame dropped may have kept this object alive."""
        if self.journal.gone and self._is_held(referent):
            return False
        gone = [part for held in self.journal.gone for part in _parts(held)]
        return any(one is referent or not is_kind(one, torch.Tensor) for one in gone)

    def _is_held(self, referent: Any) -> bool:
        """Whether a local of a frame of the walk leads to this object, by attributes and items that
        the frame has not changed."""
        value = self.heap.known.get(id(referent))
        place = None if value is None else value.source
        local = {
            one.source: one
            for frame in self.frames
            for one in dict.values(frame.locals)
            if one.source is not None
        }
        known = {one.source: one for one in self.heap.known.values() if one.source is not None}
        while place is not None and place not in local:
            holder = known.get(place.base)  # type: ignore[arg-type]
            if place.kind == "attr":
                kept = place.key not in self.heap.overlay.get(holder, {})  # type: ignore[arg-type]
            else:
                kept = place.kind == "item" and isinstance(holder, (Dict, Sequence))
                kept = kept and not holder.changed  # type: ignore[union-attr]
            if holder is None or not kept:
                return False
            place = place.base
        return place is not None

    # -- operations that models ask for, which lie below `operations` -----------------------------
    call = calls.call
    inline = calls.inline
    truth = truths.truth
    identical = truths.identical
    compare = operators.compare
    get_item = operators.get_item

    same_object = wrapping.same_object

    def class_attribute(self, value: Value, name: str) -> Any:
        """Guard what the class of a value has under a name."""
        return attributes.class_attribute(self, value, name)

    def same_or_equal(self, left: Value, right: Value) -> bool:
        """Whether a container takes the two for the same item."""
        if left is right:
            return True
        constants = isinstance(left, Const) and isinstance(right, Const)
        if not constants and self.identical(left, right):
            return True
        whole = any(symbolic_numbers.is_whole(value) for value in (left, right))
        if (
            constants
            and not whole
            and has_nan(left.value)  # type: ignore[attr-defined]
            and has_nan(right.value)  # type: ignore[attr-defined]
        ):
            raise Break("GB121", "nan in a container is equal to itself alone")
        return self.truth(self.compare("==", left, right))

    def release(self) -> None:
        """Let go of the user's objects: capture must not make them live longer than plain Python
        does.
        """
        for state in (self.heap, self.journal, self.handling):
            state.release()
        self.frames.clear()
        self.inputs.clear()
        self.open_generators.clear()
        self.numbers.held.clear()
        self.numbers.read.clear()
        self.numbers.places.clear()
        self.numbers.masks.clear()
        self.open_bodies.clear()
        self.chosen = None
        self.rows_of.clear()
        self.positions.clear()
        self.numbers.called.clear()
        # They name objects that the program may drop; a graph keeps its facts.
        self.facts.forget_origins()

    # -- walking -----------------------------------------------------------------------------------
    def run(self, frame: Frame) -> Value:
        """Walk a frame to its return; a Break that leaves it has the inlined calls."""
        self._walk(frame)
        assert frame.result is not None
        return frame.result

    def run_to_yield(self, frame: Frame) -> Value | None:
        """Walk a generator's frame to its next yield; None at its return."""
        frame.yielded = None
        self._walk(frame)
        return frame.yielded

    def _walk(self, frame: Frame) -> None:
        if len(self.frames) >= MAX_DEPTH:
            raise Break("GB117", "calls are nested too deeply to be inlined")
        self.frames.append(frame)
        self.activity += 1
        caller = self.where
        try:
            instrs = frame.decoded.instrs
            while frame.result is None and frame.yielded is None:
                instr = instrs[frame.pc]
                self.where = instr.where
                if (known := self.stops.get(self.count)) is not None:
                    self.guard_all(known.guards)
                    raise BreaksInside(known, tuple(self.frames))
                frame.begun = self.count
                frame.pc += 1
                if (refused := self.refused.get(self.count)) is not None:
                    raise Break(*refused)
                try:
                    self.step(frame, instr)
                except Thrown as thrown:
                    if not self.catch(frame, instr, thrown):
                        raise
        except Break as stop:
            if stop.where is None:
                stop.where = self.where
            stop.frames = stop.frames or tuple(self.frames)
            if len(self.frames) > 1 and caller is not None:
                stop.inlined = (caller, *stop.inlined)
                stop.looks |= frame_inspection.reads_callers(frame.code, frame.scope.names)
            raise
        finally:
            self.frames.pop()
            self.where = caller

    def catch(self, frame: Frame, instr: Instr, thrown: Thrown) -> bool:
        """Enter the handler that covers the instruction; False if there is none."""
        if instr.handler is None:
            return False
        value = value_of(self, thrown)
        if value not in self.handling.raised_at:
            raised(self, value)
        self.activity += 1
        del frame.stack[instr.handler_depth :]
        if instr.handler_lasti:
            # The place of the raise; it only gives the line of a frame that is over.
            frame.push(Const(0))
        frame.push(value)
        frame.pc = instr.handler
        return True

    def step(self, frame: Frame, instr: Instr) -> None:
        self.count += 1
        if self.count > MAX_INSTRUCTIONS:
            raise PlainFrame("PL202", f"over {MAX_INSTRUCTIONS} instructions", instr.where)
        handler = HANDLERS.get(instr.op)
        if handler is None:
            raise Break(*UNMODELLED.get(instr.op, ("GB101", f"instruction {instr.op}")))
        if self.open_bodies:
            conditional.joined(self, frame, instr.index)
        handler(self, frame, instr)


# Items of containers, by the builtin types' own methods.
_HELD: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (dict, dict.values),
    (list, list.__iter__),
    (set, set.__iter__),
)


class _LazyContent(Value):
    """The unread content of a pre-existing cell."""

    __slots__ = ("at", "real")

    def __init__(self, real: Any, at: Source) -> None:
        super().__init__()
        self.real = real
        self.at = at


def _parts(held: Any) -> Iterator[Any]:
    """What a dropped object may have kept alive: the items of a tuple, nothing for a weak
    reference, else the object itself."""
    if isinstance(held, Unread):
        held = held.read()
        origin = getattr(held, "origin", None)
        held = getattr(held, "value", held) if origin is None else origin
    real = held.origin if isinstance(held, Sequence) else held
    if is_kind(real, tuple) and not safe_access.instance_dict(real):
        for item in tuple.__iter__(real):
            yield from _parts(item)
    elif type(real) not in wrapping.CONST_TYPES and type(real) is not weakref.ref:
        yield real
