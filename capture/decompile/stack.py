"""Instructions to Python, in a straight line: a stack of expressions in place of one of values.

A `Walk` takes normal instructions (`bytecodes.decode`) one by one. Loads and operators become expressions on its stack;
stores, deletions and results that are thrown away become statements. Expressions are written in the order in which they
are evaluated: before a statement is written, what is still on the stack and was computed before goes into a name of its
own (`t0`), and so does what would be evaluated in another order. `decompile_ops` has the instructions,
`capture.decompile.writer` the jumps.
"""

from __future__ import annotations

import keyword
import math
import re
import types
from collections.abc import Callable, Iterable
from typing import Any

from ...ir.dataclass import dataclass, field

ATOM, LOOSE = 1, 0
"""How tightly an expression holds together: names, calls, displays; anything that needs parentheses as an operand."""


@dataclass(slots=True, eq=False)
class Entry:
    """One item of the stack.

    kind   "value": to be evaluated where it is used; "name": a local's value (`of`); "const": may be written at any time;
           "null"; "self": the second slot of a method that was looked up; "loop": the iterator of a `for` around here
    seq    when a value was computed
    items  of a display ([a, *b]) what is in it, between `brackets`
    note   a comment for the statement that it comes to stand in
    """

    text: str
    kind: str = "value"
    level: int = ATOM
    seq: int = 0
    of: str = ""
    items: list[str] | None = None
    brackets: str = ""
    note: str = ""
    inner: str = ""  # of iter(x): x
    unsure: bool = False  # a local that a comprehension hides: it may be unbound


NULL = Entry("", "null")
SELF = Entry("", "self")


@dataclass(slots=True, eq=False)
class Names:
    """Identifiers: of locals, of temporaries, and of constants that no literal can stand for (`objects`: by name)."""

    taken: set[str]
    named: Callable[[Any], tuple[str, str] | None]
    locals: dict[str, str] = field(default_factory=dict)
    objects: dict[str, Any] = field(default_factory=dict)
    count: int = 0

    def local(self, name: str) -> str:
        """A local's name; the hidden ones of ours and the compiler's (".out0", ".0") get one that can be written."""
        found = self.locals.get(name)
        if found is None:
            bare = re.sub(r"\W", "_", name.lstrip("."))
            bare = f"item{bare}" if bare[:1].isdigit() else bare
            found = name if name.isidentifier() else self.fresh(bare)
            self.locals[name] = found
        return found

    def fresh(self, wish: str) -> str:
        wish = f"{wish}_" if keyword.iskeyword(wish) else wish
        name, number = wish, 1
        while name in self.taken:
            name, number = f"{wish}_{number}", number + 1
        self.taken.add(name)
        return name

    def temp(self) -> str:
        while (name := f"t{self.count}") in self.taken:
            self.count += 1
        self.taken.add(name)
        return name

    def const(self, value: Any) -> Entry:
        """A constant: as a literal, or by a name."""
        text = literal(value)
        if text is not None:
            return Entry(text, "const", LOOSE if text[0] == "-" else ATOM)
        for name, known in self.objects.items():
            if known is value:
                return Entry(name, "const", note=self._note(value))
        told = self.named(value)
        wish = told[0] if told else _called(value)
        name = self.fresh(wish)
        self.objects[name] = value
        return Entry(name, "const", note=self._note(value))

    def _note(self, value: Any) -> str:
        told = self.named(value)
        return told[1] if told else ""


def literal(value: Any) -> str | None:
    """The value as Python writes it, where that gives an equal object of the same type; None where it does not."""
    if value is None or value is Ellipsis or type(value) in (bool, int, str, bytes):
        return "..." if value is Ellipsis else repr(value)
    if type(value) is float:
        return repr(value) if math.isfinite(value) else None
    if type(value) is tuple:
        items = [literal(item) for item in value]
        if None in items:
            return None
        return "(" + ", ".join(map(str, items)) + ("," if len(items) == 1 else "") + ")"
    return None


