"""Reading objects without running user code.

In: any object. Out: its instance dict, class attributes, constant form, or a short text. Nothing
here calls `__eq__`, `__hash__`, `__getattr__`, `__repr__`, properties or metaclass hooks of a
user's class; reads use the C-level descriptors of the builtin types. The guard mirror and reports
use this module.
"""

from __future__ import annotations

import ctypes
import struct
import types
from collections import OrderedDict, deque
from typing import Any

import numpy as np
import torch

from . import _native

MISSING: Any = type("Missing", (), {"__repr__": lambda self: "<missing>"})()

_mro: Any = type.__dict__["__mro__"].__get__  # type: ignore[attr-defined]


def mro_of(cls: type) -> tuple[type, ...]:
    """`cls.__mro__`, without asking a metaclass. A C type that was never used is initialised
    first."""
    found = _mro(cls)
    if found is None:
        type.__getattribute__(cls, "__name__")
        type.__getattribute__(cls, "__mro__")
        found = _mro(cls) or ()
    return found


class_dict = type.__dict__["__dict__"].__get__  # type: ignore[attr-defined]

# PyObject_GenericGetDict returns `__dict__` without a look-up in the class, where a user may have
# put a property.
_generic_dict = ctypes.pythonapi.PyObject_GenericGetDict
_generic_dict.argtypes = [ctypes.py_object, ctypes.c_void_p]
_generic_dict.restype = ctypes.py_object


_type_slot = ctypes.pythonapi.PyType_GetSlot
_type_slot.argtypes = [ctypes.py_object, ctypes.c_int]
_type_slot.restype = ctypes.c_void_p
_TP_NEW = 65  # Include/typeslots.h; slot numbers are part of the stable ABI


def new_slot(cls: type) -> int | None:
    """The address of the C function that creates instances of a class (tp_new)."""
    return _type_slot(ctypes.py_object(cls), _TP_NEW)


def is_a(value: Any, base: type) -> bool:
    """isinstance by type only, without `__class__` and `__instancecheck__`."""
    return any(cls is base for cls in mro_of(type(value)))


def instance_dict(value: Any) -> Any:
    """The instance dict itself (a mapping proxy for a class), or MISSING."""
    if is_a(value, type):
        return class_dict(value)
    try:
        # Wrapped first, since ctypes reads `__class__` of a bare argument.
        return _generic_dict(ctypes.py_object(value), None)
    except AttributeError:
        return MISSING


class Unsure(Exception):
    """Only the `__eq__` of a key's class could decide whether a name is in a class or an object."""


def in_classes(cls: type, name: str) -> Any:
    """The first value of `name` in the dicts along cls.__mro__, unbound, or MISSING. Raises
    Unsure."""
    for base in mro_of(cls):
        found = _native.look_up(class_dict(base), name)
        if found:
            return found[0]
        if found is None:
            raise Unsure(name)
    return MISSING


_BUILTIN_PARTS: tuple[Any, ...] = (
    dict,
    list,
    tuple,
    set,
    frozenset,
    deque,
    str,
    bytes,
    bytearray,
    range,
)


def builtin_part(value: Any) -> Any:
    """The builtin container type that the object is an instance of, or None."""
    for cls in mro_of(type(value)):
        if cls in _BUILTIN_PARTS:
            return cls
        if cls is types.MappingProxyType:
            return cls
    return None


def length_of(value: Any) -> Any:
    """len() by the builtin type, or MISSING."""
    part = builtin_part(value)
    return MISSING if part is None else part.__len__(value)


_HASHES_SAFELY = (str, int, bool, float, complex, bytes, type(None), type(Ellipsis))


def dict_keys(value: Any) -> Any:
    """An iterator over the keys in order (that of the OrderedDict for one), or MISSING."""
    part = builtin_part(value)
    if part is dict:
        return iter((OrderedDict if isinstance(value, OrderedDict) else dict).keys(value))
    return iter(value.keys()) if part is types.MappingProxyType else MISSING


_COMPARE_SAFELY = {*_HASHES_SAFELY, tuple, frozenset}


def _all_compare_safely(keys: Any) -> bool:
    """Whether comparing each of these keys runs builtin code only."""
    return all(
        kind in _COMPARE_SAFELY
        or all(in_classes(kind, name) is object.__dict__[name] for name in ("__eq__", "__hash__"))
        for kind in {type(key) for key in keys}
    )


