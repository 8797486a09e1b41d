"""Emission: from the machine's final state to replacement code.

In: the machine at a return or a break, and the compiled program. Out: bytecode, by the assembler, that loads
the graph's inputs by their Sources, calls the program, rebuilds what is needed, replays the effects in order,
and leaves locals and stack as plain Python would have them. Every pre-existing value is loaded before the
first effect, since an effect may change the path that led to it.
"""

from __future__ import annotations

import types
from collections import OrderedDict, deque
from collections.abc import Callable, Container
from functools import partial
from typing import Any

from . import arrays, deques, exception_objects, rebuild
from .assemble import Assembler
from .attributes import STAND_INS
from .breaks import Break, GeneratorLeaves
from .contexts import GRAD_MODES
from .encode import Cover
from .hybrids import base_of
from .instance_dicts import InstanceDict
from .machine import Effect, Filled, Frame, Machine, SetAttr, SetGlobal, Written
from .resume import begin_handling
from .sets import is_exact
from .tables import NONE
from .values import (
    UNREAD,
    Array,
    BuiltinMethod,
    Cell,
    Const,
    Context,
    ContextExit,
    Dict,
    DictView,
    Function,
    Getter,
    Handled,
    Instance,
    Iterator,
    Method,
    Null,
    Obj,
    Partial,
    Sequence,
    Set,
    Slice,
    Super,
    Tensor,
    Value,
)


