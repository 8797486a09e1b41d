"""The decoder: turns a code object into instructions in a form that no CPython version changes.

The symbolic machine, resume functions and liveness analysis read `Decoded` and need not know the
version. NULLs stay explicit on the stack, exactly where the running version has them, because
resume functions re-enter the original code. Results are cached per code object while that object
lives.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from bytecode import UNSET, ConcreteBytecode, ConcreteInstr

from ...ir.dataclass import dataclass, field
from ...ir.location import Location
from ...runtime.weak_callbacks import until_exit
from ..breaks import Break
from .opcodes import (
    CONST_OPS,
    EFFECTS,
    FINAL,
    JUMP_EFFECTS,
    LOOP_EXIT,
    NAME_OPS,
    NAME_SHIFT,
    ROWS,
    SLOT_OPS,
    Effect,
    Micro,
    Raw,
)

PAIRS = frozenset({"LOAD_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST", "STORE_FAST_LOAD_FAST"})
CALL_PREFIXES = frozenset({"KW_NAMES", "PRECALL"})
GENERATOR_FLAGS = 0x20 | 0x80 | 0x100 | 0x200


@dataclass(frozen=True, slots=True, eq=False)
class Instr:
    """One normal instruction.

    `target` and `handler` are indices into `Decoded.instrs`. `handler_depth` is the stack depth at
    which the handler is entered, before the offset (if `handler_lasti`) and the exception are
    pushed.
    """

    index: int
    op: str
    arg: Any
    target: int | None
    where: Location
    handler: int | None
    handler_depth: int
    handler_lasti: bool
    head: bool
    raw: tuple[Raw, ...]

    def __str__(self) -> str:
        arg = "" if self.arg is None else f" {self.arg!r}"
        target = "" if self.target is None else f" -> {self.target}"
        return f"{self.index:4} {self.op}{arg}{target}"


@dataclass(frozen=True, slots=True, eq=False)
class Handler:
    """The handler at `target` covers the instructions start..stop-1."""

    start: int
    stop: int
    target: int
    depth: int
    lasti: bool


NO_HANDLER = Handler(0, 0, -1, 0, False)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Decoded:
    """A code object in normal form.

    `args` are all parameters, including *args and **kwargs; `cells` are co_cellvars, then
    co_freevars; `units` are the code units where instructions begin, -1 inside a real one. A resume
    function that carries the bytes of the original (`capture.bytecode.splice`) has the original's
    instructions under their own indices, and its own beginning after them: `entry` runs first,
    `base` is the original's code.
    """

    instrs: tuple[Instr, ...]
    handlers: tuple[Handler, ...]
    name: str
    args: tuple[str, ...]
    cells: tuple[str, ...]
    flags: int
    units: tuple[int, ...] = field(repr=False)
    entry: int = 0
    base: types.CodeType | None = None

    @property
    def is_generator(self) -> bool:
        return bool(self.flags & GENERATOR_FLAGS)

    @property
    def may_call_bare_super(self) -> bool:
        """Whether `super()` may read the frame's first argument."""
        names = (i.arg for i in self.instrs if i.op == "LOAD_GLOBAL")
        return "__class__" in self.cells and "super" in names

    def is_of_base(self, index: int) -> bool:
        """Whether `index` is an instruction of `base`, whose analyses are valid for it."""
        return self.base is not None and index < len(self.units)


def slot_names(code: types.CodeType) -> tuple[str, ...]:
    """The names of a frame's fast slots: locals, cells that are not arguments, free variables."""
    local = code.co_varnames
    return local + tuple(c for c in code.co_cellvars if c not in local) + code.co_freevars


def argument_names(code: types.CodeType) -> tuple[str, ...]:
    """All parameters in co_varnames order: positional, keyword-only, *args, **kwargs."""
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    return code.co_varnames[:count]


def stack_effect(instr: Instr, jump: bool = False) -> Effect:
    """(popped, pushed) of a normal instruction; with `jump`, on the edge to its target."""
    if jump:
        return JUMP_EFFECTS[instr.op]
    effect = EFFECTS[instr.op]
    return effect(instr.arg) if callable(effect) else effect


def successors(instr: Instr) -> list[int]:
    """Instructions that may run next: by fall-through, jump, or exception handler."""
    after = [] if instr.op in FINAL else [instr.index + 1]
    return after + [at for at in (instr.target, instr.handler) if at is not None]


