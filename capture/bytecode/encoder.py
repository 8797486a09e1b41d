"""The encoder: makes a code object of the running version from symbolic real instructions.

Only `capture.bytecode.assembler` uses it. It writes the prologue, chooses forward and backward
jumps, inserts the loop exits that FOR_ITER needs, numbers names and constants (constants by
identity), computes the stack size and writes the exception and position tables. It drops
unreachable code. An original that the new instructions jump into is carried along as bytes
(`capture.bytecode.splice`).
"""

from __future__ import annotations

import dis
import types
from collections.abc import Callable
from typing import Any

from bytecode import CompilerFlags, ConcreteBytecode, ConcreteInstr
from bytecode.concrete import ExceptionTableEntry
from bytecode.instr import InstrLocation

from ...ir.dataclass import dataclass
from ...ir.location import Location
from .decoder import slot_names
from .opcodes import CONST_OPS, LOOP_EXIT, NAME_OPS, NAME_SHIFT, SLOT_OPS, VERSION, Raw
from .splice import behind, original_of

REAL_NAMES: dict[str, str] = {
    (3, 11): {},
    (3, 12): {},
    (3, 13): {"LOAD_CLOSURE": "LOAD_FAST"},
}[VERSION]
"""Symbolic names that the running version spells differently, except jumps."""

TESTS_GO_BACK = VERSION < (3, 12)
"""Whether POP_JUMP_IF exists in both directions; later versions test forward only."""

LOOKS_BEFORE = frozenset(
    {"CALL", "CALL_KW", "CALL_FUNCTION_EX", "BINARY_SUBSCR", "LOAD_ATTR", "FOR_ITER", "SEND"}
    if VERSION >= (3, 13)
    else ()
)
"""Instructions that may push a Python frame without leaving the interpreter loop.

When such a frame raises, 3.13 finds the caller's handler by the code unit *before* the instruction,
so that unit needs the same handler.
"""

FINAL = frozenset({"JUMP", "RETURN_VALUE", "RAISE_VARARGS", "RERAISE"})
KEPT_FLAGS = 0x10 | 0x1FE0000
"""CO_NESTED and the `from __future__` bits; CO_OPTIMIZED and CO_NEWLOCALS (0x03) are always set."""


CACHES: dict[str, int] = dict(
    dis._inline_cache_entries.items()  # type: ignore[attr-defined]
    if VERSION >= (3, 13)
    else zip(dis.opname, dis._inline_cache_entries, strict=False)  # type: ignore[attr-defined]
)
"""Number of CACHE units after each real instruction: a table by name from 3.13, by number before.
"""


