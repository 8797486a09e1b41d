"""Calls: who is called, how its arguments are bound, and whether it is inlined, modelled or a break.

In: a callable Value and its arguments. Out: the result's Value. Python functions are inlined with guards on
code, defaults and closure; torch callables go to the tracer; builtins to the table of `capture.builtins`.
"""

from __future__ import annotations

import functools
import inspect
import math
import types
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..runtime import _native, safe
from ..runtime.sources import Source
from . import (
    arrays,
    attributes,
    containers,
    contexts,
    deques,
    enums,
    hybrids,
    iteration,
    methods,
    modes,
    refusals,
    scripted,
    set_algebra,
    stores,
    tables,
    torchcalls,
    transforms,
)
from .breaks import Break, Thrown
from .containers import NotConstant, as_constant, raises
from .generators import GENERATOR_METHODS, make_generator
from .kinds import is_kind
from .library import call_getter, getter_from_outside
from .machine import Frame, Scope, make_frame
from .values import (
    Array,
    BuiltinMethod,
    Cell,
    Const,
    Context,
    ContextExit,
    Dict,
    DictView,
    Function,
    Getter,
    Instance,
    Iterator,
    Method,
    Obj,
    Partial,
    Sequence,
    Set,
    Super,
    Tensor,
    Value,
)
from .wrapping import is_record

if TYPE_CHECKING:
    from .machine import Machine

Args = list[Value]
Kwargs = dict[str, Value]

_ASYNC = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE


def call(m: Machine, fn: Value, args: Args, kwargs: Kwargs) -> Value:
    """fn(*args, **kwargs)"""
    caller = CALLERS.get(type(fn))
    if caller is None:
        raise Break("GB102", "a call of this value")
    return caller(m, fn, args, kwargs)


# -- Python functions ------------------------------------------------------------------------------------
def bind(
    m: Machine,
    code: types.CodeType,
    defaults: tuple[Value, ...],
    kwdefaults: dict[str, Value],
    args: Args,
    kwargs: Kwargs,
) -> dict[str, Value]:
    """Arguments to local names, as a call of a function with this code does."""
    count, names = code.co_argcount, code.co_varnames
    kwonly = names[count : count + code.co_kwonlyargcount]
    bound: dict[str, Value] = dict(zip(names[:count], args, strict=False))
    extra, rest = args[count:], dict(kwargs)
    for position in range(len(args), count):
        name = names[position]
        if position >= code.co_posonlyargcount and name in rest:
            bound[name] = rest.pop(name)
        elif position >= count - len(defaults):
            bound[name] = defaults[position - (count - len(defaults))]
        else:
            raise raises(f"TypeError: {code.co_name}() missing argument {name!r}")
    for name in kwonly:
        if name in rest:
            bound[name] = rest.pop(name)
        elif name in kwdefaults:
            bound[name] = kwdefaults[name]
        else:
            raise raises(f"TypeError: {code.co_name}() missing keyword argument {name!r}")
    at = count + len(kwonly)
    if code.co_flags & inspect.CO_VARARGS:
        bound[names[at]] = Sequence(extra, tuple)
        at += 1
    elif extra:
        raise raises(f"TypeError: {code.co_name}() takes fewer positional arguments")
    if code.co_flags & inspect.CO_VARKEYWORDS:
        named = Dict({})
        for key, value in rest.items():
            containers.dict_set(m, named, Const(key), value)
        bound[names[at]] = named
    elif rest:
        raise raises(f"TypeError: {code.co_name}() got an unexpected keyword {next(iter(rest))!r}")
    return bound


def _made(m: Machine, fn: Function, args: Args, kwargs: Kwargs) -> Value:
    local = bind(m, fn.code, fn.defaults, fn.kwdefaults, args, kwargs)
    return _enter(m, make_frame(fn.code, fn.globals, local, fn.closure))


