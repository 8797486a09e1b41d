"""Frames of a walk: code, locals, cells and stack of Values, and their globals."""

from __future__ import annotations

import types
from typing import Any

from ...ir.dataclass import dataclass, field
from ...runtime.guards.sources import Source
from ..bytecode.decoder import Decoded, decode
from .value import Cell, Unread, Value


@dataclass(eq=False, slots=True)
class Scope:
    """A globals dict. `source` is None for the root frame's; `builtins` are those of the frame."""

    names: dict[str, Any]
    builtins: dict[str, Any]
    source: Source | None = None


@dataclass(eq=False, slots=True)
class Loop:
    """A loop of the walk: its iterable, its steps, and the counts before it."""

    over: Value
    operators: int
    instructions: int
    steps: int = 0


@dataclass(eq=False, slots=True)
class Frame:
    """A frame of the walk: the root, or an inlined callee. `pc` is the next instruction's index."""

    code: types.CodeType
    decoded: Decoded
    scope: Scope
    locals: dict[str, Value]
    cells: dict[str, Cell]
    stack: list[Value] = field(default_factory=list)
    pc: int = 0
    result: Value | None = None
    yielded: Value | None = None
    # exceptions that a suspended generator is handling
    handling: list[Value] = field(default_factory=list)
    # Names whose cell a comprehension has put on the stack: it has a variable or cell of that name.
    swapped: list[str] = field(default_factory=list)
    # Those of them in whose slot there is no cell now.
    without_cell: set[str] = field(default_factory=set)
    loops: dict[int, Loop] = field(default_factory=dict)  # by the index of its head
    # How many instructions the walk had counted before the current one.
    begun: int = 0
    # Whether the caller's call instruction pushes this frame's result, and does nothing else.
    passes: bool = False

    def push(self, value: Value) -> None:
        self.stack.append(value)

    def pop(self) -> Value:
        value = self.stack.pop()
        return value.read() if type(value) is Unread else value

    def peek(self, depth: int) -> Value:
        value = self.stack[-depth]
        if type(value) is Unread:
            value = self.stack[-depth] = value.read()
        return value

    def leave(self, count: int) -> list[Value]:
        """Pop items that are returned unchanged: an unread argument needs no guard."""
        taken = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return taken

    def popn(self, count: int) -> list[Value]:
        if not count:
            return []
        taken = self.stack[-count:]
        del self.stack[-count:]
        return [value.read() if type(value) is Unread else value for value in taken]


def make_frame(
    code: types.CodeType, scope: Scope, arguments: dict[str, Value], closure: tuple[Cell, ...]
) -> Frame:
    """A frame at its start: arguments bound, cells made, arguments that are cells in them."""
    cells = dict(zip(code.co_freevars, closure, strict=True))
    local = dict(arguments)
    for name in code.co_cellvars:
        cells[name] = Cell(local.pop(name, None))
    decoded = decode(code)
    return Frame(code, decoded, scope, local, cells, pc=decoded.entry)


def has_two_of_a_name(code: types.CodeType) -> bool:
    """Whether a comprehension of this function has a variable named as one of the closure (3.12 and
    later).
    """
    return not set(code.co_cellvars).isdisjoint(code.co_freevars)
