"""Sampled run times: calls, programs and their steps, guards, and what lies between two compiled parts."""

import threading
import time
from typing import Any

import pytest
import torch

import graftjit
from graftjit.runtime import _native
from graftjit.runtime.process.session import SESSION


@pytest.fixture(autouse=True)
def _unchecked() -> Any:
    """As users run: the comparison of GRAFTJIT_CHECK would be a part of the times."""
    with SESSION.override(check=False):
        yield


def _states(fn: Any) -> list[Any]:
    return fn._unit.states


def test_calls_programs_steps_and_guards_are_sampled() -> None:
    @graftjit.jit
    def f(x: Any) -> Any:
        return (torch.softmax(x, -1) @ x).relu().sum(-1)

    x = torch.randn(32, 32)
    for _ in range(200):
        f(x)
    (state,) = _states(f)
    calls, samples, seconds, inside, gaps, _gap = state.times()
    assert calls == 200 and 8 <= samples < 100 and gaps == 0
    assert 0 < inside < seconds < 1
    (entry,) = state.entries
    checked, guards = entry.guard_time
    assert checked == samples and 0 < guards < seconds
    runs, timed, whole, steps = entry.target.times()
    assert runs == 200 and timed >= 8 and len(steps) == len(entry.target.routes)
    assert 0 < sum(steps) < 10 * whole and sum(steps) > whole / 10
    spent = {route for route, one in zip(entry.target.routes, steps, strict=True) if one > 0}
    assert spent & {"launch", "aten"}


def test_the_first_call_compiles_and_counts_for_nothing() -> None:
    @graftjit.jit
    def f(x: Any) -> Any:
        return x.exp() + 1

    f(torch.ones(4))
    assert _states(f)[0].times()[:2] == (1, 0)
    f(torch.ones(4))
    f(torch.ones(4, dtype=torch.float64))  # a miss in a call that was to be sampled
    calls, samples, seconds, *_ = _states(f)[0].times()
    assert (calls, samples) == (3, 1) and seconds < 0.05


def test_the_cost_of_a_break_is_measured() -> None:
    @graftjit.jit
    def f(x: Any) -> Any:
        y = x.exp() + 1
        time.sleep(0.002)
        return (y * 2).sum()

    x = torch.ones(8)
    for _ in range(12):
        f(x)
    first, *rest = _states(f)
    assert first.times()[2] > 0.002 and first.times()[3] < 0.001
    gaps = [state.times() for state in rest]
    assert any(samples >= 4 and 0.002 < gap < 0.1 for *_, samples, gap in gaps)


def test_breaks_in_a_row_share_no_time() -> None:
    """Between them nothing of the graph runs: what each costs ends where the next one begins."""

    @graftjit.jit
    def f(x: Any) -> Any:
        y = x.exp() + 1
        time.sleep(0.004)
        time.sleep(0.004)
        time.sleep(0.004)
        return (y * 2).sum()

    x = torch.ones(8)
    for _ in range(16):
        f(x)
    costs = [record.seconds for record in f.report().breaks]
    assert len(costs) == 3 and min(costs) > 0.004
    assert sum(costs) <= _states(f)[0].times()[2] * 1.05


def test_a_call_that_raises_is_not_a_sample() -> None:
    @graftjit.jit
    def f(x: Any, at: Any) -> Any:
        return x[at] + 1

    x, good, bad = torch.arange(8.0), torch.tensor([1, 2]), torch.tensor([1, 99])
    f(x, good)
    for _ in range(20):
        with pytest.raises(IndexError):
            f(x, bad)
    state = _states(f)[0]
    assert state.times()[0] == 21 and state.times()[1] == 0
    for _ in range(100):
        f(x, good)
    assert state.times()[1] > 0


def test_calls_inside_of_calls() -> None:
    """Deeper than samples reach; what is outermost has the time of all."""

    @graftjit.jit
    def f(x: Any, depth: int) -> Any:
        y = x.sin() + 1
        if depth:
            graftjit_break()
            y = y + f(x, depth - 1)
        return y

    def graftjit_break() -> None:
        print(end="")

    x = torch.ones(4)
    expected = f(x, 9)
    for _ in range(60):
        torch.testing.assert_close(f(x, 9), expected, rtol=0, atol=0)
    for state in _states(f):
        calls, samples, seconds, inside, _gaps, gap = state.times()
        assert samples <= calls and 0 <= inside <= seconds and gap < 1


def test_threads_time_their_own_calls() -> None:
    @graftjit.jit
    def f(x: Any) -> Any:
        y = x.exp()
        print(end="")
        return (y @ y).sum()

    x = torch.randn(200, 200)
    expected = f(x)
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(100):
            if not torch.equal(f(x), expected):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong
    calls, samples, seconds, inside, *_ = _states(f)[0].times()
    assert calls == 401 and samples > 0 and 0 < inside <= seconds


def test_a_reset_forgets_what_was_measured() -> None:
    @graftjit.jit
    def f(x: Any) -> Any:
        return x.exp() + 1

    for _ in range(20):
        f(torch.ones(4))
    state = _states(f)[0]
    assert state.times()[1] > 0
    f.reset()
    assert state.times()[1:] == (0, 0.0, 0.0, 0, 0.0)


def test_sampling_is_switched_off_for_the_benchmark() -> None:
    run = graftjit.jit(lambda x: x + 1)
    x = torch.ones(3)
    run(x)
    before = _native.set_sampling(False)
    try:
        for _ in range(100):
            run(x)
        (state,) = _states(run)
        assert before and state.times()[:2] == (101, 0)
        assert state.entries[0].target.times()[:2] == (101, 0)
    finally:
        assert not _native.set_sampling(before)
    for _ in range(2000):
        run(x)
    assert state.times()[1] > 0 and state.entries[0].target.times()[1] > 0
