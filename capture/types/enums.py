"""Members of enum classes, by value, by name and by operators of flags: constants of the class.

In: `Color(1)`, `Color["RED"]`, and members that are numbers or strings as operands. Out: the
member, or its plain value. The library's metaclass makes the tables of a class once, and prevents
changes.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from ...runtime.guards.sources import Source
from ...runtime.safe_access import MISSING, dict_get, in_classes
from ..breaks import Break
from ..exact_type import is_kind
from ..values.value import Const, Obj, Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine


def is_enum(cls: Any) -> bool:
    """Whether the library's own metaclass made this enum class."""
    return type(cls) is type(enum.Enum) and issubclass(cls, enum.Enum) and cls is not enum.Enum


def member(m: Machine, cls: Obj, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`Color(value)`"""
    kind = cls.value
    if kwargs or len(args) != 1:
        raise Break(
            "GB126", f"a call of {kind.__name__}, which makes an enum class or a pseudo-member"
        )
    if isinstance(args[0], Obj) and type(args[0].value) is kind:
        return args[0]
    value = args[0].value if isinstance(args[0], Const) else None
    if not isinstance(args[0], Const):
        raise Break("GB126", f"{kind.__name__} of a value that is not a constant")
    found = dict_get(kind._value2member_map_, value)  # in the way a guard reads it
    if found is MISSING:
        found = None
    if found is None and issubclass(kind, enum.Flag) and _missing_is_the_librarys(kind):
        found = kind(value) if type(value) is int and 0 <= value <= kind._flag_mask_ else None
    if found is None:
        raise Break("GB126", f"{kind.__name__} of a value that no member has")
    return _looked_up(m, cls, "_value2member_map_", value, found)


def _missing_is_the_librarys(kind: Any) -> bool:
    return in_classes(kind, "_missing_") is vars(enum.Flag)["_missing_"]


def named(m: Machine, cls: Obj, name: Value) -> Value:
    """`Color["RED"]`"""
    if not isinstance(name, Const) or name.value not in cls.value._member_map_:
        raise Break("GB112", f"{cls.value.__name__}[...] of a name that it lacks")
    return _looked_up(m, cls, "_member_map_", name.value, cls.value._member_map_[name.value])


def _looked_up(m: Machine, cls: Obj, table: str, key: Any, found: Any) -> Value:
    """A member from the class's own table, which the program may write."""
    tables = Source("const", None, cls.value)
    place = Source("item", Source("attr", tables, table), key)
    if dict_get(vars(cls.value)[table], key) is not found:
        return m.wrap(found, Source("const", None, found))
    m.guard("is", place, found)
    return m.wrap(found, place)


_PLAIN: dict[type, Any] = {int: int.__int__, float: float.__float__, str: str.__str__}


def plain(value: Value) -> Value:
    """The number or string of a member whose class derives from it; else the value itself."""
    if not isinstance(value, Obj) or not is_kind(value.value, enum.Enum):
        return value
    for kind, beneath in _PLAIN.items():
        if is_kind(value.value, kind):  # for any `_value_`
            return Const(beneath(value.value))
    return value


def keeps(value: Value, name: str) -> bool:
    """Whether a member's class inherits this special method from its number or string type."""
    assert isinstance(value, Obj)
    raw = in_classes(type(value.value), name)
    return any(raw is vars(kind).get(name) for kind in _PLAIN if is_kind(value.value, kind))
