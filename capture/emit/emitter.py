"""Emission: replacement code from the machine's final state.

In: the machine at a return or a break, and the compiled program. Out: bytecode, made by the
assembler, that loads the graph's inputs by their Sources, calls the program, rebuilds values,
replays the effects in order, and leaves locals and stack as plain Python would. It loads every
pre-existing value before the first effect, since an effect may change the path to the value.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from ...runtime.autograd.freed_graph import data_with_history
from .. import helpers
from ..breaks import Break
from ..bytecode.assembler import Assembler
from ..bytecode.decoder import decode
from ..bytecode.encoder import Cover, Label
from ..interpreter.machine import Machine
from ..values import symbolic_numbers
from ..values.effects import Called, Effect, Filled, SetAttr, SetGlobal, SetVariable, Written
from ..values.frames import Frame
from ..values.registry import NONE
from ..values.symbolic_numbers import SymbolicNumber
from ..values.texts import Text
from ..values.value import Cell, Const, Context, Handled, Null, Tensor, Value
from ..values.wrap import is_one
from .reconstruct import BUILDERS, write_back
from .resume import begin_handling


class Emitter:
    """Emits values of one capture into one assembler; a dry run fills `outputs`."""

    def __init__(self, asm: Assembler, m: Machine, frame: Frame) -> None:
        self.asm = asm
        self.m = m
        self.frame = frame
        self.outputs: list[Tensor] = []
        self.arrays: list[Any] = []  # arrays whose memory the program makes
        self.loaded: dict[Value, None] = {}  # in the order of loading
        self.temps: dict[Value, str] = {}
        self.failed: dict[str, Label] = {}  # stage that may raise -> its handler
        self.building: set[Value] = set()
        self.root_cells = {cell: name for name, cell in frame.cells.items()}
        self.used_cells: list[str] = []
        self.bound_cells: set[str] = set()
        self.state = ""  # the local with the states of generators, for their return
        self.stages: dict[str, str] = {}  # after random numbers are drawn: see `call_early`
        self.late: dict[Value, Called] = {}  # numbers of calls after the program

    # -- the program -------------------------------------------------------------------------------
    def call_program(
        self,
        program: Any,
        inputs: list[Value],
        outputs: list[Tensor],
        rerun: bool,
        after: str,
        spends: bool,
    ) -> None:
        """temps of outputs = program(*inputs)

        With `rerun`, an exception of the program makes the frame run its original code: nothing has
        been changed yet, so plain Python raises its own exception, inside the user's handlers.
        `after`: see `failing`. `spends`: the program contains a backward.
        """
        asm = self.asm
        with self.failing("before"):
            self.push_all(inputs)
            temps = [self.temps[value] for value in inputs]
            for _ in inputs:
                asm.pop_top()
            bases = {base for base, _, _ in self.m.heap.data.values()}
            for at, value in enumerate(inputs):
                if value in bases and value.source in self.m.by_data:
                    if spends:
                        asm.call_const(data_with_history, partial(asm.load_fast, temps[at]))
                    else:
                        asm.load_fast(temps[at])
                        asm.load_attr("data")
                    temps[at] = asm.fresh("data")
                    asm.store_fast(temps[at])
        with self.failing("program" if rerun else ""):
            asm.call_const(program, *[lambda n=name: asm.load_fast(n) for name in temps])
        with self.failing(after):
            asm.unpack_sequence(len(outputs))
            for value in outputs:
                name = self.temps[value] = asm.fresh("out")
                asm.store_fast(name)
                if value.ghost._store.borrowed:
                    asm.call_const(helpers.keep_size, partial(asm.load_fast, name))
                    asm.pop_top()

    # -- faults ------------------------------------------------------------------------------------
    def failing(self, where: str) -> AbstractContextManager[None]:
        """A context with the fault handler of a stage, for instructions that may raise.

        "program", "before": the frame runs its original code, since nothing has been changed;
        "drawn": the same, when generators of random numbers have their states back;
        "halfway": an error says so; "": the exception leaves the frame.
        """
        where = self.stages.get(where, where)
        if not where:
            return self.asm.covered(None)
        label = self.failed.setdefault(where, self.asm.label())
        return self.asm.covered(Cover(label, 0, False))

    def handle_failures(self) -> None:
        """Emit the fault handlers, after all other code."""
        asm = self.asm
        asm.set_location(None)
        for where in filter(self.failed.__contains__, _FAILED):
            label = self.failed[where]
            asm.place(label)
            asm.emit("PUSH_EXC_INFO")
            error = asm.fresh("error")
            asm.store_fast(error)
            asm.emit("POP_EXCEPT")
            state = [partial(asm.load_fast, self.state)] if where == "drawn" else []
            asm.call_const(_FAILED[where], partial(asm.load_fast, error), *state)
            if where == "halfway":
                asm.raise_(1)
                continue
            asm.pop_top()
            asm.delete_fast(error)
            asm.jump(asm.original(decode(asm.code).entry))

    def _loader(self, value: Value) -> Callable[[], None]:
        return lambda: self.push(value)

    def preload(self, values: Iterable[Value]) -> None:
        """Load pre-existing values before anything changes."""
        for value in values:
            self.push(value)
            self.asm.pop_top()

    def build(self, values: Iterable[Value]) -> None:
        """Build values that exist only in the walk, and keep them in temporaries."""
        for value in values:
            if value not in self.temps and not isinstance(value, (Const, Null)):
                self.push(value)
                self.asm.pop_top()

    # -- values ------------------------------------------------------------------------------------
    def push(self, value: Value) -> None:
        """Push a value; it is built once."""
        temp = self.temps.get(value)
        if temp is not None:
            self.asm.load_fast(temp)
            return
        owner = self.m.heap.owners.get(value)
        if owner is not None:
            self.push(owner)
            return
        function = self.m.heap.namespaces.get(value)
        if function is not None:
            self.push(function)
            self.asm.load_attr("__dict__")
            return
        if isinstance(value, SymbolicNumber) and not value.looked:
            if value in self.late:
                _called(self, self.late[value])
                self.asm.load_fast(self.temps[value])
                return
            if isinstance(value, Text):
                self.asm.call_const(value.step, *map(self._loader, value.items))
                self._remember(value)
                return
            if value.source is None:
                self._compute(value)
                return
        elif isinstance(value, Const) and (value.source is None or is_one(value.value)):
            self.asm.load_const(value.value)
            return
        if isinstance(value, Null):
            self.asm.push_null()
            return
        alias = self.m.heap.data.get(value)  # type: ignore[call-overload]
        if alias is not None and alias[0] is not None:
            if alias[0].source in self.m.by_data:  # the program has written to another one
                raise alias[1]
            self.push(alias[0])
            self.asm.load_attr("data")
            self._remember(value)
            return
        if value.source is not None:
            self.loaded[value] = None
            self.asm.load_source(value.source)
            self._remember(value)
            return
        if value in self.building:
            raise Break("GB125", "a value that contains itself")
        self.building.add(value)
        builder = BUILDERS.get(type(value))
        if builder is None:
            raise Break("GB125", f"a {type(value).__name__.lower()} cannot be rebuilt")
        builder(self, value)
        self.building.discard(value)
        if value not in self.temps:
            self._remember(value)

    def _compute(self, value: SymbolicNumber) -> None:
        """Compute a symbolic number from numbers outside, before anything changes, and from
        results of the graph."""
        made, sources = symbolic_numbers.function_of(self.m, value)
        if any(isinstance(one, Value) for one in sources):
            given = [one if isinstance(one, Value) else self._value_at(one) for one in sources]
            self.build(given)
            self.asm.call_const(made, *map(self._loader, given))
        else:
            self.loaded[value] = None
            load: Any = self.asm.load_source
            self.asm.call_const(made, *[partial(load, one) for one in sources])
        self._remember(value)

    def _value_at(self, source: Any) -> Value:
        """The number or tensor at a source, of which a symbol was made."""
        held = self.m.numbers.held.get(source)
        if held is not None:
            return held
        return next(value for value in self.m.inputs if value.source == source)

    def _remember(self, value: Value) -> None:
        temp = self.temps[value] = self.asm.fresh("v")
        self.asm.copy(1)
        self.asm.store_fast(temp)

    def push_all(self, values: list[Value]) -> None:
        for value in values:
            self.push(value)

    def push_stack(self, stack: list[Value]) -> None:
        """Push the frame's stack at a break.

        All values are built before the first handler is entered again, so that nothing can fail
        inside one.
        """
        for value in stack:
            if isinstance(value, Handled):
                self.push(value.error or NONE)
            elif not isinstance(value, Null):
                self.push(value)
            else:
                continue
            self.asm.pop_top()
        with self.asm.covered(None):
            for value in stack:
                if not isinstance(value, Handled):
                    self.push(value)
                    continue
                self.push(value.error or NONE)
                if value.error is not None:
                    begin_handling(self.asm)

    def store_locals(self, cells: dict[str, Cell], values: dict[str, Value]) -> None:
        """Store the frame's own cells and locals by name."""
        for name, cell in cells.items():
            if cell.content is not None:
                self.push(self.m.load_cell(cell))
                self.asm.store_deref(name)
                self.bound_cells.add(name)
            elif cell.name is not None:  # a deleted argument
                self.asm.delete_deref(name)
        for name, value in values.items():
            self.push(value)
            self.asm.store_fast(name)

    def bind_cells(self, names: tuple[str, ...]) -> None:
        """Fill the root frame's own cells that a rebuilt function holds."""
        for name in dict.fromkeys(self.used_cells):
            cell = self.frame.cells[name]
            if name in names and cell.content is not None and name not in self.bound_cells:
                self.bound_cells.add(name)
                self.push(self.m.load_cell(cell))
                self.asm.store_deref(name)

    def drop_all_but(self, kept: Container[str], arguments: tuple[str, ...]) -> None:
        """Drop what the program no longer holds here: temporaries, and arguments not in `kept`."""
        asm = self.asm
        dead = [name for name in arguments if name not in kept and name not in asm.cells]
        self.drop([*asm.made, *dead])

    def drop(self, names: Iterable[str]) -> None:
        """Unbind these locals, one after the other."""
        for name in names:
            self.asm.push_null()
            self.asm.store_fast(name)

    def set_raw(self, value: Value, name: str, item: Value, base: type = object) -> None:
        """base.__setattr__(value, name, item)"""
        self.asm.call_const(
            base.__setattr__,
            lambda: self.push(value),
            lambda: self.asm.load_const(name),
            lambda: self.push(item),
        )
        self.asm.pop_top()

    # -- effects -----------------------------------------------------------------------------------
    def clear(self, leaves: list[Tensor], read: list[Value]) -> None:
        """leaf.grad = None before the program, so that old gradients free memory for new ones.

        All pre-existing values are loaded first.
        """
        self.preload(read if leaves else [])
        for leaf in leaves:
            self.asm.load_const(None)
            self.push(leaf)
            self.asm.store_attr("grad")

    def call_early(self, effects: list[Effect], returns: bool) -> None:
        """Make the calls that come before the program. `returns`: the program may raise, and Python
        then runs the frame again."""
        early = [effect for effect in effects if isinstance(effect, Called) and effect.early]
        drawn = list(dict.fromkeys(effect.state for effect in early if effect.state is not None))
        with self.failing("before"):
            self.build(drawn)
            if drawn and returns:
                self.asm.call_const(helpers.states_of, *map(self._loader, drawn))
                self.state = self.asm.fresh("states")
                self.asm.store_fast(self.state)
        if drawn:
            self.stages = dict.fromkeys(("before", "program"), "drawn" if returns else "")
        with self.failing("before"):
            for effect in early:
                self.call(effect)

    def call(self, effect: Called) -> None:
        """step(*items, **named)"""
        items = [*effect.items, *(value for _, value in effect.named)]
        names = tuple(name for name, _ in effect.named)
        self.asm.call_const(effect.step, *map(self._loader, items), kwnames=names)
        if effect.result is None:
            self.asm.pop_top()
            return
        temp = self.temps[effect.result] = self.asm.fresh("number")
        self.asm.store_fast(temp)

    def replay(self, effects: list[Effect]) -> None:
        """Replay the effects after the program, in order."""
        late = [one for one in effects if not (isinstance(one, Called) and one.early)]
        self.late = {
            one.result: one for one in late if isinstance(one, Called) and one.result is not None
        }
        for effect in late:
            _REPLAY[type(effect)](self, effect)

    def enter_contexts(self, contexts: list[Context]) -> None:
        """Enter again the contexts that are open at a break; their exits are on the live stack."""
        for context in contexts:
            self.push(context)
            self.asm.load_attr("__enter__")
            self.asm.store_fast(name := self.asm.fresh("enter"))
            self.asm.begin_call(partial(self.asm.load_fast, name))
            self.asm.end_call(0)
            self.asm.pop_top()


