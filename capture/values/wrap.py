"""From real objects to Values: a table by type, whose rows add the guards of each kind of value.

In: an object that the frame can reach, and its Source. Out: its Value; the machine gets the guard
rows. Mutable objects and objects with identity are remembered by identity, so that two paths to one
object give one Value and a "same" guard.
"""

from __future__ import annotations

import collections
import enum
import functools
import types
import warnings
import zlib
from collections import OrderedDict, deque
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...ir.trace.tracer import Unsupported
from ...runtime import _native, safe_access
from ...runtime.guards.rows import TensorSpec
from ...runtime.guards.sources import Source
from ...runtime.guards.value_guards import MOST_ARRAY_BYTES, ArrayContent, ValueCheck
from ...runtime.guards.weak_ref import Referent
from ...runtime.process.wrappers import TORCH_FOLDER
from ...runtime.safe_access import ARRAY_SCALARS, MISSING, in_classes
from .. import helpers
from ..breaks import Break
from ..exact_type import is_kind
from . import registry, symbolic_sizes
from .symbolic_numbers import hold
from .value import (
    UNREAD,
    Array,
    BuiltinMethod,
    Const,
    Dict,
    Function,
    Instance,
    Method,
    Obj,
    Partial,
    Sequence,
    Set,
    Tensor,
    Value,
)

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

# Items read of one list or tuple: each costs a guard and as many instructions.
MOST_READ = 4096
CONST_TYPES = frozenset(
    {
        type(None),
        bool,
        int,
        float,
        complex,
        str,
        bytes,
        type(Ellipsis),
        type(NotImplemented),
        torch.dtype,
        torch.device,
        torch.layout,
        torch.memory_format,
        torch.Size,
        *ARRAY_SCALARS,
    }
)

ARRAY_KINDS = frozenset({type(np.dtype(cls)) for cls in ARRAY_SCALARS})

# Types of objects that an "is" guard holds: nothing about them is assumed except their identity.
_BY_IDENTITY: Any = object.__hash__
_SAME: Any = object.__eq__
IDENTITY_TYPES = (
    types.FunctionType,
    types.BuiltinFunctionType,
    type,
    types.ModuleType,
    types.CodeType,
    type(str.join),
    type(object.__init__),
    type(dict.__dict__["fromkeys"]),
    type(types.FunctionType.__code__),
    type(int.__dict__["real"]),
    staticmethod,
    classmethod,
    property,
    enum.Enum,
    ContextVar,
    type(torch.ops.aten.add),
    type(torch.ops.aten.add.Tensor),
    np.ufunc,
    type(np.sum),
    _native.Callable,  # what jit returns
    torch._C._NodeBase if hasattr(torch._C, "_NodeBase") else type(NotImplemented),
)

PLAIN_TENSORS = frozenset(
    {torch.Tensor, torch.nn.Parameter, getattr(torch.nn, "Buffer", torch.nn.Parameter)}
)


def wrap(m: Machine, value: Any, source: Source) -> Value:
    """The Value of an object at a Source, see the module's docstring."""
    kind = type(value)
    meta = kind if issubclass(kind, type) else type(kind)
    if meta is not type and decides_for_itself(meta):
        raise Break(
            "GB112", f"a class whose metaclass {meta.__name__} defines attribute access itself"
        )
    if kind is int or kind is float:
        return hold(m, value, source)
    if kind in CONST_TYPES:
        m.guard("equals", source, value)
        return Const(value, source=source)
    known = m.heap.known.get(id(value))
    if known is not None:
        if known.source is not None and known.source != source:
            _same(m, known, value, source)
        return known
    made = _make(m, value, source)
    m.heap.known[id(value)] = made
    m.heap.keep.append(value)
    return made


def hashes_by_identity(value: Any) -> bool:
    """Whether this is an object like a class or function, which equals only itself."""
    return is_kind(value, IDENTITY_TYPES) and _compares_by_identity(type(value))


def _compares_by_identity(cls: type) -> bool:
    return in_classes(cls, "__hash__") is _BY_IDENTITY and in_classes(cls, "__eq__") is _SAME


# Operations on classes that capture needs from `type`: a metaclass with its own would run during
# capture.
_OF_TYPE = ("__eq__", "__hash__", "__getattribute__", "__dict__", "__mro__", "__flags__")


