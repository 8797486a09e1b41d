"""The Python text of each normal instruction that does not jump: the table `OPS`.

A row takes a `Walk`, the instruction and those that follow it in its block, and returns how many of
these it consumed. An instruction without Python syntax becomes a call of a descriptive function
(`begin_with(cm)`, `matches(error, kind)`); the walk then notes a doubt, because such text is for
reading, not for running.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..bytecode.decoder import Instr, stack_effect
from .displays import (
    Ahead,
    Row,
    build,
    build_map,
    build_slice,
    const_items,
    const_map,
    convert,
    extend,
    format_value,
    range_text,
    string,
    to_tuple,
    unpack,
    unpack_ex,
)
from .stack import LOOSE, NULL, SELF, Entry, Walk, literal, loose, owner


def step(walk: Walk, instr: Instr, ahead: Ahead) -> int:
    """Write one instruction; returns the number of consumed instructions after it."""
    row = OPS.get(instr.op)
    if row is None:
        _unknown(walk, instr)
        return 0
    return row(walk, instr, ahead) or 0


def _unknown(walk: Walk, instr: Instr) -> None:
    """Show an instruction without a row as a comment; its results get generic names."""
    popped, pushed = stack_effect(instr)
    shown = ", ".join(entry.text or entry.kind for entry in walk.stack)
    walk.spill()
    walk.write(f"# unknown instruction: {instr.op} {instr.arg!r}  [{shown}]", "")
    walk.doubt(f"unknown instruction {instr.op}")
    del walk.stack[len(walk.stack) - popped :]
    for _ in range(pushed):
        walk.push(Entry(walk.names.fresh("unknown"), "const"))


# -- loads and stores ------------------------------------------------------------------------------


def _load_fast(walk: Walk, instr: Instr, ahead: Ahead) -> int:
    name = walk.names.local(instr.arg)
    walk.push(Entry(name, "name", of=name))
    if ahead and (ahead[0].op, ahead[0].arg) == ("DELETE_FAST", instr.arg):
        walk.moved.append(name)  # the value moves on: this frame drops it
        return 1
    return 0


def _load_clear(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    name = walk.names.local(instr.arg)
    walk.push(Entry(name, "name", of=name, unsure=True))
    walk.moved.append(name)


def _store_fast(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    _assign(walk, walk.names.local(instr.arg))


def _assign(walk: Walk, name: str) -> None:
    entry = walk.pop()
    if entry.kind in ("null", "self"):
        walk.statement(f"del {name}", sets=name)
    elif entry.text != name:
        walk.statement(f"{name} = {entry.text}", [entry], sets=name)
    if name in walk.moved:
        walk.moved.remove(name)


def _delete_fast(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    name = walk.names.local(instr.arg)
    walk.statement(f"del {name}", sets=name)


def _copy(walk: Walk, instr: Instr, ahead: Ahead) -> int:
    """A value that is stored and stays on the stack continues under its new name."""
    if instr.arg == 1 and ahead and ahead[0].op == "STORE_FAST" and walk.item(1).kind == "value":
        name = walk.names.local(ahead[0].arg)
        _assign(walk, name)
        walk.push(Entry(name, "name", of=name))
        return 1
    walk.push(walk.stay(instr.arg))
    return 0


def _swap(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    walk.item(instr.arg)
    stack = walk.stack
    stack[-1], stack[-instr.arg] = stack[-instr.arg], stack[-1]


def _pop_top(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    entry = walk.pop()
    if entry.kind == "value":
        walk.statement(entry.text, [entry])


def _global(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    shadowed = instr.arg in walk.names.locals.values() or not instr.arg.isidentifier()
    walk.value(f"globals()[{instr.arg!r}]" if shadowed else instr.arg)


def _store_global(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    entry = walk.pop()
    walk.statement(f"globals()[{instr.arg!r}] = {entry.text}", [entry])


def _store_name(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    entry = walk.pop()
    walk.statement(f"{instr.arg} = {entry.text}", [entry])


def _deletes(form: str) -> Row:
    return lambda walk, instr, ahead: walk.statement(form.format(instr.arg))


def _named(form: str, doubt: str = "") -> Row:
    """A load by name."""

    def row(walk: Walk, instr: Instr, ahead: Ahead) -> None:
        if doubt:
            walk.doubt(doubt)
        walk.value(form.format(instr.arg))

    return row


def _load_attr(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    base = walk.pop()
    walk.value(f"{owner(base)}.{instr.arg}", notes=[base])


def _load_method(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    base = walk.pop()
    walk.value(f"{owner(base)}.{instr.arg[0]}", notes=[base])
    walk.push(SELF)


def _load_super(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    found, cls, this = walk.take(3)
    name, method, _two, _null_first = instr.arg
    walk.value(f"{loose(found)}({cls.text}, {this.text}).{name}")
    if method:
        walk.push(SELF)


def _store_attr(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    entry, base = _value_and(walk, 1)
    walk.statement(f"{owner(base[0])}.{instr.arg} = {entry.text}", [entry, *base])


def _delete_attr(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    base = walk.pop()
    walk.statement(f"del {owner(base)}.{instr.arg}", [base])


def _value_and(walk: Walk, count: int) -> tuple[Entry, list[Entry]]:
    """The stored value and its target's parts, in Python's order of evaluation."""
    entry, *rest = walk.take(1 + count)
    return entry, rest


def _store_subscr(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    entry, (base, key) = _value_and(walk, 2)
    walk.statement(f"{owner(base)}[{key.text}] = {entry.text}", [entry, base, key])


def _delete_subscr(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    base, key = walk.take(2)
    walk.statement(f"del {owner(base)}[{key.text}]", [base, key])


def _slice(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    base, *ends = walk.take(3)
    walk.value(f"{owner(base)}[{range_text(ends)}]", notes=[base, *ends])


def _store_slice(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    entry, (base, *ends) = _value_and(walk, 3)
    walk.statement(f"{owner(base)}[{range_text(ends)}] = {entry.text}", [entry, base, *ends])


# -- operators -------------------------------------------------------------------------------------


def _unary(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    operand = walk.pop()
    space = " " if instr.arg == "not" else ""
    walk.value(f"{instr.arg}{space}{loose(operand)}", LOOSE, [operand])


def _binary(walk: Walk, instr: Instr, ahead: Ahead) -> int:
    left, right = walk.take(2)
    if not instr.arg.endswith("="):
        walk.value(f"{loose(left)} {instr.arg} {loose(right)}", LOOSE, [left, right])
        return 0
    stored = ahead[0] if ahead and ahead[0].op == "STORE_FAST" else None
    if stored is not None and left.kind == "name" and left.of == walk.names.local(stored.arg):
        walk.statement(f"{left.of} {instr.arg} {right.text}", [left, right], sets=left.of)
        return 1
    temp = walk.names.temp()
    # The left operand is evaluated first: store it before the right one is written.
    if right.kind == "value":
        walk.push(left)
        walk.push(right)
        walk.spill()
        left, right = walk.take(2)
    walk.statement(f"{temp} = {left.text}", [left])
    walk.statement(f"{temp} {instr.arg} {right.text}", [right])
    walk.push(Entry(temp, "const"))
    return 0


def _between(form: Callable[[Any], str]) -> Row:
    """A binary operator written as a word."""

    def row(walk: Walk, instr: Instr, ahead: Ahead) -> None:
        left, right = walk.take(2)
        walk.value(f"{loose(left)} {form(instr.arg)} {loose(right)}", LOOSE, [left, right])

    return row


def _subscr(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    base, key = walk.take(2)
    walk.value(f"{owner(base)}[{key.text}]", notes=[base, key])


# -- calls -----------------------------------------------------------------------------------------


def _called(pair: list[Entry], arguments: list[str]) -> str:
    """f(...): f and NULL in any order, a bound method, or (method, self)."""
    real = [entry for entry in pair if entry.kind not in ("null", "self")]
    if len(real) == 2:
        arguments = [real[1].text, *arguments]
    return f"{loose(real[0])}({', '.join(arguments)})"


def _call(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    argc, names = instr.arg
    given = walk.take(argc + 2)
    _push_call(walk, given, names)


def _push_call(walk: Walk, given: list[Entry], names: tuple[str, ...]) -> None:
    texts = [entry.text for entry in given[2:]]
    plain = len(texts) - len(names)
    arguments = texts[:plain] + [f"{n}={t}" for n, t in zip(names, texts[plain:], strict=True)]
    walk.value(_called(given[:2], arguments), notes=given)


def _call_kw(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    """3.13, where the names do not come from the instruction before."""
    *given, names = walk.take(instr.arg + 3)
    known = walk.names.objects.get(names.text)
    if known is None:
        known = tuple(text[1:-1] for text in const_items(names))
    _push_call(walk, given, known)


def _call_ex(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    first, second, *rest = walk.take(3 + instr.arg)
    args = rest[0]
    if args.items is not None and args.brackets == "()":
        arguments = list(args.items)
    else:
        arguments = [] if args.text == "()" else [f"*{loose(args)}"]
    if instr.arg:
        arguments.append(f"**{loose(rest[1])}")
    walk.value(_called([first, second], arguments), notes=[first, second, *rest])


def _function(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    *parts, code = walk.take(len(instr.arg) + 1)
    walk.doubt("functions that are made here")
    pairs = zip(instr.arg, parts, strict=True)
    walk.value(f"function({', '.join([code.text, *(f'{n}={p.text}' for n, p in pairs)])})")


def _function_part(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    part, function = walk.take(2)
    walk.value(f"{function.text.removesuffix(')')}, {instr.arg}={part.text})")


def _reads_like(name: str, count: int, pushed: int = 1, stay: int = 0, exact: bool = False) -> Row:
    """A row for an instruction without syntax: a call of a function of that name.

    Its arguments are the `stay` top items, which remain, and `count` items, which are popped.
    """

    def row(walk: Walk, instr: Instr, ahead: Ahead) -> None:
        if not exact:
            walk.doubt(f"{name}()")
        given = walk.take(count)
        for depth in range(1, stay + 1):
            walk.stay(depth)
        peeked = [walk.item(depth) for depth in range(stay, 0, -1)]
        told = [] if instr.arg is None or exact else [literal(instr.arg) or str(instr.arg)]
        text = f"{name}({', '.join([*(e.text for e in (*peeked, *given)), *told])})"
        if pushed == 1:
            walk.value(text, notes=given)
            return
        temps = [walk.names.temp() for _ in range(pushed)]
        head = f"{', '.join(temps)} = " if temps else ""
        walk.statement(head + text, given)
        for temp in temps:
            walk.push(Entry(temp, "const"))

    return row


def _iter(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    entry = walk.pop()
    walk.value(f"iter({entry.text})", notes=[entry], inner=entry.text)


def _import(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    level, names = walk.take(2)
    given = f"{instr.arg!r}, globals(), None, {names.text}, {level.text}"
    walk.value(f"__import__({given})")


def _import_from(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    module = walk.stay(1)
    walk.value(f"{owner(module)}.{instr.arg}")


def _yield(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    entry = walk.pop()
    walk.value(f"yield {entry.text}", LOOSE, [entry])
    walk.spill()


def _nothing(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    """Writes no text."""


def _drops(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    walk.stack.pop()


def _drops_under(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    del walk.stack[-2]


def _push_exc(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    error = walk.stay(1)
    walk.stack.pop()
    walk.push(Entry("handled_before", "const"))
    walk.push(error)


def _to_bool(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    if not ahead or ahead[0].op != "POP_JUMP_IF":
        entry = walk.pop()
        walk.value(f"not not {loose(entry)}", LOOSE, [entry])


def _top(make: str, exact: bool = True) -> Row:
    """A value made from the top item, which stays."""

    def row(walk: Walk, instr: Instr, ahead: Ahead) -> None:
        if not exact:
            walk.doubt(make)
        walk.value(make.format(walk.stay(1).text))

    return row


OPS: dict[str, Row] = {
    "NOP": _nothing,
    "MAKE_CELL": _nothing,
    "SETUP_ANNOTATIONS": _nothing,
    "RETURN_GENERATOR": lambda walk, instr, ahead: walk.push(Entry("None", "const")),
    "POP_TOP": _pop_top,
    "END_FOR": _drops,
    "PUSH_NULL": lambda walk, instr, ahead: walk.push(NULL),
    "COPY": _copy,
    "SWAP": _swap,
    "LOAD_CONST": lambda walk, instr, ahead: walk.push(walk.names.const(instr.arg)),
    "LOAD_FAST": _load_fast,
    "LOAD_FAST_CLEAR": _load_clear,
    "STORE_FAST": _store_fast,
    "DELETE_FAST": _delete_fast,
    "LOAD_GLOBAL": _global,
    "STORE_GLOBAL": _store_global,
    "DELETE_GLOBAL": _deletes("del globals()[{0!r}]"),
    "LOAD_NAME": _named("{0}"),
    "STORE_NAME": _store_name,
    "DELETE_NAME": _deletes("del {0}"),
    "LOAD_DEREF": _named("{0}"),
    "STORE_DEREF": _store_name,
    "DELETE_DEREF": _deletes("del {0}"),
    "LOAD_CLOSURE": _named("cell_of({0})", "cell_of()"),
    "LOAD_CLASSDEREF": _named("{0}"),
    "LOAD_LOCALS": _named("locals()"),
    "LOAD_FROM_DICT_OR_GLOBALS": _reads_like("name_in", 1),
    "LOAD_FROM_DICT_OR_DEREF": _reads_like("name_in", 1),
    "LOAD_ATTR": _load_attr,
    "LOAD_METHOD": _load_method,
    "LOAD_SUPER_ATTR": _load_super,
    "STORE_ATTR": _store_attr,
    "DELETE_ATTR": _delete_attr,
    "UNARY": _unary,
    "BINARY": _binary,
    "COMPARE": _between(str),
    "IS": _between(lambda inverted: "is not" if inverted else "is"),
    "CONTAINS": _between(lambda inverted: "not in" if inverted else "in"),
    "BINARY_SUBSCR": _subscr,
    "STORE_SUBSCR": _store_subscr,
    "DELETE_SUBSCR": _delete_subscr,
    "BINARY_SLICE": _slice,
    "STORE_SLICE": _store_slice,
    "BUILD_TUPLE": build,
    "BUILD_LIST": build,
    "BUILD_SET": build,
    "BUILD_MAP": build_map,
    "BUILD_CONST_KEY_MAP": const_map,
    "BUILD_STRING": string,
    "BUILD_SLICE": build_slice,
    "FORMAT_VALUE": format_value,
    "CONVERT_VALUE": convert,
    "LIST_APPEND": extend("", "append"),
    "SET_ADD": extend("", "add"),
    "MAP_ADD": extend("", ""),
    "LIST_EXTEND": extend("*", "extend"),
    "SET_UPDATE": extend("*", "update"),
    "DICT_UPDATE": extend("**", "update"),
    "DICT_MERGE": extend("**", "update"),
    "LIST_TO_TUPLE": to_tuple,
    "UNPACK_SEQUENCE": unpack,
    "UNPACK_EX": unpack_ex,
    "CALL": _call,
    "CALL_KW": _call_kw,
    "CALL_FUNCTION_EX": _call_ex,
    "CALL_INTRINSIC_1": _reads_like("intrinsic", 1),
    "CALL_INTRINSIC_2": _reads_like("intrinsic", 2),
    "MAKE_FUNCTION": _function,
    "SET_FUNCTION_ATTRIBUTE": _function_part,
    "GET_ITER": _iter,
    "GET_YIELD_FROM_ITER": _iter,
    "IMPORT_NAME": _import,
    "IMPORT_FROM": _import_from,
    "IMPORT_STAR": _reads_like("import_all_of", 1, 0),
    "PRINT_EXPR": _reads_like("display", 1, 0),
    "LOAD_ASSERTION_ERROR": _named("AssertionError"),
    "LOAD_BUILD_CLASS": _named("__build_class__"),
    "TO_BOOL": _to_bool,
    "GET_LEN": _top("len({0})"),
    "MATCH_MAPPING": _top("is_mapping({0})", False),
    "MATCH_SEQUENCE": _top("is_sequence({0})", False),
    "MATCH_KEYS": _reads_like("match_keys", 0, 1, 2),
    "MATCH_CLASS": _reads_like("match_class", 3),
    "BEFORE_WITH": _reads_like("begin_with", 1, 2),
    "BEFORE_ASYNC_WITH": _reads_like("begin_async_with", 1, 2),
    "WITH_EXCEPT_START": _reads_like("end_with", 0, 1, 4),
    "PUSH_EXC_INFO": _push_exc,
    "POP_EXCEPT": _drops,
    "CHECK_EXC_MATCH": lambda walk, instr, ahead: _matches(walk),
    "CHECK_EG_MATCH": _reads_like("split_group", 2, 2),
    "PREP_RERAISE_STAR": _reads_like("prepare_reraise", 2),
    "GET_AWAITABLE": _reads_like("awaitable", 1),
    "GET_AITER": _reads_like("aiter", 1),
    "GET_ANEXT": _top("anext({0})", False),
    "END_SEND": _drops_under,
    "CLEANUP_THROW": _reads_like("cleanup_throw", 3, 2),
    "END_ASYNC_FOR": _reads_like("end_async_for", 2, 0),
    "ASYNC_GEN_WRAP": _reads_like("wrap", 1),
    "YIELD_VALUE": _yield,
}


def _matches(walk: Walk) -> None:
    kind = walk.pop()
    walk.doubt("matches()")
    walk.value(f"matches({walk.stay(1).text}, {kind.text})")
