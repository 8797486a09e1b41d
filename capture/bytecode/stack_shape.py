"""The kind of each stack slot before every instruction, as far as the code shows it.

Kinds: "value", "null", "maybe" (a value or NULL: the method slot of 3.11-3.13, a cleared local),
"exc" (saved at a handler's entry: the exception handled outside of it), "lasti" (where the current
exception was raised). Between the end of a handler and its re-raise, "copy" and "over" replace
"exc"; nothing resumes there. A plain forward dataflow; `capture.emit.resume` reads it.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable

from .decoder import Decoded, Instr, decode, stack_effect
from .opcodes import FINAL, NULL_FIRST

Shape = tuple[str, ...]

# Kinds that paths through less of the function may decide.
VAGUE = frozenset({"maybe", "mixed", "copy", "over"})

METHOD: Shape = ("maybe", "value") if NULL_FIRST else ("value", "maybe")


def _copy(stack: Shape, instr: Instr) -> Shape:
    kind = stack[-instr.arg]
    return (*stack, "copy" if kind == "exc" else kind)


def _swap(stack: Shape, instr: Instr) -> Shape:
    items = list(stack)
    items[-1], items[-instr.arg] = items[-instr.arg], items[-1]
    return tuple(items)


def _push(*kinds: str, pop: int = 0) -> Callable[[Shape, Instr], Shape]:
    return lambda stack, instr: stack[: len(stack) - pop] + kinds


def _pop_except(stack: Shape, instr: Instr) -> Shape:
    """The handler's own slot is used up, even if a copy of it was popped."""
    rest = stack[:-1]
    if stack[-1] != "copy":
        return rest
    at = max(depth for depth, kind in enumerate(rest) if kind == "exc")
    return (*rest[:at], "over", *rest[at + 1 :])


def _super_attr(stack: Shape, instr: Instr) -> Shape:
    return stack[:-3] + (METHOD if instr.arg[1] else ("value",))


RULES: dict[str, Callable[[Shape, Instr], Shape]] = {
    "COPY": _copy,
    "SWAP": _swap,
    "PUSH_NULL": _push("null"),
    "LOAD_FAST_CLEAR": _push("maybe"),
    "LOAD_METHOD": _push(*METHOD, pop=1),
    "LOAD_SUPER_ATTR": _super_attr,
    "PUSH_EXC_INFO": _push("exc", "value", pop=1),
    "POP_EXCEPT": _pop_except,
}
"""Instructions that push other kinds than values."""


FALLS, JUMPS, RAISES = "falls", "jumps", "raises"
"""How control leaves an instruction: to the next one, to its target, to its handler."""


def after(stack: Shape, instr: Instr, way: str = FALLS) -> Shape:
    """The stack after control leaves `instr` in this way."""
    if way == RAISES:
        raised: Shape = ("lasti", "value") if instr.handler_lasti else ("value",)
        return stack[: instr.handler_depth] + raised
    if way == FALLS and instr.op in RULES:
        return RULES[instr.op](stack, instr)
    popped, pushed = stack_effect(instr, way == JUMPS)
    return stack[: len(stack) - popped] + ("value",) * pushed


_known: weakref.WeakKeyDictionary[Decoded, tuple[Shape | None, ...]] = weakref.WeakKeyDictionary()


def stack_shapes(code: types.CodeType) -> tuple[Shape | None, ...]:
    """The stack before each instruction; None where control never comes."""
    decoded = decode(code)
    found = _known.get(decoded)
    if found is None:
        found = _known[decoded] = _flow(decoded)
    return found


def stack_shape(code: types.CodeType, index: int) -> Shape | None:
    """The stack before one instruction.

    Where paths through the whole function leave a kind open, those through a resume function may
    decide it.
    """
    decoded = decode(code)
    if decoded.base is None or not decoded.is_of_base(index):
        return stack_shapes(code)[index]
    found = stack_shapes(decoded.base)[index]
    sure = found is not None and VAGUE.isdisjoint(found)
    return found if sure else stack_shapes(code)[index]


def _flow(decoded: Decoded) -> tuple[Shape | None, ...]:
    instrs = decoded.instrs
    shapes: list[Shape | None] = [None] * len(instrs)
    todo: list[tuple[int, Shape]] = [(decoded.entry, ())]
    while todo:
        index, shape = todo.pop()
        known = shapes[index]
        if known is not None:
            merged = _merge(known, shape)
            if merged == known:
                continue
            shape = merged
        shapes[index] = shape
        instr = instrs[index]
        if instr.handler is not None and instr.op != "PUSH_EXC_INFO":  # this never raises
            todo.append((instr.handler, after(shape, instr, RAISES)))
        if instr.target is not None:
            todo.append((instr.target, after(shape, instr, JUMPS)))
        if instr.op not in FINAL:
            todo.append((index + 1, after(shape, instr)))
    return tuple(shapes)


def _merge(one: Shape, other: Shape) -> Shape:
    if len(one) != len(other):
        raise ValueError(f"two paths meet with {len(one)} and {len(other)} items on the stack")
    return tuple(
        a if a == b else MERGED.get(frozenset((a, b)), "mixed")
        for a, b in zip(one, other, strict=True)
    )


MERGED = {
    frozenset(("value", "null")): "maybe",
    frozenset(("value", "maybe")): "maybe",
    frozenset(("null", "maybe")): "maybe",
    frozenset(("value", "lasti")): "lasti",  # a resume function makes its own
}