def decides_for_itself(meta: type) -> bool:
    found = (in_classes(meta, name) for name in _OF_TYPE)
    usual = (in_classes(type, name) for name in _OF_TYPE)
    return any(
        mine is not theirs and type(mine) is not types.WrapperDescriptorType  # a C slot
        for mine, theirs in zip(found, usual, strict=True)
    )


def _same(m: Machine, known: Value, value: Any, source: Source) -> None:
    if is_kind(value, IDENTITY_TYPES) and not held_by_content(known):
        m.guard("is", source, value)
    else:
        m.guard("same", source, known.source)


def held_by_content(value: Value) -> bool:
    return isinstance(value, Obj) and value.pin is not None


def pin(value: Value) -> None:
    """Guard the identity of this function from here on."""
    if isinstance(value, Obj) and value.pin is not None:
        value.pin()


def same_object(m: Machine, value: Obj) -> None:
    """Guard the identity of an object, without keeping it alive."""
    pin(value)
    source = value.source
    if source is None or source.kind == "const" or is_kind(value.value, IDENTITY_TYPES):
        return  # `wrap` has guarded it
    held = m.heap.asked.get(id(value.value))
    if held is None:
        try:
            held = Referent(value.value)
        except TypeError:
            raise Break("GB112", f"the identity of a {type(value.value).__name__}") from None
        m.heap.asked[id(value.value)] = held
    m.guard("same", source, Source("context", None, held))


# Roots of paths to objects that one call may have and the next may make anew.
_MADE_AGAIN = ("local", "cell")
_OF_A_CLASS = ("class_attr", "mro_attr")


def _may_be_made_again(value: Any, source: Source) -> bool:
    """Whether this is a Python function made at each run: a lambda or a nested `def`.

    It is reached through an argument, a closure, a container or an attribute. A function that a
    module or class holds under its name stays, and one guard on its identity suffices.
    """
    if type(value) is not types.FunctionType or source.kind in _OF_A_CLASS:
        return False
    if source.kind == "member" and source.key != "func":  # parts of a method or a property
        return False
    names = value.__globals__
    of_torch = value.__code__.co_filename.startswith(TORCH_FOLDER)
    if of_torch or dict.get(names, value.__name__) is value:
        return False
    while source.base is not None:
        source = source.base
    return source.kind in _MADE_AGAIN


def _make(m: Machine, value: Any, source: Source) -> Value:
    kind = type(value)
    maker = MAKERS.get(kind)
    if maker is None and is_kind(value, torch.Tensor):
        registry.load_models_of(kind.__module__)
        maker = MAKERS.get(kind, _tensor)
    if maker is not None:
        return maker(m, value, source)
    if _may_be_made_again(value, source):
        m.guard("type", source, kind)
        return Obj(value, functools.partial(m.guard, "is", source, value), source=source)
    if is_kind(value, IDENTITY_TYPES):
        m.guard("is", source, value)
        return Obj(value, source=source)
    m.guard("type", source, kind)
    if is_record(kind):
        return _sequence(m, value, source)
    return Obj(value, source=source)


# Special methods that a record inherits from tuple: a class with its own is an ordinary object.
_OF_TUPLE = [
    "__len__",
    "__iter__",
    "__getitem__",
    "__contains__",
    "__bool__",
    "__eq__",
    "__ne__",
    "__lt__",
    "__le__",
    "__gt__",
    "__ge__",
    "__hash__",
    "__add__",
    "__radd__",
    "__mul__",
    "__rmul__",
    "__iadd__",
    "__imul__",
    "__mod__",
    "__rmod__",
    "__getattribute__",
    "__getattr__",
    "__setattr__",
    "__enter__",
    "__exit__",
    "__call__",
    "__reversed__",
]

# The __repr__ of named tuples, for classes without their own.
_WRITING = vars(collections.namedtuple("_Writing", "item"))["__repr__"].__code__


def own_text(cls: type, name: str) -> bool:
    """Whether a class of records defines its own `__str__`, `__repr__` or `__format__`."""
    raw = in_classes(cls, name)
    return is_kind(raw, types.FunctionType) and raw.__code__ is not _WRITING


