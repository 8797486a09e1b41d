"""Guards as rows of data.

A row states a condition on the value at a source, and the line of the user's program that made it
necessary. Rows are ordered: a row that makes a later source safe to read (a type, the presence of a
key) comes before it. Two implementations run the same rows, without user code (`__eq__`,
`__hash__`, properties): the native guard program and its Python mirror, `runtime.guards.mirror`.
Under GRAFTJIT_CHECK=1 both run and must agree. An expected object that may end before the process
does may be wrapped in a `weak_ref.Weak`.
"""

from __future__ import annotations

from typing import Any

import torch

from ...ir.dataclass import dataclass
from ...ir.location import Location
from .sources import Source


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """What a "tensor" row expects of a tensor. `type` is compared exactly (torch.Tensor or
    Parameter). `keys` is torch._C._dispatch_keys(t).raw_repr(). A size of None accepts any size
    from 2 on. A stride of None is checked by "relation" rows."""

    type: type
    dtype: torch.dtype
    device: torch.device
    shape: tuple[int | None, ...]
    stride: tuple[int | None, ...]
    requires_grad: bool
    keys: int


@dataclass(frozen=True, slots=True)
class Row:
    """One guard. `kind` is a key of `ROW_KINDS`. `where` is the user's line that needs it."""

    kind: str
    source: Source | None
    expected: Any
    where: Location | None = None


ROW_KINDS: dict[str, str] = {
    "type": "type(value) is expected (a class)",
    "is": "value is expected (classes, functions, code objects, modules, None, singletons)",
    "equals": "same exact type and same value: None, bool, int, float (by bits), complex (by"
    " bits), str, bytes, numpy's scalars (by bytes), Ellipsis, slices, ranges, torch"
    " dtypes/devices/layouts/memory formats/Size and tuples/frozensets of those",
    "len": "len(value) == expected, read from the builtin list/tuple/dict/set/frozenset/deque/str"
    " part",
    "keys": "the keys of a dict or the elements of a set, in order, are expected (a tuple): each"
    " identical or 'equals'",
    "set": "a set or frozenset whose elements are the constants in expected (a frozenset)",
    "element": "the set at source holds the object in expected, which hashes by identity",
    "no_element": "the set at source lacks the object in expected, which hashes by identity",
    "no_attr": "the instance dict of value lacks the name in expected (true if there is no"
    " instance dict)",
    "no_item": "the dict at source lacks the key in expected",
    "no_global": "f_globals lacks the name in expected (source is None)",
    "no_class_attr": "no class along type(value).__mro__ has the name in expected in its dict",
    "no_mro_attr": "value is a class: no class along its __mro__ has the name in expected in its"
    " dict",
    "mro": "value is a class whose __mro__ has the classes in expected (a tuple)",
    "tensor": "value is a tensor and meets expected (a TensorSpec)",
    "same": "value is the very object at the source in expected",
    "distinct": "the values at the sources in expected (a tuple) are pairwise different objects,"
    " and no two of them that are tensors overlap in memory",
    "own_dict": "value, an exact dict, is the instance dict of none of the objects at the sources"
    " in expected (a tuple); value, any other object, keeps its attributes in none of the dicts"
    " there",
    "history": "value is a tensor and runtime.tensors.history(value), a str, is expected",
    "unhooked": "value is a plain tensor (`runtime.guards.leaves.PLAIN`) without hooks for its"
    " gradient, which has its own dtype",
    "state": "the interpreter state read by `runtime.guards.interpreter_state.snapshot()` equals"
    " expected",
    "unbound_cell": "the cell at source is empty",
    "abc": "abc.get_cache_token() equals expected (source None)",
    "number": "value is of the exact type, int or float, in expected (type, low, high); an int has"
    " 64 bits and is within low..high (None: no end)",
    "relation": "expected, a `relations.Relation`, holds for what is at its sources (source None)",
    "value": "expected, a `value_guards.ValueCheck`, holds for what is at its sources (source"
    " None); these rows are the last",
    "position": "the iterator at source has taken as many steps as expected; an enumerate's next"
    " number is expected; a zip that is not strict has as many iterators",
    "unhandled": "no exception is being handled where the frame is called (source None)",
    "device": "runtime.state.current_device() is expected (source None)",
    "nested": "runtime.differentiate.nested() is expected (source None)",
}


def types_only(rows: list[Row]) -> list[Row]:
    """Guards of a frame without tensors: plain Python is right for all values of these types. The
    end of a loop stays one: other steps of it may compute."""
    if any(row.kind == "position" for row in rows):
        return rows
    kept = []
    for row in rows:
        if row.source is not None and row.source.kind == "local":
            if row.kind == "equals":
                kept.append(Row("type", row.source, type(row.expected), row.where))
            elif row.kind == "number":
                kept.append(Row("type", row.source, row.expected[0], row.where))
            elif row.kind == "type":
                kept.append(row)
    return kept