class Emitter:
    """Emits values of one capture into one assembler. A dry run with `outputs` finds what is needed."""

    def __init__(self, asm: Assembler, m: Machine, frame: Frame) -> None:
        self.asm = asm
        self.m = m
        self.frame = frame
        self.outputs: list[Tensor] = []
        self.arrays: list[Any] = []  # arrays whose memory is made anew
        self.loaded: list[Value] = []
        self.temps: dict[Value, str] = {}
        self.building: set[Value] = set()
        self.root_cells = {cell: name for name, cell in frame.cells.items()}
        self.used_cells: list[str] = []
        self.bound_cells: set[str] = set()

    # -- the program -----------------------------------------------------------------------------------
    def call_program(
        self, program: Any, inputs: list[Value], outputs: list[Tensor], rerun: bool
    ) -> None:
        """temps of outputs = program(*inputs)

        With `rerun`, an exception of the program sends the frame to its original code: nothing has been
        changed yet, so plain Python raises its own exception, in reach of the user's own handlers.
        """
        asm = self.asm
        self.push_all(inputs)
        temps = [self.temps[value] for value in inputs]
        for _ in inputs:
            asm.pop_top()
        failed = asm.label()
        with asm.covered(Cover(failed, 0, False) if rerun else None):
            asm.call_const(program, *[lambda n=name: asm.load_fast(n) for name in temps])
        if rerun:
            done = asm.label()
            asm.jump(done)
            asm.place(failed)
            self._run_original()
            asm.place(done)
        asm.unpack_sequence(len(outputs))
        for value in outputs:
            self.temps[value] = asm.fresh("out")
            asm.store_fast(self.temps[value])

    def _run_original(self) -> None:
        """Handler of a failed program: tell it, and start the frame again as it is written."""
        asm = self.asm
        asm.emit("PUSH_EXC_INFO")
        error = asm.fresh("error")
        asm.store_fast(error)
        asm.emit("POP_EXCEPT")
        asm.call_const(rebuild.program_failed, lambda: asm.load_fast(error))
        asm.pop_top()
        asm.delete_fast(error)
        asm.jump(asm.original(0))

    def _loader(self, value: Value) -> Callable[[], None]:
        return lambda: self.push(value)

    def preload(self, values: list[Value]) -> None:
        """Load pre-existing values before anything is changed."""
        for value in values:
            self.push(value)
            self.asm.pop_top()

    # -- values ----------------------------------------------------------------------------------------
    def push(self, value: Value) -> None:
        """Emit code that leaves the value on the stack, building it once."""
        temp = self.temps.get(value)
        if temp is not None:
            self.asm.load_fast(temp)
            return
        owner = self.m.owners.get(value)
        if owner is not None:
            self.push(owner)
            return
        function = self.m.namespaces.get(value)
        if function is not None:
            self.push(function)
            self.asm.load_attr("__dict__")
            return
        if isinstance(value, Const):
            self.asm.load_const(value.value)
            return
        if isinstance(value, Null):
            self.asm.push_null()
            return
        if value.source is not None:
            if value not in self.loaded:
                self.loaded.append(value)
            self.asm.load_source(value.source)
            self._remember(value)
            return
        if value in self.building:
            raise Break("GB125", "a value that holds itself")
        self.building.add(value)
        builder = BUILDERS.get(type(value))
        if builder is None:
            raise Break("GB125", f"a {type(value).__name__.lower()} cannot be rebuilt")
        builder(self, value)
        self.building.discard(value)
        if value not in self.temps:
            self._remember(value)

    def _remember(self, value: Value) -> None:
        temp = self.temps[value] = self.asm.fresh("v")
        self.asm.copy(1)
        self.asm.store_fast(temp)

    def push_all(self, values: list[Value]) -> None:
        for value in values:
            self.push(value)

    def push_stack(self, stack: list[Value]) -> None:
        """The frame's stack at a break. All of it is built before the first handler is entered again, so that
        nothing can fail inside of one."""
        for value in stack:
            if isinstance(value, Handled):
                self.push(value.error or NONE)
            elif not isinstance(value, Null):
                self.push(value)
            else:
                continue
            self.asm.pop_top()
        for value in stack:
            if not isinstance(value, Handled):
                self.push(value)
                continue
            self.push(value.error or NONE)
            if value.error is not None:
                begin_handling(self.asm)

    def bind_cells(self, names: tuple[str, ...]) -> None:
        """Fill the root's own cells that a rebuilt function holds."""
        for name in dict.fromkeys(self.used_cells):
            cell = self.frame.cells[name]
            if name in names and cell.content is not None and name not in self.bound_cells:
                self.bound_cells.add(name)
                self.push(self.m.load_cell(cell))
                self.asm.store_deref(name)

    def drop_all_but(self, kept: Container[str], arguments: tuple[str, ...]) -> None:
        """Let go of what the program no longer holds at this point: temporaries, and arguments not in `kept`."""
        asm = self.asm
        dead = [name for name in arguments if name not in kept and name not in asm.cells]
        for name in [*asm.made, *dead]:
            asm.push_null()
            asm.store_fast(name)

    def set_raw(self, value: Value, name: str, item: Value) -> None:
        """object.__setattr__(value, name, item)"""
        self.asm.call_const(
            object.__setattr__,
            lambda: self.push(value),
            lambda: self.asm.load_const(name),
            lambda: self.push(item),
        )
        self.asm.pop_top()

    # -- effects ---------------------------------------------------------------------------------------
    def replay(self, effects: list[Effect]) -> None:
        for effect in effects:
            _REPLAY[type(effect)](self, effect)

    def enter_contexts(self, contexts: list[Context]) -> None:
        """Enter again what is entered at a break; its exit is on the live stack."""
        for context in contexts:
            self.push(context)
            self.asm.load_attr("__enter__")
            self.asm.store_fast(name := self.asm.fresh("enter"))
            self.asm.begin_call(partial(self.asm.load_fast, name))
            self.asm.end_call(0)
            self.asm.pop_top()


# -- builders: the value is not pre-existing and not built yet -------------------------------------------
def _tensor(e: Emitter, value: Tensor) -> None:
    e.outputs.append(value)
    e.asm.load_const(None)  # only in the dry run: outputs have temps by the time of the real one


def _obj(e: Emitter, value: Obj) -> None:
    e.asm.load_const(value.value)


