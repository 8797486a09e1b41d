"""What does not pay is given up: entries slower than plain Python, recompiles without use."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import graftjit
from graftjit import JitConfig
from graftjit.dispatch import paying
from graftjit.runtime import _native
from graftjit.runtime.process.session import SESSION

X = torch.arange(4.0)


class Clock:
    """Calls as written take `written`, other calls `compiled` nanoseconds."""

    def __init__(self) -> None:
        self.now, self.written, self.compiled, self.calls = 0, 1000, 1000, 0

    def __call__(self) -> int:
        self.now += self.compiled
        return self.now


CLOCK = Clock()


@pytest.fixture(autouse=True)
def clock() -> Iterator[Clock]:
    CLOCK.__init__()  # type: ignore[misc]
    _native.set_trial_clock(CLOCK)
    with SESSION.override(check=False, trials=True):
        yield CLOCK
    _native.set_trial_clock(None)


def step(x: torch.Tensor) -> torch.Tensor:
    if not torch.compiler.is_compiling():
        CLOCK.now += CLOCK.written - CLOCK.compiled
        CLOCK.calls += 1
    return x + 1


def jitted(**options: Any) -> Any:
    return graftjit.jit(step, config=JitConfig(claims_compiling=True, **options))


def notes(run: Any) -> dict[str, str]:
    return {note.code: note.reason for note in run.report().notes}


def test_what_is_slower_runs_as_written_and_the_report_has_both_times():
    CLOCK.compiled = 3000
    run = jitted()
    for _ in range(60):
        assert run(X).equal(X + 1)
    before = CLOCK.calls
    for _ in range(50):
        assert run(X).equal(X + 1)
    assert CLOCK.calls - before == 50
    assert notes(run) == {"PL214": "compiled 3 us, as written 1 us"}
    assert "jit only the parts that compute much" in run.report().text()


def test_what_is_faster_stays_compiled():
    CLOCK.written = 5000
    run = jitted()
    for _ in range(300):
        run(X)
    assert 0 < CLOCK.calls < 10 and notes(run) == {}


def mostly_python(x: torch.Tensor) -> torch.Tensor:
    y = step(x)
    time.sleep(3e-4)
    return y


@pytest.mark.parametrize("compiled, calls", [(1010, 50), (990, 0)])
def test_little_decides_where_next_to_nothing_runs_in_programs(compiled, calls):
    CLOCK.compiled = compiled
    run = graftjit.jit(mostly_python, config=JitConfig(claims_compiling=True))
    for _ in range(80):
        run(X)
    before = CLOCK.calls
    for _ in range(50):
        run(X)
    assert CLOCK.calls - before >= calls
    assert ("PL214" in notes(run)) == (calls > 0)


def test_first_calls_that_are_unlike_others_do_not_hide_what_is_slower():
    run = jitted()
    for number in range(700):
        CLOCK.compiled = 1030 if number > 150 else int(10 ** (1.7 + number % 4))
        run(X)
    assert "PL214" in notes(run)


@pytest.mark.parametrize(
    "options",
    [
        {"never_slower": False},
        {"jit_syntax_level": "STRICT"},
        {"memory_budget": 0.5},
    ],
)
def test_who_does_not_want_it_gets_no_plain_call(options):
    CLOCK.compiled = 3000
    run = jitted(**options)
    for _ in range(100):
        run(X)
    assert CLOCK.calls == 0


def test_nor_does_a_program_that_wants_the_same_bits_in_each_run():
    CLOCK.compiled = 3000
    torch.use_deterministic_algorithms(True)
    try:
        run = jitted()
        for _ in range(100):
            run(X)
    finally:
        torch.use_deterministic_algorithms(False)
    assert CLOCK.calls == 0


def test_nothing_is_tried_under_checks():
    CLOCK.compiled = 3000
    with SESSION.override(check=True):
        run = jitted()
        for _ in range(100):
            run(X)
    assert CLOCK.calls == 0


def test_shapes_are_judged_one_by_one():
    run = jitted(dynamic=False)
    small, large = torch.ones(2), torch.ones(64)
    for _ in range(100):
        CLOCK.compiled = 3000
        run(small)
        CLOCK.compiled = 200
        run(large)
    assert {entry.slower for entry in run.state.entries} == {True, False}


def test_checkpoints_are_not_tried():
    """Both runs of a checkpoint must save the same tensors."""
    CLOCK.compiled = 3000
    run = jitted()
    x = X.clone().requires_grad_()
    for _ in range(40):
        torch.utils.checkpoint.checkpoint(run, x, use_reentrant=False).sum().backward()
    assert CLOCK.calls == 0


# -- recompiles


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that budgets see, which tests set."""
    now = [100.0]
    monkeypatch.setattr(paying.time, "monotonic", lambda: now[0])
    return now