@dataclass(slots=True, eq=False)
class _Unit:
    """Real instructions that decode together: a call with its keyword names, otherwise one.

    `start` and `stop` are offsets in code units, including EXTENDED_ARG before and CACHE after it.
    """

    start: int
    stop: int
    raws: tuple[Raw, ...]
    target: int | None
    where: Location
    micros: tuple[Micro, ...] = ()


def micros(raws: tuple[Raw, ...]) -> tuple[Micro, ...]:
    """The normal instructions for real ones."""
    raw = raws[-1]
    if raw.op == "CALL":
        names = next((r.arg for r in raws if r.op == "KW_NAMES"), ())
        return (("CALL", (raw.arg, names), raws),)
    if raw.op == "CALL_KW" and len(raws) == 2:
        return (("CALL", (raw.arg, raws[0].arg), raws),)
    row = ROWS.get(raw.op)
    # An opcode without a row keeps its own name: the machine has no handler for it and breaks
    # there.
    return row(raw) if row is not None else ((raw.op, raw.arg, (raw,)),)


class _Decoder:
    def __init__(self, code: types.CodeType) -> None:
        self.code = code
        self.slots = slot_names(code)
        self.cells = code.co_cellvars + code.co_freevars

    def run(self) -> Decoded:
        concrete = ConcreteBytecode.from_code(self.code)
        units = self.fold(self.units(concrete))
        # Offset -> index of the first normal instruction of its unit.
        starts: dict[int, int] = {}
        begins: list[int] = []
        for unit in units:
            unit.micros = micros(unit.raws)
            starts.update(dict.fromkeys(range(unit.start, unit.stop), len(begins)))
            begins += [unit.start, *[-1] * (len(unit.micros) - 1)][: len(unit.micros)]
        count = len(begins)
        handlers = self.handlers(concrete, starts, count)
        return Decoded(
            instrs=self.instrs(units, starts, handlers),
            handlers=handlers,
            name=self.code.co_name,
            args=argument_names(self.code),
            cells=self.cells,
            flags=self.code.co_flags,
            units=tuple(begins),
        )

    def units(self, concrete: ConcreteBytecode) -> list[_Unit]:
        units: list[_Unit] = []
        offset = 0
        in_prologue = True
        for instr in concrete:
            assert isinstance(instr, ConcreteInstr)
            stop = offset + instr.size // 2
            if instr.name == "CACHE":
                units[-1].stop = stop
            else:
                raw = self.symbolic(instr, in_prologue)
                in_prologue = in_prologue and raw.op != "RESUME"
                target = instr.get_jump_target(offset)
                units.append(_Unit(offset, stop, (raw,), target, self.where(instr)))
            offset = stop
        return units

    def fold(self, units: list[_Unit]) -> list[_Unit]:
        """Join keyword names (and 3.11's PRECALL) to their call."""
        folded: list[_Unit] = []
        for unit in units:
            while folded and folded[-1].raws[-1].op in CALL_PREFIXES:
                before = folded.pop()
                unit.start, unit.raws = before.start, before.raws + unit.raws
            if unit.raws[-1].op == "CALL_KW" and folded and folded[-1].raws[-1].op == "LOAD_CONST":
                before = folded.pop()
                unit.start, unit.raws = before.start, before.raws + unit.raws
            folded.append(unit)
        return folded

    def symbolic(self, instr: ConcreteInstr, in_prologue: bool) -> Raw:
        """The instruction with a name or constant in place of its integer, where it is one."""
        op, arg = instr.name, instr.arg
        if isinstance(arg, type(UNSET)):
            return Raw(op)
        if op in PAIRS:
            return Raw(op, (self.slots[arg >> 4], self.slots[arg & 15]))
        if op in CONST_OPS:
            return Raw(op, self.code.co_consts[arg])
        if op in SLOT_OPS:
            name = self.slots[arg]
            if op == "MAKE_CELL" and in_prologue:
                # Both belong to the prologue, which the encoder makes anew.
                return Raw("COPY_FREE_VARS")
            if op == "LOAD_FAST" and name in self.cells:
                op = "LOAD_CLOSURE"  # 3.13 loads a cell as a local
            return Raw(op, name)
        if op in NAME_OPS:
            shift = NAME_SHIFT.get(op, 0)
            return Raw(op, self.code.co_names[arg >> shift], arg & ((1 << shift) - 1))
        return Raw(op, int(arg))

    def where(self, instr: ConcreteInstr) -> Location:
        at, code = instr.location, self.code
        if at is None:
            return Location(code.co_filename, None, function=code.co_qualname)
        columns = at.col_offset, at.end_col_offset
        return Location(code.co_filename, at.lineno, at.end_lineno, *columns, code.co_qualname)

    def handlers(
        self, concrete: ConcreteBytecode, starts: dict[int, int], count: int
    ) -> tuple[Handler, ...]:
        return tuple(
            Handler(
                start=starts[entry.start_offset],
                stop=starts.get(entry.stop_offset + 1, count),
                target=starts[entry.target],
                depth=entry.stack_depth,
                lasti=bool(entry.push_lasti),
            )
            for entry in concrete.exception_table
        )

    def instrs(
        self, units: list[_Unit], starts: dict[int, int], handlers: tuple[Handler, ...]
    ) -> tuple[Instr, ...]:
        cover: dict[int, Handler] = {}
        for handler in handlers:
            for index in range(handler.start, handler.stop):
                cover.setdefault(index, handler)
        instrs: list[Instr] = []
        for unit in units:
            target = None
            if unit.target is not None:
                skipped = len(LOOP_EXIT) if unit.raws[-1].op == "FOR_ITER" else 0
                target = starts[unit.target] + skipped
            for position, (op, arg, raws) in enumerate(unit.micros):
                by = cover.get(len(instrs), NO_HANDLER)
                covered = by is not NO_HANDLER
                instrs.append(
                    Instr(
                        len(instrs),
                        op,
                        arg,
                        target,
                        unit.where,
                        by.target if covered else None,
                        by.depth,
                        by.lasti,
                        position == 0,
                        raws,
                    )
                )
        return tuple(instrs)