def _sequence(e: Emitter, value: Sequence) -> None:
    asm = e.asm
    if value.cls is list:
        asm.build_list(0)  # remembered before it is filled: a list may hold itself
        e._remember(value)
        if value.items:
            e.push_all(value.items)
            asm.build_tuple(len(value.items))
            asm.list_extend(1)
        return
    e.push_all(value.items)
    asm.build_tuple(len(value.items))
    if value.cls is not tuple:
        name = asm.fresh("items")
        asm.store_fast(name)
        asm.call_const(
            rebuild.make_record, lambda: asm.load_const(value.cls), lambda: asm.load_fast(name)
        )


def _dict(e: Emitter, value: Dict) -> None:
    if any(item is UNREAD for _, item in value.items.values()):
        raise Break("GB125", "a dict that was not read whole")
    if value.cls is types.MappingProxyType:
        raise Break("GB125", "the parameters of a signature")
    if value.cls is OrderedDict:
        e.asm.call_const(OrderedDict)
    else:
        e.asm.build_map(0)
    e._remember(value)
    if value.items:
        _write_pairs(e, value, rebuild.fill_dict)


def _write_pairs(e: Emitter, value: Dict, helper: Any) -> None:
    for key, item in value.items.values():
        e.push(key)
        e.push(item)
    e.asm.build_tuple(2 * len(value.items))
    name = e.asm.fresh("pairs")
    e.asm.store_fast(name)
    e.asm.call_const(helper, lambda: e.push(value), lambda: e.asm.load_fast(name))
    e.asm.pop_top()


def _set(e: Emitter, value: Set) -> None:
    if not is_exact(value):
        raise Break("GB125", "a set whose order is not known")
    if value.cls is frozenset:
        steps = value.history
        if all(step == "add" for step, _ in steps):
            e.asm.call_const(frozenset, lambda: _tuple_of(e, [item for _, item in steps]))
        else:
            e.asm.call_const(frozenset, lambda: e.push(steps[0][1]))
        return
    e.asm.build_set(0)
    e._remember(value)
    if value.history:
        _set_steps(e, value)


def _tuple_of(e: Emitter, items: list[Value]) -> None:
    e.push_all(items)
    e.asm.build_tuple(len(items))


def _set_steps(e: Emitter, value: Set) -> None:
    """Do to the real set what was done to this one."""
    _tuple_of(e, [item for _, item in value.history])
    name = e.asm.fresh("items")
    e.asm.store_fast(name)
    steps = tuple(step for step, _ in value.history)
    e.asm.call_const(
        rebuild.replay_set,
        lambda: e.push(value),
        lambda: e.asm.load_const(steps),
        lambda: e.asm.load_fast(name),
    )
    e.asm.pop_top()


def _slice(e: Emitter, value: Slice) -> None:
    e.push_all([value.start, value.stop, value.step])
    e.asm.build_slice(3)


def _method(e: Emitter, value: Method) -> None:
    e.asm.call_const(types.MethodType, lambda: e.push(value.func), lambda: e.push(value.receiver))


def _builtin_method(e: Emitter, value: BuiltinMethod) -> None:
    e.push(value.receiver)
    e.asm.load_attr(value.name)


def _dict_view(e: Emitter, value: DictView) -> None:
    kind = OrderedDict if value.of.cls is OrderedDict else dict
    e.asm.call_const(getattr(kind, value.kind), lambda: e.push(value.of))


def _cell(e: Emitter, value: Cell) -> None:
    name = e.root_cells.get(value)
    if name is not None:
        e.used_cells.append(name)
        e.asm.load_closure(name)
        return
    e.asm.call_const(types.CellType)
    e._remember(value)
    if value.content is not None:
        e.asm.copy(1)
        e.push(e.m.load_cell(value))
        e.asm.swap(2)
        e.asm.store_attr("cell_contents")


