"""Calls of C functions, and of methods of modelled types.

In: the C function or descriptor, or a receiver and a method's name, with arguments as Values. Out:
the result's Value. Pure functions are folded for constants; other calls go to the module of the
receiver's type, or are breaks. `calls` uses it.
"""

from __future__ import annotations

import bisect
import cmath
import keyword
import math
import operator
import types
import unicodedata
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...runtime.safe_access import MISSING, mro_of
from ..breaks import Break
from ..data_model import attribute_stores, attributes, dunders, iteration, skiplist, symbolic_math
from ..data_model.binding import fitted, modelled
from ..exact_type import is_kind
from ..torch_models import calls, context_managers, numpy_arrays
from ..types import (
    codings,
    container_methods,
    container_subclasses,
    context_variables,
    set_operators,
)
from ..types.exceptions import c_method
from ..values import containers, registry, texts
from ..values.containers import NotConstant, as_constant, as_constants, raises
from ..values.value import (
    Array,
    Const,
    Context,
    Dict,
    DictView,
    Function,
    Instance,
    Iterator,
    Method,
    Obj,
    Sequence,
    Set,
    Super,
    Tensor,
    Value,
)
from .generators import GENERATOR_METHODS

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

Args = list[Value]
Kwargs = dict[str, Value]

_NOT_PURE = frozenset(
    {"insort", "insort_left", "insort_right", "setitem", "delitem", "iconcat", "concat", "call"}
)
"""Functions of those modules that change an argument, return its content, or call it.

Computed at capture, they would change and return a copy.
"""

_PURE = {
    id(function): function
    for module in (math, cmath, operator, unicodedata, keyword, bisect)
    for name, function in vars(module).items()
    if type(function) is types.BuiltinFunctionType and name not in _NOT_PURE
}
"""C functions whose result follows from their arguments, by id: names may be used twice."""


_PURE_CLASSMETHODS = {
    (str, "maketrans"),
    (bytes, "maketrans"),
    (bytes, "fromhex"),
    (bytearray, "maketrans"),
    (float, "fromhex"),
    (int, "from_bytes"),
}


def call_builtin(m: Machine, real: Any, args: Args, kwargs: Kwargs) -> Value:
    """A call of a C function: folded if it is pure and its arguments are constants."""
    if id(real) in _PURE:
        counted = None if kwargs else symbolic_math.called(m, real, args)
        if counted is not None:
            return counted
        try:
            plain, named = as_constants(m, args, kwargs)
        except NotConstant:
            raise Break("GB121", f"{real.__name__}() of values that are not constants") from None
        return containers.fold(lambda: real(*plain, **named))
    owner = getattr(real, "__self__", None)
    if is_kind(owner, np.ufunc):
        return numpy_arrays.call_ufunc_method(m, Obj(owner), real.__name__, args, kwargs)
    if owner is dict and real.__name__ == "fromkeys":
        if not 1 <= len(args) <= 2 or kwargs:
            raise Break("GB121", "dict.fromkeys() with these arguments")
        made = Dict({})
        for key in iteration.each(m, args[0]):
            containers.dict_set(m, made, key, args[1] if len(args) > 1 else Const(None))
        return made
    # A subclass makes its result by its own `__new__` and `__init__`: Python calls it.
    if isinstance(owner, type) and (owner, real.__name__) in _PURE_CLASSMETHODS:
        plain, named = as_constants(m, args, kwargs)
        return containers.fold(lambda: real(*plain, **named))
    if real is tuple.__new__ and len(args) == 2 and isinstance(args[0], Obj):
        made = args[0].value  # the form of a named tuple's `_make`
        fields = attributes.mro_lookup(made, "_fields") if is_kind(made, type) else MISSING
        if fields is not MISSING and made.__base__ is tuple:
            return Sequence(list(iteration.drain(m, args[1])), made)
    raise Break(
        skiplist.of_builtin(real), f"call of C function {getattr(real, '__qualname__', real)}"
    )


_STORES = (object.__setattr__, object.__delattr__)


def _stores_in_c(receiver: Value) -> bool:
    """Whether a C base of its class has its own __setattr__, for which object's own is refused."""
    cls = attributes.real_class(receiver)
    if cls is None or not isinstance(receiver, (Obj, Instance)):
        return False
    return any(
        base is not object
        and not base.__flags__ & attributes.HEAP_TYPE
        and "__setattr__" in vars(base)
        for base in mro_of(cls)
    )