Made = TypeVar("Made")


class PerCode(Generic[Made]):
    """A cache of `make(code)` per code object, for as long as the object lives.

    The key is the id, checked by a weak reference: code objects compare by value, and equal ones
    may differ in file name.
    """

    def __init__(self, make: Callable[[types.CodeType], Made]) -> None:
        self._make = make
        self._made: dict[int, tuple[weakref.ref, Made]] = {}

    def __call__(self, code: types.CodeType) -> Made:
        found = self._made.get(id(code))
        if found is not None and found[0]() is code:
            return found[1]
        return self.put(code, self._make(code))

    def put(self, code: types.CodeType, made: Made) -> Made:
        """Store a known result without calling `make`."""
        key, kept = id(code), self._made
        kept[key] = (weakref.ref(code, until_exit(lambda _: kept.pop(key, None))), made)
        return made


def _decoded(code: types.CodeType) -> Decoded:
    try:
        return _Decoder(code).run()
    except (AssertionError, IndexError, KeyError, TypeError, ValueError) as error:
        raise Break("GB101", f"bytecode that no compiler writes, in {code.co_name}") from error


decode = PerCode(_decoded)
"""The normal form of a code object. Raises Break for bytes that are no instructions."""


def unit_of(code: types.CodeType, index: int) -> int | None:
    """The code unit at which control may enter instruction `index`, after the frame's prologue.

    None inside a real instruction, and in the beginning of a resume function (except at its entry).
    """
    decoded = decode(code)
    if decoded.base is not None and index == decoded.entry:
        return 1 + bool(code.co_freevars)
    while index < len(decoded.units) and not decoded.instrs[index].raw:
        index += 1
    if index >= len(decoded.units) or decoded.units[index] < 0:
        return None
    shift = 0 if decoded.base is None else len(code.co_code) - len(decoded.base.co_code)
    return shift // 2 + decoded.units[index]


def resumed(
    base: types.CodeType,
    code: types.CodeType,
    begins: Sequence[tuple[Raw, Location | None]],
    index: int,
) -> Decoded:
    """The normal form of a resume function.

    `code` runs the real instructions `begins`, none of them a jump, then continues at instruction
    `index` of `base`, whose bytes it carries.
    """
    known = decode(base)
    nowhere = Location(code.co_filename, code.co_firstlineno, function=code.co_qualname)
    instrs = list(known.instrs)
    jump: Micro = ("JUMP", None, (Raw("JUMP"),))
    rows = [(row, where) for raw, where in begins for row in micros((raw,))]
    for (op, arg, raws), where in [*rows, (jump, None)]:
        target = index if op == "JUMP" else None
        place = nowhere if where is None else where
        instrs.append(Instr(len(instrs), op, arg, target, place, None, 0, False, True, raws))
    return Decoded(
        tuple(instrs),
        known.handlers,
        code.co_name,
        argument_names(code),
        known.cells,
        code.co_flags,
        known.units,
        len(known.instrs),
        base,
    )