def _look_up(value: Any, key: Any) -> tuple[Any, ...] | None:
    """(value[key],) or (); None if only the `__eq__` of a key's class could decide."""
    held = dict(value) if builtin_part(value) is types.MappingProxyType else value
    simple = type(key) in _HASHES_SAFELY
    if is_a(key, tuple) or (simple and not _all_compare_safely(dict.keys(held))):
        # look_up compares the hashes stored in the dict
        return _native.look_up(held, key)
    if simple:
        return (dict.__getitem__(held, key),) if dict.__contains__(held, key) else ()
    items = dict.items(held)
    return next(((found,) for name, found in items if same_constant(name, key)), ())


def dict_get(value: Any, key: Any) -> Any:
    """value[key] by dict's own method, or MISSING. Keys with user-defined hashes are found by
    identity."""
    if builtin_part(value) not in (dict, types.MappingProxyType):
        return MISSING
    found = _look_up(value, key)
    return found[0] if found else MISSING


def dict_lacks(value: Any, key: Any) -> bool:
    """Whether a dict certainly lacks the key."""
    return builtin_part(value) in (dict, types.MappingProxyType) and _look_up(value, key) == ()


def item(value: Any, key: Any) -> Any:
    """value[key] by the builtin dict, list or tuple method, or MISSING."""
    part = builtin_part(value)
    if part in (list, tuple):
        if type(key) is not int or not 0 <= key < part.__len__(value):
            return MISSING
        return part.__getitem__(value, key)
    return dict_get(value, key)


# Immutable numpy scalars with a plain memory layout: constants like Python's own numbers.
ARRAY_SCALARS = frozenset(
    {
        np.bool_,
        np.int8,
        np.int16,
        np.int32,
        np.int64,
        np.uint8,
        np.uint16,
        np.uint32,
        np.uint64,
        np.intc,
        np.longlong,
        np.ulonglong,
        np.float16,
        np.float32,
        np.float64,
        np.complex64,
        np.complex128,
    }
)

_BY_NAME = (torch.dtype, torch.layout, torch.memory_format)


def canonical(value: Any) -> Any:
    """A hashable form, equal for constants of the same exact type and value (floats by their bits).

    Any other object is compared by identity.
    """
    cls = type(value)
    if cls is float:
        return ("float", struct.pack("<d", value))
    if cls is complex:
        return ("complex", struct.pack("<dd", value.real, value.imag))
    if cls in (str, int, bool, bytes, type(None), type(Ellipsis)):
        return (cls.__name__, value)
    if cls in ARRAY_SCALARS:
        return (cls.__name__, bytes(memoryview(value)))
    if cls in _BY_NAME:
        return ("torch", cls.__name__, str(value))
    if cls is torch.device:
        return ("device", value.type, value.index)
    if cls is tuple or cls is torch.Size:
        return (cls.__name__, tuple(canonical(element) for element in value))
    if cls is frozenset:
        return ("frozenset", frozenset(canonical(element) for element in value))
    # Ranges that are equal may have other bounds: range(0, 3, 2) == range(0, 4, 2).
    if cls is slice or cls is range:
        parts = (value.start, value.stop, value.step)
        return (cls.__name__, *(canonical(part) for part in parts))
    return ("object", id(value))


def same_constant(left: Any, right: Any) -> bool:
    """Whether both are the same object, or constants of the same exact type and value."""
    return left is right or (type(left) is type(right) and canonical(left) == canonical(right))


def is_constant(value: Any) -> bool:
    """Whether `canonical` compares the object entirely by value."""
    cls = type(value)
    if cls in (tuple, frozenset):
        return all(is_constant(element) for element in value)
    if cls is slice:
        return all(is_constant(part) for part in (value.start, value.stop, value.step))
    return canonical(value)[0] != "object"


_SHORT = {"float": "f", "int": "i", "uint": "u", "complex": "c", "bfloat": "bf"}


def short_dtype(dtype: torch.dtype) -> str:
    """torch.float32 -> f32, torch.int64 -> i64, torch.bool -> bool."""
    name = str(dtype).removeprefix("torch.")
    word = name.rstrip("0123456789")
    return _SHORT[word] + name[len(word) :] if word in _SHORT and word != name else name


def show_tensor(dtype: Any, device: Any, shape: Any, stride: Any, requires_grad: bool) -> str:
    """`cpu f32[3, 4]`, with strides if they are not contiguous. A symbolic size is `?`."""
    sizes = ("?" if size is None else str(size) for size in shape)
    text = f"{device} {short_dtype(dtype)}[{', '.join(sizes)}]"
    if None in shape or None in stride:
        steps = ", ".join("?" if step is None else str(step) for step in stride)
        return f"{text} strides ({steps})" + (" requires_grad" if requires_grad else "")
    if tuple(stride) != contiguous_strides(shape):
        text += f" strides ({', '.join(map(str, stride))})"
    return text + (" requires_grad" if requires_grad else "")


