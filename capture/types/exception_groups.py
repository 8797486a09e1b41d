"""Exception groups made inside the frame: `except*`, and how groups are taken apart.

In: Instances of ExceptionGroup and BaseExceptionGroup (subclasses and groups from outside are breaks: their
`derive` may be the program's own), and the instructions of `except*`. Out: groups and parts of groups as CPython makes
them (`exceptiongroup_split_recursive`, `_PyExc_PrepReraiseStar` in Objects/exceptions.c).
"""

from __future__ import annotations

from collections.abc import Callable

from ..breaks import Break
from ..bytecode.decoder import Instr
from ..data_model import attributes
from ..interpreter.handlers_exceptions import kinds_of
from ..interpreter.machine import Machine, handles
from ..values import containers
from ..values.frames import Frame
from ..values.registry import NONE
from ..values.value import Const, Instance, Sequence, Value, is_none
from .exceptions import class_of, field, is_exception, is_group, of_class

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
    m.overlay[made] = {
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
    """What of a group `picks` takes, and the rest."""
    if picks(value):
        return value, None
    if not is_group(value):
        return None, value
    parts = [split(m, one, picks) for one in exceptions_of(m, value)]
    found = [part for part, _ in parts if part is not None]
    left = [part for _, part in parts if part is not None]
    return _subset(m, value, found), _subset(m, value, left)


def _subset(m: Machine, group: Value, items: list[Value]) -> Instance | None:
    """A group of these, with what hangs on the group that they are from."""
    if not items:
        return None
    assert isinstance(group, Instance)
    made = make_group(
        m, BaseExceptionGroup, [field(m, group, "message"), Sequence(list(items), list)]
    )
    fields = m.overlay[made]
    for name in ("__cause__", "__context__"):
        fields[name] = field(m, group, name)
    fields["__suppress_context__"] = Const(True)
    notes = m.overlay[group].get("__notes__")
    if isinstance(notes, Sequence):
        fields["__notes__"] = Sequence(list(containers.sequence_items(m, notes)), list)
    if group in m.raised_at:  # it has its traceback
        m.raised_at[made] = m.raised_at[group]
    m.derived[made] = group
    return made


def of_kinds(m: Machine, kinds: list[type]) -> Picks:
    """Exceptions of these classes."""

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


# -- except* ---------------------------------------------------------------------------------------------
@handles("CHECK_EG_MATCH")
def _check_eg_match(m: Machine, f: Frame, i: Instr) -> None:
    wanted, value = f.pop(), f.pop()
    kinds = kinds_of(m, wanted)
    if any(issubclass(kind, BaseExceptionGroup) for kind in kinds):
        raise containers.raises("TypeError: catching ExceptionGroup with except* is not allowed")
    if is_none(value):  # all of it was taken before
        f.stack += [value, NONE]
        return
    if not is_exception(value):
        raise Break("GB108", "an exception group is taken apart (except*)")
    found, left = _taken(m, value, kinds)
    f.stack += [left or NONE, found or NONE]
    if found is not None:
        m.handling[-1] = found


def _taken(m: Machine, value: Value, kinds: list[type]) -> tuple[Value | None, Value | None]:
    """What an except* takes, as a group, and the rest."""
    picks = of_kinds(m, kinds)
    if is_group(value) or not picks(value):
        return split(m, value, picks)
    wrapped = make_group(m, BaseExceptionGroup, [Const(""), Sequence([value], tuple)])
    m.overlay[wrapped]["__context__"] = NONE
    m.raised_at[wrapped] = m.raised_at[value]
    return wrapped, None


@handles("PREP_RERAISE_STAR")
def _prep_reraise_star(m: Machine, f: Frame, i: Instr) -> None:
    raised, origin = f.pop(), f.pop()
    assert isinstance(raised, Sequence)
    items = [one for one in containers.sequence_items(m, raised) if not is_none(one)]
    if not all(is_exception(one) for one in items) or (items and not is_exception(origin)):
        raise Break("GB108", "an exception group is put together (except*)")
    f.push(_what_is_raised(m, origin, items) or NONE)


def _what_is_raised(m: Machine, origin: Value, items: list[Value]) -> Value | None:
    """What the handlers raised, and what of the group nobody took or was raised again as it was."""
    if not items or not is_group(origin):
        return items[0] if items else None
    again = [one for one in items if one is origin or _from(m, one) is origin]
    anew = [one for one in items if one not in again]
    kept = {leaf for one in again for leaf in _leaves(m, one)}
    rest, _ = split(m, origin, kept.__contains__) if kept else (None, None)
    if not anew:
        return rest
    return make_group(
        m, BaseExceptionGroup, [Const(""), Sequence([*anew, *([rest] if rest else [])], list)]
    )


def _from(m: Machine, value: Value) -> Value:
    """The group that this one was taken from, in however many steps."""
    while value in m.derived:
        value = m.derived[value]
    return value


def _leaves(m: Machine, value: Value) -> list[Value]:
    if not is_group(value):
        return [value]
    return [leaf for one in exceptions_of(m, value) for leaf in _leaves(m, one)]
