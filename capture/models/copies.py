"""copy.copy and copy.deepcopy as Python code: containers item by item, objects by their reduction.

In: a call of either function. Out: the copy, made in the frame. An object is copied as the `copy`
module documents it: by `__copy__` or `__deepcopy__`, else by what `__reduce_ex__(4)` returns, of
which C's default is written out here. What only C knows how to reduce is a break.
"""

from __future__ import annotations

import copy
import copyreg
import enum
import types
from collections import OrderedDict, defaultdict, deque
from typing import TYPE_CHECKING, Any

import torch

from ...ir.graph.layout import is_dense
from ..breaks import Break
from ..data_model import attributes
from ..data_model.attributes import instance_dict
from ..data_model.polyfills import stands_for
from ..operations import instances
from ..torch_models import calls
from ..values.containers import as_constant
from ..values.registry import Args, Kwargs, models
from ..values.value import Const, Dict, Obj, Sequence, Tensor, Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

Copies = list[tuple[Any, Any]]

# Both functions return objects of these classes as they are.
_ATOMS = (
    type(None),
    int,
    float,
    bool,
    complex,
    bytes,
    str,
    type,
    type(...),
    type(NotImplemented),
    range,
    types.FunctionType,
    types.BuiltinFunctionType,
    property,
    torch.dtype,
    torch.layout,
    torch.memory_format,
)
# Shallow copies of these are the objects themselves, too.
_SHALLOW_ATOMS = (tuple, frozenset, slice)
_COPIED_BY_METHOD = (list, dict, set, bytearray)


def _python_copies(name: str) -> Any:
    """Replaces the real function where we have no model."""
    raise NotImplementedError(name)


