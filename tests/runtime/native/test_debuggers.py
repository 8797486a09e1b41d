"""Under a tracer, profiler or debugger a jitted function is the function as written: every line and call is seen."""

from __future__ import annotations

import bdb
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
import torch

import graftjit

X = torch.linspace(-1, 1, 4)


def helper(x: torch.Tensor) -> torch.Tensor:
    return torch.abs(x)


def work(x: torch.Tensor) -> torch.Tensor:
    y = helper(x)
    print(end="")
    z = y + 1
    return z * 2


FIRST = work.__code__.co_firstlineno


@pytest.fixture
def jitted() -> Iterator[Any]:
    function = graftjit.jit(work)
    assert torch.equal(function(X), work(X))
    hits = entries(function)
    assert hits and sum(hits) > 0
    yield function
    if sys.gettrace() is None and sys.getprofile() is None:
        before = sum(entries(function))
        assert torch.equal(function(X), work(X))  # compiled code is back as soon as nobody watches
        assert sum(entries(function)) > before


def entries(function: Any) -> list[int]:
    return [entry.hits for state in function._unit.states for entry in state.entries]


def lines_seen(call: Callable[[], Any]) -> list[int]:
    seen: list[int] = []

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code is work.__code__ and event == "line":
            seen.append(frame.f_lineno - FIRST)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return seen


def test_a_tracer_sees_every_line(jitted):
    hits = entries(jitted)
    assert lines_seen(lambda: jitted(X)) == lines_seen(lambda: work(X)) == [1, 2, 3, 4]
    assert entries(jitted) == hits


def test_a_profiler_sees_every_call(jitted):
    calls: list[tuple[str, str]] = []
    ours = ("work", "helper")

    def profile(frame: FrameType, event: str, arg: Any) -> None:
        if event in ("call", "return") and frame.f_code.co_name in ours:
            calls.append((event, frame.f_code.co_name))

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        jitted(X)
    finally:
        sys.setprofile(before)
    wanted = [("call", "work"), ("call", "helper"), ("return", "helper"), ("return", "work")]
    assert calls == wanted


class Stops(bdb.Bdb):
    """A debugger with breakpoints; it notes the locals where it stops."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[int, dict[str, Any]]] = []

    def user_line(self, frame: FrameType) -> None:
        if self.break_here(frame):
            self.found.append((frame.f_lineno, dict(frame.f_locals)))
        self.set_continue()

    def set_continue(self) -> None:
        """Without breakpoints bdb would switch its tracing off."""
        self._set_stopinfo(self.botframe, None, -1)


def test_a_breakpoint_is_met_with_the_locals_of_the_line(jitted):
    debugger = Stops()
    assert debugger.set_break(__file__, FIRST + 3) is None
    assert debugger.set_break(__file__, helper.__code__.co_firstlineno + 1) is None
    before = sys.gettrace()
    try:
        result = debugger.runcall(jitted, X)
    finally:
        sys.settrace(before)
    assert torch.equal(result, work(X))
    (in_helper, helper_locals), (in_work, work_locals) = debugger.found
    assert (in_helper, in_work) == (helper.__code__.co_firstlineno + 1, FIRST + 3)
    assert list(helper_locals) == ["x"] and torch.equal(work_locals["y"], torch.abs(X))


def test_a_tracer_that_begins_in_the_middle_sees_what_it_sees_in_python():
    """The frame runs as it is written: what follows a break would be one more call."""
    seen: list[int] = []

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code.co_name == "starts":
            seen.append(frame.f_lineno - first)
        return trace

    def begin() -> None:
        sys.settrace(trace)

    def starts(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        begin()
        z = y * 2
        return z.abs()

    first = starts.__code__.co_firstlineno
    function, before = graftjit.jit(starts), sys.gettrace()
    emitted = []
    for run in (starts, function, function):
        seen.clear()
        try:
            result = run(X)
        finally:
            sys.settrace(before)
        assert torch.equal(result, torch.abs((X + 1) * 2))
        emitted.append(list(seen))
    assert emitted[0] == emitted[1] == emitted[2]


def test_a_module_is_traced_as_written():
    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return work(x)

    compiled = graftjit.compile(Net())
    compiled(X)
    assert lines_seen(lambda: compiled(X)) == [1, 2, 3, 4]


def test_the_report_says_so(jitted):
    lines_seen(lambda: jitted(X))
    emitted = [note for note in jitted.report().notes if note.code == "PL208"]
    assert len(emitted) == 1 and "1 calls" in emitted[0].reason


@pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="sys.monitoring is new in Python 3.12")
def test_a_monitoring_tool_sees_every_line(jitted):
    monitoring, tool = sys.monitoring, 4
    seen: list[int] = []

    def line(code: Any, number: int) -> None:
        if code is work.__code__:
            seen.append(number - FIRST)

    monitoring.use_tool_id(tool, "test")
    try:
        monitoring.register_callback(tool, monitoring.events.LINE, line)
        monitoring.set_events(tool, monitoring.events.LINE)
        jitted(X)
        monitoring.set_events(tool, 0)
        assert seen == [1, 2, 3, 4]
        seen.clear()
        monitoring.set_local_events(tool, work.__code__, monitoring.events.LINE)
        jitted(X)
        assert seen == [1, 2, 3, 4]
    finally:
        monitoring.set_local_events(tool, work.__code__, 0)
        monitoring.free_tool_id(tool)


@pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="sys.monitoring is new in Python 3.12")
def test_a_tool_that_watches_only_an_inlined_function_sees_its_lines():
    def outer(x: torch.Tensor) -> torch.Tensor:
        return helper(x) * 2

    monitoring, tool = sys.monitoring, 4
    seen: list[int] = []
    function = graftjit.jit(outer)
    function(X)
    monitoring.use_tool_id(tool, "test")
    try:
        monitoring.register_callback(
            tool, monitoring.events.LINE, lambda code, number: seen.append(number)
        )
        monitoring.set_local_events(tool, helper.__code__, monitoring.events.LINE)
        assert torch.equal(function(X), outer(X))
        assert seen == [helper.__code__.co_firstlineno + 1] * 2
    finally:
        monitoring.set_local_events(tool, helper.__code__, 0)
        monitoring.free_tool_id(tool)
    hits = sum(entries(function))
    function(X)
    assert sum(entries(function)) == hits + 1
