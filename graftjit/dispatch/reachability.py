"""Whether a compiled program keeps objects of the user's program alive.

In: the parts of a compiled program (rows, replacement code, a native program). Out: true, unless
everything reachable is known to belong to graftjit, torch or the standard library. `shared_entries`
checks this before it keeps a program longer than the models and functions it was compiled for.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import types
import weakref
from collections.abc import Iterable
from typing import Any

import torch

from ..runtime.guards.weak_rows import is_lasting, module_of

_ATOMS = frozenset(
    {
        type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented),
        range, torch.dtype, torch.device, torch.layout, torch.memory_format,
    }
)  # fmt: skip
_BUILTIN_CONTAINERS = (tuple, list, dict, set, frozenset, slice, types.CellType, types.MethodType)
_ASKED = (  # the types that `_parts` handles
    weakref.ref, types.BuiltinFunctionType, types.CodeType, types.ModuleType, type,
    types.FunctionType, torch._ops.OpOverload, torch._ops.OpOverloadPacket, ctypes.CDLL,
    torch.Tensor,
)  # fmt: skip
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made at run time
# Owner of torch's pybind functions, which belong to no module.
_PYBIND = type(torch._C._get_tracing_state.__self__)
_MODULE_DICT: Any = vars(types.ModuleType)["__dict__"].__get__
_MOST = 200_000  # limit of visited objects


def keeps_program_alive(things: Iterable[Any], apart: Iterable[Any] = ()) -> bool:
    """Whether an object of the program, or one of `apart`, is reachable from `things`."""
    left, seen, forbidden = list(things), set[int](), frozenset(map(id, apart))
    plain: dict[type, bool] = {}
    while left:
        found = {id(value): value for value in left if type(value) not in _ATOMS}
        if not forbidden.isdisjoint(found):
            return True
        new = [value for key, value in found.items() if key not in seen]
        seen.update(found)
        if len(seen) > _MOST:
            return True
        left, whole = [], []  # `whole`: objects whose parts are read together
        for value in new:
            kind = type(value)
            if kind not in plain:
                plain[kind] = _is_plain(kind)
            if plain[kind]:
                whole.append(value)
                continue
            parts = _parts(value)
            if parts is None:
                return True
            left += parts
        left += gc.get_referents(*whole)
    return False


def _is_plain(kind: type) -> bool:
    """Whether objects of this class keep alive exactly what the garbage collector reports. This
    holds for most objects: rows and sources."""
    if kind in _BUILTIN_CONTAINERS:
        return kind is not dict
    return not issubclass(kind, _ASKED) and _stays(kind)


def _parts(value: Any) -> Iterable[Any] | None:
    """What an object keeps alive besides permanent objects; None: it belongs to the program."""
    kind = type(value)
    if issubclass(kind, weakref.ref):
        return ()
    if issubclass(kind, types.BuiltinFunctionType):
        owner = type(value.__self__)
        bound = owner is not _PYBIND and not issubclass(owner, types.ModuleType)
        return (value.__self__,) if bound else ()
    if issubclass(kind, types.CodeType):
        return value.co_consts
    if issubclass(kind, types.ModuleType):
        # Not by attribute, since a module's class may define its own look-up.
        return () if is_lasting(_MODULE_DICT(value).get("__name__")) else None
    if issubclass(kind, type):
        return () if _stays(value) else None
    if issubclass(kind, types.FunctionType):
        return _parts_of_function(value)
    if issubclass(kind, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return ()
    if kind is dict and is_lasting(value.get("__name__")) and module_of(value):
        return ()
    if issubclass(kind, ctypes.CDLL):
        return ()
    if issubclass(kind, torch.Tensor):
        return () if kind is torch.Tensor and value.is_meta and value.grad_fn is None else None
    if kind is dict or _is_plain(kind):
        return gc.get_referents(value)
    return None


def _parts_of_function(function: types.FunctionType) -> Iterable[Any] | None:
    scope = function.__globals__
    name = scope.get("__name__")
    own = (function.__closure__, function.__defaults__, function.__kwdefaults__, function.__dict__)
    # Generated code, whose globals are its parameters.
    if name is None:
        names = (part for key, part in scope.items() if key != "__builtins__")
        return (*own, *names, *function.__code__.co_consts)
    return own if is_lasting(name) and module_of(scope) else None


def _stays(cls: type) -> bool:
    """Whether a class belongs to graftjit, torch or the standard library, under its own name."""
    if not cls.__flags__ & _HEAP_TYPE:
        return True
    module = type.__getattribute__(cls, "__module__")
    if not is_lasting(module):
        return False
    found: Any = sys.modules.get(module)
    for name in type.__getattribute__(cls, "__qualname__").split("."):
        found = vars(found).get(name) if isinstance(found, (type, types.ModuleType)) else None
    return found is cls