def contiguous_strides(shape: Any) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for size in reversed(tuple(shape)):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def name_of(cls: type) -> str:
    """The qualified name of a class, without asking its metaclass; builtins without their
    module."""
    own = class_dict(cls)
    module = own.get("__module__", "builtins") if type(own.get("__module__")) is str else "builtins"
    qualified = type.__dict__["__qualname__"].__get__(cls)  # type: ignore[attr-defined]
    return qualified if module == "builtins" else f"{module}.{qualified}"


def show(value: Any, limit: int = 60) -> str:
    """A short text for any object: constants by value, others by type and name, without ids and
    addresses."""
    if value is MISSING:
        return "missing"
    cls = type(value)
    if is_constant(value):
        text = _show_constant(value)
    elif cls in (torch.Tensor, torch.nn.Parameter):
        text = _show_real_tensor(value)
    elif is_a(value, type):
        text = f"class {name_of(value)}"
    elif cls is types.FunctionType:
        text = f"function {value.__qualname__} (line {value.__code__.co_firstlineno})"
    elif cls is types.CodeType:
        text = f"code of {value.co_qualname} (line {value.co_firstlineno})"
    elif cls in (types.BuiltinFunctionType, types.ModuleType):
        text = f"{'module' if cls is types.ModuleType else 'builtin'} {_own_name(value)}"
    elif builtin_part(value) is not None:
        text = f"{name_of(cls)} of {length_of(value)}"
    else:
        text = f"{name_of(cls)} object"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _show_constant(value: Any) -> str:
    try:
        return repr(value)
    # More digits than sys.set_int_max_str_digits() allows, perhaps in an int within a tuple.
    except ValueError:
        return (
            f"an int of {value.bit_length()} bits"
            if type(value) is int
            else "a constant with a huge int"
        )


def _own_name(value: Any) -> str:
    """`__name__` of a builtin function or a module."""
    if type(value) is types.BuiltinFunctionType:
        return value.__name__
    name = dict_get(instance_dict(value), "__name__")
    return name if type(name) is str else "?"


def _show_real_tensor(tensor: torch.Tensor) -> str:
    with torch._C.DisableTorchFunction():
        if tensor.layout is not torch.strided:
            return (
                f"{tensor.device} {short_dtype(tensor.dtype)}{list(tensor.shape)} {tensor.layout}"
            )
        return show_tensor(
            tensor.dtype, tensor.device, tensor.shape, tensor.stride(), tensor.requires_grad
        )


def _set_part(value: Any) -> type[set] | type[frozenset] | None:
    """The builtin set type that the value is an instance of, or None."""
    return set if is_a(value, set) else frozenset if is_a(value, frozenset) else None


def ordered(value: Any) -> Any:
    """An iterator over a dict's keys or a set's elements in order, or MISSING."""
    part = _set_part(value)
    return dict_keys(value) if part is None else part.__iter__(value)


def shown(value: Any) -> Any:
    """Like `ordered`, for display. An OrderedDict is iterated as a dict if its own iterator would
    call methods of user-defined keys."""
    if isinstance(value, OrderedDict) and not _all_compare_safely(dict.keys(value)):
        return iter(dict.keys(value))
    return ordered(value)


def equal_keys(value: Any, expected: tuple[Any, ...]) -> bool:
    keys = ordered(value)
    if keys is MISSING or length_of(value) != len(expected):
        return False
    if isinstance(value, OrderedDict):
        # Its iterator looks up each key, which would call methods of user-defined keys.
        for key in dict.keys(value):
            if not any(same_constant(key, other) for other in expected):
                return False
    return all(same_constant(key, other) for key, other in zip(keys, expected, strict=True))


def equal_set(value: Any, expected: frozenset[Any]) -> bool:
    part = _set_part(value)
    if part is None or part.__len__(value) != len(expected):
        return False
    elements = {canonical(element) for element in part.__iter__(value)}
    return elements == {canonical(element) for element in expected}


def in_set(value: Any, expected: Any) -> bool | None:
    """Whether the set contains the object; None: the value is no set."""
    part = _set_part(value)
    return None if part is None else part.__contains__(value, expected)
