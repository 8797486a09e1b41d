"""What a frame leaves behind at a break: which slots its stack has and which locals go on.

In: the root frame where it breaks, and the path of instructions that Python runs before a resume function takes
over. Out: the stack's kinds (see `stackshape`) and the names of the locals to hand on. Called by `frame`.
"""

from __future__ import annotations

import types

from .kinds import is_kind
from .machine import Frame, Machine
from .resume import Path
from .stackshape import RAISES, after
from .values import PREVIOUS, Dict, Handled, Null, Obj, Sequence, Set, Unread, Value
from .wrapping import IDENTITY_TYPES


def made_here(m: Machine, f: Frame) -> Value | None:
    """The outermost exception made by the walk that a handler of this frame is handling."""
    levels = sum(value is PREVIOUS for value in f.stack)
    return next((value for value in m.handling[:levels] if value in m.raised_at), None)


def with_handlers(stack: list[Value], handling: list[Value]) -> list[Value]:
    """The stack, with the exception that is being handled in place of what its handler saved; the slot of a handler
    that is over holds nothing that anybody reads."""
    levels = iter(handling)
    return [Handled(next(levels, None)) if value is PREVIOUS else value for value in stack]


def kind_of(value: Value) -> str:
    """What `stackshape` calls it."""
    if isinstance(value, Handled):
        return "exc" if value.error is not None else "over"
    return "null" if isinstance(value, Null) else "value"


def shape_after(path: Path, shape: tuple[str, ...]) -> tuple[str, ...]:
    """The stack's shape at the end of the path; a method load leaves NULL and the attribute."""
    for instr, way in path:
        shape = after(shape, instr, way)
        shape = tuple("null" if kind == "maybe" else kind for kind in shape)
    return shape


def bound_after(code: types.CodeType, path: Path, bound: set[str]) -> tuple[str, ...]:
    """Locals to hand to a resume function, in the order of the code's own: those in `bound`, and what these
    instructions store; nobody knows whether that may die before its frame does."""
    names = set(bound)
    for instr, way in path:
        if way == RAISES:
            continue
        if instr.op == "STORE_FAST":
            names.add(instr.arg)
        elif instr.op in ("DELETE_FAST", "LOAD_FAST_CLEAR"):
            names.discard(instr.arg)
    return tuple(sorted(names, key=code.co_varnames.index))


def may_be_missed(value: Value) -> bool:
    """Whether a local that nobody reads again must live as long as its frame: the end of an object can be seen,
    by a finalizer or a weak reference."""
    if isinstance(value, Unread):
        return True
    if isinstance(value, Obj):
        return not is_kind(value.value, IDENTITY_TYPES)
    return value.source is not None and isinstance(value, (Sequence, Dict, Set))
