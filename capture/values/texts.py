"""Texts with numbers or tensors in them that are known only when the frame runs: `f"{loss:.3f}"`.

In: a function that makes a text, and its arguments. Out: a `Text`, which replacement code makes
where it is needed: printed, logged, returned, stored. A read of its `.value`, as for a key of a
dict, binds the entry to its numbers, or is a break if they come from tensor data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..breaks import Break
from .symbolic_numbers import SymbolicNumber, is_number
from .value import Const, Dict, Obj, Sequence, Tensor, Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

# Methods of str that give a text and raise for no content of it.
METHODS = frozenset(
    {"ljust", "rjust", "center", "strip", "lstrip", "rstrip", "upper", "lower", "title"}
    | {"replace", "zfill", "capitalize", "expandtabs"}
)


class Text(SymbolicNumber):
    """The text step(*items); `real` is what it would be with the numbers at capture."""

    __slots__ = ("items", "plain", "step")

    def __init__(self, m: Machine, step: Any, items: tuple[Value, ...], real: str) -> None:
        super().__init__(m, real, None)
        self.step, self.items, self.plain = step, items, ""

    @property
    def value(self) -> Any:
        if not self.looked:
            self.plain = self.step(*map(_plain, self.items))
            self.looked = True
        return self.plain


def _plain(value: Value) -> Any:
    if isinstance(value, Tensor):
        raise Break("GB104", "a text of a tensor decides")
    if isinstance(value, Sequence):
        return value.cls(map(_plain, value.items))
    assert isinstance(value, Const)
    return value.value


def is_open(value: Value) -> bool:
    """Whether this is a number or text that the entry is not bound to."""
    return is_number(value) or (isinstance(value, Text) and not value.looked)


def shows(m: Machine, value: Tensor) -> bool:
    """Note that the text of a tensor is made after the program: no later write may change it."""
    if m.inner or m.modes or m.tracer.regions is not None or not m.tracer.owns(value.ghost):
        return False
    m.journal.shown.append((value.ghost, value.ghost._version, m.root_index))
    return True


def made(m: Machine, step: Callable[..., str], *items: Value) -> Value:
    """The Value of step(*items): of constants, open numbers and texts, tensors."""
    try:
        real = step(*map(shown, items))
    except Exception as error:
        # Python raises it at its place.
        raise Break("GB121", f"a text of these values: {error}") from None
    return Text(m, step, items, real)


def shown(value: Value) -> Any:
    """What an argument of a text is at capture; of a tensor what has the same formats."""
    if isinstance(value, SymbolicNumber):
        return value.real
    if isinstance(value, Tensor):
        return 0.5 if value.ghost.dim() == 0 else "tensor"
    if isinstance(value, Sequence):
        return value.cls(map(shown, value.items))
    if isinstance(value, Dict):
        return {shown(key): shown(item) for key, item in value.items.values()}
    if isinstance(value, Obj):  # a key of a dict
        return value.value
    assert isinstance(value, Const)
    return value.value


def percent(pattern: str, *items: Any) -> str:
    """pattern % items"""
    return pattern % items


def joined(*parts: str) -> str:
    return "".join(parts)


def formatted(pattern: str, names: tuple[str, ...], *items: Any) -> str:
    """pattern.format(*items), the last of them by name"""
    first = len(items) - len(names)
    return pattern.format(*items[:first], **dict(zip(names, items[first:], strict=True)))


def is_text(value: Value) -> bool:
    return isinstance(value, Const) and isinstance(
        value.real if isinstance(value, SymbolicNumber) else value.value, str
    )


def percented(m: Machine, pattern: Value, right: Value) -> Value | None:
    """pattern % right with open numbers; None if there are none."""
    if not is_text(pattern):
        return None
    whole = isinstance(right, Sequence) and right.cls is tuple
    items = list(right.items) if whole else [right]  # type: ignore[attr-defined]
    if not _is_simple(items) or not any(map(is_open, [pattern, *items])):
        return None
    if "c" in str(shown(pattern)) and "%c" in str(shown(pattern)):
        return None  # it raises for some numbers
    return made(m, percent, pattern, *items)


def added(m: Machine, left: Value, right: Value) -> Value | None:
    """left + right of texts, one of them open; None for others."""
    both = (left, right)
    if not any(isinstance(one, Text) and not one.looked for one in both):
        return None
    return made(m, joined, *both) if all(map(is_text, both)) else None


def _is_simple(items: list[Value]) -> bool:
    return all(isinstance(one, Const) for one in items)


def method(
    m: Machine, receiver: Const, name: str, args: list[Value], kwargs: dict[str, Value]
) -> Value | None:
    """receiver.name(...) of a text with open numbers; None if it needs a plain text."""
    given = [receiver, *args, *kwargs.values()]
    if not is_text(receiver):
        return None
    if name == "join" and len(args) == 1 and isinstance(args[0], Sequence) and not kwargs:
        parts = args[0].items
        if any(map(is_open, parts)) and all(map(is_text, parts)):
            return made(m, str.join, receiver, Sequence(list(parts), tuple))
        return None
    if not _is_simple(given) or not any(map(is_open, given)):
        return None
    if name == "format":
        return made(m, formatted, receiver, Const(tuple(kwargs)), *given[1:])
    if name in METHODS and not kwargs:
        return made(m, getattr(str, name), *given)
    return None


OPERATORS = {"%": percented, "+": added}
