"""Straight-line instructions to Python: a symbolic stack of expressions.

A `Walk` takes normal instructions (`decoder.decode`) one by one. Loads and operators become
expressions on its stack; stores, deletions and dropped results become statements. Expressions are
written in order of evaluation: before a statement is written, earlier values still on the stack go
into names of their own (`t0`), and so do values that would be evaluated in another order.
`operators` has the instructions, `capture.decompile.writer` the jumps.
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
"""Binding of an expression: names, calls, displays; or one that needs parentheses as an operand."""


@dataclass(slots=True, eq=False)
class Entry:
    """One item of the stack.

    kind   "value": evaluated where it is used; "name": a local's value (`of`); "const": may be
           written at any time; "null"; "self": the second slot of a method load; "loop": the
           iterator of an enclosing `for`
    seq    the time at which a value was computed
    items  the parts of a display ([a, *b]), between `brackets`
    note   a comment for the statement that uses it
    """

    text: str
    kind: str = "value"
    level: int = ATOM
    seq: int = 0
    of: str = ""
    items: list[str] | None = None
    brackets: str = ""
    note: str = ""
    inner: str = ""  # iter(x): x
    unsure: bool = False  # a local hidden by a comprehension, which may be unbound


NULL = Entry("", "null")
SELF = Entry("", "self")


@dataclass(slots=True, eq=False)
class Names:
    """Identifiers of locals, temporaries, and constants without a literal (`objects`: by name)."""

    taken: set[str]
    named: Callable[[Any], tuple[str, str] | None]
    locals: dict[str, str] = field(default_factory=dict)
    objects: dict[str, Any] = field(default_factory=dict)
    count: int = 0

    def local(self, name: str) -> str:
        """A local's name; hidden ones (".out0", ".0") get a valid identifier."""
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
        """A constant, as a literal or by a name."""
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
    """The value as Python source of an equal object of its type; None if it has none."""
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
    """A descriptive name for an object."""
    name = getattr(value, "__name__", None) if _tells_its_name(value) else None
    if isinstance(value, types.CodeType):
        name = f"code_of_{value.co_name}"
    if not isinstance(name, str) or not name:
        name = f"a_{type(value).__name__}"
    bare = re.sub(r"\W", "_", name).strip("_") or "value"
    return f"_{bare}" if bare[0].isdigit() else bare


def _tells_its_name(value: Any) -> bool:
    """Whether `__name__` can be read without running code of the user's."""
    kinds = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, types.MethodType)
    return isinstance(value, kinds) or type(value) in (type, types.MethodDescriptorType)


class Walk:
    """The symbolic stack; statements go to `write(text, comment)`."""

    def __init__(
        self, names: Names, write: Callable[[str, str], None], doubt: Callable[[str], None]
    ) -> None:
        self.names = names
        self.write = write
        self.doubt = doubt  # gets each inexactness of the text
        self.stack: list[Entry] = []
        self.time = 0
        self.moved: list[str] = []  # locals unbound as they were read

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
        """The entry at a depth from the top (1: the top)."""
        if len(self.stack) < depth:
            raise Unbalanced(f"item {depth} of {len(self.stack)}")
        return self.stack[-depth]

    def stay(self, depth: int) -> Entry:
        """The entry at a depth, in a form that may be written several times."""
        entry = self.item(depth)
        if entry.kind == "value":
            self.spill()
        return self.item(depth)

    def spill(self, name: str | None = None) -> None:
        """Move the stack's values into names, and the value of the local `name` as well."""
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
        """Write a statement that used these entries, and possibly sets a local."""
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
    """An instruction takes more items from the stack than are known to be there."""


def _in_order(stack: list[Entry]) -> bool:
    """Whether each value was computed after those below it."""
    last = 0
    for entry in stack:
        if entry.kind == "value":
            if entry.seq < last:
                return False
            last = entry.seq
    return True


def loose(entry: Entry) -> str:
    """The text as an operand, in parentheses if it needs them."""
    return entry.text if entry.level == ATOM else f"({entry.text})"


def owner(entry: Entry) -> str:
    """The text before a dot."""
    return f"({entry.text})" if entry.level != ATOM or entry.text[:1].isdigit() else entry.text
