"""Whatever watches a program sees the same of a jitted function as of the function: event for event.

One program with calls, generators, operators of its own, a loop, an exception and breaks is watched in each way that
CPython has; first before anything of it is compiled, then after. The report says that those calls ran plain (PL208).
"""

from __future__ import annotations

import cProfile
import pstats
import sys
import threading
import trace
from collections.abc import Callable
from typing import Any

import pytest
import torch

from graftjit import jit

X = torch.linspace(-1, 1, 4)
HERE = __file__
Way = Callable[[Any], list[Any]]


# -- what is watched ---------------------------------------------------------------------------------------
def helper(t):
    u = t + 1
    print(end="")
    return u * 2


def steps(t):
    for n in range(2):
        yield t * n


class Box:
    def __init__(self, t):
        self.t = t

    def __add__(self, other):
        return self.t + other


def work(x):
    y = helper(x)
    print(end="")
    z = sum(steps(y))
    try:
        z = z + Box(y)
    except TypeError:
        z = Box(y) + z
    pair = [q * 2 for q in (z, y)]
    for n in range(3):
        z = z + helper(pair[0]) * n
    return z + pair[1]


OURS = frozenset({"work", "helper", "steps", "__init__", "__add__", "<listcomp>"})


def ours(code: Any) -> bool:
    return code.co_filename == HERE and code.co_name in OURS


# -- the ways ----------------------------------------------------------------------------------------------
def traced(see: Any, call: Any) -> None:
    """call(X) under the trace function `see`."""
    before = sys.gettrace()
    sys.settrace(see)
    try:
        call(X)
    finally:
        sys.settrace(before)


def lines(call: Any) -> list[Any]:
    seen: list[Any] = []

    def see(frame: Any, event: str, arg: Any) -> Any:
        if not ours(frame.f_code):
            return None
        seen.append((frame.f_code.co_name, event, frame.f_lineno, sorted(frame.f_locals)))
        return see

    traced(see, call)
    return seen


def opcodes(call: Any) -> list[Any]:
    seen: list[Any] = []

    def see(frame: Any, event: str, arg: Any) -> Any:
        if not ours(frame.f_code):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        seen.append((frame.f_code.co_name, event, frame.f_lasti))
        return see

    traced(see, call)
    return seen


def calls(call: Any) -> list[Any]:
    seen: list[Any] = []

    def see(frame: Any, event: str, arg: Any) -> None:
        if ours(frame.f_code):
            name = arg.__name__ if event.startswith("c_") else None
            seen.append((frame.f_code.co_name, event, frame.f_lineno, name))

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        call(X)
    finally:
        sys.setprofile(before)
    return seen


def counts(call: Any) -> list[Any]:
    profile = cProfile.Profile()
    profile.runcall(call, X)
    rows = pstats.Stats(profile).stats.items()  # type: ignore[attr-defined]
    return sorted((key[1:], row[0]) for key, row in rows if key[0] == HERE)


def coverage(call: Any) -> list[Any]:
    before = sys.gettrace()
    tracer = trace.Trace(count=1, trace=0)
    try:
        tracer.runfunc(call, X)
    finally:
        sys.settrace(before)
    return sorted((key[1], n) for key, n in tracer.results().counts.items() if key[0] == HERE)


def lines_of_a_thread(call: Any) -> list[Any]:
    seen: list[Any] = []

    def see(frame: Any, event: str, arg: Any) -> Any:
        if not ours(frame.f_code):
            return None
        seen.append((frame.f_code.co_name, event, frame.f_lineno))
        return see

    before = threading.gettrace()
    threading.settrace(see)
    try:
        thread = threading.Thread(target=call, args=(X,))
        thread.start()
        thread.join()
    finally:
        threading.settrace(before)  # type: ignore[arg-type]
    return seen


EVENTS = ("LINE", "PY_START", "PY_RETURN", "PY_YIELD", "PY_RESUME", "CALL", "JUMP", "BRANCH")


def monitored(local: bool, once: bool) -> Way:
    """By a tool of sys.monitoring: all code or single functions; each place again, or (as coverage does) once."""

    def way(call: Any) -> list[Any]:
        monitoring, tool = sys.monitoring, 4
        seen: list[Any] = []

        def sees(event: str) -> Any:
            def see(code: Any, at: int, *_: Any) -> Any:
                if ours(code):
                    seen.append((event, code.co_name, at))
                return monitoring.DISABLE if once else None

            return see

        wanted = 0
        monitoring.use_tool_id(tool, "test")
        for event in EVENTS:
            wanted |= getattr(monitoring.events, event)
            monitoring.register_callback(tool, getattr(monitoring.events, event), sees(event))
        watched = [f.__code__ for f in (work, helper, steps)] if local else []
        try:
            for code in watched:
                monitoring.set_local_events(tool, code, wanted)
            if not local:
                monitoring.set_events(tool, wanted)
            call(X)
        finally:
            monitoring.set_events(tool, 0)
            for code in watched:
                monitoring.set_local_events(tool, code, 0)
            monitoring.free_tool_id(tool)
            monitoring.restart_events()
        return seen

    return way


new = pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="sys.monitoring is new in 3.12")
# There, asking for the opcodes of a frame has its effect one call later than in plain Python.
late = pytest.mark.xfail(sys.version_info >= (3, 13), reason="opcode events of 3.13", strict=True)
WAYS: dict[str, Way] = {
    way.__name__: way for way in (lines, opcodes, calls, counts, coverage, lines_of_a_thread)
}
MONITORED: dict[str, Way] = {
    "all code": monitored(local=False, once=False),
    "all code, each place once": monitored(local=False, once=True),
    "single functions": monitored(local=True, once=False),
    "single functions, each place once": monitored(local=True, once=True),
}


@pytest.mark.parametrize(
    "way",
    [pytest.param(way, id=name, marks=late if way is opcodes else ()) for name, way in WAYS.items()]
    + [pytest.param(way, id=name, marks=new) for name, way in MONITORED.items()],
)
def test_events_are_those_of_plain_python(way: Way) -> None:
    way(work)  # 3.12 sees the opcodes of a code object from the second call on
    wanted = way(work)
    assert len(wanted) >= 5
    function = jit(work)
    assert way(function) == wanted
    result = work(X)
    for _ in range(3):
        assert torch.equal(function(X), result)
    assert sum(row.graphs for row in function.report().frames) > 0
    assert way(function) == wanted
    emitted = [note.reason for note in function.report().notes if note.code == "PL208"]
    assert len(emitted) == 1 and "calls under a tracer, profiler or debugger" in emitted[0]
    assert torch.equal(function(X), result)
