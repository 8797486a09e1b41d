"""How a test method runs: plain, jitted itself, or inside of a frame that computes with a tensor.

A mode is a function without arguments that prepares this process and returns `(transform, faults)`. `transform(method)` is
asked once for each test, and returns what makes a callable of the bound method of each run; `faults` is a list that gets the
text of each internal fault of graftjit.
"""

from __future__ import annotations

import functools
import inspect
import os
import sysconfig
import traceback
import types
from collections.abc import Callable
from typing import Any

Made = Callable[[Any], Callable[[], Any]]
_TESTS = os.path.join(sysconfig.get_path("stdlib"), "test") + os.sep


def plain() -> tuple[Callable[[Any], Made], list[str]]:
    """As CPython runs it, beside torch, which patches the standard library (`inspect.getfile`)."""
    import torch  # noqa: F401

    return lambda method: lambda bound: functools.partial(bound), []


def jitted() -> tuple[Callable[[Any], Made], list[str]]:
    """The method itself is jitted, as a user who puts `@jit` on it would have it. It has no tensor, so it is found to have
    nothing to compile, whatever it does."""
    from graftjit import JitConfig, jit

    config, faults = JitConfig(jit_level="O1"), _faults()

    def transform(method: Any) -> Made:
        if not isinstance(method, types.MethodType):
            return functools.partial(jit, config=config)
        made = jit(method.__func__, config=config)
        return lambda bound: functools.partial(made, bound.__self__)

    return transform, faults


def framed() -> tuple[Callable[[Any], Made], list[str]]:
    """The method is called by a frame that computes with a tensor, and so is whatever it calls: the rule that a frame
    without a tensor operation has nothing to compile is off, and the files of the tests count as a user's own."""
    import torch

    from graftjit import JitConfig, jit
    from graftjit.capture.emit import continuations
    from graftjit.dispatch import frame_policy as hook
    from graftjit.ir.trace.tracer import Tracer

    config, faults = JitConfig(jit_level="O1"), _faults()
    skipped, recorded = hook.skipped_file, Tracer.recorded.fget
    hook.skipped_file = lambda name: not name.startswith(_TESTS) and skipped(name)
    continuations.skipped_file = hook.skipped_file
    Tracer.recorded = property(lambda tracer: recorded(tracer) + 1)

    def transform(method: Any) -> Made:
        waits = inspect.iscoroutinefunction(method)
        body = _awaited if waits else _called
        code = body.__code__.replace(co_qualname=method.__qualname__)
        made = jit(types.FunctionType(code, body.__globals__, "frame"), config=config)

        def called(bound: Any) -> None:
            assert made(bound, torch.ones(2)).tolist() == [4, 4]

        async def awaited(bound: Any) -> None:
            assert (await made(bound, torch.ones(2))).tolist() == [4, 4]

        return lambda bound: _like(awaited if waits else called, bound)

    return transform, faults


def _called(body: Any, x: Any) -> Any:
    y = x + 1
    body()
    return y * 2


async def _awaited(body: Any, x: Any) -> Any:
    y = x + 1
    await body()
    return y * 2


def _like(run: Callable[[Any], Any], bound: Any) -> Callable[[], Any]:
    """A function without arguments that runs `run(bound)`, and awaits where that does."""
    if inspect.iscoroutinefunction(run):

        async def awaited() -> None:
            await run(bound)

        return awaited
    return lambda: run(bound)


def _faults() -> list[str]:
    from graftjit.dispatch.unit import Unit

    seen: list[str] = []
    before = Unit._fault

    def fault(unit: Any, state: Any, error: Exception) -> Any:
        seen.append("".join(traceback.format_exception(error)))
        return before(unit, state, error)

    Unit._fault = fault
    return seen


MODES = {"plain": plain, "jit": jitted, "frame": framed}
