"""Whether a thing of ours keeps objects of the program alive.

In: what a compiled program is made of (rows, replacement code, a native program). Out: yes, unless everything that it
leads to is known to be ours, torch's or the standard library's. `kin` asks before it keeps a program for longer than
the models and functions live that it was compiled for.
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
        type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented), range,
        torch.dtype, torch.device, torch.layout, torch.memory_format,
    }
)  # fmt: skip
_BUILTIN_CONTAINERS = (tuple, list, dict, set, frozenset, slice, types.CellType, types.MethodType)
_ASKED = (  # those of `_parts`
    weakref.ref, types.BuiltinFunctionType, types.CodeType, types.ModuleType, type, types.FunctionType,
    torch._ops.OpOverload, torch._ops.OpOverloadPacket, ctypes.CDLL, torch.Tensor,
)  # fmt: skip
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made at run time
_PYBIND = type(torch._C._get_tracing_state.__self__)  # of torch's functions, which are no module's
_MODULE_DICT: Any = vars(types.ModuleType)["__dict__"].__get__
_MOST = 200_000  # objects; what leads to more is not worth the time


def keeps_program_alive(things: Iterable[Any], apart: Iterable[Any] = ()) -> bool:
    """Whether one of `things` leads to an object of the program, or to one of `apart`."""
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
        left, whole = [], []  # `whole`: what is asked for its parts all at once
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
    """Whether an object of this class keeps alive just what the collector says: most are ours, rows and paths."""
    if kind in _BUILTIN_CONTAINERS:
        return kind is not dict
    return not issubclass(kind, _ASKED) and _stays(kind)


def _parts(value: Any) -> Iterable[Any] | None:
    """What an object keeps alive besides what stays anyway; None: it is the program's."""
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
        # not by attribute: a module's class may have a look-up of its own
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
    if name is None:  # generated text: its names are what it was given
        names = (part for key, part in scope.items() if key != "__builtins__")
        return (*own, *names, *function.__code__.co_consts)
    return own if is_lasting(name) and module_of(scope) else None


def _stays(cls: type) -> bool:
    """Whether a class is ours, torch's or the standard library's, and stays under its name."""
    if not cls.__flags__ & _HEAP_TYPE:
        return True
    module = type.__getattribute__(cls, "__module__")
    if not is_lasting(module):
        return False
    found: Any = sys.modules.get(module)
    for name in type.__getattribute__(cls, "__qualname__").split("."):
        found = vars(found).get(name) if isinstance(found, (type, types.ModuleType)) else None
    return found is cls
