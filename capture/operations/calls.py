"""Calls: find the callee, bind its arguments, and inline it, use a model, or break.

In: a callable Value and its arguments. Out: the result's Value. Python functions are inlined with
guards on code, defaults and closure; torch callables go to the tracer; builtins to the table of
`capture.models.builtins`.
"""

from __future__ import annotations

import functools
import inspect
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...runtime import _native
from ...runtime.guards.sources import Source
from ...runtime.guards.weak_rows import source_of_globals
from ..breaks import Break, Warns
from ..data_model import attributes, skiplist
from ..data_model.binding import bind, keywords_of, modelled
from ..exact_type import is_kind
from ..torch_models import (
    calls,
    compiler_disable,
    context_managers,
    function_modes,
    functorch,
    linear_maps,
    optimizers,
    torchscript,
)
from ..values import containers, registry
from ..values.containers import raises
from ..values.frames import Frame, Scope, has_two_of_a_name, make_frame
from ..values.value import (
    BuiltinMethod,
    Cell,
    Const,
    Context,
    ContextExit,
    Dict,
    Function,
    Getter,
    Instance,
    Method,
    Obj,
    Partial,
    Sequence,
    Tensor,
    Value,
)
from ..values.wrap import held_by_content, pin
from . import getters, instances
from .c_calls import call_builtin, call_builtin_method, call_descriptor
from .generators import make_generator

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

Args = list[Value]
Kwargs = dict[str, Value]

_ASYNC = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE


def call(m: Machine, fn: Value, args: Args, kwargs: Kwargs) -> Value:
    """fn(*args, **kwargs)"""
    return _call(m, fn, args, kwargs, False)


def call_by_instruction(m: Machine, fn: Value, args: Args, kwargs: Kwargs) -> Value:
    """fn(*args, **kwargs), where the result is that of an instruction."""
    return _call(m, fn, args, kwargs, True)


def _call(m: Machine, fn: Value, args: Args, kwargs: Kwargs, passing: bool) -> Value:
    """`passing`: whether the result of a function that this call enters is returned as it is."""
    caller = CALLERS.get(type(fn))
    if caller is None:
        raise Break("GB102", "a call of this value")
    m.passing = passing
    return caller(m, fn, args, kwargs)


def _taken(m: Machine) -> bool:
    """What `_call` was told, which holds for one function."""
    passing, m.passing = m.passing, False
    return passing


# -- Python functions ------------------------------------------------------------------------------
def _made(m: Machine, fn: Function, args: Args, kwargs: Kwargs) -> Value:
    passes = _taken(m)
    local = bind(m, fn.code, fn.defaults, fn.kwdefaults, args, kwargs)
    return _enter(m, make_frame(fn.code, fn.globals, local, fn.closure), passes)


def _enter(m: Machine, frame: Frame, passes: bool) -> Value:
    """Walk the frame of a function; for a generator function, make the generator."""
    for stand_in in (optimizers, compiler_disable, linear_maps):
        made = stand_in.in_place_of(m, frame)
        if made is not None:
            return made
    transform = functorch.TRANSFORMS.get(id(frame.code))
    if transform is not None:
        return functorch.run(m, frame, transform)
    if has_two_of_a_name(frame.code):
        raise Break("GB112", "a comprehension has a name of its own that its closure has as well")
    if frame.code.co_flags & _ASYNC:
        raise Break("GB130", f"coroutine {frame.code.co_qualname}")
    if frame.code.co_flags & inspect.CO_GENERATOR:
        if not m.walks_generators:
            raise Break("GB107", f"generator {frame.code.co_qualname}, which outlives a break")
        return make_generator(m, frame)
    frame.passes = passes
    return m.run(frame)


def inline(m: Machine, fn: Obj, args: Args, kwargs: Kwargs, passes: bool = False) -> Value:
    """Inline a pre-existing Python function, under guards on its parts."""
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
            named = {
                k.value: v  # type: ignore[attr-defined]
                for k, v in containers.dict_items(m, kwdefaults)
            }
    local = bind(m, code, values, named, args, kwargs)
    scope = scope_of(m, real)
    if held_by_content(fn):
        place = scope.source or Source("globals", None, None)
        m.guard("same", Source("member", source, "__globals__"), place)
    closure: tuple[Cell, ...] = ()
    if real.__closure__:
        base = Source("member", source, "__closure__")
        closure = tuple(
            m.real_cell(cell, Source("item", base, i)) for i, cell in enumerate(real.__closure__)
        )
    return _enter(m, make_frame(code, scope, local, closure), passes)


def scope_of(m: Machine, real: types.FunctionType) -> Scope:
    """The globals of an inlined function, guarded with its identity or by themselves."""
    root = m.root_scope
    if real.__globals__ is root.names and real.__builtins__ is root.builtins:  # type: ignore[attr-defined]
        return root
    if id(real.__globals__) in m.heap.known:
        raise Break("GB112", "globals of a function that are in use as a dict")
    place = source_of_globals(real.__globals__)
    m.guards.scopes[id(real.__globals__)] = place
    found = real.__globals__.get("__builtins__", root.builtins)
    names = found.__dict__ if is_kind(found, types.ModuleType) else found
    # a function keeps its first ones
    if real.__builtins__ is not names:  # type: ignore[attr-defined]
        raise Break("GB112", "a function whose __builtins__ are not those of its globals")
    return Scope(real.__globals__, names, place)


