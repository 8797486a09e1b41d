"""Class patterns of `match`: MATCH_CLASS as the language defines it (PEP 634).

In: the subject, the class, the number of positional patterns and the names of the others, from the
stack. Out: a tuple of the attributes to match, or None if the subject does not match.
"""

from __future__ import annotations

from ..breaks import Break, Thrown
from ..bytecode.decoder import Instr
from ..data_model import attributes, iteration
from ..data_model.attributes import no_attribute
from ..values.containers import raises
from ..values.frames import Frame
from ..values.value import Const, Obj, Sequence, Value
from .machine import Machine, handles

# Builtin classes whose one positional pattern matches the subject itself (Py_TPFLAGS
# _Py_TPFLAGS_MATCH_SELF).
_MATCH_SELF = 1 << 22


@handles("MATCH_CLASS")
def _match_class(m: Machine, f: Frame, i: Instr) -> None:
    names, cls, subject = f.pop(), f.pop(), f.pop()
    keywords = [name.value for name in iteration.drain(m, names)]  # type: ignore[attr-defined]
    f.push(_matched(m, subject, cls, i.arg, keywords))


def _matched(m: Machine, subject: Value, cls: Value, count: int, keywords: list[str]) -> Value:
    if not isinstance(cls, Obj) or not isinstance(cls.value, type):
        raise raises("TypeError: called match pattern must be a class")
    if not m.truth(m.call(Obj(isinstance), [subject, cls], {})):
        return Const(None)
    found: list[Value] = []
    seen: set[str] = set()
    if count:
        given = _positional(m, cls)
        if given is None:
            if not cls.value.__flags__ & _MATCH_SELF:
                given = []
            elif count > 1:
                raise raises(f"TypeError: {cls.value.__name__}() accepts 1 positional sub-pattern")
            else:
                found.append(subject)
        if given is not None:
            if count > len(given):
                raise raises(
                    f"TypeError: {cls.value.__name__}() accepts fewer positional sub-patterns"
                )
            keywords = [*given[:count], *keywords]
    for name in keywords:
        if name in seen:
            raise raises(f"TypeError: got multiple sub-patterns for attribute {name!r}")
        seen.add(name)
        try:
            found.append(attributes.load_attr(m, subject, name))
        except Thrown as error:
            if not no_attribute(error):
                raise
            return Const(None)
    return Sequence(found, tuple)


def _positional(m: Machine, cls: Obj) -> list[str] | None:
    """`cls.__match_args__`, or None if the class has none."""
    try:
        value = attributes.load_attr(m, cls, "__match_args__")
    except Thrown as error:
        if not no_attribute(error):
            raise
        return None
    if not isinstance(value, (Sequence, Const)) or attributes.real_class(value) is not tuple:
        raise raises("TypeError: __match_args__ must be a tuple")
    names = iteration.drain(m, value)
    if not all(isinstance(name, Const) and type(name.value) is str for name in names):
        raise Break("GB101", "__match_args__ that are no strings")
    return [name.value for name in names]  # type: ignore[attr-defined]
