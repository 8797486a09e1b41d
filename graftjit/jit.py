"""The public functions `jit`, `explain`, `report`, `reset`, `lower` and `wait`.

In: any callable. Out: a callable of the same kind (function, method, static or class method,
partial, module, class) whose frames are compiled, with `.report()` and `.reset()`.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
import weakref
from collections.abc import Mapping
from typing import Any

import torch

from .context import current_context
from .dispatch import frame_policy, lazy_modules, paying
from .dispatch.resume_functions import first_state
from .dispatch.shared_entries import SHARED
from .dispatch.unit import UNITS, Unit, check, on_hot, on_rerun
from .dispatch.unit_events import measured, place_of
from .ir.location import Location
from .nn.cell import made_in_graph_mode
from .runtime import _native
from .runtime.errors import OptionError, UserError, describe
from .runtime.events import events
from .runtime.process import beside
from .runtime.process.options import JitConfig
from .runtime.process.session import SESSION
from .runtime.report.report import Report, report_of


class JitFunction(_native.Callable):
    """The result of `jit` for a function: called, bound and inspected like the function itself."""

    # Other attributes are those of the function.
    __slots__ = ("_unit",)

    # For pydoc, which does not use __getattr__.
    __doc__ = property(lambda self: self.__wrapped__.__doc__)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # type: ignore[override]
        """A function for `isinstance`, as inspect.isfunction, torch.fx and torch.jit.script use it;
        `type` gives JitFunction."""
        return types.FunctionType

    def report(self) -> Report:
        """What has been compiled so far and what has not."""
        return _report(self._unit)

    def reset(self) -> None:
        """Drop compiled code and events."""
        self._unit.reset()

    def lower(self, /, *args: Any, **kwargs: Any) -> Any:
        """The stages of compiling a call with these arguments, without running it: see
        `graftjit.lower`."""
        return lower(self, *args, **kwargs)

    def __reduce__(self) -> Any:
        """Pickle by name if this object has replaced its function under that name, else by function
        and options."""
        if _found_by_name(self.__wrapped__) is self:
            return self.__wrapped__.__qualname__
        return _jit, (self.__wrapped__, self._unit.config)

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: dict) -> Any:
        return self

    def __repr__(self) -> str:
        return f"<graftjit {self.__wrapped__!r}>"


def _found_by_name(function: types.FunctionType) -> Any:
    """The object that unpickling finds under the name of this function."""
    found: Any = sys.modules.get(function.__module__)
    for name in function.__qualname__.split("."):
        found = inspect.getattr_static(found, name, None)
    return found


def jit(
    fn: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    config: JitConfig | None = None,
    **of_torch: Any,
) -> Any:
    """Compile a function, method, callable object, module or class. Also a decorator with
    arguments.

    fullgraph   the first graph break raises BreakError
    dynamic     see JitConfig.dynamic
    config      a JitConfig; the other keywords override it
    of_torch    `mode`, `backend`, `options`, `disable` and other keywords of `torch.compile`: see
                `graftjit.torch_keywords`

    A jitted callable is returned unchanged, unless options are given. Raises UserError (a
    TypeError) if the argument is not callable, OptionError (a ValueError) for options that are not
    allowed.
    """
    options = options_of(fullgraph, dynamic, config, of_torch)
    if is_disabled(of_torch):
        return fn if fn is not None else lambda fn: fn
    if fn is None:
        return functools.partial(jit, config=options)
    chosen = fullgraph or dynamic is not None or config is not None or of_torch
    if isinstance(fn, JitFunction) and chosen:
        fn = fn.__wrapped__
    return _jit(fn, options)


def options_of(
    fullgraph: bool,
    dynamic: bool | None,
    config: JitConfig | None,
    of_torch: Mapping[str, Any] | None = None,
) -> JitConfig:
    """The options as one JitConfig; without any, that of the context."""
    if config is None:
        config = current_context().jit_config
    elif not isinstance(config, JitConfig):
        raise UserError(
            "config is not a JitConfig", expected="graftjit.JitConfig(...)", found=describe(config)
        )
    if not isinstance(fullgraph, bool):
        raise OptionError(
            f"fullgraph={fullgraph!r} is not allowed",
            expected="True or False",
            found=repr(fullgraph),
        )
    changes = lazy_modules.torch_keywords.changes(of_torch) if of_torch else {}
    if fullgraph:
        changes["jit_syntax_level"] = "STRICT"
    if dynamic is not None:
        changes["dynamic"] = dynamic
    config = config.replace(**changes) if changes else config
    for name, neutral in _LATER.items():
        if getattr(config, name) not in neutral and config.jit_level != "O2":
            SESSION.warn_once("WN605", f"{name}={getattr(config, name)!r} has no effect yet")
    return config


def is_disabled(of_torch: Mapping[str, Any]) -> bool:
    """Whether `disable=True` is among keywords of `torch.compile`."""
    return bool(of_torch) and lazy_modules.torch_keywords.disabled(of_torch)


# Options without effect below O2, with the values that request nothing.
_LATER: dict[str, tuple[Any, ...]] = {
    "exec_mode": ("auto", "sink"),
}


def _jit(fn: Any, config: JitConfig) -> Any:
    if isinstance(fn, JitFunction):
        return fn
    if isinstance(fn, types.FunctionType):
        return make_callable(fn, config, kind=fn.__code__)
    if isinstance(fn, types.MethodType):
        return types.MethodType(_jit(fn.__func__, config), fn.__self__)
    if isinstance(fn, (staticmethod, classmethod)):
        return type(fn)(_jit(fn.__func__, config))
    if isinstance(fn, torch.nn.Module):
        # `compiled` imports this file
        from .compiled import compile as compile_module

        return compile_module(fn, config=config)
    if isinstance(fn, type):
        return _jit_class(fn, config)
    if callable(fn):
        return make_callable(_forwarding(fn), config, beginning(fn), _kind_of(fn))
    if isinstance(fn, property):
        todo = "put @jit below @property, on the function"
    else:
        todo = "pass the function itself, not its result"
    raise UserError(
        "jit takes something that can be called",
        expected="a function, method, callable object, torch.nn.Module or class with __call__",
        found=describe(fn),
        todo=todo,
    )


def make_callable(
    function: types.FunctionType, config: JitConfig, place: Location | None = None, kind: Any = None
) -> JitFunction:
    """The jitted form of a Python function, in a unit of its own.

    `place`: the user's line for reports, if the function is graftjit's. `kind`: what it has in
    common with callables that may share its compilations, a code object or a class.
    """
    beside.leave_ours_alone()
    unit = Unit(function.__qualname__, config, place)
    if kind is not None:
        unit.shared = SHARED.of(kind, function.__globals__, config)
    made = JitFunction(function, unit.state_for(function.__code__))
    made._unit, unit.face = unit, weakref.ref(made)
    UNITS.add(unit)
    return made


def beginning(target: Any) -> Location | None:
    """The first line of the Python code that a call of `target` runs; None if there is none."""
    while isinstance(target, functools.partial):
        target = target.func
    if not isinstance(target, (types.FunctionType, types.MethodType, JitFunction)):
        target = inspect.getattr_static(type(target), "__call__", None)
    code = getattr(inspect.unwrap(target), "__code__", None) if target is not None else None
    if not isinstance(code, types.CodeType):
        return None
    return place_of(code)


def _kind_of(target: Any) -> Any:
    """What a callable object has in common with others like it: the code of a partial function,
    else its class."""
    while isinstance(target, functools.partial):
        target = target.func
    function = target.__func__ if type(target) is types.MethodType else target
    return function.__code__ if type(function) is types.FunctionType else type(target)


def _forwarding(target: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        return target(*args, **kwargs)

    named = target.func if isinstance(target, functools.partial) else target
    call.__name__ = getattr(named, "__name__", type(named).__name__)
    call.__qualname__ = getattr(named, "__qualname__", call.__name__)
    call.__doc__ = getattr(target, "__doc__", None)
    # inspect.signature follows it
    call.__wrapped__ = target  # type: ignore[attr-defined]
    return call


def _jit_class(cls: type, config: JitConfig) -> type:
    """Compile the method that calling an instance runs. Returns the class itself."""
    names = ("construct", "forward") if issubclass(cls, torch.nn.Module) else ("__call__",)
    for name in names:
        method = inspect.getattr_static(cls, name, None)
        if isinstance(method, types.FunctionType) and method is not torch.nn.Module.forward:
            setattr(cls, name, make_callable(method, config, kind=method.__code__))
            return cls
        if isinstance(method, JitFunction):
            return cls
    raise UserError(
        f"class {cls.__name__} has nothing to compile",
        expected="a class with __call__, or a module with forward or construct",
        found=cls.__name__,
        todo="decorate the method that does the work",
    )


def _unit_of(target: Any) -> Any:
    """The object with report() and reset() for a jitted object."""
    if isinstance(target, JitFunction):
        return target
    if isinstance(target, types.MethodType):
        return _unit_of(target.__func__)
    if isinstance(target, (staticmethod, classmethod)):
        return _unit_of(target.__func__)
    if isinstance(target, torch.nn.Module):
        # `compiled` imports this file
        from .compiled import compiled_state

        found = compiled_state(target)
        if found is not None:
            return found.call
    made = made_in_graph_mode(target)
    if made is not None:
        return made
    if isinstance(target, torch.nn.Module):
        for name in ("construct", "forward"):
            method = inspect.getattr_static(type(target), name, None)
            if isinstance(method, JitFunction):
                return method
    call = inspect.getattr_static(type(target), "__call__", None)
    if isinstance(call, JitFunction):
        return call
    raise UserError(
        "this object was not compiled by graftjit",
        expected="a callable that jit or compile returned",
        found=describe(target),
        todo="use graftjit.explain(fn, *args) to try it",
    )


def _report(unit: Any, before: dict[int, int] | None = None) -> Report:
    """The report on a unit and on frames met below it. With `before` (number of calls of each
    state, by id), also on everything called since, whichever unit compiled it."""
    rows = [*unit.counted(), *frame_policy.counted(unit)]
    for region in unit.transformed.values():
        for below in region.units():
            rows += below.counted()
    if before is not None:
        listed = {id(state) for state, _ in rows}
        everywhere = frame_policy.everywhere()
        ran = {id(s) for s, row in everywhere if row.hits + row.misses > before.get(id(s), 0)}
        rows += [
            (state, row)
            for state, row in everywhere
            if id(state) not in listed and {id(state), id(first_state(state))} & ran
        ]
    extra = [row for _, row in rows] + [note for state, _ in rows for note in measured(state)]
    return report_of(unit.name, [state for state, _ in rows], extra)


def report(target: Any = None) -> Report:
    """The report on a jitted function or compiled model so far (None: on everything). Nothing is
    run. Raises UserError (a TypeError) if graftjit has not compiled the target."""
    if target is None:
        return report_of("everything", None, everything_counted())
    return _unit_of(target).report()


def everything_counted() -> list[events.Event]:
    """The totals and measurements of everything alive, including frames met below jitted
    functions."""
    rows = frame_policy.everywhere()
    return [row for _, row in rows] + [note for state, _ in rows for note in measured(state)]


def reset(target: Any = None) -> None:
    """Drop compiled code and events of one jitted object, or of all. Stored kernels are kept.
    Raises UserError (a TypeError) if graftjit has not compiled the target."""
    if target is not None:
        _unit_of(target).reset()
        return
    for unit in list(UNITS):
        unit.reset()
    SHARED.forget()
    frame_policy.reset()
    SESSION.log.clear()


def wait(seconds: float | None = None) -> bool:
    """Wait until all builds deferred by `JitConfig(background=True)` are done. Returns False after
    `seconds`."""
    # loaded at first use: a program without background builds needs nothing of codegen here
    from .codegen.build.background import BACKGROUND

    return BACKGROUND.wait(seconds)


def explain(target: Any, *args: Any, **kwargs: Any) -> Report:
    """Run `target(*args, **kwargs)` once, effects included, in a fresh compilation, and report it.

    The target may be jitted or not; its own entries are neither used nor changed. Background builds
    are waited for. The report includes functions that it calls and that were compiled before.
    Raises what the call raises, and UserError (a TypeError) if the target is not callable.
    """
    fresh = fresh_copy(target)
    earlier = frame_policy.everywhere()  # kept alive, so that their ids are not reused
    before = {id(state): row.hits + row.misses for state, row in earlier}
    fresh(*args, **kwargs)
    return _report(_unit_of(fresh)._unit, before)


def lower(target: Any, /, *args: Any, **kwargs: Any) -> Any:
    """The stages of compiling `target(*args, **kwargs)`, from the captured graph to kernels,
    replacement code and guards, as a `graftjit.lowered.lowered.Lowered`. The program is not run."""
    # loaded at first use: few programs look at stages
    from .lowered import lower as lowering

    return lowering.lower(target, *args, **kwargs)


def fresh_copy(target: Any) -> Any:
    """The target jitted anew, with its own options, without shared compilations and without
    background builds."""
    config = JitConfig()
    if isinstance(target, JitFunction):
        config, target = target._unit.config, target.__wrapped__
    elif isinstance(target, types.MethodType) and isinstance(target.__func__, JitFunction):
        config = target.__func__._unit.config
        target = types.MethodType(target.__func__.__wrapped__, target.__self__)
    config = config.replace(background=False)
    fresh = _jit(target, config)
    _unit_of(fresh)._unit.shared = None
    return fresh


SESSION.totals = everything_counted
_native.set_callbacks(
    policy=frame_policy.policy,
    state_for=frame_policy.state_for_code,
    on_rerun=on_rerun,
    judged=paying.judged,
    on_hot=on_hot,
    check=check if SESSION.options.check else None,
)
