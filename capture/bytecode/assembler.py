"""The assembler: builds the code object that replaces a frame's code.

`capture.emit` emits prologue, graph call, epilogue and breaks through it; its methods hide the
differences between CPython versions. The result takes the original's parameters as plain positional
ones and keeps its cells, file, name and lines. `original(index)` is a label of an instruction of
the user's code: everything reachable from it is appended, so that it runs in plain Python as
before.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ...ir.location import Location
from ...runtime.guards.sources import Source
from ...runtime.guards.weak_rows import is_lasting
from ..exact_type import is_kind
from .decoder import Instr, PerCode, argument_names, decode, slot_names, successors, unit_of
from .encoder import Cover, Item, Label, Shape, Tail, encode
from .opcodes import FINAL, INTRINSICS_1, NULL_FIRST, VERSION, Raw
from .source_steps import STEPS, may_end, own_attribute, survives_interning
from .unbound_cells import load_cell, maybe_unbound

Emitter = Callable[[], object]

CHECKED_LOAD = "LOAD_FAST" if VERSION < (3, 12) else "LOAD_FAST_CHECK"
"""The load for a local that may be unbound.

From 3.12 on, LOAD_FAST does not check; the checked form raises UnboundLocalError, as LOAD_FAST of
3.11 does.
"""


class Assembler:
    """Code that replaces `code`, under construction. Methods append one or a few instructions."""

    def __init__(
        self,
        code: types.CodeType,
        args: tuple[str, ...] | None = None,
        cells_from_outside: bool = False,
    ) -> None:
        """`args` replaces the parameters.

        With `cells_from_outside` every cell comes through the closure, in the order cellvars,
        freevars (for resume functions).
        """
        self.code = code
        self.args = argument_names(code) if args is None else args
        cells = code.co_cellvars + code.co_freevars
        self.cellvars = () if cells_from_outside else code.co_cellvars
        self.freevars = cells if cells_from_outside else code.co_freevars
        self.cells = cells
        self.cells_from_outside = cells_from_outside
        self.maybe_unbound = maybe_unbound(code) if cells_from_outside else frozenset()
        # Locals that are bound where the re-emitted original begins.
        self.bound: frozenset[str] = frozenset()
        self.patches: dict[int, Emitter] = {}  # emitted in place of an original instruction
        self.carries = False  # whether `finish` carried the original as bytes
        self.made: list[str] = []  # the names returned by `fresh`
        # Per prefix: the first number that may be free.
        self._given: dict[str, int] = {}
        # The instructions so far; the labels of the original's instructions; where the forms of one
        # wrapped call begin -> where they end, the wrapper, whether keywords follow.
        # `capture.emit.printing` reads these three.
        self.body: list[Item | Label] = []
        self.originals: dict[int, Label] = {}
        self.wrapped: dict[int, tuple[int, Any, bool]] = {}
        self._where: Location | None = None
        self._cover: Cover | None = None
        self._names = {*slot_names(code), *self.args}

    # -- bookkeeping -------------------------------------------------------------------------------
    def fresh(self, prefix: str) -> str:
        """An unused local name; its dot distinguishes it from every name that a user can write."""
        number = self._given.get(prefix, 0)
        while (name := f".{prefix}{number}") in self._names:
            number += 1
        self._given[prefix] = number + 1
        self._names.add(name)
        self.made.append(name)
        return name

    def set_location(self, where: Location | None) -> None:
        """Set the location of the instructions that follow."""
        self._where = where

    @contextmanager
    def covered(self, cover: Cover | None) -> Iterator[None]:
        """Instructions emitted in this context have that exception handler."""
        before, self._cover = self._cover, cover
        yield
        self._cover = before

    def label(self) -> Label:
        return Label()

    def place(self, label: Label) -> None:
        self.body.append(label)

    def emit(self, op: str, arg: Any = None, low: int = 0, target: Label | None = None) -> None:
        """Append one real instruction of the running version."""
        self.body.append(Item(Raw(op, arg, low), target, self._where, self._cover))

    def finish(self, carry: bool = True) -> types.CodeType:
        """The code object; nothing may be appended afterwards.

        `carry` appends the original as bytes, if instructions of it are reached.
        """
        tail = self._tail() if carry else None
        carried = None if tail is None else encode(self.body, self._shape(), tail)
        if carried is not None:
            self.carries = _carries.put(carried, True)
            return carried
        self._append_originals()
        made = encode(self.body, self._shape())
        assert made is not None
        return made

    def emitted(self) -> list[tuple[Raw, Location | None]]:
        """The real instructions so far, each with its location."""
        return [(item.raw, item.where) for item in self.body if isinstance(item, Item)]

    def _tail(self) -> Tail | None:
        """The original as bytes; None if it is not reached, or if instructions of it change."""
        if not self.originals or self.patches or self.maybe_unbound:
            return None
        units = {label: unit_of(self.code, index) for index, label in self.originals.items()}
        known = {label: unit for label, unit in units.items() if unit is not None}
        sure = self.bound.union(self.cells)
        outside = self.cells_from_outside
        return (
            Tail(self.code, known, lambda name: outside and name not in sure)
            if len(known) == len(units)
            else None
        )

    def _shape(self) -> Shape:
        return Shape(
            name=self.code.co_name,
            qualname=self.code.co_qualname,
            filename=self.code.co_filename,
            firstlineno=self.code.co_firstlineno,
            flags=self.code.co_flags,
            args=self.args,
            locals=self.code.co_varnames,
            cellvars=self.cellvars,
            freevars=self.freevars,
        )

    # -- constants and names -----------------------------------------------------------------------
    def load_const(self, value: Any) -> None:
        """Push this very object."""
        if may_end(value):
            self.call_const(weakref.ref(value))
        elif survives_interning(value):
            self.emit("LOAD_CONST", value)
        else:
            # CPython would replace strings in it by equal interned ones; a list protects it.
            self.emit("LOAD_CONST", [value])
            self.emit("LOAD_CONST", 0)
            self.binary_subscr()

    def load_fast(self, name: str) -> None:
        self.emit(CHECKED_LOAD, name)

    def take_fast(self, name: str) -> None:
        """Push a bound local and unbind it, so that this frame no longer keeps it alive."""
        if VERSION >= (3, 12):
            self.emit("LOAD_FAST_AND_CLEAR", name)
        else:
            self.emit("LOAD_FAST", name)
            self.emit("DELETE_FAST", name)

    def store_fast(self, name: str) -> None:
        self.emit("STORE_FAST", name)

    def delete_fast(self, name: str) -> None:
        self.emit("DELETE_FAST", name)

    def load_global(self, name: str) -> None:
        self.emit("LOAD_GLOBAL", name)

    def store_global(self, name: str) -> None:
        self.emit("STORE_GLOBAL", name)

    def delete_global(self, name: str) -> None:
        self.emit("DELETE_GLOBAL", name)

    def load_deref(self, name: str) -> None:
        self.emit("LOAD_DEREF", name)

    def store_deref(self, name: str) -> None:
        self.emit("STORE_DEREF", name)

    def delete_deref(self, name: str) -> None:
        self.emit("DELETE_DEREF", name)

    def load_closure(self, name: str) -> None:
        """Push the cell itself."""
        self.emit("LOAD_CLOSURE", name)

    def load_attr(self, name: str) -> None:
        self.emit("LOAD_ATTR", name)

    def store_attr(self, name: str) -> None:
        """[..., value, object] -> [...]"""
        self.emit("STORE_ATTR", name)

    def delete_attr(self, name: str) -> None:
        self.emit("DELETE_ATTR", name)

    # -- stack and containers
    # ----------------------------------------------------------------------------
    def pop_top(self) -> None:
        self.emit("POP_TOP")

    def copy(self, i: int) -> None:
        self.emit("COPY", i)

    def swap(self, i: int) -> None:
        self.emit("SWAP", i)

    def push_null(self) -> None:
        self.emit("PUSH_NULL")

    def binary_subscr(self) -> None:
        self.emit("BINARY_SUBSCR")

    def store_subscr(self) -> None:
        """[..., value, container, key] -> [...]"""
        self.emit("STORE_SUBSCR")

    def delete_subscr(self) -> None:
        self.emit("DELETE_SUBSCR")

    def build_tuple(self, n: int) -> None:
        self.emit("BUILD_TUPLE", n)

    def build_list(self, n: int) -> None:
        self.emit("BUILD_LIST", n)

    def build_set(self, n: int) -> None:
        self.emit("BUILD_SET", n)

    def build_map(self, n: int) -> None:
        self.emit("BUILD_MAP", n)

    def build_slice(self, n: int) -> None:
        self.emit("BUILD_SLICE", n)

    def list_append(self, i: int) -> None:
        self.emit("LIST_APPEND", i)

    def list_extend(self, i: int) -> None:
        self.emit("LIST_EXTEND", i)

    def list_to_tuple(self) -> None:
        if VERSION >= (3, 12):
            self.emit("CALL_INTRINSIC_1", INTRINSICS_1.index("LIST_TO_TUPLE"))
        else:
            self.emit("LIST_TO_TUPLE")

    def unpack_sequence(self, n: int) -> None:
        self.emit("UNPACK_SEQUENCE", n)

    # -- calls -------------------------------------------------------------------------------------
    def begin_call(self, emit_callable: Emitter) -> None:
        """Push a callable and its NULL in this version's order; arguments come next."""
        if NULL_FIRST:
            self.push_null()
        emit_callable()
        if not NULL_FIRST:
            self.push_null()

    def end_call(self, n: int, kwnames: tuple[str, ...] = ()) -> None:
        """Call with `n` arguments on the stack; the last ones have the names in `kwnames`."""
        if VERSION >= (3, 13):
            if kwnames:
                self.emit("LOAD_CONST", tuple(kwnames))
            self.emit("CALL_KW" if kwnames else "CALL", n)
            return
        if kwnames:
            self.emit("KW_NAMES", tuple(kwnames))
        if VERSION < (3, 12):
            self.emit("PRECALL", n)
        self.emit("CALL", n)

    def call_const(self, function: Any, *emitters: Emitter, kwnames: tuple[str, ...] = ()) -> None:
        """Call this very object; each emitter pushes one argument."""
        self.begin_call(lambda: self.load_const(function))
        for emitter in emitters:
            emitter()
        self.end_call(len(emitters), kwnames)

    # -- control flow
    # ------------------------------------------------------------------------------------
    def jump(self, label: Label) -> None:
        self.emit("JUMP", target=label)

    def pop_jump_if(self, kind: str, label: Label) -> None:
        """kind: "true", "false", "none", "not_none"; every version tests the truth."""
        if VERSION >= (3, 13) and kind in ("true", "false"):
            self.emit("TO_BOOL")
        self.emit(f"POP_JUMP_IF_{kind.upper()}", target=label)

    def return_value(self) -> None:
        self.emit("RETURN_VALUE")

    def raise_(self, n: int) -> None:
        self.emit("RAISE_VARARGS", n)

    # -- the original's instructions ---------------------------------------------------------------
    def raw(self, instr: Instr, target: Label | None = None) -> None:
        """Emit an original instruction again; a jump goes to `target` or its own target."""
        if instr.target is not None and target is None:
            target = self.original(instr.target)
        for position, raw in enumerate(instr.raw):
            last = position == len(instr.raw) - 1
            op = raw.op
            if raw.arg in self.maybe_unbound and op in ("LOAD_DEREF", "DELETE_DEREF"):
                self._load_own_cell(raw.arg)
                if op == "LOAD_DEREF":
                    continue
                self.pop_top()
            if op == "LOAD_FAST" and raw.arg not in self.bound:
                op = CHECKED_LOAD
            self.emit(op, raw.arg, raw.low, target if last else None)

    def _load_own_cell(self, name: str) -> None:
        arguments = (lambda: self.load_closure(name)), (lambda: self.load_const(name))
        self.call_const(load_cell, *arguments)

    def original(self, index: int) -> Label:
        """The label of the original's instruction `index`; `finish` appends what it reaches."""
        return self.originals.setdefault(self._threaded(index), Label())

    def _threaded(self, index: int) -> int:
        """The instruction that control reaches from `index` through jumps, up to a patched one."""
        instrs = decode(self.code).instrs
        for _ in instrs:  # a loop that consists of jumps is followed once
            target = instrs[index].target
            if instrs[index].op != "JUMP" or target is None or index in self.patches:
                break
            index = target
        return index

    def cover_of(self, instr: Instr) -> Cover | None:
        """The original's exception handler of one of its instructions."""
        if instr.handler is None:
            return None
        return Cover(self.original(instr.handler), instr.handler_depth, instr.handler_lasti)

    def _append_originals(self) -> None:
        placed: set[int] = set()
        while fresh := self._reachable(set(self.originals) - placed) - placed:
            placed |= fresh
            for index in sorted(fresh):
                self._append_original(index, falls_into=index + 1 in fresh)

    def _reachable(self, indices: set[int]) -> set[int]:
        instrs = decode(self.code).instrs
        reached: set[int] = set()
        todo = list(indices)
        while todo:
            index = todo.pop()
            if index not in reached:
                reached.add(index)
                if index not in self.patches:
                    todo += successors(instrs[index])
        return reached

    def _append_original(self, index: int, falls_into: bool) -> None:
        self.place(self.originals.setdefault(index, Label()))
        if index in self.patches:
            self.patches[index]()
            return
        instr = decode(self.code).instrs[index]
        self.set_location(instr.where)
        with self.covered(self.cover_of(instr)):
            self.raw(instr)
        if instr.op not in FINAL and not falls_into:
            self.jump(self.original(index + 1))

    # -- sources -----------------------------------------------------------------------------------
    def load_source(self, source: Source) -> None:
        """Push the value of a source again."""
        kind, base, key = source.kind, source.base, source.key
        if kind == "local":
            (self.load_deref if key in self.cells else self.load_fast)(key)
        elif kind == "contents" and base is not None and base.kind == "cell":
            self.load_deref(base.key)
        elif kind == "globals":
            self.call_const(globals)
        elif base is None:
            ROOT_LOADS[kind](self, key)
        elif kind == "attr" and base.kind == "const" and is_kind(base.key, type):
            self.call_const(
                own_attribute, lambda: self.load_const(base.key), lambda: self.load_const(key)
            )
        elif kind in ATTRIBUTE_LOADS:
            self.load_source(base)
            self.load_attr(ATTRIBUTE_LOADS[kind] or key)
        else:
            helper, takes_key = STEPS[kind]
            arguments: list[Emitter] = [lambda: self.load_source(base)]
            if takes_key:
                arguments.append(lambda: self.load_const(key))
            self.call_const(helper, *arguments)


_carries = PerCode(lambda code: False)


def _load_fixed(asm: Assembler, value: Any) -> None:
    """Push a fixed object. Code that other callables use may not keep a class of the program."""
    if is_kind(value, type) and not is_lasting(type.__getattribute__(value, "__module__")):
        asm.call_const(weakref.ref(value))
    else:
        asm.load_const(value)


ROOT_LOADS: dict[str, Callable[[Assembler, Any], None]] = {
    "global": Assembler.load_global,
    "builtin": Assembler.load_global,  # guarded to be absent from the globals
    "cell": Assembler.load_closure,
    "const": _load_fixed,
    "context": lambda asm, key: asm.call_const(getattr(key, "get", key)),
}

ATTRIBUTE_LOADS: dict[str, str] = {
    "attr": "",
    "slot": "",
    "grad": "grad",
    "member": "",
    "dict": "__dict__",
    "contents": "cell_contents",
}
"""Steps that are one LOAD_ATTR: of a fixed name, or of the source's key ("")."""
