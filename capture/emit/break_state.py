"""The state that a frame leaves at a break: kinds of stack slots, and locals to pass on.

In: the root frame where it breaks, and the path of instructions that Python runs before a resume
function takes over. Out: the stack's kinds (see `stack_shape`) and the names of the locals to hand
on. `emitter` calls it.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from typing import Any

from ..bytecode.decoder import Instr
from ..bytecode.stack_shape import RAISES, after
from ..data_model import attributes
from ..exact_type import is_kind
from ..interpreter.machine import Machine
from ..values.effects import Effect
from ..values.frames import Frame
from ..values.value import (
    LOADED,
    PREVIOUS,
    BuiltinMethod,
    Cell,
    Const,
    Dict,
    Handled,
    Method,
    Null,
    Obj,
    Sequence,
    Set,
    Slice,
    Unread,
    Value,
)
from ..values.wrap import IDENTITY_TYPES
from .resume import Path, order_of


def made_here(m: Machine, f: Frame) -> Value | None:
    """The outermost exception that the walk made and a handler of this frame is handling."""
    levels = sum(value is PREVIOUS for value in f.stack)
    return next(
        (value for value in m.handling.stack[:levels] if value in m.handling.raised_at), None
    )


def with_handlers(stack: list[Value], handling: list[Value]) -> list[Value]:
    """The stack with the exceptions being handled in place of what their handlers saved.

    The slot of a finished handler has a value that nothing reads.
    """
    levels = iter(handling)
    return [Handled(next(levels, None)) if value is PREVIOUS else value for value in stack]


def with_method(stack: list[Value], instr: Instr) -> list[Value]:
    """The stack of a breaking call with a C method and its receiver, where Python has both there.

    A message names the class that has the method then, and the receiver's class if it is bound.
    """
    if instr.op != "CALL":
        return stack
    end = len(stack) - instr.arg[0]
    pair = stack[end - 2 : end]
    if LOADED not in pair:
        return stack
    bound = pair[pair[0] is LOADED]
    unbound = _unbound(bound)
    if unbound is None:
        return stack
    assert isinstance(bound, (Method, BuiltinMethod))
    return [*stack[: end - 2], Obj(unbound), bound.receiver, *stack[end:]]


def _unbound(method: Value) -> Any:
    """The C function that a method load finds in the receiver's class without binding it."""
    if not isinstance(method, (Method, BuiltinMethod)):
        return None
    cls = attributes.real_class(method.receiver)
    if (
        cls is None
        or attributes.mro_lookup(cls, "__getattribute__") not in attributes.GENERIC_LOOKUPS
        or attributes.mro_lookup(cls, "__getattr__") is not attributes.MISSING
    ):
        return None
    if isinstance(method, BuiltinMethod):
        raw = attributes.mro_lookup(cls, method.name)
    else:
        raw = method.func.value if isinstance(method.func, Obj) else None
    return raw if is_kind(raw, types.MethodDescriptorType) else None


def kind_of(value: Value) -> str:
    """The kind of a value in `stack_shape`'s terms."""
    if isinstance(value, Handled):
        return "exc" if value.error is not None else "over"
    return "null" if isinstance(value, Null) else "value"


def shape_after(path: Path, shape: tuple[str, ...]) -> tuple[str, ...]:
    """The stack's shape at the end of the path; a method load leaves NULL and the attribute."""
    for instr, way in path:
        shape = after(shape, instr, way)
        shape = tuple("null" if kind == "maybe" else kind for kind in shape)
    return shape


def bound_after(
    code: types.CodeType, path: Path, bound: set[str], shape: tuple[str, ...]
) -> tuple[str, ...]:
    """Locals to hand to a resume function, in the function's order.

    They are those in `bound` and those that the instructions of the path store, whose end before
    their frame's might be visible. `shape` is that of the stack before the path. The end of a
    comprehension stores the NULL of a local without a value.
    """
    names = set(bound)
    for number, (instr, way) in enumerate(path):
        if way == RAISES:
            continue
        if instr.op == "STORE_FAST" and shape_after(path[:number], shape)[-1] != "null":
            names.add(instr.arg)
        elif instr.op in ("STORE_FAST", "DELETE_FAST", "LOAD_FAST_CLEAR"):
            names.discard(instr.arg)
    return tuple(sorted(names, key=[*order_of(code), *code.co_varnames].index))


def _may_be_missed(value: Value) -> bool:
    """Whether an unused local must live as long as its frame.

    The end of an object is visible through a finalizer or a weak reference.
    """
    if isinstance(value, Unread):
        return True
    if not isinstance(value, Const) and value.source is not None and value.source.kind == "local":
        return True  # a resume function owns its arguments
    if isinstance(value, Obj):
        return not is_kind(value.value, IDENTITY_TYPES)
    return value.source is not None and isinstance(value, (Sequence, Dict, Set))


def missed_locals(m: Machine, f: Frame, stack: list[Value]) -> set[str]:
    """The locals that must live as long as the frame, even if nothing reads them again. Not a
    method of an object that another one of them is: nothing sees its end."""
    handed = _handed_over(m, stack)
    missed = {
        name: value
        for name, value in dict.items(f.locals)
        if _may_be_missed(value) or _holds_any(m, value, handed)
    }
    held = set(missed.values())
    return {
        name
        for name, value in missed.items()
        if not (isinstance(value, Method) and value.receiver in held and value.source is None)
    }


def _handed_over(m: Machine, stack: list[Value]) -> set[Value]:
    """Values visible to Python at the break of which a weak reference may be made.

    They are on the stack of the breaking instruction, stored outside the frame, or reachable from
    one of those.
    """
    seen = reachable(
        m, [*stack, *(part for effect in m.journal.effects for part in _parts(effect))]
    )
    return {value for value in seen if not isinstance(value, _WITHOUT_WEAK_REFERENCES)}


def _holds_any(m: Machine, value: Value, handed: set[Value]) -> bool:
    """Whether a local is, or holds, a value that Python saw: it lives as long as its frame."""
    return bool(handed) and not handed.isdisjoint(reachable(m, [value]))


_WITHOUT_WEAK_REFERENCES = (Const, Sequence, Dict, Slice, Null, Handled, Cell)


def reachable(m: Machine, values: list[Any]) -> set[Value]:
    """These Values and their parts, transitively."""
    seen: set[Value] = set()
    todo = list(values)
    while todo:
        value = todo.pop()
        if isinstance(value, Value):
            if value in seen:
                continue
            seen.add(value)
            todo += [table.get(value) for table in (m.heap.overlay, m.heap.storages, m.heap.dicts)]
        todo += _parts(value)
    return seen


def _parts(value: Any) -> list[Any]:
    """Parts of a Value, an effect or a container that may be or hold a Value.

    The program's own objects are not read.
    """
    kind = type(value)
    if kind is dict:
        return [*value.keys(), *value.values()]
    if kind in (list, tuple):
        return list(value)
    if isinstance(value, (Value, *_EFFECTS)):
        return [getattr(value, name) for name in _fields(kind)]  # type: ignore[arg-type]
    return []


_EFFECTS: tuple[type, ...] = typing.get_args(Effect)
_REAL = frozenset({"source", "origin", "ghost", "array"})  # fields with objects of the program


@functools.cache
def _fields(cls: type) -> tuple[str, ...]:
    if issubclass(cls, (Obj, Const, Unread)) or not dataclasses.is_dataclass(cls):
        return ()
    return tuple(field.name for field in dataclasses.fields(cls) if field.name not in _REAL)