def _called(value: Any) -> str:
    """A name for an object that shows what it is."""
    name = getattr(value, "__name__", None) if _tells_its_name(value) else None
    if isinstance(value, types.CodeType):
        name = f"code_of_{value.co_name}"
    if not isinstance(name, str) or not name:
        name = f"a_{type(value).__name__}"
    bare = re.sub(r"\W", "_", name).strip("_") or "value"
    return f"_{bare}" if bare[0].isdigit() else bare


def _tells_its_name(value: Any) -> bool:
    """No code of the user's is run to ask."""
    kinds = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, types.MethodType)
    return isinstance(value, kinds) or type(value) in (type, types.MethodDescriptorType)


class Walk:
    """The stack, and the statements written so far: (text, comment) pairs, indented by whoever asks for them."""

    def __init__(
        self, names: Names, write: Callable[[str, str], None], doubt: Callable[[str], None]
    ) -> None:
        self.names = names
        self.write = write
        self.doubt = doubt  # is told what the text does not say exactly
        self.stack: list[Entry] = []
        self.time = 0
        self.moved: list[str] = []  # locals that were unbound when they were read

    # -- the stack
    def push(self, entry: Entry) -> None:
        self.stack.append(entry)

    def value(self, text: str, level: int = ATOM, notes: Iterable[Entry] = (), **more: Any) -> None:
        """Push an expression that is evaluated now."""
        self.time += 1
        note = "; ".join(dict.fromkeys(one.note for one in notes if one.note))
        self.push(Entry(text, "value", level, self.time, note=note, **more))

    def take(self, count: int) -> list[Entry]:
        """Pop entries, bottom first, that may be written in this order."""
        if count == 0:
            return []
        if len(self.stack) < count:
            raise Unbalanced(f"{count} items wanted of {len(self.stack)}")
        if not _in_order(self.stack):
            self.spill()
        found = self.stack[-count:]
        del self.stack[-count:]
        return found

    def pop(self) -> Entry:
        return self.take(1)[0]

    def item(self, depth: int) -> Entry:
        """The entry so many places from the top (1: the top)."""
        if len(self.stack) < depth:
            raise Unbalanced(f"item {depth} of {len(self.stack)}")
        return self.stack[-depth]

    def stay(self, depth: int) -> Entry:
        """The same entry, fit to be written more than once."""
        entry = self.item(depth)
        if entry.kind == "value":
            self.spill()
        return self.item(depth)

    def spill(self, name: str | None = None) -> None:
        """What is on the stack goes into names: all values, and the value of the local `name`."""
        waiting = [
            (at, entry)
            for at, entry in enumerate(self.stack)
            if entry.kind == "value" or (name is not None and entry.of == name)
        ]
        waiting.sort(key=lambda pair: pair[1].seq)
        for at, entry in waiting:
            temp = self.names.temp()
            if entry.unsure:
                self.doubt("a hidden local may be unbound")
            self.write(f"{temp} = {entry.text}", entry.note)
            self.stack[at] = Entry(temp, "const")

    # -- statements
    def statement(self, text: str, used: Iterable[Entry] = (), sets: str = "") -> None:
        """Write a statement that has used these entries, and sets a local if it says so."""
        self.spill(sets or None)
        note = "; ".join(dict.fromkeys(one.note for one in used if one.note))
        self.write(text, note)
        if self.moved:
            on_stack = {entry.of for entry in self.stack}
            gone = [name for name in self.moved if name not in on_stack]
            self.moved = [name for name in self.moved if name in on_stack]
            left = [name for name in dict.fromkeys(gone) if name != sets]
            if left and not text.startswith(("return", "raise")):
                self.write(f"del {', '.join(left)}", "")


class Unbalanced(Exception):
    """More is taken from the stack than is known to be there."""


def _in_order(stack: list[Entry]) -> bool:
    """Whether what lies further up was computed later."""
    last = 0
    for entry in stack:
        if entry.kind == "value":
            if entry.seq < last:
                return False
            last = entry.seq
    return True


def loose(entry: Entry) -> str:
    """As an operand: in parentheses if it needs them."""
    return entry.text if entry.level == ATOM else f"({entry.text})"


def owner(entry: Entry) -> str:
    """As what stands before a dot."""
    return f"({entry.text})" if entry.level != ATOM or entry.text[:1].isdigit() else entry.text
