"""Trials: some calls of an armed entry are timed, a few run as written; the faster is kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from graftjit.runtime import _native
from graftjit.runtime.guards.compiler import compile_rows
from graftjit.runtime.guards.rows import Row
from graftjit.runtime.guards.sources import Source


class Clock:
    """Time that passes only where a test says so."""

    def __init__(self) -> None:
        self.now = 0
        self.compiled, self.written = 1000, 1000  # nanoseconds of a call
        self.calls = {"compiled": 0, "written": 0}

    def __call__(self) -> int:
        return self.now

    def run(self, which: str) -> str:
        self.now += getattr(self, which)
        self.calls[which] += 1
        return which


@pytest.fixture
def clock() -> Iterator[Clock]:
    made = Clock()
    _native.set_trial_clock(made)
    yield made
    _native.set_trial_clock(None)


@pytest.fixture(autouse=True)
def verdicts() -> Iterator[list[tuple[Any, ...]]]:
    told: list[tuple[Any, ...]] = []

    def judged(state: Any, entry: Any, slower: bool, compiled: float, written: float) -> bool:
        told.append((entry, slower, compiled, written))
        return True

    before = _native.set_callbacks(policy=None, check=None, on_rerun=None, judged=judged)
    yield told
    _native.set_callbacks(**before)


def jitted(clock: Clock, kinds: tuple[Any, ...] = (0,), miss: Any = None) -> tuple[Any, list[Any]]:
    """A function of one argument, with an armed entry for each value of it."""

    def function(kind: Any) -> str:
        return clock.run("written")

    state = _native.CodeState(function.__code__, miss)
    source, entries = Source("local", None, "kind"), []
    for kind in kinds:
        guards = compile_rows([Row("equals", source, kind)], [], function.__code__)
        run = lambda: (clock.run("compiled"),)  # noqa: E731
        entries.append(_native.Entry("direct", guards, run, ("out", 0), n_program_inputs=0))
        entries[-1].arm()
        state.add(entries[-1])
    return _native.Callable(function, state), entries


def test_the_first_calls_are_not_tried(clock):
    run, _ = jitted(clock)
    assert [run(0) for _ in range(7)] == ["compiled"] * 7


def test_an_entry_that_is_slower_is_given_up_with_both_times(clock, verdicts):
    clock.compiled = 1500
    run, (entry,) = jitted(clock)
    for _ in range(100):
        run(0)
    assert entry.slower
    ((found, slower, compiled, written),) = verdicts
    assert found is entry and slower
    assert (compiled, written) == (pytest.approx(1.5e-6), pytest.approx(1e-6))
    assert {run(0) for _ in range(200)} == {"written"}


def test_an_entry_that_is_faster_is_hardly_ever_tried(clock, verdicts):
    clock.written = 10_000
    run, (entry,) = jitted(clock)
    for _ in range(10_000):
        run(0)
    assert not entry.slower and not verdicts
    assert clock.calls["written"] * clock.written < 0.02 * clock.calls["compiled"] * clock.compiled


def test_what_is_as_fast_stays(clock, verdicts):
    clock.compiled = 1010
    run, (entry,) = jitted(clock)
    for _ in range(2000):
        run(0)
    assert not entry.slower and not verdicts and clock.calls["written"] < 300


def test_one_interrupted_call_decides_nothing(clock, verdicts):
    run, (entry,) = jitted(clock)
    for number in range(400):
        clock.compiled = 1_000_000 if number == 12 else 980
        run(0)
    assert not entry.slower and not verdicts


def test_each_entry_is_judged_by_itself(clock, verdicts):
    run, (small, large) = jitted(clock, (0, 1))
    for number in range(400):
        clock.compiled = 500 if number % 2 else 1500
        run(number % 2)
    assert small.slower and not large.slower


def test_an_entry_is_taken_up_again_when_it_has_become_faster(clock, verdicts):
    clock.compiled = 1500
    run, (entry,) = jitted(clock)
    for _ in range(100):
        run(0)
    assert entry.slower
    clock.compiled = 100
    for _ in range(600_000):
        run(0)
        if not entry.slower:
            break
    assert [slower for _, slower, *_ in verdicts] == [True, False]
    assert run(0) == "compiled"


def test_calls_that_run_as_written_are_hardly_looked_at(clock):
    clock.compiled = 1500
    run, (entry,) = jitted(clock)
    for _ in range(1000):
        run(0)
    before = entry.hits
    for _ in range(2560):
        run(0)
    assert entry.hits - before < 60


def test_a_call_that_compiles_says_nothing(clock, verdicts):
    """Here every call misses below it, and takes long."""
    inner = _native.Callable(lambda: None, _native.CodeState((lambda: None).__code__, None))

    def miss(*_asked: Any) -> Any:
        clock.now += 10**9
        guards = compile_rows([Row("equals", Source("local", None, "kind"), 1)], [], code)
        return _native.Entry("plain", guards)

    def below(kind: Any) -> None:
        return None

    code = below.__code__
    inner = _native.Callable(below, _native.CodeState(code, miss))
    run, (entry,) = jitted(clock)
    made = entry.target

    def slow() -> Any:
        inner(1)
        return made()

    guards = entry.guards
    again = _native.Entry("direct", guards, slow, ("out", 0), n_program_inputs=0)
    again.arm()
    run.state.clear()
    run.state.add(again)
    for _ in range(200):
        run(0)
    assert not again.slower and not verdicts


def test_an_entry_that_raises_is_tried_no_more(clock, verdicts):
    def function(kind: Any) -> None:
        raise ValueError("as written")

    guards = compile_rows([], [], function.__code__)

    def fail() -> Any:
        raise ValueError("compiled")

    entry = _native.Entry("direct", guards, fail, ("out", 0), n_program_inputs=0)
    entry.arm()
    state = _native.CodeState(function.__code__, None)
    state.add(entry)
    run = _native.Callable(function, state)
    words = set()
    for _ in range(300):
        with pytest.raises(ValueError) as caught:
            run(0)
        words.add(str(caught.value))
    assert words == {"compiled", "as written"} and not verdicts and not entry.slower


def test_dispatch_may_refuse(clock):
    _native.set_callbacks(judged=lambda *_verdict: False)
    clock.compiled = 1500
    run, (entry,) = jitted(clock)
    for _ in range(100):
        run(0)
    assert not entry.slower


def test_a_pause_leaves_misses_alone(clock):
    asked = []

    def miss(*_asked: Any) -> None:
        asked.append(1)

    run, _ = jitted(clock, (0,), miss)
    run(5)
    run.state.pause(100.0)
    assert [run(5) for _ in range(10)] == ["written"] * 10
    assert len(asked) == 1 and run(0) == "compiled"
    run.state.pause(0.0)
    run(5)
    assert len(asked) == 2
