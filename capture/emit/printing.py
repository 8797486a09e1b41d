"""Replacement code as Python text: what the emitter has written into an assembler, for people.

In: the `Assembler` of replacement code or of a resume function. Out: a `Printed`: a text that
`ast.parse` accepts, and the objects behind its invented names. The text has the forms that
`capture.emit` writes, and no others: loads, calls and stores in a line, one instruction of the
program at a break, and the ways out of it, each of which leaves the frame. So a branch is an `if`
that leaves, and an exception handler a `try`; the handlers of faults before and during the effects
are left out. Where control continues in the program's own instructions, the text says so.

`lower` prints with it (`graftjit.lowered`); nothing that runs depends on it.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from ...ir.dataclass import dataclass, field
from ...ir.graph.printing import place_text
from ...ir.location import Location
from .. import helpers
from ..bytecode.assembler import Assembler
from ..bytecode.decoder import CALL_PREFIXES, decode, micros, slot_names
from ..bytecode.encoder import Cover, Item, Label
from ..bytecode.opcodes import FINAL, Raw
from .statements import STEPS, Entry, Names, Statements, identifier, tuple_text

FAULTS, FAULT_LENGTH = (helpers.failed_before, helpers.failed_halfway), 8
"""Fault handlers that are left out call one of these within their first instructions."""


@dataclass(frozen=True, slots=True)
class Printed:
    """A text, and the objects that its names stand for."""

    text: str
    objects: dict[str, Any] = field(repr=False)


def printed(
    asm: Assembler,
    name: str,
    named: Callable[[Any], tuple[str, str] | None] = lambda value: None,
    line_of: Callable[[Location], str] = lambda where: "",
) -> Printed:
    """The text of an assembler's code, as a function `name`.

    `named` gives a name and a comment for a constant, `line_of` the text of a line of the program.
    """
    printer = _Printer(asm, named, line_of)
    arguments = ", ".join(printer.names.local(one) for one in asm.args)
    printer.path(0)
    head = f"def {identifier(name)}({arguments}):"
    return Printed("\n".join([head, *printer.text()]), printer.names.objects)


TESTS = {
    "true": "{0}",
    "false": "not {0.operand}",
    "none": "{0.operand} is None",
    "not_none": "{0.operand} is not None",
}
"""Kind of a jump -> the condition for which it is taken."""


def place_from(code: types.CodeType, index: int) -> Location:
    """The place in the program where control continues at an instruction."""
    instrs = decode(code).instrs
    found = (one.where for one in instrs[index:] if one.where.line is not None)
    return next(found, instrs[index].where)


class _Printer(Statements):
    """Writes one function, from the assembler's items."""

    def __init__(
        self,
        asm: Assembler,
        named: Callable[[Any], tuple[str, str] | None],
        line_of: Callable[[Location], str],
    ) -> None:
        super().__init__(Names(slot_names(asm.code), asm.code.co_names, named))
        self.asm, self.line_of = asm, line_of
        self.body = asm.body
        self.places = {one: at for at, one in enumerate(self.body) if isinstance(one, Label)}
        self.originals = {label: index for index, label in asm.originals.items()}
        self.shown: Location | None = None

    def path(self, at: int) -> None:
        """Write from an item on until control leaves the frame."""
        while True:
            item = self.body[at]
            if isinstance(item, Label):
                if item in self.originals:
                    return self.goto(item)
                at += 1
                continue
            self.within(self.handler(item.cover))
            self.show(item.where)
            if at in self.asm.wrapped:
                at = self.call_wrapped(*self.asm.wrapped[at])
                continue
            raws = self.raws(at)
            at += len(raws)
            for op, arg, _ in micros(raws):
                if op == "UNPACK_SEQUENCE" and self.unpacked(at, arg):
                    at += arg
                elif item.target is not None and op != "JUMP":
                    self.branch(op, arg, item.target)
                elif op in STEPS:
                    STEPS[op](self, arg)
                elif op != "JUMP":
                    self.apply(op, arg)
                if op in FINAL:
                    self.within(None)
                    return None if item.target is None else self.goto(item.target)

    def raws(self, at: int) -> tuple[Raw, ...]:
        """The real instructions that are one normal instruction: a call with its prefixes."""
        first, *rest = (one.raw for one in self.body[at : at + 3] if isinstance(one, Item))
        if rest and first.op == "LOAD_CONST" and rest[0].op == "CALL_KW":
            return first, rest[0]
        found = [first]
        while found[-1].op in CALL_PREFIXES:
            found.append(rest[len(found) - 1])
        return tuple(found)

    def call_wrapped(self, stop: int, extent: Any, has_kwargs: bool) -> int:
        """Write f(*args, **kwargs) that runs as extent(f, *args, **kwargs) as that one call."""
        function, *rest = [one for one in self.take(3 + has_kwargs) if one.kind != "null"]
        called = self.names.const(extent)
        stars = zip(("*", "**"), rest, strict=False)
        arguments = ", ".join([str(function), *(star + entry.operand for star, entry in stars)])
        self.push(f"{called}({arguments})", [called, function, *rest])
        return stop

    def goto(self, label: Label) -> None:
        index = self.originals.get(label)
        if index is None:
            return self.path(self.places[label])
        self.within(None)
        code = decode(self.asm.code)
        if index == code.entry:
            self.write("return as_written()", "from its beginning, in plain Python")
            return None
        where = place_from(self.asm.code, index)
        self.heading, self.shown = "", None
        self.show(where)
        self.write(f"return as_written_from_line_{where.line}()", "from here on, in plain Python")
        return None

    def show(self, where: Location | None) -> None:
        """Write the program's line above its first statement."""
        waiting = any(entry.kind == "value" for entry in self.stack)
        if where is None or where.column is None or waiting:
            return
        if self.shown is None or (where.file, where.line) != (self.shown.file, self.shown.line):
            self.shown = where
            text = self.line_of(where)
            self.heading = f"# {place_text(where)}  {text}" if text else ""

    def unpacked(self, at: int, count: int) -> bool:
        """Write an unpacking whose parts are all stored next, with their names."""
        stored = [one.raw for one in self.body[at : at + count] if isinstance(one, Item)]
        names = [self.names.local(raw.arg) for raw in stored if raw.op == "STORE_FAST"]
        if not len(names) == len(set(names)) == count:
            return False
        for name in names:
            self.spill(name)
        given = self.take(1)
        self.statement(f"{tuple_text(names)} = {given[0]}", given)
        self.moved = [name for name in self.moved if name not in names]
        return True

    def branch(self, op: str, kind: str, target: Label) -> None:
        """Write the way of a taken jump as an `if`; the other way follows it."""
        self.spill()
        if op == "FOR_ITER":
            end = self.names.const(exhausted)
            self.push(f"next({self.stack[-1]}, {end})")
            self.within(None)
            self.spill()
            test = f"{self.stack[-1]} is {end}"
            jumps, falls = self.stack[:-2], self.stack
        else:
            test = TESTS[kind].format(self.stack[-1])
            if self.cover is not None:  # the test itself may raise
                self.push(f"bool({test})" if kind == "true" else test)
                self.within(None)
                test = self.stack.pop().text
            falls = self.stack[:-1]
            jumps = falls if op == "POP_JUMP_IF" else self.stack
        self.write(f"if {test}:")
        self.aside(jumps, lambda: self.goto(target))
        self.stack = list(falls)

    def aside(self, stack: list[Entry], write: Callable[[], None]) -> None:
        """Write an indented suite that leaves the frame, entered with this stack."""
        kept = self.stack, list(self.moved), self.shown, self.heading
        self.stack, self.heading = list(stack), ""
        self.depth += 1
        write()
        self.depth -= 1
        self.stack, self.moved, self.shown, self.heading = kept

    # -- handlers
    def handler(self, cover: Cover | None) -> Cover | None:
        """The handler, unless it is left out."""
        if cover is None or cover.target in self.originals:
            return cover
        at = self.places[cover.target]
        first = [one.raw for one in self.body[at : at + FAULT_LENGTH] if isinstance(one, Item)]
        left_out = any(raw.op == "LOAD_CONST" and _is_fault(raw.arg) for raw in first)
        return None if left_out else cover

    def within(self, cover: Cover | None) -> None:
        """Begin or end a `try` so that what follows has this handler."""
        if self.cover is not None and (cover is None or cover.target is not self.cover.target):
            self.spill()
            ended, self.cover = self.cover, None
            if self.lines[-1][1] == "try:":
                self.write("pass")
            self.depth -= 1
            error = self.names.fresh("error")
            self.write(f"except BaseException as {error}:")
            raised = [*[Entry("0")] * ended.lasti, Entry(error)]
            self.aside([*self.stack[: ended.depth], *raised], lambda: self.goto(ended.target))
        if self.cover is None and cover is not None:
            self.spill()
            self.write("try:")
            self.depth += 1
            self.cover = cover


def _is_fault(value: Any) -> bool:
    return any(value is one for one in FAULTS)


def exhausted() -> None:
    """In place of what the text reads from an iterator at its end."""