def _function(e: Emitter, value: Function) -> None:
    scope = value.globals.names

    def pairs(items: dict[str, Value]) -> Callable[[], None]:
        def emit() -> None:
            for name, item in items.items():
                e.asm.load_const(name)
                e.push(item)
            e.asm.build_map(len(items))

        return emit

    def defaults() -> None:
        e.push_all(list(value.defaults))
        e.asm.build_tuple(len(value.defaults))

    def closure() -> None:
        e.push_all(list(value.closure))
        e.asm.build_tuple(len(value.closure))

    e.asm.call_const(
        rebuild.make_function,
        lambda: e.asm.load_const(value.code),
        lambda: e.asm.load_const(scope),
        lambda: e.asm.load_const((value.name, value.qualname)),
        defaults,
        pairs(value.kwdefaults),
        closure,
        lambda: e.push(value.annotations or Const(None)),
        pairs(value.fields),
    )
    if value.namespace is not None and value.namespace.items:
        e._remember(value)
        _write_pairs(e, value.namespace, rebuild.fill_dict)


def _instance(e: Emitter, value: Instance) -> None:
    if issubclass(value.cls.value, BaseException):  # type: ignore[attr-defined]
        exception_objects.build(e, value)
        return
    if value.cls.value in STAND_INS:  # type: ignore[attr-defined]
        raise Break(*STAND_INS[value.cls.value])  # type: ignore[attr-defined]
    held = value.storage
    if deques.is_made(value):
        e.asm.call_const(
            deque, lambda: _tuple_of(e, held.items), lambda: e.push(deques.limit_of(e.m, value))
        )
        return
    base = object if held is None else base_of(value.cls.value)  # type: ignore[attr-defined]
    e.asm.call_const(base.__new__, lambda: e.push(value.cls))
    e._remember(value)
    if held is not None and held.items:
        e.temps[held] = e.temps[value]
        _written(e, Written(held))
    for name, item in e.m.overlay.get(value, {}).items():
        if item is None:
            continue
        e.set_raw(value, name, item)


def _instance_dict(e: Emitter, value: InstanceDict) -> None:
    e.asm.call_const(rebuild.attributes_of, lambda: e.push(value.owner))


def _super(e: Emitter, value: Super) -> None:
    e.asm.call_const(super, lambda: e.asm.load_const(value.cls), lambda: e.push(value.receiver))


def _partial(e: Emitter, value: Partial) -> None:
    names = tuple(value.kwargs)
    parts = [value.func, *value.args, *value.kwargs.values()]
    import functools

    e.asm.call_const(functools.partial, *[e._loader(part) for part in parts], kwnames=names)


def _getter(e: Emitter, value: Getter) -> None:
    parts = [*value.args, *value.kwargs.values()]
    e.asm.call_const(value.kind, *[e._loader(part) for part in parts], kwnames=tuple(value.kwargs))


def _context(e: Emitter, value: Context) -> None:
    if value.cls in GRAD_MODES:
        e.asm.call_const(
            rebuild.grad_context,
            lambda: e.asm.load_const(value.cls),
            lambda: e.asm.load_const(value.before),
            lambda: e.asm.load_const(value.args),
        )
        return
    e.asm.call_const(
        rebuild.make_context,
        lambda: e.asm.load_const(value.cls),
        lambda: e.asm.load_const(value.args),
        lambda: e.asm.load_const(value.kwargs),
    )


def _context_exit(e: Emitter, value: ContextExit) -> None:
    e.push(value.context)
    e.asm.load_attr("__exit__")


def _iterator(e: Emitter, value: Iterator) -> None:
    if value.kind not in _ITERATORS:
        raise GeneratorLeaves
    _ITERATORS[value.kind](e, *value.parts)


def _sequence_iterator(e: Emitter, of: Value, index: int) -> None:
    e.asm.call_const(rebuild.sequence_iterator, lambda: e.push(of), lambda: e.asm.load_const(index))


def _items_iterator(e: Emitter, items: list[Value], index: int) -> None:
    rest = items[index:]

    def emit() -> None:
        e.push_all(rest)
        e.asm.build_tuple(len(rest))

    e.asm.call_const(iter, emit)


