"""Exception groups made inside the frame: `except*`, and how groups are split.

In: Instances of ExceptionGroup and BaseExceptionGroup, and the instructions of `except*`.
Subclasses and groups from outside are breaks: the program may define their `derive`. Out: groups
and parts of groups as CPython makes them (`exceptiongroup_split_recursive`,
`_PyExc_PrepReraiseStar` in Objects/exceptions.c).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..breaks import Break
from ..data_model import attributes
from ..values import containers
from ..values.registry import NONE
from ..values.value import Const, Instance, Sequence, Value
from .exceptions import class_of, field, is_exception, is_group, kinds_of, of_class

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

Picks = Callable[[Value], bool]


def make_group(m: Machine, cls: type, args: list[Value]) -> Instance:
    """ExceptionGroup(message, exceptions) or BaseExceptionGroup(message, exceptions)."""
    if len(args) != 2 or not isinstance(args[1], Sequence) or args[1].cls not in (list, tuple):
        raise Break("GB108", f"{cls.__name__} is made")
    message, held = args
    items = containers.sequence_items(m, held)  # type: ignore[arg-type]
    known = isinstance(message, Const) and isinstance(message.value, str)
    if not (known and items and all(is_exception(one) for one in items)):
        raise Break("GB108", f"{cls.__name__} is made")
    if all(issubclass(class_of(one), Exception) for one in items):
        cls = ExceptionGroup
    elif cls is ExceptionGroup:
        raise containers.raises("TypeError: Cannot nest BaseExceptions in an ExceptionGroup")
    made = of_class(cls)
    m.heap.overlay[made] = {
        "args": Sequence(list(args), tuple),
        "message": message,
        "exceptions": Sequence(list(items), tuple),
    }
    return made


def exceptions_of(m: Machine, group: Value) -> list[Value]:
    held = field(m, group, "exceptions")  # type: ignore[arg-type]
    assert isinstance(held, Sequence)
    return held.items


def split(m: Machine, value: Value, picks: Picks) -> tuple[Value | None, Value | None]:
    """(the part of a group that `picks` accepts, the rest)."""
    if picks(value):
        return value, None
    if not is_group(value):
        return None, value
    parts = [split(m, one, picks) for one in exceptions_of(m, value)]
    found = [part for part, _ in parts if part is not None]
    left = [part for _, part in parts if part is not None]
    return _subset(m, value, found), _subset(m, value, left)


def _subset(m: Machine, group: Value, items: list[Value]) -> Instance | None:
    """A group of these exceptions, with cause, context and notes of the original group."""
    if not items:
        return None
    assert isinstance(group, Instance)
    made = make_group(
        m, BaseExceptionGroup, [field(m, group, "message"), Sequence(list(items), list)]
    )
    fields = m.heap.overlay[made]
    for name in ("__cause__", "__context__"):
        fields[name] = field(m, group, name)
    fields["__suppress_context__"] = Const(True)
    notes = m.heap.overlay[group].get("__notes__")
    if isinstance(notes, Sequence):
        fields["__notes__"] = Sequence(list(containers.sequence_items(m, notes)), list)
    if group in m.handling.raised_at:  # it has its traceback
        m.handling.raised_at[made] = m.handling.raised_at[group]
    m.handling.derived[made] = group
    return made


def of_kinds(m: Machine, kinds: list[type]) -> Picks:
    """A predicate: exceptions of these classes."""

    def picks(value: Value) -> bool:
        chain = attributes.bases(m, class_of(value))
        return any(kind in chain for kind in kinds)

    return picks


def group_method(m: Machine, value: Instance, name: str, args: list[Value]) -> Value:
    """split(), subgroup() and derive()."""
    if name == "derive" and len(args) == 1:
        return make_group(m, BaseExceptionGroup, [field(m, value, "message"), args[0]])
    if name not in ("split", "subgroup") or len(args) != 1:
        raise Break("GB112", f"{name}() of an exception group")
    found, left = split(m, value, of_kinds(m, kinds_of(m, args[0])))
    if name == "subgroup":
        return found or NONE
    return Sequence([found or NONE, left or NONE], tuple)