@models(_python_copies)
def _left_to_python(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    name = as_constant(m, args[0])
    raise Break("GB102", f"call of copy.{name} with this object")


def _new_object(cls: type) -> Any:
    """`cls.__new__(cls)` for a class whose objects C's default reduction describes."""
    raise NotImplementedError(cls)


@models(_new_object)
def _allocate(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    (fn,) = args
    assert isinstance(fn, Obj)
    attributes.hold_class(m, fn)
    return instances.allocate(m, fn, [], {})


def _slot_names(cls: type) -> tuple[str, ...]:
    """The names in `__slots__` of all classes of `cls`, as attributes of its objects."""
    raise NotImplementedError(cls)


@models(_slot_names)
def _names_of_slots(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return Const(tuple(copyreg._slotnames(args[0].value)))  # type: ignore[attr-defined]


def _has_dict(x: Any, cls: type) -> bool:
    """Whether the object, of this class, has a `__dict__`."""
    raise NotImplementedError(x, cls)


@models(_has_dict)
def _dict_or_none(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    one, cls = args
    # An OrderedDict that a method or an operator made in the frame has no attributes.
    bare = isinstance(one, Dict) and one.origin is None
    return Const(not bare and bool(cls.value.__dictoffset__))  # type: ignore[attr-defined]


def _copy_of_tensor(x: torch.Tensor, before: list[Any]) -> torch.Tensor:
    """`x.__deepcopy__`, where no object of `before` shares memory with `x`."""
    raise NotImplementedError(x)


@models(_copy_of_tensor)
def _tensor_copied(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    tensor, before = args
    assert isinstance(before, Sequence)
    seen = [pair.items[0] for pair in before.items if isinstance(pair, Sequence)]
    if not isinstance(tensor, Tensor) or m.inner or m.modes:
        raise Break("GB102", "call of copy.deepcopy with this object")
    ghost, others = tensor.ghost, [one for one in seen if isinstance(one, Tensor)]
    own = instance_dict(tensor.origin) if tensor.source is not None else None
    # Torch's own answer to this question imports sympy.
    dense = is_dense(ghost._node.meta.shape, ghost._node.meta.stride)
    if own or m.heap.overlay.get(tensor) or ghost.requires_grad or not dense:
        raise Break("GB102", "call of copy.deepcopy with this tensor")
    if any(one.ghost._store is ghost._store for one in others):
        raise Break("GB102", "call of copy.deepcopy with tensors that share memory")
    # Copies of tensors that share memory share it as well.
    sources = tuple(one.source for one in (*others, tensor) if one.source is not None)
    if len(sources) > 1:
        m.guard("distinct", None, sources)
    return calls.call_tensor_method(m, tensor, "clone", [], {})


def _second_of(x: torch.Tensor) -> torch.Tensor:
    """`copy.copy(x)`: another tensor over its memory, with a version of its own, as `x.data`."""
    raise NotImplementedError(x)


@models(_second_of)
def _tensor_copied_once(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    (tensor,) = args
    own = False
    if isinstance(tensor, Tensor):
        held = instance_dict(tensor.origin) if tensor.source is not None else None
        own = bool(held or m.heap.overlay.get(tensor) or tensor.ghost.requires_grad)
    if not isinstance(tensor, Tensor) or own:
        raise Break("GB102", "call of copy.copy with this tensor")
    return calls.tensor_attr(m, tensor, "data")


@stands_for(copy.copy)
def copied(x: Any) -> Any:
    cls = type(x)
    if cls is torch.Tensor:
        return _second_of(x)
    if cls in _ATOMS or cls in _SHALLOW_ATOMS:
        return x
    if cls in _COPIED_BY_METHOD:
        return x.copy()
    if issubclass(cls, (type, enum.Enum)):
        return x
    copier = getattr(cls, "__copy__", None)
    if copier is not None and cls is not defaultdict:
        return copier(x)
    return _rebuilt(x, cls, None)


@stands_for(copy.deepcopy)
def copied_deeply(x: Any, memo: Any = None) -> Any:
    if memo is not None:
        return _python_copies("deepcopy")
    return _deep(x, [])


def _deep(x: Any, done: Copies) -> Any:
    cls = type(x)
    if cls in _ATOMS:
        return x
    for before, after in done:
        if before is x:
            return after
    if cls is list:
        made: Any = []
        done.append((x, made))
        for item in x:
            made.append(_deep(item, done))
        return made
    if cls is dict:
        made = {}
        done.append((x, made))
        for key, item in x.items():
            made[_deep(key, done)] = _deep(item, done)
        return made
    if cls is tuple:
        return _deep_tuple(x, done)
    if issubclass(cls, (type, enum.Enum)):
        return x
    if cls is torch.Tensor or cls is torch.nn.Parameter:
        if cls is torch.Tensor:
            made = _copy_of_tensor(x, done)
        else:
            data = x.data.clone(memory_format=torch.preserve_format)
            made = torch.nn.Parameter(data, x.requires_grad)
        done.append((x, made))
        return made
    if getattr(x, "__deepcopy__", None) is not None:
        # It receives the memo, whose keys are addresses.
        return _python_copies("deepcopy")
    return _rebuilt(x, cls, done)


def _deep_tuple(x: Any, done: Copies) -> Any:
    parts, same = [], True
    for item in x:
        part = _deep(item, done)
        parts.append(part)
        if type(item) not in _ATOMS and part is not item:
            same = False
    # A list inside that contains the tuple has already made its copy.
    for before, after in done:
        if before is x:
            return after
    if same:
        return x
    made = tuple(parts)
    done.append((x, made))
    return made


def _rebuilt(x: Any, cls: type, done: Copies | None) -> Any:
    """A new object from the reduction of `x`; its parts are copies if there is a list of them."""
    reduced = _reduced(x, cls)
    if type(reduced) is str:
        return x
    make, args, state, items, pairs = reduced + (None,) * (5 - len(reduced))
    if done is not None and args:
        args = [_deep(arg, done) for arg in args]
    made = make(*args)
    if done is not None:
        done.append((x, made))
    if state is not None:
        _restore(made, state if done is None else _deep(state, done))
    if items is not None:
        for item in items:
            made.append(item if done is None else _deep(item, done))
    if pairs is not None:
        for key, item in pairs:
            if done is not None:
                key, item = _deep(key, done), _deep(item, done)
            made[key] = item
    return made


def _restore(made: Any, state: Any) -> None:
    if hasattr(made, "__setstate__"):
        made.__setstate__(state)
        return
    slots = None
    if type(state) is tuple and len(state) == 2:
        state, slots = state
    if state is not None:
        made.__dict__.update(state)
    if slots is not None:
        for name, value in slots.items():
            setattr(made, name, value)


def _reduced(x: Any, cls: Any) -> Any:
    """`x.__reduce_ex__(4)`"""
    if cls in copyreg.dispatch_table:
        return copyreg.dispatch_table[cls](x)
    if cls.__reduce_ex__ is not object.__reduce_ex__:
        return x.__reduce_ex__(4)
    reduce = cls.__reduce__
    if reduce is set.__reduce__:
        return cls, (list(x),), _state(x, cls)
    if reduce is OrderedDict.__reduce__:
        return cls, (), _state(x, cls), None, x.items()
    if reduce is defaultdict.__reduce__:
        factory = x.default_factory
        return cls, () if factory is None else (factory,), None, None, x.items()
    if reduce is deque.__reduce__:
        # Without a limit, C passes no arguments to the class.
        return cls, () if x.maxlen is None else ((), x.maxlen), _state(x, cls), x
    if reduce is not object.__reduce__:
        return x.__reduce__()
    if hasattr(x, "__getnewargs_ex__"):
        return _python_copies("copy")
    items = x if isinstance(x, list) else None
    pairs = x.items() if isinstance(x, dict) else None
    if hasattr(x, "__getnewargs__"):
        return cls.__new__, (cls, *x.__getnewargs__()), _state(x, cls), items, pairs
    return _new_object, (cls,), _state(x, cls), items, pairs


def _state(x: Any, cls: Any) -> Any:
    """`x.__getstate__()`"""
    if cls.__getstate__ is not object.__getstate__:
        return x.__getstate__()
    state = None
    if _has_dict(x, cls):
        # Past a `__getattribute__` of the class, as in C.
        state = object.__getattribute__(x, "__dict__")
        if not state:
            state = None
    slots = {}
    for name in _slot_names(cls):
        if hasattr(x, name):
            slots[name] = getattr(x, name)
    return (state, slots) if slots else state
