"""Compiles every module that a program calls from outside another module, without changing the
program.

In: a block, in which `torch.nn.Module.__call__` is replaced by a function that calls the module's
compiled form. Out: the program runs as before, including hooks (the module's own call is compiled),
and the compiled modules are recorded. Calls within a compiled module, or within a function that the
program itself has jitted, belong to that one. Modules are not kept alive. `python -m graftjit
explain --all` uses this module.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import types
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from ..compiled import beginning_of
from ..ir.dataclass import dataclass, field
from ..jit import JitFunction, make_callable, options_of
from ..runtime import _native
from ..runtime.directives import capturing
from ..runtime.process.options import JitConfig
from ..runtime.weak_callbacks import until_exit
from . import run_script


@dataclass(slots=True, eq=False)
class Outermost:
    """The compiled calls of a program's outermost modules. `named`: number of modules by class
    name."""

    config: JitConfig
    named: dict[str, int] = field(default_factory=dict)
    # They outlive their modules, for the report.
    calls: list[JitFunction] = field(default_factory=list)
    _of: dict[int, tuple[weakref.ref[Any], JitFunction]] = field(default_factory=dict)
    _lock: Any = field(default_factory=threading.RLock)

    def call_of(self, model: torch.nn.Module) -> JitFunction:
        """The compiled call of this module, created at its first call."""
        found = self._of.get(id(model))
        if found is not None and found[0]() is model:
            return found[1]
        with self._lock:
            config = self.config
            made = make_callable(_call_of(type(model)), config, beginning_of(model), type(model))
            name = type(model).__qualname__
            self.named[name] = self.named.get(name, 0) + 1
            self.calls.append(made)
            gone = until_exit(functools.partial(self._forget, id(model)))
            self._of[id(model)] = weakref.ref(model, gone), made
        return made

    def _forget(self, key: int, reference: Any) -> None:
        found = self._of.get(key)
        if found is not None and found[0] is reference:
            del self._of[key]


def _call_of(kind: type) -> types.FunctionType:
    """A function `(self, *args, **kwargs)` that calls a module as torch does, with its own code
    object."""

    def __call__(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return _CALL(self, *args, **kwargs)

    code = __call__.__code__.replace(co_name=kind.__name__, co_qualname=f"{kind.__qualname__}()")
    function = types.FunctionType(code, __call__.__globals__, kind.__name__)
    function.__module__ = kind.__module__
    return function


_CALL = torch.nn.Module.__call__


@contextlib.contextmanager
def every_module(config: JitConfig | None = None) -> Iterator[Outermost]:
    """Compile outermost modules in all threads within the block."""
    found = Outermost(options_of(False, None, config))

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Within a compiled call the frame hook handles called modules, and capture walks them.
        if capturing() or _native.hook_status()["lookup"] or isinstance(self, _WITHOUT_CODE):
            return _CALL(self, *args, **kwargs)
        return found.call_of(self)(self, *args, **kwargs)

    run_script.hide(__file__)
    before = torch.nn.Module.__call__
    torch.nn.Module.__call__ = __call__  # type: ignore[assignment,method-assign]
    try:
        yield found
    finally:
        torch.nn.Module.__call__ = before  # type: ignore[method-assign]


_WITHOUT_CODE = (torch.jit.ScriptModule,)