# -- replay of effects
# -----------------------------------------------------------------------------------
def _set_attr(e: Emitter, effect: SetAttr) -> None:
    if effect.value is None:
        if effect.raw:
            e.asm.call_const(
                object.__delattr__,
                lambda: e.push(effect.obj),
                lambda: e.asm.load_const(effect.name),
            )
            e.asm.pop_top()
        else:
            e.push(effect.obj)
            e.asm.delete_attr(effect.name)
    elif effect.raw:
        e.asm.call_const(
            object.__setattr__,
            lambda: e.push(effect.obj),
            lambda: e.asm.load_const(effect.name),
            lambda: e.push(effect.value),  # type: ignore[arg-type]
        )
        e.asm.pop_top()
    else:
        e.push(effect.value)
        e.push(effect.obj)
        e.asm.store_attr(effect.name)


def _set_global(e: Emitter, effect: SetGlobal) -> None:
    if effect.scope.source is None:
        if effect.value is None:
            e.asm.delete_global(effect.name)
        else:
            e.push(effect.value)
            e.asm.store_global(effect.name)
        return
    if effect.value is not None:
        e.push(effect.value)
    # Code that held the globals would keep the module alive.
    if effect.module is not None:
        e.push(effect.module)
        e.asm.load_attr("__dict__")
    else:
        e.asm.load_const(effect.scope.names)
    e.asm.load_const(effect.name)
    if effect.value is None:
        e.asm.delete_subscr()
    else:
        e.asm.store_subscr()


def _filled(e: Emitter, effect: Filled) -> None:
    e.asm.call_const(effect.step, *[e._loader(value) for value in (effect.target, *effect.items)])
    e.asm.pop_top()


def _called(e: Emitter, effect: Called) -> None:
    if effect.result in e.temps:
        return  # its number was needed before
    e.late.pop(effect.result, None)  # type: ignore[arg-type]
    with e.failing(""):
        e.call(effect)


def _set_variable(e: Emitter, effect: SetVariable) -> None:
    e.push(effect.token)
    e.asm.pop_top()


_FAILED: dict[str, Callable[..., object]] = {
    "drawn": helpers.drawn_again,
    "program": helpers.program_failed,
    "before": helpers.failed_before,
    "halfway": helpers.failed_halfway,
}
_REPLAY: dict[type, Callable[[Emitter, Any], None]] = {
    Called: _called,
    Filled: _filled,
    SetAttr: _set_attr,
    SetGlobal: _set_global,
    SetVariable: _set_variable,
    Written: lambda e, effect: write_back(e, effect.target),
}