class Label:
    """A position in the new code."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class Cover:
    """The exception handler of an instruction: at `target`, with the stack cut to `depth`."""

    target: Label
    depth: int
    lasti: bool


@dataclass(slots=True, eq=False)
class Item:
    """One instruction to encode, immutable by convention.

    Without a location it gets the function's first line. It is not frozen, which would triple the
    time to make one.
    """

    raw: Raw
    target: Label | None = None
    where: Location | None = None
    cover: Cover | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """Everything of a code object except instructions.

    `args` are plain positional parameters; `locals` gives the order of the other locals where it
    matters.
    """

    name: str
    qualname: str
    filename: str
    firstlineno: int
    flags: int
    args: tuple[str, ...]
    locals: tuple[str, ...]
    cellvars: tuple[str, ...]
    freevars: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Tail:
    """The bytes of `code`, which follow the new ones.

    `labels`: the targets of jumps from the new instructions, in code units; `may_be_unbound`:
    whether the bytes may read this local unbound.
    """

    code: types.CodeType
    labels: dict[Label, int]
    may_be_unbound: Callable[[str], bool]


def encode(
    body: list[Item | Label], shape: Shape, tail: Tail | None = None
) -> types.CodeType | None:
    """The code object that runs `body`; None if the bytes of `tail` cannot follow it."""
    return _Encoder(body, shape, tail).run()


def _width(arg: int) -> int:
    """Code units of an instruction with this argument, including EXTENDED_ARGs."""
    return max(1, (arg.bit_length() + 7) // 8)


class _Encoder:
    def __init__(self, body: list[Item | Label], shape: Shape, tail: Tail | None) -> None:
        self.shape = shape
        self.tail = tail
        self.outside = {} if tail is None else tail.labels
        self.items: list[Item] = []
        self.places: dict[Label, int] = {}
        # A string in the first position would become the docstring.
        self.consts: list[Any] = [None] if tail is None else list(tail.code.co_consts)
        self.const_index = {id(const): at for at, const in enumerate(self.consts)}
        names = () if tail is None else tail.code.co_names
        self.names = {name: at for at, name in enumerate(names)}
        self.positions: dict[Location | None, InstrLocation] = {}
        for entry in [*self.prologue(), *body]:
            if isinstance(entry, Label):
                self.places[entry] = len(self.items)
            else:
                self.items.append(entry)

    def run(self) -> types.CodeType | None:
        self.drop_unreachable()
        self.pad()
        self.add_stubs()
        self.number_slots()
        carried = None
        if self.tail is not None:
            carried = original_of(self.tail.code).moved(self.slots, self.tail.may_be_unbound)
            if carried is None:
                return None
            first = Location(self.shape.filename, self.shape.firstlineno)
            self.items.append(Item(Raw("NOP"), where=first))
        numbers = [self.number(item.raw) for item in self.items]
        ops = [self.real_name(index) for index in range(len(self.items))]
        instrs, starts = self.resolve(ops, numbers)
        shape = self.shape
        concrete = ConcreteBytecode(
            instrs,
            consts=tuple(self.consts),
            names=tuple(self.names),
            varnames=self.local_names,
            exception_table=self.exception_table(starts),
        )
        concrete.argcount = len(shape.args)
        concrete.name, concrete.qualname = shape.name, shape.qualname
        concrete.filename, concrete.first_lineno = shape.filename, shape.firstlineno
        concrete.flags = CompilerFlags(shape.flags & KEPT_FLAGS | 0x03)
        concrete.cellvars, concrete.freevars = list(shape.cellvars), list(shape.freevars)
        depth = self.stack_size(ops, numbers)
        made = concrete.to_code(stacksize=depth, compute_exception_stack_depths=False)
        if self.tail is None or carried is None:
            return made
        return behind(made, carried, self.tail.code)

    def prologue(self) -> list[Item]:
        nowhere = Location(self.shape.filename, None)
        first = Location(self.shape.filename, self.shape.firstlineno)
        items = [Item(Raw("MAKE_CELL", name), where=nowhere) for name in self.shape.cellvars]
        if self.shape.freevars:
            items.insert(0, Item(Raw("COPY_FREE_VARS", len(self.shape.freevars)), where=nowhere))
        return [*items, Item(Raw("RESUME", 0), where=first)]

    def drop_unreachable(self) -> None:
        seen: set[int] = set()
        todo = [0]
        while todo:
            index = todo.pop()
            while index not in seen:
                seen.add(index)
                item = self.items[index]
                if item.cover is not None:
                    todo.append(self.places[item.cover.target])
                if item.target is not None and item.target not in self.outside:
                    todo.append(self.places[item.target])
                if item.raw.op in FINAL:
                    break
                index += 1
        moved = {old: new for new, old in enumerate(sorted(seen))}
        self.items = [self.items[index] for index in moved]
        self.places = {label: moved[at] for label, at in self.places.items() if at in moved}

    def pad(self) -> None:
        """Insert a NOP before instructions whose handler is found one unit early."""
        moved: list[int] = []
        padded: list[Item] = []
        for item in self.items:
            moved.append(len(padded))
            before = padded[-1].cover if padded else None
            if item.raw.op in LOOKS_BEFORE and not _same(item.cover, before):
                padded.append(Item(Raw("NOP"), None, item.where, item.cover))
            padded.append(item)
        self.items = padded
        self.places = {label: moved[at] for label, at in self.places.items()}

    def add_stubs(self) -> None:
        """Add loop exits for FOR_ITER, and indirect jumps where a test cannot jump backward."""
        for index, item in enumerate(self.items):
            if item.target is None or item.raw.op == "JUMP":
                continue
            exits = LOOP_EXIT if item.raw.op == "FOR_ITER" else ()
            goes_back = TESTS_GO_BACK and item.raw.op.startswith("POP_JUMP_IF_")
            goes_on = item.target in self.outside or self.places[item.target] > index
            if not exits and (goes_back or goes_on):
                continue
            stub = Label()
            self.places[stub] = len(self.items)
            self.items[index] = Item(item.raw, stub, item.where, item.cover)
            self.items += [Item(Raw(op), where=item.where) for op in exits]
            self.items.append(Item(Raw("JUMP"), item.target, item.where))

    def number_slots(self) -> None:
        """Number fast slots: arguments, other locals, non-argument cells, free variables."""
        shape = self.shape
        cells = {*shape.cellvars, *shape.freevars}
        raws = (item.raw for item in self.items)
        carried = () if self.tail is None else slot_names(self.tail.code)
        used = dict.fromkeys(
            name
            for name in (*(raw.arg for raw in raws if raw.op in SLOT_OPS), *carried)
            if name not in cells
        )
        ordered = [*shape.args, *(name for name in shape.locals if name in used), *used]
        self.local_names = list(dict.fromkeys(ordered))
        own_cells = [name for name in shape.cellvars if name not in shape.args]
        slots = [*self.local_names, *own_cells, *shape.freevars]
        self.slots = {name: index for index, name in enumerate(slots)}

    def number(self, raw: Raw) -> int | None:
        """The integer argument of a real instruction; `resolve` sets those of jumps."""
        if raw.op in CONST_OPS:
            index = self.const_index.setdefault(id(raw.arg), len(self.consts))
            if index == len(self.consts):
                self.consts.append(raw.arg)
            return index
        if raw.op in SLOT_OPS:
            return self.slots[raw.arg]
        if raw.op in NAME_OPS:
            index = self.names.setdefault(raw.arg, len(self.names))
            return index << NAME_SHIFT.get(raw.op, 0) | raw.low
        return raw.arg

    def real_name(self, index: int) -> str:
        item = self.items[index]
        op = REAL_NAMES.get(item.raw.op, item.raw.op)
        if item.target is None:
            return op
        backward = item.target not in self.outside and self.places[item.target] <= index
        if op == "JUMP":
            return "JUMP_BACKWARD" if backward else "JUMP_FORWARD"
        if TESTS_GO_BACK and op.startswith("POP_JUMP_IF_"):
            way = "BACKWARD" if backward else "FORWARD"
            return op.replace("POP_JUMP_IF_", f"POP_JUMP_{way}_IF_")
        return op

    def resolve(
        self, ops: list[str], numbers: list[int | None]
    ) -> tuple[list[ConcreteInstr], list[int]]:
        """The final instructions with their caches, and the code unit where each item starts."""
        caches = [CACHES.get(op, 0) for op in ops]
        widths = [_width(number or 0) for number in numbers]
        jumps = [index for index, item in enumerate(self.items) if item.target is not None]
        grown = True
        while grown:  # widths only grow, so the loop ends
            grown = False
            starts = [0]
            for width, cached in zip(widths, caches, strict=True):
                starts.append(starts[-1] + width + cached)
            for index in jumps:
                numbers[index] = distance = abs(self.start_of(index, starts) - starts[index + 1])
                if _width(distance) > widths[index]:
                    widths[index], grown = _width(distance), True
        return self.concrete(ops, numbers, widths, caches), starts

    def start_of(self, index: int, starts: list[int]) -> int:
        """The code unit of a jump's target."""
        target = self.items[index].target
        assert target is not None
        if target in self.outside:
            return starts[-1] + self.outside[target]
        return starts[self.places[target]]

    def concrete(
        self, ops: list[str], numbers: list[int | None], widths: list[int], caches: list[int]
    ) -> list[ConcreteInstr]:
        """The bytecode library's instructions; equal CACHEs share one, 1-2 us each."""
        instrs: list[ConcreteInstr] = []
        for item, op, number, width, cached in zip(
            self.items, ops, numbers, widths, caches, strict=True
        ):
            where = self.positions.get(item.where)
            if where is None:
                where = self.positions[item.where] = self.position(item.where)
            arg = () if number is None else (number,)
            instrs.append(ConcreteInstr(op, *arg, location=where, extended_args=width - 1))
            instrs += [ConcreteInstr("CACHE", 0, location=where)] * cached
        return instrs

    def position(self, where: Location | None) -> InstrLocation:
        if where is None:
            return InstrLocation(self.shape.firstlineno, None, None, None)
        if where.line is None or where.column is None or where.end_column is None:
            return InstrLocation(where.line, None, None, None)
        end = where.line if where.end_line is None else where.end_line
        return InstrLocation(where.line, end, where.column, where.end_column)

    def exception_table(self, starts: list[int]) -> list[ExceptionTableEntry]:
        entries: list[ExceptionTableEntry] = []
        last: Cover | None = None
        for index, item in enumerate(self.items):
            cover, stop = item.cover, starts[index + 1] - 1
            if cover is None:
                pass
            elif _same(cover, last):
                entries[-1].stop_offset = stop
            else:
                target = starts[self.places[cover.target]]
                entries.append(
                    ExceptionTableEntry(starts[index], stop, target, cover.depth, cover.lasti)
                )
            last = cover
        return entries

    def stack_size(self, ops: list[str], numbers: list[int | None]) -> int:
        """The greatest depth over all paths, by CPython's own stack effects."""
        depths: dict[int, int] = {}
        deepest = 1
        todo = [(0, 0)]
        while todo:
            index, depth = todo.pop()
            while depths.get(index, -1) < depth:
                depths[index] = depth
                item = self.items[index]
                opcode = dis.opmap[ops[index]]
                after = depth + dis.stack_effect(opcode, numbers[index], jump=False)
                deepest = max(deepest, depth, after)
                if item.cover is not None:
                    entry = item.cover.depth + item.cover.lasti + 1
                    todo.append((self.places[item.cover.target], entry))
                if item.target is not None and item.target not in self.outside:
                    taken = depth + dis.stack_effect(opcode, numbers[index], jump=True)
                    todo.append((self.places[item.target], taken))
                if item.raw.op in FINAL:
                    break
                index, depth = index + 1, after
        return deepest


def _same(one: Cover | None, other: Cover | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.target is other.target and (one.depth, one.lasti) == (other.depth, other.lasti)
