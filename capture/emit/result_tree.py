"""Result trees: the result of a direct entry as data, which native code builds without bytecode.

In: the returned Value. Out: a tree (see `_native.Entry`), with the tensors that the program must
output and the Sources of values returned unchanged. `capture` calls it.
"""

from __future__ import annotations

from typing import Any

from ...runtime.guards.sources import Source
from ..values.containers import NotConstant
from ..values.symbolic_numbers import SymbolicNumber
from ..values.value import UNREAD, Awaited, Const, Dict, Obj, Sequence, Tensor, Value
from ..values.wrap import is_one


class Trees:
    """Builds the result of a direct entry as data; raises NotConstant if it needs code."""

    def __init__(self) -> None:
        self.outputs: list[Tensor] = []
        self.inputs: list[Source] = []
        self.seen: set[Value] = set()

    def of(self, value: Value) -> Any:
        if isinstance(value, SymbolicNumber) and not value.looked:
            if value.source is None:
                raise NotConstant
        elif isinstance(value, Const) and (value.source is None or is_one(value.value)):
            return ("const", value.value)
        if value.source is not None:
            if getattr(value, "changed", False):
                raise NotConstant
            if value.source not in self.inputs:
                self.inputs.append(value.source)
            return ("input", self.inputs.index(value.source))
        if isinstance(value, Awaited):
            raise NotConstant
        if isinstance(value, Tensor):
            if value not in self.outputs:
                self.outputs.append(value)
            return ("out", self.outputs.index(value))
        if isinstance(value, Obj):
            return ("const", value.value)
        if value in self.seen or UNREAD in getattr(value, "items", ()):
            raise NotConstant
        self.seen.add(value)
        if isinstance(value, Sequence) and value.cls in (list, tuple):
            return (value.cls.__name__, *[self.of(item) for item in value.items])
        if isinstance(value, Dict) and value.cls is dict:
            pairs = [(self.of(key), self.of(item)) for key, item in value.items.values()]
            return ("dict", tuple(pairs))
        raise NotConstant


def shift(tree: Any, offset: int) -> Any:
    """The tree with its inputs counted after the program's."""
    kind = tree[0]
    if kind == "input":
        return ("input", tree[1] + offset)
    if kind in ("list", "tuple"):
        return (kind, *[shift(child, offset) for child in tree[1:]])
    if kind == "dict":
        return (kind, tuple((shift(k, offset), shift(v, offset)) for k, v in tree[1]))
    return tree
