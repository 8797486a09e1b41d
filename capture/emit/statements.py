"""Instructions without a jump as Python text: a symbolic stack of expressions, and statements.

In: normal instructions, one after the other. Out: lines. Loads and operators become expressions on
the stack; stores, deletions and dropped results become statements. Expressions are written in order
of evaluation: before a statement, earlier values that are still on the stack go into names of their
own (`t0`). The table `STEPS` has what moves or merges items of the stack, `FORMS` the other
instructions; one in neither table is written as a call of its name (`before_with(cm)`).
`capture.emit.printing` writes the jumps.
"""

from __future__ import annotations

import keyword
import math
import re
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...ir.dataclass import dataclass
from ..bytecode.encoder import Cover
from ..bytecode.opcodes import EFFECTS

NOTE_COLUMN = 56


def identifier(name: str) -> str:
    """The name as a valid identifier; that of a lambda is `_lambda_`."""
    bare = re.sub(r"\W", "_", name) or "value"
    bare = f"_{bare}" if bare[0].isdigit() else bare
    return f"{bare}_" if keyword.iskeyword(bare) else bare


# -- names and entries -----------------------------------------------------------------------------
@dataclass(slots=True, eq=False)
class Entry:
    """One item of the stack.

    kind   "value": evaluated where it is used; "name": what the local `of` holds; "const": may be
           written at any time; "null"
    atom   whether it needs no parentheses as an operand
    note   a comment for the statement that uses it
    """

    text: str
    kind: str = "const"
    atom: bool = True
    note: str = ""
    of: str = ""

    def __str__(self) -> str:
        return self.text

    @property
    def operand(self) -> str:
        return self.text if self.atom else f"({self.text})"


class Names:
    """Identifiers of locals, temporaries, and constants without a literal (`objects`: by name)."""

    def __init__(
        self,
        slots: tuple[str, ...],
        others: tuple[str, ...],
        named: Callable[[Any], tuple[str, str] | None],
    ) -> None:
        self.slots = slots
        self.taken = {*slots, *others}
        self.named = named
        self.locals: dict[str, str] = {}
        self.objects: dict[str, Any] = {}

    def local(self, name: str) -> str:
        """A local's name; hidden ones (".out0", ".0") get a valid identifier."""
        if name not in self.locals:
            bare = name.lstrip(".")
            wish = f"item{bare}" if bare[:1].isdigit() else bare
            self.locals[name] = name if name.isidentifier() else self.fresh(wish)
        return self.locals[name]

    def fresh(self, wish: str) -> str:
        wish = identifier(wish)
        name, number = wish, 1
        while name in self.taken:
            name, number = f"{wish}_{number}", number + 1
        self.taken.add(name)
        return name

    def temp(self) -> str:
        number = 0
        while (name := f"t{number}") in self.taken:
            number += 1
        return self.fresh(name)

    def const(self, value: Any) -> Entry:
        """A constant, as a literal or by a name."""
        if _has_literal(value):
            text = repr(value)
            return Entry(text, atom=text[0] not in "-0123456789")
        wish, note = self.named(value) or (_name_of(value), "")
        for name, known in self.objects.items():
            if known is value:
                return Entry(name, note=note)
        name = self.fresh(wish)
        self.objects[name] = value
        return Entry(name, note=note)


def _has_literal(value: Any) -> bool:
    """Whether `repr` is the source of an equal object of the same type."""
    if type(value) is tuple:
        return all(_has_literal(item) for item in value)
    if type(value) is float:
        return math.isfinite(value)
    return type(value) in (bool, int, str, bytes, type(None), type(...))


NAMED = (
    *(types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType),
    *(types.MethodType, types.ModuleType, type),
)


def _name_of(value: Any) -> str:
    """A descriptive name for an object, found without running code of the user's."""
    if isinstance(value, types.CodeType):
        return f"code_of_{value.co_name}"
    if type(value) in NAMED:
        name = getattr(value, "__name__", None)
        if isinstance(name, str) and name.strip("_<>"):
            return name.strip("_<>")
    return f"a_{type(value).__name__}"