def spent(budget: paying.Budget, made: int, seconds: float) -> None:
    for _ in range(made):
        budget.add(seconds, again=True)


def test_the_first_recompiles_are_free(seconds):
    budget = paying.Budget()
    assert budget.wait([], 1.0) == 0.0
    spent(budget, paying.FREE - 1, 1.0)
    assert budget.wait([], 1.0) == 0.0


def test_further_ones_wait_until_the_program_has_run_for_longer(seconds):
    budget = paying.Budget()
    spent(budget, paying.FREE, 1.0)
    first = budget.wait([], 1.0)
    assert first > 8.0
    seconds[0] += 8.0 + first - 1  # compilation is no running
    assert budget.wait([], 1.0) <= 1.0
    seconds[0] += 1000.0
    assert budget.wait([], 1.0) <= 0.0


def test_the_wait_is_longer_where_compiled_calls_save_little(seconds):
    budget = paying.Budget()
    spent(budget, paying.FREE, 1.0)
    assert budget.wait([], 0.0) > 5 * budget.wait([], 0.1) > 5 * budget.wait([], 1.0)


class Entries:
    def __init__(self, *hits: int) -> None:
        self.entries = [type("E", (), {"hits": n, "slower": False}) for n in hits]


def test_what_varies_inside_a_frame_is_free_less_often_if_it_took_long_for_nothing(seconds):
    budget, unused, used = paying.Budget(), Entries(1, 1, 1), Entries(1, 9, 1)
    for _ in range(paying.FREE_INSIDE):
        assert budget.wait([unused], 1.0, inside=True) == 0.0
        budget.add(1.0, again=True, inside=True)
    assert budget.wait([unused], 1.0, inside=True) > 1.0
    assert budget.wait([unused], 1.0) == budget.wait([unused, used], 1.0, inside=True) == 0.0


def test_cheap_recompiles_inside_a_frame_are_as_free_as_others(seconds):
    budget = paying.Budget()
    for _ in range(paying.FREE - 1):
        budget.add(0.01, again=True, inside=True)
    assert budget.wait([], 1.0, inside=True) == 0.0


def test_the_wait_is_shorter_where_entries_are_used(seconds):
    budget = paying.Budget()
    spent(budget, 20, 1.0)
    used, unused = Entries(*[50] * 20), Entries(*[1] * 20)
    assert budget.wait([used], 1.0) < budget.wait([unused], 1.0) / 3


def keyed(x: torch.Tensor, name: str) -> Any:
    return {name: x + 1}


def test_calls_without_an_entry_run_as_written_while_recompiles_are_put_off(seconds):
    run = graftjit.jit(keyed, config=JitConfig(jit_level="O0"))
    for number in range(40):
        assert [*run(X, f"{number}")] == [f"{number}"]
    assert len(run.state.entries) == paying.FREE + 1
    assert "PL215" in notes(run) and "RC410" not in notes(run)
    assert run(X, "0")["0"].equal(X + 1)


def test_they_go_on_later(seconds, monkeypatch):
    monkeypatch.setattr(paying, "_LONGEST", 0.0)
    run = graftjit.jit(keyed, config=JitConfig(jit_level="O0"))
    for number in range(20):
        run(X, f"{number}")
    made = len(run.state.entries)
    seconds[0] += 10_000.0
    for number in itertools.count(20):
        run(X, f"{number}")
        if len(run.state.entries) > made or number > 300:
            break
    assert len(run.state.entries) == made + 1


def test_without_the_option_they_are_made(seconds):
    run = graftjit.jit(keyed, config=JitConfig(jit_level="O0", never_slower=False))
    for number in range(20):
        run(X, f"{number}")
    assert len(run.state.entries) == 20
