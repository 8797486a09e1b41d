"""Displays, strings and unpacking for the decompiler: rows of `operators.OPS`.

A list, tuple, set or dict that several instructions build ([a, *b]) stays one display while nothing
else happens to it. Rows have the form of `operators`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from ..bytecode.decoder import Instr
from .stack import Entry, Walk, loose, owner

Ahead = tuple[Instr, ...]
Row = Callable[[Walk, Instr, Ahead], "int | None"]


def range_text(ends: list[Entry]) -> str:
    """a:b of a slice."""
    return ":".join("" if end.text == "None" else loose(end) for end in ends)


BRACKETS = {"BUILD_TUPLE": "()", "BUILD_LIST": "[]", "BUILD_SET": "{}"}


def display(walk: Walk, items: list[str], brackets: str, notes: list[Entry]) -> None:
    walk.value(display_text(items, brackets), notes=notes, items=items, brackets=brackets)


def display_text(items: list[str], brackets: str) -> str:
    if brackets == "{}" and not items:
        return "{*()}"
    comma = "," if brackets == "()" and len(items) == 1 else ""
    ends = "{}" if brackets == "{:}" else brackets
    return f"{ends[0]}{', '.join(items)}{comma}{ends[1]}"


def build(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    given = walk.take(instr.arg)
    display(walk, [entry.text for entry in given], BRACKETS[instr.op], given)


def build_map(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    given = walk.take(2 * instr.arg)
    pairs = zip(given[::2], given[1::2], strict=True)
    display(walk, [f"{key.text}: {value.text}" for key, value in pairs], "{:}", given)


def const_map(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    *given, keys = walk.take(instr.arg + 1)
    names = walk.names.objects.get(keys.text)
    texts = const_items(keys) if names is None else [walk.names.const(one).text for one in names]
    pairs = zip(texts, given, strict=True)
    display(walk, [f"{key}: {value.text}" for key, value in pairs], "{:}", given)


def const_items(entry: Entry) -> list[str]:
    return [
        ast.unparse(item)
        for item in ast.parse(entry.text, mode="eval").body.elts  # type: ignore[attr-defined]
    ]


def string(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    given = walk.take(instr.arg)
    walk.value(f"''.join({display_text([entry.text for entry in given], '[]')})", notes=given)


def format_value(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    """As a call of str.format: the program may define its own `format`."""
    conversion, has_spec = instr.arg
    given = walk.take(2 if has_spec else 1)
    field = f"!{conversion}" if conversion else ""
    field += ":{}" if has_spec else ""
    walk.value(f"'{{{field}}}'.format({', '.join(entry.text for entry in given)})", notes=given)


def convert(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    entry = walk.pop()
    walk.value(f"'{{!{instr.arg}}}'.format({entry.text})", notes=[entry])


def build_slice(walk: Walk, instr: Instr, ahead: Ahead) -> int:
    ends = walk.take(instr.arg)
    if ahead and ahead[0].op == "BINARY_SUBSCR":
        base = walk.take(1)[0] if all(end.kind != "value" for end in ends) else None
        if base is not None:
            walk.value(f"{owner(base)}[{range_text(ends)}]", notes=[base, *ends])
            return 1
    walk.value(f"slice({', '.join(end.text for end in ends)})", notes=ends)
    return 0


def extend(star: str, method: str) -> Row:
    """Add to a container further down the stack: inside its display if possible, else by a call."""

    def row(walk: Walk, instr: Instr, ahead: Ahead) -> None:
        count = 2 if instr.op == "MAP_ADD" else 1
        given = walk.take(count)
        below = walk.item(instr.arg)
        if instr.arg == 1 and below.items is not None and below.kind == "value":
            walk.stack.pop()
            added = f"{given[0].text}: {given[1].text}" if count == 2 else star + loose(given[0])
            display(walk, [*below.items, added], below.brackets, [below, *given])
            return
        for entry in given:
            walk.push(entry)
        walk.stay(instr.arg + count)
        target, given = walk.item(instr.arg + count), walk.take(count)
        if count == 2:
            walk.statement(f"{target.text}[{given[0].text}] = {given[1].text}", given)
        else:
            walk.statement(f"{target.text}.{method}({given[0].text})", given)

    return row


def to_tuple(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    entry = walk.pop()
    if entry.items is not None and entry.brackets == "[]":
        display(walk, entry.items, "()", [entry])
    else:
        walk.value(f"(*{loose(entry)},)", notes=[entry])


# -- unpacking -------------------------------------------------------------------------------------


def unpack(walk: Walk, instr: Instr, ahead: Ahead) -> int:
    stored = ahead[: instr.arg]
    if len(stored) == instr.arg and all(one.op == "STORE_FAST" for one in stored):
        names = [walk.names.local(one.arg) for one in stored]
        if len(set(names)) == len(names):
            entry = walk.pop()
            for name in names:
                walk.spill(name)
            walk.statement(f"{_targets(names)} = {entry.text}", [entry])
            walk.moved = [name for name in walk.moved if name not in names]
            return int(instr.arg)
    _into_temps(walk, ["" for _ in range(instr.arg)])
    return 0


def _targets(names: list[str]) -> str:
    return f"({', '.join(names)}{',' * (len(names) == 1)})" if names else "()"


def unpack_ex(walk: Walk, instr: Instr, ahead: Ahead) -> None:
    before, after = instr.arg
    _into_temps(walk, [*[""] * before, "*", *[""] * after])


def _into_temps(walk: Walk, stars: list[str]) -> None:
    entry = walk.pop()
    names = [walk.names.temp() for _ in stars]
    walk.statement(
        f"{_targets([star + name for star, name in zip(stars, names, strict=True)])} ="
        f" {entry.text}",
        [entry],
    )
    for name in reversed(names):
        walk.push(Entry(name, "const"))