# -- expressions and statements --------------------------------------------------------------------
class Statements:
    """The symbolic stack, and the lines that are written: (depth, text, comment)."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.stack: list[Entry] = []
        self.moved: list[str] = []  # locals unbound as they were read
        self.lines: list[tuple[int, str, str]] = []
        self.depth = 1
        self.heading = ""  # the program's line, for the next statement
        self.cover: Cover | None = None  # the handler of the `try` that is being written

    def text(self) -> Iterator[str]:
        for depth, text, note in self.lines:
            line = f"{'    ' * depth}{text}"
            yield f"{line:<{NOTE_COLUMN}}  # {note}" if note else line

    def write(self, text: str, note: str = "") -> None:
        if self.heading:
            self.lines.append((self.depth, self.heading, ""))
            self.heading = ""
        depth, last, _ = self.lines[-1] if self.lines else (0, "", "")
        together = depth == self.depth and last.startswith("del ") and text.startswith("del ")
        if together and len(last) + len(text) < NOTE_COLUMN:
            self.lines[-1] = (depth, f"{last}, {text[4:]}", "")
        else:
            self.lines.append((self.depth, text, note))

    def push(self, text: str, given: Iterable[Entry] = (), atom: bool = True) -> None:
        """Push an expression that is evaluated now."""
        self.stack.append(Entry(text, "value", atom, _notes(given)))

    def take(self, count: int) -> list[Entry]:
        """Pop entries, bottom first; a value that stays elsewhere gets a name before."""
        at = len(self.stack) - count
        found = {id(entry) for entry in self.stack[at:] if entry.kind == "value"}
        if len([entry for entry in self.stack if id(entry) in found]) > len(found):
            self.spill()
        taken = self.stack[at:]
        del self.stack[at:]
        return taken

    def spill(self, name: str = "") -> None:
        """Put the stack's values into names, and the value of the local `name` as well."""
        placed: dict[int, Entry] = {}
        for at, entry in enumerate(self.stack):
            if entry.kind == "value" or (name and entry.of == name):
                if id(entry) not in placed:
                    temp = self.names.temp()
                    self.write(f"{temp} = {entry}", entry.note)
                    placed[id(entry)] = Entry(temp)
                self.stack[at] = placed[id(entry)]

    def statement(self, text: str, given: Iterable[Entry] = (), sets: str = "") -> None:
        """Write a statement that used these entries, and possibly sets or deletes a local."""
        self.spill(sets)
        self.write(text, _notes(given))
        on_stack = {entry.of for entry in self.stack}
        gone = [name for name in self.moved if name not in on_stack and name != sets]
        self.moved = [name for name in self.moved if name in on_stack]
        if gone and not text.startswith(("return", "raise")):
            self.write(f"del {', '.join(dict.fromkeys(gone))}")

    def assign(self, name: str) -> None:
        """Store the top item; its copies on the stack continue under the new name."""
        entry = self.stack.pop()
        if entry.kind == "null":
            self.statement(f"del {name}", sets=name)
            return
        copies = [at for at, one in enumerate(self.stack) if one is entry and one.kind == "value"]
        for at in copies:
            self.stack[at] = Entry(name)
        if entry.text != name:
            self.statement(f"{name} = {entry}", [entry], sets=name)
        self.moved = [one for one in self.moved if one != name]
        for at in copies:
            self.stack[at] = Entry(name, "name", of=name)

    def apply(self, op: str, arg: Any) -> None:
        """An instruction that pops operands and pushes results."""
        effect = EFFECTS[op]
        popped, pushed = effect(arg) if callable(effect) else effect
        given = self.take(popped)
        if op in ON_TOP and self.stack[-1].kind == "value":
            self.spill()
        form = FORMS.get(op, _as_call(op))
        operands = [*self.stack[-1:], *given] if op in ON_TOP else given
        text = form(operands, arg) if callable(form) else form.format(*operands, arg=arg)
        if pushed == 1:
            self.push(text, given, op not in OPERATORS)
            return
        temps = [self.names.temp() for _ in range(pushed)]
        self.statement(f"{', '.join(temps)} = {text}" if temps else text, given)
        self.stack += map(Entry, temps)


def _notes(given: Iterable[Entry]) -> str:
    return "; ".join(dict.fromkeys(entry.note for entry in given if entry.note))


# -- instructions that only move items of the stack, or need more than a form ----------------------
def _global(out: Statements, name: str) -> None:
    out.push(f"globals()[{name!r}]" if name in out.names.slots or not name.isidentifier() else name)


def _load_fast(out: Statements, name: str) -> None:
    """A name; in a `try` a value, since the local may be unbound."""
    name = out.names.local(name)
    out.stack.append(Entry(name, "name" if out.cover is None else "value", of=name))