def is_record(cls: type) -> bool:
    """Whether instances are plain tuples with names for their items."""
    if not issubclass(cls, tuple) or in_classes(cls, "_fields") is MISSING:
        return False
    return all(in_classes(cls, name) is in_classes(tuple, name) for name in _OF_TUPLE)


def _tensor(m: Machine, value: Any, source: Source) -> Value:
    if type(value) not in PLAIN_TENSORS:
        m.guard("type", source, type(value))
        return Obj(value, source=source)
    spec, meta = symbolic_sizes.open_sizes(m, tensor_spec(value), value, source)
    m.guard("tensor", source, spec)
    try:
        ghost = m.root_tracer.input(value, source, meta)
    except Unsupported as error:
        raise Break("FB304", str(error)) from error
    made = Tensor(ghost, type(value), value, source=source)
    m.inputs.append(made)
    m.heap.known[id(ghost)] = made
    m.heap.keep.append(ghost)
    return made


_has_storage = torch._C._has_storage


def tensor_spec(value: torch.Tensor) -> TensorSpec:
    """The properties of this tensor that its guard checks."""
    if value.layout is not torch.strided or value.is_quantized or value.is_nested:
        what = "a nested tensor" if value.is_nested else f"a tensor with layout {value.layout}"
        raise Break("FB304", what)
    if not _has_storage(value):  # a batched gradient, which only operators of torch can take
        raise Break("FB304", "a tensor without memory of its own")
    if value.requires_grad and not (value.dtype.is_floating_point or value.dtype.is_complex):
        # Autograd itself gives integers a history where a differentiable value is written to them.
        raise Break("FB304", "a tensor of integers with a history")
    return TensorSpec(
        type(value),
        value.dtype,
        value.device,
        tuple(value.shape),
        tuple(value.stride()),
        value.requires_grad,
        torch._C._dispatch_keys(value).raw_repr(),
    )


def _sequence(m: Machine, value: Any, source: Source) -> Value:
    m.guard("type", source, type(value))
    if type(value) is list:
        return shut_list(m, value, source)
    m.guard("len", source, len(value))
    return Sequence([UNREAD] * len(value), type(value), value, source=source)


def shut_list(m: Machine, value: list[Any], source: Source) -> Sequence:
    """A pre-existing list; its length is guarded when something reads it."""

    def size() -> int:
        if value is warnings.filters:
            raise Break("GB103", "the filters of warnings, to which a walk adds its own")
        held = list.__len__(value)
        m.guard("len", source, held)
        return held

    return Sequence([], list, value, source=source, shut=size)


def sequence_items(m: Machine, value: Sequence) -> list[Value]:
    """All items, read."""
    if value.source is not None and len(value.items) > MOST_READ:
        raise Break("GB141", f"all {len(value.items)} items of a {value.cls.__name__}")
    for index in range(len(value.items)):
        sequence_item(m, value, index)
    return value.items


def sequence_item(m: Machine, value: Sequence, index: int) -> Value:
    item = value.items[index]
    if item is UNREAD:
        # A moved item was read before (see `writable`): here index is the original position.
        item = m.wrap(item_of(value.origin, index), Source("item", value.source, index))
        value.items[index] = item
    return item


def item_of(origin: Any, index: int) -> Any:
    """An item by the builtin's own method: a subclass may define another look-up."""
    if is_kind(origin, list):
        return list.__getitem__(origin, index)
    return tuple.__getitem__(origin, index) if is_kind(origin, tuple) else origin[index]


def _dict(m: Machine, value: Any, source: Source) -> Value:
    m.guard("type", source, type(value))
    if id(value) in m.guards.scopes:
        raise Break("GB112", "the globals of a function as a dict")
    for owner, written in m.heap.overlay.items():
        if written and isinstance(owner, Obj) and safe_access.instance_dict(owner.value) is value:
            raise Break(
                "GB112", "the __dict__ of an object whose attributes were set in this frame"
            )
    return Dict({}, type(value), value, opened=False, source=source)


def _set(m: Machine, value: Any, source: Source) -> Value:
    m.guard("type", source, type(value))
    if type(value) is frozenset and not all(type(item) in CONST_TYPES for item in value):
        return Obj(value, source=source)

    def held() -> dict[Any, Value]:
        if not all(type(item) in CONST_TYPES for item in value):
            raise Break("GB122", "the content of a set of objects")
        m.guard("set", source, frozenset(value))
        return {freeze(Const(item)): Const(item) for item in value}

    if type(value) is frozenset:
        return Set(held(), frozenset, value, source=source)
    return Set({}, set, value, source=source, shut=held)