def _dict_iterator(e: Emitter, of: Dict, kind: str, index: int, size: int) -> None:
    if len(of.items) != size:
        raise Break("GB125", "an iterator over a dict that has changed its size")
    e.asm.call_const(
        rebuild.dict_iterator,
        lambda: e.push(of),
        lambda: e.asm.load_const(kind),
        lambda: e.asm.load_const(index),
    )


def _enumerate(e: Emitter, inner: Iterator, start: int) -> None:
    e.asm.call_const(enumerate, lambda: e.push(inner), lambda: e.asm.load_const(start))


def _zip(e: Emitter, inner: list[Iterator], strict: bool) -> None:
    names = ("strict",) if strict else ()
    parts = [e._loader(one) for one in inner]
    if strict:
        parts.append(lambda: e.asm.load_const(True))
    e.asm.call_const(zip, *parts, kwnames=names)


def _map(e: Emitter, func: Value, inner: list[Iterator]) -> None:
    e.asm.call_const(map, lambda: e.push(func), *[e._loader(one) for one in inner])


def _filter(e: Emitter, func: Value, inner: Iterator) -> None:
    e.asm.call_const(filter, lambda: e.push(func), lambda: e.push(inner))


def _object_iterator(e: Emitter, of: Value) -> None:
    e.push(of)


def _item_iterator(e: Emitter, of: Value, index: int) -> None:
    e.asm.call_const(rebuild.item_iterator, lambda: e.push(of), lambda: e.asm.load_const(index))


_ITERATORS: dict[str, Callable[..., None]] = {
    "sequence": _sequence_iterator,
    "items": _items_iterator,
    "object": _object_iterator,
    "items of an object": _item_iterator,
    "dict": _dict_iterator,
    "enumerate": _enumerate,
    "zip": _zip,
    "map": _map,
    "filter": _filter,
}

BUILDERS: dict[type, Callable[[Emitter, Any], None]] = {
    Tensor: _tensor,
    Obj: _obj,
    Sequence: _sequence,
    Dict: _dict,
    InstanceDict: _instance_dict,
    DictView: _dict_view,
    Set: _set,
    Slice: _slice,
    Array: arrays.fresh,
    Method: _method,
    BuiltinMethod: _builtin_method,
    Cell: _cell,
    Function: _function,
    Instance: _instance,
    Super: _super,
    Partial: _partial,
    Getter: _getter,
    Context: _context,
    ContextExit: _context_exit,
    Iterator: _iterator,
}


# -- effects ---------------------------------------------------------------------------------------------
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
    e.asm.load_const(effect.scope.names)
    e.asm.load_const(effect.name)
    if effect.value is None:
        e.asm.delete_subscr()
    else:
        e.asm.store_subscr()


def _written(e: Emitter, effect: Written) -> None:
    target = effect.target
    if isinstance(target, Cell):
        if target.content is None:
            e.push(target)
            e.asm.delete_attr("cell_contents")
        else:
            e.push(e.m.load_cell(target))
            e.push(target)
            e.asm.store_attr("cell_contents")
    elif isinstance(target, Dict):
        _write_pairs(e, target, rebuild.rewrite_dict)
    elif isinstance(target, Set):
        if not is_exact(target):
            raise Break("GB125", "a set whose order is not known")
        _set_steps(e, target)
    else:
        _tuple_of(e, list(target.items))  # type: ignore[attr-defined]
        name = e.asm.fresh("items")
        e.asm.store_fast(name)
        e.asm.call_const(
            rebuild.rewrite_list, lambda: e.push(target), lambda: e.asm.load_fast(name)
        )
        e.asm.pop_top()


def _filled(e: Emitter, effect: Filled) -> None:
    e.asm.call_const(effect.step, *[e._loader(value) for value in (effect.target, *effect.items)])
    e.asm.pop_top()


_REPLAY: dict[type, Callable[[Emitter, Any], None]] = {
    Filled: _filled,
    SetAttr: _set_attr,
    SetGlobal: _set_global,
    Written: _written,
}