def _enter(m: Machine, frame: Frame) -> Value:
    """Walk the frame of a function; of a generator function, make the generator."""
    transform = transforms.TRANSFORMS.get(id(frame.code))
    if transform is not None:
        return transforms.run(m, frame, transform)
    if frame.code.co_flags & _ASYNC:
        raise Break("GB130", f"coroutine {frame.code.co_qualname}")
    if frame.code.co_flags & inspect.CO_GENERATOR:
        if not m.walks_generators:
            raise Break("GB107", f"generator {frame.code.co_qualname}, which outlives a break")
        return make_generator(m, frame)
    return m.run(frame)


def inline(m: Machine, fn: Obj, args: Args, kwargs: Kwargs) -> Value:
    """Inline a pre-existing Python function, under guards on what it is made of."""
    real: types.FunctionType = fn.value
    code = real.__code__
    source = fn.source or Source("const", None, real)

    def member(name: str, value: Any) -> Value:
        return m.wrap(value, Source("member", source, name))

    member("__code__", code)
    defaults = member("__defaults__", real.__defaults__)
    values: tuple[Value, ...] = ()
    if isinstance(defaults, Sequence):
        values = tuple(containers.sequence_items(m, defaults))
    named: dict[str, Value] = {}
    if code.co_kwonlyargcount:
        kwdefaults = member("__kwdefaults__", real.__kwdefaults__)
        if isinstance(kwdefaults, Dict):
            named = {k.value: v for k, v in containers.dict_items(m, kwdefaults)}  # type: ignore[attr-defined]
    local = bind(m, code, values, named, args, kwargs)
    closure: tuple[Cell, ...] = ()
    if real.__closure__:
        base = Source("member", source, "__closure__")
        closure = tuple(
            m.real_cell(cell, Source("item", base, i)) for i, cell in enumerate(real.__closure__)
        )
    return _enter(m, make_frame(code, scope_of(m, real), local, closure))


def scope_of(m: Machine, real: types.FunctionType) -> Scope:
    """The globals of an inlined function. Its identity is guarded, and with it its globals dict."""
    root = m.root_scope
    if real.__globals__ is root.names:
        return root
    place = Source("const", None, real.__globals__)
    m.scopes[id(real.__globals__)] = place
    if id(real.__globals__) in m.known:
        raise Break("GB112", "globals of a function that are in use as a dict")
    found = real.__globals__.get("__builtins__", root.builtins)
    names = found.__dict__ if is_kind(found, types.ModuleType) else found
    return Scope(real.__globals__, names, place)


