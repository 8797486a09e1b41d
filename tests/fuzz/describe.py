"""All that can be seen of a value as plain data, and where two such descriptions part.

An object met again, or a storage met again, is named by its first meeting: identity and aliasing are compared with
the values. An iterator is described by what it gives next, so it has moved afterwards, in both runs alike.
"""

from __future__ import annotations

import collections
import enum
import itertools
import math
import random
import sys
import traceback
import types
import zlib
from typing import Any

import numpy as np
import torch

PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented))


class Describer:
    def __init__(self) -> None:
        self.seen: dict[int, int] = {}
        self.storages: dict[int, int] = {}
        self.kept: list[Any] = []

    def describe(self, value: Any) -> Any:
        kind = type(value)
        if kind in PLAIN:
            return (kind.__name__, value)
        if id(value) in self.seen:
            return ("same as", self.seen[id(value)])
        self.seen[id(value)] = len(self.seen)
        self.kept.append(value)  # an id is only good while its object lives
        if kind is list or kind is tuple:
            return (kind.__name__, [self.describe(item) for item in value])
        if kind is dict:
            return (kind.__name__, self._items(value.items()))
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if issubclass(kind, enum.Enum):
            return (kind.__name__, value._name_)
        if issubclass(kind, type):
            return ("class", value.__name__, self._public(vars(value)))
        if kind is types.FunctionType:
            cells = [_contents(cell) for cell in value.__closure__ or ()]
            return (
                "function",
                value.__name__,
                self.describe([*cells, *(value.__defaults__ or ())]),
            )
        if isinstance(value, BaseException):
            return self._error(value)
        if issubclass(kind, collections.abc.Iterator) and kind.__module__ in (
            "builtins",
            "itertools",
        ):
            return ("iterator", kind.__name__, self._ahead(value))
        return (
            (kind.__name__, self._parts(value, kind))
            if _made_of_parts(kind)
            else self._other(value)
        )

    def _parts(self, value: Any, kind: type) -> list[Any]:
        parts: list[Any] = []
        if issubclass(kind, collections.OrderedDict):
            parts.append(self._items(collections.OrderedDict.items(value)))
        elif issubclass(kind, dict):
            parts.append(self._items(dict.items(value)))
        for base in (list, tuple, collections.deque):
            if issubclass(kind, base):
                parts.append([self.describe(item) for item in base.__iter__(value)])
        if issubclass(kind, (set, frozenset)):
            parts.append(sorted(map(repr, value)))
        for name in [name for base in kind.__mro__ for name in base.__dict__.get("__slots__", ())]:
            if name != "__weakref__" and hasattr(value, name):
                parts.append((name, self.describe(getattr(value, name))))
        own = getattr(value, "__dict__", None) if kind.__module__ == "fuzzed" else None
        if isinstance(own, dict):
            if issubclass(kind, torch.nn.Module):  # hooks are numbered from one module to the next
                own = {n: list(v.values()) if n.endswith("_hooks") else v for n, v in own.items()}
            parts.append(self._public(own))
        return parts

    def _items(self, items: Any) -> Any:
        return [(self.describe(k), self.describe(v)) for k, v in items]

    def _other(self, value: Any) -> Any:
        kind = type(value)
        if kind in (types.MethodType, types.BuiltinFunctionType):
            return ("method", value.__name__, self.describe(value.__self__))
        plain = isinstance(value, (torch.Size, torch.dtype, range, slice, np.ndarray, np.generic))
        return ("other", kind.__name__, str(value) if plain else "")

    def _error(self, error: BaseException) -> Any:
        """What it says, and what it came from (as a name: the traceback is compared where it is raised)."""
        came = [type(one).__name__ for one in (error.__cause__, error.__context__)]
        parts = [self.describe(one) for one in getattr(error, "exceptions", ())]
        return (
            "error",
            type(error).__name__,
            message(error),
            came,
            parts,
            getattr(error, "__notes__", []),
        )

    def _ahead(self, value: Any) -> Any:
        try:
            return [self.describe(item) for item in itertools.islice(value, 4)]
        except Exception as error:
            return ("raises", type(error).__name__, str(error))

    def _public(self, names: Any) -> Any:
        return [(n, self.describe(v)) for n, v in list(names.items()) if not n.startswith("__")]

    def _tensor(self, value: torch.Tensor) -> Any:
        storage = value.untyped_storage().data_ptr()
        group = self.storages.setdefault(storage, len(self.storages)) if storage else None
        strides = tuple(s for s, n in zip(value.stride(), value.shape, strict=True) if n > 1)
        facts = (
            str(value.dtype),
            tuple(value.shape),
            strides,
            value.requires_grad,
            value.is_leaf,
            group,
        )
        return ("tensor", facts, value.detach().flatten().tolist())


def _made_of_parts(kind: type) -> bool:
    basic = issubclass(kind, (dict, list, tuple, set, frozenset, collections.deque))
    return kind is not torch.Size and (basic or kind.__module__ == "fuzzed")


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return "empty"


def message(error: BaseException) -> str:
    """What an error says, without the C++ frames that torch adds to some."""
    return str(error).partition("\nException raised from ")[0]


def lines_of(error: BaseException, file: str) -> list[tuple[str, int | None]]:
    """The lines of the program in a traceback.

    The line where an unbound local was read is left out on CPython 3.11: once a function is warm, the read may be the
    second half of a joined instruction (STORE_FAST__LOAD_FAST), and the traceback has the line of the first half.
    """
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    lines = [(f.name, f.lineno) for f in frames]
    if lines and isinstance(error, UnboundLocalError) and sys.version_info < (3, 12):
        lines[-1] = (lines[-1][0], None)
    return lines


def without_frames(error: BaseException | None, met: set[int]) -> None:
    """Let go of the frames of an error and of what it came from: their locals may die now, in both runs alike."""
    if error is not None and id(error) not in met:
        met.add(id(error))
        error.__traceback__ = None
        for other in (error.__cause__, error.__context__, *getattr(error, "exceptions", ())):
            without_frames(other, met)


def random_state() -> tuple[int, int]:
    """Where the generators of `random` and of torch stand."""
    state = torch.default_generator.get_state().numpy().tobytes()
    return hash(random.getstate()), zlib.crc32(state)


# -- comparing ----------------------------------------------------------------------------------------


def difference(plain: Any, other: Any, path: str = "") -> str | None:
    """The first place where two descriptions part, or None. Floats agree within 1e-4."""
    if isinstance(plain, float) and isinstance(other, float):
        same = plain == other or math.isclose(plain, other, rel_tol=1e-4, abs_tol=1e-5)
        if same and plain == 0 == other:
            same = math.copysign(1, plain) == math.copysign(1, other)
        return (
            None
            if same or plain != plain and other != other
            else f"{path}: {plain!r}, not {other!r}"
        )
    if type(plain) is not type(other):
        return f"{path}: {plain!r}, not {other!r}"
    if isinstance(plain, complex):
        return difference([plain.real, plain.imag], [other.real, other.imag], path)
    if isinstance(plain, list | tuple):
        if len(plain) != len(other):
            return f"{path}: {plain!r}, not {other!r}"
        found = (
            difference(p, o, f"{path}.{n}")
            for n, (p, o) in enumerate(zip(plain, other, strict=True))
        )
        return next((one for one in found if one), None)
    return None if plain == other else f"{path}: {plain!r}, not {other!r}"