_BIND = vars(types.FunctionType)["__get__"]


def call_descriptor(m: Machine, real: Any, args: Args, kwargs: Kwargs) -> Value:
    """A C method read from its class: `list.append(x, 1)`, `object.__setattr__(self, ...)`."""
    if not args:
        raise raises(f"TypeError: {real.__name__}() needs an argument")
    receiver, rest = args[0], args[1:]
    if real in _STORES and _stores_in_c(receiver):
        raise Break("GB115", f"object.{real.__name__}() of an object that C stores in")
    if real is object.__setattr__ and isinstance(receiver, (Obj, Instance)):
        attribute_stores.plain_store(m, receiver, attribute_name(rest[0]), rest[1], raw=True)
        return Const(None)
    if real is object.__delattr__ and isinstance(receiver, (Obj, Instance)):
        attribute_stores.plain_store(m, receiver, attribute_name(rest[0]), None, raw=True)
        return Const(None)
    if real is object.__getattribute__ and isinstance(receiver, (Obj, Instance)):
        cls = attributes.real_class(receiver)
        assert cls is not None
        return attributes.generic_attr(m, receiver, attribute_name(rest[0]), cls, hook=False)
    if real is object.__getattribute__ and isinstance(receiver, Dict):
        return attributes.load_attr(m, receiver, attribute_name(rest[0]))
    if real is object.__init__:
        _nothing_over(m, attributes.real_class(receiver), "__init__", [*rest, *kwargs.values()])
        return Const(None)
    if real is _BIND and isinstance(receiver, (Obj, Function)) and len(rest) == 2:
        return Method(receiver, rest[0])
    if real.__objclass__ is np.ufunc:
        return numpy_arrays.call_ufunc_method(m, receiver, real.__name__, rest, kwargs)
    if issubclass(real.__objclass__, BaseException) and isinstance(receiver, Instance):
        if kwargs or (real.__name__ in ("__str__", "__repr__") and rest):
            raise Break("GB112", f"{real.__name__}() of an exception with these arguments")
        return c_method(m, receiver, real.__name__, rest)
    done = container_subclasses.call_method(m, receiver, real, rest, kwargs)
    if done is not None:
        return done
    cls = attributes.real_class(receiver)
    if (
        cls is not None
        and issubclass(cls, real.__objclass__)
        and not isinstance(receiver, (Obj, Instance))
        and attributes.mro_lookup(cls, real.__name__) is real  # not a base's method
    ):
        return call_builtin_method(m, receiver, real.__name__, rest, kwargs)
    owner = real.__objclass__
    raise Break(skiplist.of_class(owner), f"call of {owner.__name__}.{real.__name__}")


def attribute_name(value: Value) -> str:
    if isinstance(value, Const) and isinstance(value.value, str):
        return value.value
    raise Break("GB121", "an attribute name that is not a constant")


def call_builtin_method(
    m: Machine, receiver: Value, name: str, args: Args, kwargs: Kwargs
) -> Value:
    """receiver.name(*args, **kwargs) for modelled types."""
    if isinstance(receiver, Tensor) and name == "numpy":
        return numpy_arrays.of_tensor(m, receiver, args, kwargs)
    if isinstance(receiver, Tensor):
        return calls.call_tensor_method(m, receiver, name, args, kwargs)
    if isinstance(receiver, Array):
        return numpy_arrays.call_method(m, receiver, name, args, kwargs)
    if isinstance(receiver, Const):
        return _constant_method(m, receiver, name, args, kwargs)
    if isinstance(receiver, Super):
        return _object_method(m, receiver, name, args, kwargs)
    if isinstance(receiver, Obj) and type(receiver.value) is ContextVar:
        return context_variables.call(m, receiver, name, args, kwargs)
    if isinstance(receiver, Context):
        return context_managers.method(m, receiver, name, args)
    if (
        isinstance(receiver, Iterator)
        and receiver.kind == "generator"
        and name in GENERATOR_METHODS
        and not kwargs
    ):
        return GENERATOR_METHODS[name](m, receiver, args)
    if isinstance(receiver, Iterator) and (args or kwargs):
        raise Break("GB122", f"method {name!r} of an iterator with these arguments")
    if isinstance(receiver, Iterator) and name in ("__iter__", "__next__"):
        return registry.BUILTINS[next](m, [receiver], {}) if name == "__next__" else receiver
    method = container_methods.find_method(receiver, name)
    if method is not None:
        args, kwargs = fitted(getattr(attributes.real_class(receiver), name), args, kwargs)
        try:
            return method(m, receiver, args, kwargs)
        except IndexError:
            raise raises(f"TypeError: {name}() with these arguments") from None
    operator_name = registry.DUNDERS.get(name)
    if operator_name is not None:
        if not dunders.answers(receiver, name, args):
            raise Break("GB122", f"method {name!r} with what it may decline")
        model = registry.BUILTINS[operator_name]
        return modelled(m, operator_name, model, [receiver, *args], kwargs)
    if isinstance(receiver, Set) and not kwargs:
        merged = set_operators.method(m, receiver, name, args)
        if merged is not None:
            return merged
    if name == "isdisjoint" and len(args) == 1 and not kwargs:
        apart = set_operators.disjoint(m, receiver, args[0])
        if apart is not None:
            return apart
    if isinstance(receiver, (Set, DictView, Sequence)):
        try:
            real = as_constant(m, receiver)
            plain = [as_constant(m, a) for a in args]
        except NotConstant:
            raise Break("GB122", f"method {name!r}") from None
        if isinstance(receiver, Set) and name in _PURE_SET_METHODS:
            return containers.fold(lambda: getattr(real, name)(*plain))
    raise Break("GB122", f"method {name!r}")


