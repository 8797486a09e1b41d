"""Weak references from entries to the functions, classes, modules and code objects they expect, and
to the program's objects that they know by identity, such as keys of dicts.

In: the rows and input sources from capture. Out: the same rows and sources with a `Weak` in place
of each such object, so that a cache entry keeps no object alive. A row whose object is gone fails,
even if another object has its address; the callback then removes the entry. The guard program and
the mirror read expected objects through `given`.
"""

from __future__ import annotations

import enum
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from .. import _native
from ..safe_access import is_constant
from .rows import Row
from .sources import Source
from .weak_ref import Weak

HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made at run time, so it may be collected
_WEAK = (types.FunctionType, types.CodeType, _native.Callable)
# Modules with these names are never collected.
_LASTING = frozenset({"torch", "numpy", "graftjit"}) | sys.stdlib_module_names
_BY_OBJECT = ("type", "mro")
_BY_SOURCE = ("same", "distinct", "own_dict")
_BY_ANY_OBJECT = ("is", "element", "no_element", "no_item")


class Holder:
    """The weakly held objects of one entry. The death of one calls `lost`."""

    def __init__(self, lost: Callable[[Any], Any]) -> None:
        self._lost = lost
        self._seen: dict[int, Any] = {}
        # By id: many rows share the beginning of their path.
        self._sources: dict[int, Source] = {}
        # Keeps objects alive until the rows are made, so that an id stays that of its object.
        self._keep: list[Any] = []

    def weak(self, value: Any) -> Any:
        """A `Weak` for the value, or the value itself if it lives as long as the process."""
        if type(value) is tuple:
            return _each(self.weak, value)
        return self._weak(value) if _may_go(value) else value

    def any(self, value: Any) -> Any:
        """The same for a key, an element or an item of the program, which may be any object."""
        if not type(value).__weakrefoffset__ or is_constant(value) or lasts(value):
            return value
        return self._weak(value)

    def _weak(self, value: Any) -> Any:
        found = self._seen.get(id(value))
        if found is None:
            self._keep.append(value)
            found = self._seen[id(value)] = Weak(value, self._lost)
        return found

    def source(self, source: Source | None) -> Source | None:
        """The source with a weak constant at its root, if the root is a constant."""
        if source is None:
            return None
        found = self._sources.get(id(source))
        if found is None:
            if source.kind == "const":
                held = self.weak(source.key)
                found = source if held is source.key else Source("const", None, held)
            else:
                base = self.source(source.base)
                key = self.any(source.key) if source.kind == "item" else source.key
                same = base is source.base and key is source.key
                found = source if same else Source(source.kind, base, key)
            self._keep.append(source)
            self._sources[id(source)] = found
        return found

    def row(self, row: Row) -> Row:
        expected = row.expected
        if row.kind in _BY_OBJECT:
            expected = self.weak(expected)
        elif row.kind == "keys":
            expected = _each(self.any, expected)
        elif row.kind in _BY_ANY_OBJECT:
            expected = self.any(expected)
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
    """Whether an object may be collected before the process ends, and supports weak references."""
    kind = type(value)
    if issubclass(kind, type):
        return bool(value.__flags__ & HEAP_TYPE)
    if kind is types.ModuleType:
        return not _stays(value)
    if kind is types.BuiltinFunctionType:
        owner = value.__self__
        if type(owner) is types.ModuleType:
            return not _stays(owner)
        # A bound method of an instance is a new object at each look-up.
        return owner is None and not is_lasting(value.__module__)
    if issubclass(kind, enum.Enum):
        # An enum that is also an int supports no weak references.
        return bool(kind.__weakrefoffset__)
    return issubclass(kind, _WEAK)


def _each(hold: Callable[[Any], Any], values: tuple[Any, ...]) -> tuple[Any, ...]:
    """What `hold` gives for each; the same tuple if it changes none."""
    held = tuple(map(hold, values))
    return values if all(a is b for a, b in zip(held, values, strict=True)) else held


def lasts(value: Any) -> bool:
    """Whether the object is one of those that live as long as the process."""
    known = issubclass(type(value), (type, types.ModuleType, types.BuiltinFunctionType))
    return known and not _may_go(value)


def _stays(module: types.ModuleType) -> bool:
    """Whether the module is the one in sys.modules, under a lasting name."""
    name = module.__dict__.get("__name__")
    return type(name) is str and is_lasting(name) and sys.modules.get(name) is module


def is_lasting(name: Any) -> bool:
    """Whether a module of this name (graftjit, torch, numpy, standard library) is never
    collected."""
    return type(name) is str and name.partition(".")[0] in _LASTING


def module_of(names: dict[str, Any]) -> types.ModuleType | None:
    """The module whose globals dict this is. The dict lives, at its address, as long as the
    module."""
    name = names.get("__name__")
    module = sys.modules.get(name) if type(name) is str else None
    return module if type(module) is types.ModuleType and module.__dict__ is names else None


def source_of_globals(names: dict[str, Any]) -> Source:
    """A source for a globals dict. It goes through the module, since a dict supports no weak
    references."""
    module = module_of(names)
    if module is not None and not is_lasting(names["__name__"]):
        return Source("dict", Source("const", None, module))
    return Source("const", None, names)


def hold_weakly(
    rows: Sequence[Row], inputs: Sequence[Source], lost: Callable[[Any], Any]
) -> tuple[list[Row], list[Source], tuple[Weak, ...]]:
    """(rows, inputs, weak references). `lost(reference)` is called when one of the objects dies."""
    holder = Holder(lost)
    held = [holder.row(row) for row in rows]
    sources = [source for source in map(holder.source, inputs) if source is not None]
    return held, sources, tuple(holder._seen.values())