def _method(m: Machine, value: Any, source: Source) -> Value:
    m.guard("type", source, type(value))
    func = m.wrap(value.__func__, Source("member", source, "__func__"))
    receiver = m.wrap(value.__self__, Source("member", source, "__self__"))
    return Method(func, receiver, source=source)


def _builtin(m: Machine, value: Any, source: Source) -> Value:
    """A C function. A method of an object is new at each look-up: guard the object and the name."""
    owner = value.__self__
    if owner is None or is_kind(owner, (type, types.ModuleType)) or registry.model_of(value):
        m.guard("is", source, value)
        return Obj(value, source=source)
    m.guard("type", source, type(value))
    m.guard("equals", Source("member", source, "__name__"), value.__name__)
    receiver = m.wrap(owner, Source("member", source, "__self__"))
    if isinstance(receiver, Obj):
        return Obj(value, source=source)
    return BuiltinMethod(receiver, value.__name__, source=source)


def _partial(m: Machine, value: Any, source: Source) -> Value:
    m.guard("type", source, type(value))
    func = m.wrap(value.func, Source("member", source, "func"))
    args = m.wrap(value.args, Source("member", source, "args"))
    keywords = m.wrap(value.keywords, Source("member", source, "keywords"))
    assert isinstance(args, Sequence)
    assert isinstance(keywords, Dict)
    return Partial(func, tuple(sequence_items(m, args)), {}, (args, keywords), source=source)


def _dtype(m: Machine, value: Any, source: Source) -> Value:
    """A dtype of numpy's numbers, which is a singleton."""
    m.guard("is", source, value)
    return Const(value, source=source)


def _array(m: Machine, value: Any, source: Source) -> Value:
    """A numpy array. One of other things than plain numbers is an ordinary object."""
    m.guard("type", source, np.ndarray)
    if type(value.dtype) not in ARRAY_KINDS or not value.dtype.isnative:
        return Obj(value, source=source)
    content = functools.partial(_array_content, m)
    return Array(None, origin=value, shut=content, source=source)


def _array_content(m: Machine, value: Array, numbers: bool) -> Any:
    """Capture's own copy of an array from outside, and a guard on its content; without `numbers`
    the array itself, and a guard on its form."""
    real, source = value.origin, value.source
    assert source is not None
    if not numbers:
        m.guard("value", None, ValueCheck(ArrayContent(real, False), (source,), True, True))
        return real
    made = helpers.copy_of(real)
    base = source
    while base.kind == "item" and base.base is not None:
        base = base.base
    if real.nbytes > MOST_ARRAY_BYTES or made.strides != real.strides:
        raise Break("GB123", "a numpy array from outside that is large, or has gaps in its memory")
    content = ArrayContent(real, True)
    known = m.varied.answered(("array", str(source)), zlib.crc32(repr(content.key).encode()))
    if not known or (base.kind == "local" and real.dtype.kind in "fc"):
        raise Break("GB123", "a numpy array from outside, whose numbers usually differ")
    m.guard("value", None, ValueCheck(content, (source,), True, True))
    m.heap.known[id(made)] = value
    m.heap.keep.append(made)
    m.heap.arrays.append(made)
    return made


def _slice(m: Machine, value: Any, source: Source) -> Value:
    """A slice or a range."""
    if any(type(part) not in CONST_TYPES for part in (value.start, value.stop, value.step)):
        m.guard("type", source, type(value))
        return Obj(value, source=source)
    m.guard("equals", source, value)
    return Const(value, source=source)


MAKERS: dict[type, Callable[[Any, Any, Source], Value]] = {
    torch.Tensor: _tensor,
    list: _sequence,
    tuple: _sequence,
    dict: _dict,
    OrderedDict: _dict,
    set: _set,
    frozenset: _set,
    slice: _slice,
    range: _slice,
    types.MethodType: _method,
    types.BuiltinFunctionType: _builtin,
    np.ndarray: _array,
    functools.partial: _partial,
    **{type(np.dtype(cls)): _dtype for cls in ARRAY_SCALARS},
    deque: lambda m, value, source: (m.guard("type", source, deque), Obj(value, source=source))[1],
}