def _load_clear(out: Statements, name: str) -> None:
    _load_fast(out, name)
    out.moved.append(out.names.local(name))


def _delete_fast(out: Statements, name: str) -> None:
    name = out.names.local(name)
    if out.stack and out.stack[-1].of == name:
        out.moved.append(name)  # the value moves on: this frame drops it
    else:
        out.statement(f"del {name}", sets=name)


def _copy(out: Statements, depth: int) -> None:
    out.stack.append(out.stack[-depth])


def _swap(out: Statements, depth: int) -> None:
    if sum(entry.kind == "value" for entry in out.stack[-depth:]) > 1:
        out.spill()
    out.stack[-1], out.stack[-depth] = out.stack[-depth], out.stack[-1]


def _pop_top(out: Statements, _: None) -> None:
    entry = out.stack.pop()
    if entry.kind == "value" and not any(one is entry for one in out.stack):
        out.statement(entry.text, [entry])


def _push_exc(out: Statements, _: None) -> None:
    out.stack.insert(-1, Entry("handled_before"))


def _call(out: Statements, arg: tuple[int, tuple[str, ...]]) -> None:
    count, names = arg
    given = out.take(count + 2)
    texts = list(map(str, given[2:]))
    for at, name in enumerate(reversed(names), 1):
        texts[-at] = f"{name}={texts[-at]}"
    _push_call(out, given, texts)


def _push_call(out: Statements, given: list[Entry], arguments: list[str]) -> None:
    """f(...): f and NULL in any order, or method and self."""
    function, *bound = [entry for entry in given[:2] if entry.kind != "null"]
    out.push(f"{function.operand}({_list([*bound, *arguments])})", given)


def _call_ex(out: Statements, has_kwargs: bool) -> None:
    given = out.take(3 + has_kwargs)
    starred = zip(("*", "**"), given[2:], strict=False)
    _push_call(out, given, [star + entry.operand for star, entry in starred])


def _binary(out: Statements, symbol: str) -> None:
    if not symbol.endswith("="):
        out.apply("BINARY", symbol)
        return
    out.spill()
    left, right = out.take(2)
    temp = out.names.temp()
    out.statement(f"{temp} = {left}", [left])
    out.statement(f"{temp} {symbol} {right}", [right])
    out.stack.append(Entry(temp))


def _adds(form: str, count: int = 1) -> Callable[[Statements, int], None]:
    """Add to a container further down the stack."""

    def step(out: Statements, depth: int) -> None:
        if out.stack[-depth - count].kind == "value":
            out.spill()
        given = out.take(count)
        out.statement(form.format(out.stack[-depth], *given), given)

    return step


def _unpack(out: Statements, stars: list[str]) -> None:
    given = out.take(1)
    temps = [out.names.temp() for _ in stars]
    out.statement(f"{tuple_text(map(str.__add__, stars, temps))} = {given[0]}", given)
    out.stack += [Entry(temp) for temp in reversed(temps)]


STEPS: dict[str, Callable[[Statements, Any], object]] = {
    "NOP": lambda out, _: None,
    "PUSH_NULL": lambda out, _: out.stack.append(Entry("", "null")),
    "LOAD_CONST": lambda out, value: out.stack.append(out.names.const(value)),
    "LOAD_GLOBAL": _global,
    "LOAD_FAST": _load_fast,
    "LOAD_FAST_CLEAR": _load_clear,
    "STORE_FAST": lambda out, name: out.assign(out.names.local(name)),
    "DELETE_FAST": _delete_fast,
    "COPY": _copy,
    "SWAP": _swap,
    "POP_TOP": _pop_top,
    "PUSH_EXC_INFO": _push_exc,
    "POP_EXCEPT": lambda out, _: out.stack.pop(),
    "CALL": _call,
    "CALL_FUNCTION_EX": _call_ex,
    "BINARY": _binary,
    "UNPACK_SEQUENCE": lambda out, count: _unpack(out, [""] * count),
    "UNPACK_EX": lambda out, arg: _unpack(out, [*[""] * arg[0], "*", *[""] * arg[1]]),
    "LIST_APPEND": _adds("{0.operand}.append({1})"),
    "LIST_EXTEND": _adds("{0.operand}.extend({1})"),
    "SET_ADD": _adds("{0.operand}.add({1})"),
    "SET_UPDATE": _adds("{0.operand}.update({1})"),
    "DICT_UPDATE": _adds("{0.operand}.update({1})"),
    "DICT_MERGE": _adds("{0.operand}.update({1})"),
    "MAP_ADD": _adds("{0.operand}[{1}] = {2}", 2),
}