_PURE_SET_METHODS = frozenset(
    {
        "union",
        "intersection",
        "difference",
        "symmetric_difference",
        "issubset",
        "issuperset",
        "isdisjoint",
    }
)


def _constant_method(m: Machine, receiver: Const, name: str, args: Args, kwargs: Kwargs) -> Value:
    written = texts.method(m, receiver, name, args, kwargs)
    if written is not None:
        return written
    if is_kind(receiver.value, torch.device) and name in ("__enter__", "__exit__", "__call__"):
        raise Break("GB110", "a default device")
    if isinstance(receiver.value, str):
        numpy_arrays.refuse_text([*args, *kwargs.values()])
    try:
        plain, named = as_constants(m, args, kwargs)
    except NotConstant:
        if name == "join" and isinstance(receiver.value, str) and len(args) == 1:
            plain, named = [[as_constant(m, i) for i in iteration.drain_as_list(m, args[0])]], {}
        else:
            raise Break(
                "GB122", f"{type(receiver.value).__name__}.{name}() of non-constants"
            ) from None
    codings.refuse_unknown(type(receiver.value), name, plain, named)
    return containers.fold(lambda: getattr(receiver.value, name)(*plain, **named))


def _nothing_over(m: Machine, cls: type | None, name: str, over: Args) -> None:
    """Break on arguments that object.__init__ or object.__new__ would refuse.

    They accept arguments only where the class overrides the other of the two, and not this one
    (`object_init`, `object_new` in CPython's Objects/typeobject.c).
    """
    if not over:
        return
    other = "__new__" if name == "__init__" else "__init__"
    own, others = (
        cls is None or attributes.of_class(m, cls, one) is not vars(object)[one]
        for one in (name, other)
    )
    if own or not others:
        raise Break("GB121", f"object.{name}() with these arguments")


def _object_method(m: Machine, receiver: Super, name: str, args: Args, kwargs: Kwargs) -> Value:
    """`super().name(...)` that resolves to object's own method."""
    target = receiver.receiver
    if name == "__init__":
        _nothing_over(m, attributes.real_class(target), name, [*args, *kwargs.values()])
        return Const(None)
    if name == "__new__" and args and isinstance(args[0], Obj) and is_kind(args[0].value, type):
        _nothing_over(m, args[0].value, name, [*args[1:], *kwargs.values()])
    elif kwargs:
        raise Break("GB112", f"super().{name}() with keywords")
    if name in ("__setattr__", "__delattr__") and isinstance(target, (Obj, Instance)):
        item = args[1] if name == "__setattr__" else None
        attribute_stores.plain_store(m, target, attribute_name(args[0]), item, raw=True)
        return Const(None)
    if name == "__getattribute__" and isinstance(target, (Obj, Instance)):
        cls = attributes.real_class(target)
        assert cls is not None
        return attributes.generic_attr(m, target, attribute_name(args[0]), cls, hook=False)
    if name == "__new__" and isinstance(args[0], Obj):
        return Instance(args[0])
    if name == "__init_subclass__" and not args:
        return Const(None)
    raise Break("GB112", f"super().{name}()")