# -- pre-existing objects --------------------------------------------------------------------------------
def _object(m: Machine, fn: Obj, args: Args, kwargs: Kwargs) -> Value:
    real = fn.value
    model = tables.model_of(real)
    if model is not None:
        return _modelled(m, real, model, args, kwargs)
    if is_kind(real, type):
        return _class(m, fn, args, kwargs)
    if torchcalls.is_torch_callable(real):
        return _torch(m, real, args, kwargs)
    if is_kind(real, types.FunctionType):
        code = None if id(real.__code__) in transforms.WALKED else refusals.of_function(real)
        if code is not None:
            raise Break(code, f"call of {real.__module__}.{real.__qualname__}")
        return inline(m, fn, args, kwargs)
    if is_kind(real, (types.BuiltinFunctionType, types.BuiltinMethodType)):
        return _builtin(m, real, args, kwargs)
    if is_kind(real, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        return _descriptor(m, real, args, kwargs)
    if type(real) is weakref.ref and fn.source is not None:
        referent = real()
        if m.may_be_gone(referent):
            raise Break("GB102", "a weak reference to what this frame may have dropped")
        return m.wrap(referent, Source("referent", fn.source))
    if scripted.is_scripted(real):
        return scripted.call(m, real, args, kwargs)
    if is_kind(real, _native.Callable) and is_kind(real.__wrapped__, types.FunctionType):
        return inline(m, Obj(real.__wrapped__, source=None), args, kwargs)
    if type(real) is types.MethodWrapperType:
        found = modes.getter(m, real, args)
        if found is not None:
            return found
    getter = getter_from_outside(m, fn)
    if getter is not None:
        return call_getter(m, getter, args, kwargs)
    method = attributes.special(m, fn, "__call__")
    if method is None:
        raise raises(f"TypeError: {type(real).__name__!r} object is not callable")
    if isinstance(method, Method) and isinstance(method.func, Obj):
        target = method.func.value
        if isinstance(target, types.WrapperDescriptorType):
            raise Break(refusals.of_object(real), f"call of a {type(real).__name__}")
    return call(m, method, args, kwargs)


@functools.cache
def _signature(real: Any) -> inspect.Signature | None:
    """What a callable of the tables takes, where Python can say it."""
    try:
        return inspect.signature(real)
    except (ValueError, TypeError):
        return None


def _modelled(m: Machine, real: Any, model: tables.Model, args: Args, kwargs: Kwargs) -> Value:
    """A callable of the tables; with arguments that it does not take, Python says so."""
    signature = _signature(real)
    try:
        if signature is not None:
            signature.bind(*args, **kwargs)
        else:
            least, most = _COUNTS.get(real, (0, math.inf))
            if not least <= len(args) <= most:
                raise TypeError
    except TypeError:
        raise Break("GB121", f"{real.__name__}() with these arguments") from None
    return model(m, args, kwargs)


# How many arguments those take whose signature Python cannot say.
_COUNTS: dict[Any, tuple[int, float]] = {
    type: (1, 3), getattr: (2, 3), range: (1, 3), slice: (1, 3), map: (2, math.inf), filter: (2, 2), iter: (1, 2),
    next: (1, 2), min: (1, math.inf), max: (1, math.inf), functools.partial: (1, math.inf), functools.reduce: (2, 3),
    set: (0, 1), frozenset: (0, 1), vars: (0, 1), dir: (0, 1), bool: (0, 1), dict: (0, 1),
}  # fmt: skip


def _torch(m: Machine, real: Any, args: Args, kwargs: Kwargs) -> Value:
    owner = getattr(real, "__objclass__", None)
    if owner is not None and args and isinstance(args[0], Tensor):
        return torchcalls.call_tensor_method(m, args[0], real.__name__, args[1:], kwargs)
    return torchcalls.call_torch(m, real, args, kwargs)


_PURE_MODULES = frozenset(
    {"math", "cmath", "operator", "_operator", "unicodedata", "keyword", "_bisect"}
)


def _builtin(m: Machine, real: Any, args: Args, kwargs: Kwargs) -> Value:
    """A C function: folded when it is pure and its arguments are constants."""
    if getattr(real, "__module__", None) in _PURE_MODULES and not hasattr(
        real.__self__, "__dict__"
    ):
        pass
    if getattr(real, "__module__", None) in _PURE_MODULES:
        try:
            plain = [as_constant(m, a) for a in args]
            named = {k: as_constant(m, v) for k, v in kwargs.items()}
        except NotConstant:
            raise Break("GB121", f"{real.__name__}() of values that are not constants") from None
        return containers.fold(lambda: real(*plain, **named))
    owner = getattr(real, "__self__", None)
    if isinstance(owner, type) and real.__name__ in (
        "fromkeys",
        "maketrans",
        "fromhex",
        "from_bytes",
    ):
        if real.__name__ == "fromkeys" and owner is dict:
            made = Dict({})
            for key in iteration.drain(m, args[0]):
                containers.dict_set(m, made, key, args[1] if len(args) > 1 else Const(None))
            return made
        plain = [as_constant(m, a) for a in args]
        return containers.fold(
            lambda: real(*plain, **{k: as_constant(m, v) for k, v in kwargs.items()})
        )
    if real is tuple.__new__ and len(args) == 2 and isinstance(args[0], Obj):
        made = args[0].value  # as `_make` of a named tuple does
        if hasattr(made, "_fields") and made.__base__ is tuple:
            return Sequence(list(iteration.drain(m, args[1])), made)
    raise Break(
        refusals.of_builtin(real), f"call of C function {getattr(real, '__qualname__', real)}"
    )


def _descriptor(m: Machine, real: Any, args: Args, kwargs: Kwargs) -> Value:
    """A C method taken from its class: `list.append(x, 1)`, `object.__setattr__(self, ...)`."""
    if not args:
        raise raises(f"TypeError: {real.__name__}() needs an argument")
    receiver, rest = args[0], args[1:]
    if real is object.__setattr__ and isinstance(receiver, (Obj, Instance)):
        stores.plain_store(m, receiver, _name(rest[0]), rest[1], raw=True)
        return Const(None)
    if real is object.__delattr__ and isinstance(receiver, (Obj, Instance)):
        stores.plain_store(m, receiver, _name(rest[0]), None, raw=True)
        return Const(None)
    if real is object.__getattribute__ and isinstance(receiver, (Obj, Instance)):
        cls = attributes.real_class(receiver)
        assert cls is not None
        return attributes.generic_attr(m, receiver, _name(rest[0]), cls, hook=False)
    if real is object.__init__:
        return Const(None)
    if real.__objclass__ is np.ufunc:
        return arrays.call_ufunc_method(m, receiver, real.__name__, rest, kwargs)
    if issubclass(real.__objclass__, BaseException) and isinstance(receiver, Instance):
        from .exception_objects import c_method

        return c_method(m, receiver, real.__name__, rest)
    done = hybrids.call_method(m, receiver, real, rest, kwargs)
    if done is not None:
        return done
    cls = attributes.real_class(receiver)
    if (
        cls is not None
        and issubclass(cls, real.__objclass__)
        and not isinstance(receiver, (Obj, Instance))
    ):
        return call_builtin_method(m, receiver, real.__name__, rest, kwargs)
    owner = real.__objclass__
    raise Break(refusals.of_class(owner), f"call of {owner.__name__}.{real.__name__}")


def _name(value: Value) -> str:
    if isinstance(value, Const) and isinstance(value.value, str):
        return value.value
    raise Break("GB121", "an attribute name that is not a constant")


# -- methods ---------------------------------------------------------------------------------------------
def _method(m: Machine, fn: Method, args: Args, kwargs: Kwargs) -> Value:
    receiver = fn.receiver
    if isinstance(fn.func, Obj) and contexts.is_context_exit(fn):
        return contexts.exit_real(m, fn, args)
    return call(m, fn.func, [receiver, *args], kwargs)


def _builtin_method(m: Machine, fn: BuiltinMethod, args: Args, kwargs: Kwargs) -> Value:
    return call_builtin_method(m, fn.receiver, fn.name, args, kwargs)


def call_builtin_method(
    m: Machine, receiver: Value, name: str, args: Args, kwargs: Kwargs
) -> Value:
    """receiver.name(*args, **kwargs) for types the machine models."""
    if isinstance(receiver, Tensor):
        return torchcalls.call_tensor_method(m, receiver, name, args, kwargs)
    if isinstance(receiver, Array):
        return arrays.call_method(m, receiver, name, args, kwargs)
    if isinstance(receiver, Const):
        return _constant_method(m, receiver, name, args, kwargs)
    if isinstance(receiver, Super):
        return _object_method(m, receiver, name, args)
    if isinstance(receiver, Context):
        return contexts.method(m, receiver, name, args)
    if (
        isinstance(receiver, Iterator)
        and receiver.kind == "generator"
        and name in GENERATOR_METHODS
    ):
        return GENERATOR_METHODS[name](m, receiver, args)
    if isinstance(receiver, Iterator) and name in ("__iter__", "__next__"):
        return tables.BUILTINS[next](m, [receiver], {}) if name == "__next__" else receiver
    method = methods.find_method(receiver, name)
    if method is not None:
        try:
            return method(m, receiver, args, kwargs)
        except IndexError:
            raise raises(f"TypeError: {name}() with these arguments") from None
    operator_name = tables.DUNDERS.get(name)
    if operator_name is not None:
        model = tables.BUILTINS[operator_name]
        return _modelled(m, operator_name, model, [receiver, *args], kwargs)
    if isinstance(receiver, Set) and not kwargs:
        merged = set_algebra.method(m, receiver, name, args)
        if merged is not None:
            return merged
    if name == "isdisjoint" and len(args) == 1 and not kwargs:
        apart = set_algebra.disjoint(m, receiver, args[0])
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
    if is_kind(receiver.value, torch.device) and name in ("__enter__", "__exit__", "__call__"):
        raise Break("GB110", "a default device")
    if isinstance(receiver.value, str):
        arrays.refuse_text([*args, *kwargs.values()])
    try:
        plain = [as_constant(m, a) for a in args]
        named = {k: as_constant(m, v) for k, v in kwargs.items()}
    except NotConstant:
        if name == "join" and isinstance(receiver.value, str) and len(args) == 1:
            plain, named = [[as_constant(m, i) for i in iteration.drain(m, args[0])]], {}
        else:
            raise Break(
                "GB122", f"{type(receiver.value).__name__}.{name}() of non-constants"
            ) from None
    return containers.fold(lambda: getattr(receiver.value, name)(*plain, **named))


def _object_method(m: Machine, receiver: Super, name: str, args: Args) -> Value:
    """`super().name(...)` that arrives at object's own."""
    target = receiver.receiver
    if name == "__init__":
        return Const(None)
    if name in ("__setattr__", "__delattr__") and isinstance(target, (Obj, Instance)):
        item = args[1] if name == "__setattr__" else None
        stores.plain_store(m, target, _name(args[0]), item, raw=True)
        return Const(None)
    if name == "__getattribute__" and isinstance(target, (Obj, Instance)):
        cls = attributes.real_class(target)
        assert cls is not None
        return attributes.generic_attr(m, target, _name(args[0]), cls, hook=False)
    if name == "__new__" and isinstance(args[0], Obj):
        return Instance(args[0])
    if name == "__init_subclass__":
        return Const(None)
    raise Break("GB112", f"super().{name}()")


# -- classes ---------------------------------------------------------------------------------------------
def _class(m: Machine, fn: Obj, args: Args, kwargs: Kwargs) -> Value:
    cls = fn.value
    made = contexts.make(m, cls, args, kwargs)
    if made is not None:
        return made
    if is_record(cls) and cls.__new__.__module__.startswith("namedtuple"):
        for name in ("__new__", "__init__"):
            raw = attributes.of_class(m, cls, name)
        if raw is not object.__init__:
            raise Break("GB126", f"{cls.__name__} has an __init__ of its own")
        bound = bind(m, cls.__new__.__code__, _named_defaults(m, cls), {}, [fn, *args], kwargs)
        return Sequence([bound[name] for name in cls._fields], cls)
    if issubclass(cls, torch.nn.Module):
        return _module(m, fn, args, kwargs)
    if issubclass(cls, torch.Tensor) or issubclass(cls, torch.autograd.Function):
        raise Break("GB126", f"{cls.__name__} is built")
    if issubclass(cls, BaseException):
        from .exception_objects import make

        return make(m, fn, args, kwargs)
    return _instantiate(m, fn, args, kwargs)


def _module(m: Machine, fn: Obj, args: Args, kwargs: Kwargs) -> Value:
    """A module built inside the frame, if all of it can be followed; Python builds others in one go."""
    try:
        return _instantiate(m, fn, args, kwargs)
    except Thrown:
        raise
    except Break as stop:
        reason = f"a module {fn.value.__name__} is built: {stop.reason}"
        raise Break("GB126", reason) from None


def _named_defaults(m: Machine, cls: Any) -> tuple[Value, ...]:
    defaults = cls.__new__.__defaults__ or ()
    return tuple(m.wrap(value, Source("const", None, value)) for value in defaults)


def _instantiate(m: Machine, fn: Obj, args: Args, kwargs: Kwargs) -> Value:
    """An instance of a user's class with Python's own `type.__call__`."""
    cls = fn.value
    if cls.__flags__ & attributes.HEAP_TYPE:
        attributes.hold_class(m, fn)
    if enums.is_enum(cls):
        return enums.member(m, fn, args, kwargs)
    if attributes.of_class(m, type(cls), "__call__") is not vars(type)["__call__"]:
        raise Break("GB126", f"{cls.__name__} has a metaclass with its own __call__")
    new = attributes.of_class(m, cls, "__new__")
    layout = (
        cls.__basicsize__ - (8 if cls.__dictoffset__ else 0) - (8 if cls.__weakrefoffset__ else 0)
    )
    if is_kind(new, staticmethod) and is_kind(new.__func__, types.FunctionType):
        made = call(m, Obj(new.__func__), [fn, *args], kwargs)
        if not isinstance(made, Instance):
            raise Break("GB126", f"{cls.__name__}.__new__ gives another object")
        cls = made.cls.value  # type: ignore[attr-defined]
        if fn.value not in attributes.bases(m, cls):
            return made  # an object of another class is not initialised here
    elif (
        new is object.__dict__["__new__"]
        and (cls.__flags__ & (1 << 9) or cls is object)
        and (cls.__itemsize__ == 0 and _object_layout(cls, layout))
    ):  # a heap type whose instances hold nothing but attributes
        if (args or kwargs) and safe.new_slot(cls) != safe.new_slot(object):
            raise Break("GB126", f"{cls.__name__} had a __new__ of its own, which leaves its mark")
        made = Instance(fn)
    elif hybrids.is_buildable(cls) and is_kind(new, types.BuiltinFunctionType):
        made = hybrids.make(m, fn)
    elif cls is deque:
        made = deques.make(m, fn)
    else:
        raise Break("GB126", f"{cls.__name__} is built by C code")
    if getattr(cls, "__abstractmethods__", None):
        raise raises(f"TypeError: abstract class {cls.__name__}")
    if attributes.class_attribute(m, made, "__del__") is not attributes.MISSING:
        raise Break("GB126", f"{cls.__name__} has a finalizer")
    m.overlay.setdefault(made, {})
    init = attributes.of_class(m, cls, "__init__")
    if init is object.__dict__["__init__"]:
        if (args or kwargs) and new is object.__dict__["__new__"]:
            raise raises(f"TypeError: {cls.__name__}() takes no arguments")
        return made
    if not is_kind(init, types.FunctionType) and made.storage is None:
        raise Break("GB126", f"{cls.__name__}.__init__ is not a plain function")
    call(m, attributes.bind_raw(m, made, "__init__", init), args, kwargs)
    return made


def _object_layout(cls: type, layout: int) -> bool:
    """All bases but object are Python classes."""
    return all(base is object or base.__flags__ & (1 << 9) for base in cls.__mro__)


def _partial(m: Machine, fn: Partial, args: Args, kwargs: Kwargs) -> Value:
    return call(m, fn.func, [*fn.args, *args], {**fn.kwargs, **kwargs})


def _instance(m: Machine, fn: Instance, args: Args, kwargs: Kwargs) -> Value:
    method = attributes.special(m, fn, "__call__")
    if method is None:
        raise raises("TypeError: object is not callable")
    return call(m, method, args, kwargs)


def _context(m: Machine, fn: Context, args: Args, kwargs: Kwargs) -> Value:
    raise Break("GB110", f"{fn.cls.__name__} used as a decorator")


def _exit(m: Machine, fn: ContextExit, args: Args, kwargs: Kwargs) -> Value:
    contexts.leave(m, fn.context)
    return Const(None)


CALLERS: dict[type, Callable[[Any, Any, Args, Kwargs], Value]] = {
    Function: _made,
    Obj: _object,
    Method: _method,
    BuiltinMethod: _builtin_method,
    Partial: _partial,
    Getter: call_getter,
    Instance: _instance,
    Context: _context,
    ContextExit: _exit,
}
