"""What an entry expects of functions, classes, modules and code objects is held weakly: a cache keeps nothing alive.

In: the rows and input sources that capture made. Out: the same with a `Weak` in place of each such object. A row
whose object is gone holds no longer, whatever lives at its address by then; the entry is then taken from its
state by the callback. The guard program and the mirror both read through `given`.
"""

from __future__ import annotations

import enum
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from .. import _native
from .rows import Row
from .sources import Source
from .weak_ref import Weak

HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made at run time, so it may go
_WEAK = (types.FunctionType, types.CodeType, _native.Callable)
_LASTING = frozenset({"torch", "numpy", "graftjit"}) | sys.stdlib_module_names  # modules that stay
_BY_OBJECT = ("is", "type", "mro")
_BY_SOURCE = ("same", "distinct", "apart")


class Holder:
    """One entry's objects, each behind one `Weak`, whose death calls `lost`."""

    def __init__(self, lost: Callable[[Any], Any]) -> None:
        self._lost = lost
        self._seen: dict[int, Any] = {}
        self._sources: dict[int, Source] = {}  # by id: rows share the paths that they begin with
        self._keep: list[Any] = []  # until the rows are made: an id must stay that of its object

    def weak(self, value: Any) -> Any:
        """Its `Weak`, or the value itself where it cannot go before the program does."""
        if type(value) is tuple:
            items = tuple(map(self.weak, value))
            return value if all(a is b for a, b in zip(items, value, strict=True)) else items
        if not _may_go(value):
            return value
        found = self._seen.get(id(value))
        if found is None:
            self._keep.append(value)
            found = self._seen[id(value)] = Weak(value, self._lost)
        return found

    def source(self, source: Source | None) -> Source | None:
        """The source, over a weak constant if its root is one."""
        if source is None:
            return None
        found = self._sources.get(id(source))
        if found is None:
            if source.kind == "const":
                held = self.weak(source.key)
                found = source if held is source.key else Source("const", None, held)
            else:
                base = self.source(source.base)
                found = source if base is source.base else Source(source.kind, base, source.key)
            self._keep.append(source)
            self._sources[id(source)] = found
        return found

    def row(self, row: Row) -> Row:
        expected = row.expected
        if row.kind in _BY_OBJECT:
            expected = self.weak(expected)
        elif row.kind in _BY_SOURCE:
            expected = (
                tuple(map(self.source, expected))
                if type(expected) is tuple
                else self.source(expected)
            )
        elif row.kind in ("relation", "value"):
            sources = tuple(map(self.source, expected.sources))
            if any(a is not b for a, b in zip(sources, expected.sources, strict=True)):
                expected = replace(expected, sources=sources)
        source = self.source(row.source)
        if expected is row.expected and source is row.source:
            return row
        return Row(row.kind, source, expected, row.where)


def _may_go(value: Any) -> bool:
    """Whether an object may end before the program does, and can be held weakly."""
    kind = type(value)
    if issubclass(kind, type):
        return bool(value.__flags__ & HEAP_TYPE)
    if kind is types.ModuleType:
        return not _stays(value)
    if kind is types.BuiltinFunctionType:
        owner = value.__self__
        if type(owner) is types.ModuleType:
            return not _stays(owner)
        return owner is None and not is_lasting(value.__module__)  # else bound anew at each look-up
    if issubclass(kind, enum.Enum):
        return bool(kind.__weakrefoffset__)  # one that is an int, too, has no weak references
    return issubclass(kind, _WEAK)


def _stays(module: types.ModuleType) -> bool:
    """Whether it is the module of a lasting name, not a second copy."""
    name = module.__dict__.get("__name__")
    return type(name) is str and is_lasting(name) and sys.modules.get(name) is module


def is_lasting(name: Any) -> bool:
    """Whether a module of this name is ours, torch's, numpy's or the standard library's, and so stays."""
    return type(name) is str and name.partition(".")[0] in _LASTING


def module_of(names: dict[str, Any]) -> types.ModuleType | None:
    """The module whose globals these are: with it they go, and until then their address is theirs."""
    name = names.get("__name__")
    module = sys.modules.get(name) if type(name) is str else None
    return module if type(module) is types.ModuleType and module.__dict__ is names else None


def source_of_globals(names: dict[str, Any]) -> Source:
    """A source for the globals of some function. A dict can have no weak reference, a module can."""
    module = module_of(names)
    if module is not None and not is_lasting(names["__name__"]):
        return Source("dict", Source("const", None, module))
    return Source("const", None, names)


def hold_weakly(
    rows: Sequence[Row], inputs: Sequence[Source], lost: Callable[[Any], Any]
) -> tuple[list[Row], list[Source], tuple[Weak, ...]]:
    """(rows, inputs, the weak references): `lost(reference)` is called when one of the objects is gone."""
    holder = Holder(lost)
    held = [holder.row(row) for row in rows]
    sources = [source for source in map(holder.source, inputs) if source is not None]
    return held, sources, tuple(holder._seen.values())
