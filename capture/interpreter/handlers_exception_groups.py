"""The instructions of `except*`.

In: an exception group, the classes that a clause names, and what the clauses raised. Out: the part
that a clause handles, the rest, and what is raised at the end (`_PyExc_PrepReraiseStar` in
Objects/exceptions.c).
"""

from __future__ import annotations

from ..breaks import Break
from ..bytecode.decoder import Instr
from ..types.exception_groups import exceptions_of, make_group, of_kinds, split
from ..types.exceptions import is_exception, is_group, kinds_of
from ..values import containers
from ..values.frames import Frame
from ..values.registry import NONE
from ..values.value import Const, Sequence, Value, is_none
from .machine import Machine, handles


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
        m.handling.stack[-1] = found


def _taken(m: Machine, value: Value, kinds: list[type]) -> tuple[Value | None, Value | None]:
    """What an except* takes, as a group, and the rest."""
    picks = of_kinds(m, kinds)
    if is_group(value) or not picks(value):
        return split(m, value, picks)
    wrapped = make_group(m, BaseExceptionGroup, [Const(""), Sequence([value], tuple)])
    m.heap.overlay[wrapped]["__context__"] = NONE
    m.handling.raised_at[wrapped] = m.handling.raised_at[value]
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
    """What the handlers raised, and what of the group no handler took, or was raised as it was."""
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
    while value in m.handling.derived:
        value = m.handling.derived[value]
    return value


def _leaves(m: Machine, value: Value) -> list[Value]:
    if not is_group(value):
        return [value]
    return [leaf for one in exceptions_of(m, value) for leaf in _leaves(m, one)]