# -- the others: the text of operands (and of the instruction's argument) --------------------------
Form = str | Callable[[list[Entry], Any], str]


def tuple_text(texts: Iterable[Any]) -> str:
    items = list(map(str, texts))
    return f"({', '.join(items)}{',' * (len(items) == 1)})"


def _list(given: Iterable[Any]) -> str:
    return ", ".join(map(str, given))


def _map(given: list[Entry], _: int) -> str:
    pairs = zip(given[::2], given[1::2], strict=True)
    return f"{{{_list(f'{key}: {value}' for key, value in pairs)}}}"


def _formatted(given: list[Entry], arg: tuple[str | None, bool]) -> str:
    """As a call of str.format: the program may define its own `format`."""
    conversion, has_spec = arg
    field = (f"!{conversion}" if conversion else "") + (":{}" if has_spec else "")
    return f"'{{{field}}}'.format({_list(given)})"


def _as_call(op: str) -> Form:
    """An instruction without syntax, as a call of its name."""
    return lambda given, arg: (
        f"{op.lower()}({_list([*given, *([] if arg is None else [repr(arg)])])})"
    )


OPERATORS = frozenset({"UNARY", "BINARY", "COMPARE", "IS", "CONTAINS"})
ON_TOP = frozenset(
    {"GET_LEN", "MATCH_MAPPING", "MATCH_SEQUENCE", "MATCH_KEYS", "IMPORT_FROM", "CHECK_EXC_MATCH"}
)
"""Instructions that read the item below their operands, which stays: the first operand of a form.
"""

FORMS: dict[str, Form] = {
    "LOAD_DEREF": "{arg}",
    "STORE_DEREF": "{arg} = {0}",
    "DELETE_DEREF": "del {arg}",
    "LOAD_CLOSURE": "cell_of({arg})",
    "STORE_GLOBAL": "globals()[{arg!r}] = {0}",
    "DELETE_GLOBAL": "del globals()[{arg!r}]",
    "LOAD_ATTR": "{0.operand}.{arg}",
    "STORE_ATTR": "{1.operand}.{arg} = {0}",
    "DELETE_ATTR": "del {0.operand}.{arg}",
    "LOAD_SUPER_ATTR": "{0.operand}({1}, {2}).{arg[0]}",
    "BINARY_SUBSCR": "{0.operand}[{1}]",
    "STORE_SUBSCR": "{1.operand}[{2}] = {0}",
    "DELETE_SUBSCR": "del {0.operand}[{1}]",
    "BINARY_SLICE": "{0.operand}[{1}:{2}]",
    "STORE_SLICE": "{1.operand}[{2}:{3}] = {0}",
    "UNARY": lambda given, arg: f"{arg}{' ' * (arg == 'not')}{given[0].operand}",
    "BINARY": "{0.operand} {arg} {1.operand}",
    "COMPARE": "{0.operand} {arg} {1.operand}",
    "IS": lambda given, no: f"{given[0].operand} is{' not' * no} {given[1].operand}",
    "CONTAINS": lambda given, no: f"{given[0].operand} {'not ' * no}in {given[1].operand}",
    "BUILD_TUPLE": lambda given, _: tuple_text(given),
    "BUILD_LIST": lambda given, _: f"[{_list(given)}]",
    "BUILD_SET": lambda given, _: f"{{{_list(given) or '*()'}}}",
    "BUILD_MAP": _map,
    "BUILD_SLICE": lambda given, _: f"slice({_list(given)})",
    "FORMAT_VALUE": _formatted,
    "CONVERT_VALUE": "'{{!{arg}}}'.format({0})",
    "LIST_TO_TUPLE": "(*{0.operand},)",
    "GET_ITER": "iter({0})",
    "GET_LEN": "len({0})",
    "IMPORT_NAME": "__import__({arg!r}, globals(), None, {1}, {0})",
    "IMPORT_FROM": "{0.operand}.{arg}",
    "CHECK_EXC_MATCH": "isinstance({0}, {1})",
    "TO_BOOL": "bool({0})",
    "RETURN_VALUE": "return {0}",
    "RAISE": lambda given, _: f"raise {' from '.join(map(str, given))}".strip(),
    "RERAISE": "raise {0}",
}