# -- pre-existing objects --------------------------------------------------------------------------
def _object(m: Machine, fn: Obj, args: Args, kwargs: Kwargs) -> Value:
    real, passes = fn.value, _taken(m)
    model = registry.model_of(real)
    if model is not None:
        pin(fn)
        return modelled(m, real, model, args, kwargs)
    if is_kind(real, type):
        return instances.make(m, fn, args, kwargs)
    if calls.is_torch_callable(real):
        pin(fn)
        return _torch(m, real, args, kwargs)
    if is_kind(real, types.FunctionType):
        if args and isinstance(args[0], Context) and context_managers.has(args[0], real):
            return context_managers.method(m, args[0], real.__name__, args[1:])
        code = None if id(real.__code__) in functorch.WALKED else skiplist.of_function(real)
        if code is not None:
            raise Break(code, f"call of {real.__module__}.{real.__qualname__}")
        return inline(m, fn, args, kwargs, passes)
    if is_kind(real, (types.BuiltinFunctionType, types.BuiltinMethodType)):
        return call_builtin(m, real, args, kwargs)
    if is_kind(real, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        return call_descriptor(m, real, args, kwargs)
    if type(real) is weakref.ref and fn.source is not None:
        referent = real()
        if m.may_be_gone(referent):
            raise Break("GB102", "a weak reference to what this frame may have dropped")
        return m.wrap(referent, Source("referent", fn.source))
    if torchscript.is_scripted(real):
        return torchscript.call(m, real, args, kwargs)
    if is_kind(real, _native.Callable) and is_kind(real.__wrapped__, types.FunctionType):
        return inline(m, Obj(real.__wrapped__, source=None), args, kwargs, passes)
    if type(real) is types.MethodWrapperType:
        found = function_modes.getter(m, real, args)
        if found is not None:
            return found
    if type(real) is functools._lru_cache_wrapper:
        # Loaded at first use: few programs have cached functions.
        from . import cached_calls

        return cached_calls.call(m, fn, args, kwargs)
    if type(real).__name__ == "cython_function_or_method":
        # Loaded at first use: numpy.random alone has such functions.
        from . import called_numbers

        drawn = called_numbers.numpy_call(m, real, args, kwargs)
        if drawn is not None:
            return drawn
    getter = getters.from_outside(m, fn)
    if getter is not None:
        return getters.call(m, getter, args, kwargs)
    method = attributes.special(m, fn, "__call__")
    if method is None:
        raise raises(f"TypeError: {type(real).__name__!r} object is not callable")
    if isinstance(method, Method) and isinstance(method.func, Obj):
        target = method.func.value
        if isinstance(target, types.WrapperDescriptorType):
            raise Break(skiplist.of_object(real), f"call of a {type(real).__name__}")
    return _call(m, method, args, kwargs, passes)


def _torch(m: Machine, real: Any, args: Args, kwargs: Kwargs) -> Value:
    owner = getattr(real, "__objclass__", None)
    if owner is not None and args and isinstance(args[0], Tensor):
        return calls.call_tensor_method(m, args[0], real.__name__, args[1:], kwargs)
    try:
        return calls.call_torch(m, real, args, kwargs)
    except Warns:
        if not is_kind(real, types.FunctionType):
            raise
        return inline(m, Obj(real), args, kwargs)


# -- methods ---------------------------------------------------------------------------------------
def _method(m: Machine, fn: Method, args: Args, kwargs: Kwargs) -> Value:
    receiver, passes = fn.receiver, _taken(m)
    if isinstance(fn.func, Obj) and context_managers.is_context_exit(fn):
        return context_managers.exit_real(m, fn, args)
    return _call(m, fn.func, [receiver, *args], kwargs, passes)


def _builtin_method(m: Machine, fn: BuiltinMethod, args: Args, kwargs: Kwargs) -> Value:
    return call_builtin_method(m, fn.receiver, fn.name, args, kwargs)


def _partial(m: Machine, fn: Partial, args: Args, kwargs: Kwargs) -> Value:
    passes, named = _taken(m), {**keywords_of(m, fn), **kwargs}
    return _call(m, fn.func, [*fn.args, *args], named, passes)


def _instance(m: Machine, fn: Instance, args: Args, kwargs: Kwargs) -> Value:
    passes = _taken(m)
    method = attributes.special(m, fn, "__call__")
    if method is None:
        raise raises("TypeError: object is not callable")
    return _call(m, method, args, kwargs, passes)


def _context(m: Machine, fn: Context, args: Args, kwargs: Kwargs) -> Value:
    raise Break("GB110", f"{fn.cls.__name__} used as a decorator")


def _exit(m: Machine, fn: ContextExit, args: Args, kwargs: Kwargs) -> Value:
    context_managers.leave(m, fn.context)
    return Const(None)


CALLERS: dict[type, Callable[[Any, Any, Args, Kwargs], Value]] = {
    Function: _made,
    Obj: _object,
    Method: _method,
    BuiltinMethod: _builtin_method,
    Partial: _partial,
    Getter: getters.call,
    Instance: _instance,
    Context: _context,
    ContextExit: _exit,
}
