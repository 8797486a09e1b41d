"""`__dict__` of an object made inside the frame: its attributes, read and changed as a dict.

In: an Instance. Out: a Dict Value whose items are the machine's overlay of that object, so that
attributes and dict always agree. It is rebuilt as the dict of the rebuilt object.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

from ...ir.dataclass import dataclass
from ..breaks import Break
from ..data_model import attributes
from ..exact_type import is_kind
from ..values.value import Const, Dict, Instance, Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

Pair = tuple[Value, Value]


@dataclass(eq=False, slots=True)
class InstanceDict(Dict):
    """The `__dict__` of an object made inside the frame."""

    owner: Any = None


class _Items(MutableMapping[Any, Pair]):
    """An object's attributes by frozen key, in the form of `Dict.items`, without those in slots."""

    def __init__(self, m: Machine, owner: Instance) -> None:
        self.m = m
        self.owner = owner
        self.names: dict[str, Value | None] = m.heap.overlay.setdefault(owner, {})

    def _raw(self, name: str) -> Any:
        return attributes.class_attribute(self.m, self.owner, name)

    def _held(self) -> list[str]:
        return [n for n in self.names if not is_kind(self._raw(n), types.MemberDescriptorType)]

    def _name(self, frozen: Any) -> str:
        name = frozen[1] if type(frozen) is tuple and frozen[0] == "const" else None
        if type(name) is not str or name not in self._held():
            raise KeyError(frozen)
        return name

    def __getitem__(self, frozen: Any) -> Pair:
        name = self._name(frozen)
        value = self.names[name]
        assert value is not None
        return Const(name), value

    def __setitem__(self, frozen: Any, pair: Pair) -> None:
        name = frozen[1] if frozen[0] == "const" else None
        if type(name) is not str:
            raise Break("GB115", "a key of __dict__ that is not a string")
        raw = self._raw(name)
        if raw is not attributes.MISSING and attributes.is_data(self.m, raw):
            raise Break("GB115", f"__dict__[{name!r}] beside a descriptor of that name")
        self.names[name] = pair[1]

    def __delitem__(self, frozen: Any) -> None:
        del self.names[self._name(frozen)]

    def __iter__(self) -> Iterator[Any]:
        return iter([("const", name) for name in self._held()])

    def __len__(self) -> int:
        return len(self._held())

    def popitem(self) -> tuple[Any, Pair]:
        """Pop the last item, as dicts do."""
        frozen = list(self)[-1]
        return frozen, self.pop(frozen)


def dict_of(m: Machine, value: Instance) -> Dict:
    """value.__dict__"""
    cls = attributes.real_class(value)
    assert cls is not None
    if issubclass(cls, BaseException):
        raise Break("GB112", "__dict__ of an exception made in this frame")
    if not cls.__dictoffset__:
        raise attributes.NoAttribute("__dict__", cls.__name__)
    made = m.heap.dicts.get(value)
    if made is None:
        items: Any = _Items(m, value)
        made = m.heap.dicts[value] = InstanceDict(items, owner=value)
    return made