# The value of an object as one of the builtin type itself, by no method of the object's class.
_PLAIN: dict[Any, Callable[[Any], Any]] = {
    int: lambda value: int.__add__(value, 0),
    float: lambda value: float.__add__(value, 0.0),
    complex: lambda value: complex.__add__(value, 0j),
    str: str.__str__,
    bytes: lambda value: bytes.__add__(value, b""),
}


def _compares_as(cls: type, base: type) -> bool:
    """Whether a class has the hash and equality of this builtin type."""
    return issubclass(cls, base) and all(
        in_classes(cls, name) is base.__dict__[name] for name in ("__hash__", "__eq__")
    )


def _plain_type(cls: type) -> type | None:
    return next((base for base in _PLAIN if _compares_as(cls, base)), None)


def compares_by_value(value: Any) -> bool:
    """Whether a dict takes the object for the number, text or bytes that it is: an IntEnum's
    member, an object of a class derived from str."""
    return _plain_type(type(value)) is not None


def _freeze_constant(value: Any) -> Any:
    if isinstance(value, tuple):  # torch.Size too equals a tuple
        return ("tuple", tuple(map(_freeze_constant, value)))
    if isinstance(value, frozenset):
        return ("frozenset", frozenset(map(_freeze_constant, value)))
    if is_kind(value, np.generic):
        value = value.item()  # it has the hash and equality of Python's number
    if isinstance(value, (float, complex)) and value != value:
        raise Break("GB137", "a key that is nan, which is equal to itself alone")
    if type(value).__hash__ is None:  # a slice, before 3.12
        raise Break("GB137", "a key that is unhashable")
    return ("const", value)


def freeze(value: Value) -> Any:
    """A dict key by type and value: 1, 1.0 and True are one key, as in Python.

    Constants compare by value as in Python's dicts, objects by identity.
    """
    if isinstance(value, Const):
        return _freeze_constant(value.value)
    if isinstance(value, Sequence) and _compares_as(value.cls, tuple):
        return ("tuple", tuple(freeze(item) for item in value.items))
    if isinstance(value, Set) and value.cls is frozenset:
        return ("frozenset", frozenset(value.items))
    if isinstance(value, Obj):
        kind = type(value.value)
        if compares_by_value(value.value):
            pin(value)
            return _freeze_constant(_PLAIN[_plain_type(kind)](value.value))
        by_value = is_kind(value.value, (int, float, complex, str, bytes, tuple, frozenset))
        own = is_kind(value.value, enum.Enum) and in_classes(kind, "__eq__") is not _SAME
        pinned = is_kind(value.value, IDENTITY_TYPES) and not by_value and not own
        if in_classes(kind, "__hash__") is _BY_IDENTITY or pinned:
            pin(value)
            return ("object", id(value.value))
    if isinstance(value, Tensor):
        return ("object", id(value.ghost))
    if isinstance(value, Function):
        return ("object", id(value))
    if isinstance(value, Instance):
        cls = value.cls.value  # type: ignore[attr-defined]
        if _compares_by_identity(cls):
            return ("object", id(value))
    raise Break("GB137", "a key whose hash or equality runs code of its own")


# Types whose equal constants are one object in Python, so that programs may rely on `is`.
SINGLETON_TYPES = (
    type(None),
    bool,
    type(Ellipsis),
    type(NotImplemented),
    torch.dtype,
    torch.layout,
    torch.memory_format,
)


def is_one(value: Any) -> bool:
    """Whether a constant cannot be distinguished from an equal one: a singleton or a small int.

    Any other constant that the program holds has an identity, and is returned itself.
    """
    return -5 <= value <= 256 if type(value) is int else isinstance(value, SINGLETON_TYPES)


def has_nan(value: Any) -> bool:
    """Whether a constant is nan or contains it.

    Containers compare items by identity first, but guards compare constants by value.
    """
    if is_kind(value, (tuple, list, set, frozenset)):
        return any(has_nan(item) for item in value)
    if is_kind(value, dict):
        return has_nan(tuple(value.items()))
    return is_kind(value, (float, complex, np.inexact)) and bool(value != value)
