"""Branches on tensor data that usually have one outcome: one graph through them, and its exits."""

from __future__ import annotations

import dataclasses
import gc
import traceback
import weakref

import pytest
import torch
from torch import nn

from graftjit import jit
from graftjit.dispatch import assumed_branches
from graftjit.runtime.process.session import SESSION

USUAL, OTHER = torch.ones(4, 4), torch.full((4, 4), 50.0)


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(assumed_branches, "HOT", 8)


def warmed(fn, *args, calls=12):
    """The jitted function, after calls that all had one outcome."""
    run = jit(fn)
    for _ in range(calls):
        same(run, fn, *args)
    return run


def same(run, fn, *args):
    """The function does the same in plain Python and jitted."""
    found = []
    for one in (fn, run):
        torch.manual_seed(0)
        given = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
        result, error = outcome(one, given)
        found.append((error, (result, given, torch.rand(1))))
    (plain, wanted), (jitted, got) = found
    assert plain == jitted
    torch.testing.assert_close(wanted, got)


def outcome(fn, args):
    """The result, or a zero and the exception with its line."""
    try:
        return fn(*args), None
    except Exception as error:
        lines = [
            f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == __file__
        ]
        return 0, (type(error), str(error), lines[-1])


def kinds(run):
    return [entry.kind for entry in run.state.entries]


def branching(x):
    h = x @ x
    if h.sum() > 1000:
        return h - 1
    return h + h.sum()


def test_a_branch_that_has_one_outcome_is_part_of_the_graph():
    run = warmed(branching, USUAL)
    assert kinds(run) == ["direct"]
    (entry,) = run.state.entries
    assert entry.otherwise.kind == "code" and entry.exits == 0


def test_another_outcome_leaves_the_graph():
    run = warmed(branching, USUAL)
    for x in (OTHER, USUAL, OTHER, OTHER, USUAL):
        same(run, branching, x)
    (entry,) = run.state.entries
    assert entry.kind == "direct" and entry.exits == 3


def test_an_entry_that_is_left_often_goes():
    run = warmed(branching, USUAL)
    for number in range(80):
        same(run, branching, OTHER if number % 2 else USUAL)
    assert kinds(run) == ["code"]
    for _ in range(40):
        same(run, branching, OTHER)
    assert kinds(run) == ["code"]


def test_alternating_outcomes_stay_a_break():
    run = jit(branching)
    for number in range(40):
        same(run, branching, OTHER if number % 2 else USUAL)
    assert kinds(run) == ["code"]


def test_several_branches():
    def f(x):
        h = x @ x
        if h.sum() > 1000:
            h = h - 1
        y = h @ x
        if (y < 0).any():
            return y.abs()
        return y + 1 if y.max() < 100 else y

    run = warmed(f, USUAL)
    assert kinds(run) == ["direct"]
    for x in (OTHER, -USUAL, USUAL, -OTHER, USUAL):
        same(run, f, x)


def test_a_branch_in_an_inlined_function():
    def scaled(h):
        if h.abs().max() > 100:
            h = h / h.abs().max()
        return h

    def f(x):
        return scaled(x @ x) + scaled(x @ x.t() + 1)

    run = warmed(f, USUAL)
    assert kinds(run) == ["direct"]
    for x in (OTHER, USUAL, OTHER):
        same(run, f, x)


def test_a_loop_that_usually_goes_on():
    def f(x):
        for _ in range(3):
            x = x @ x / 4
            if x.sum() > 1e4:
                break
        return x + 1

    run = warmed(f, USUAL)
    assert kinds(run) == ["direct"]
    for x in (OTHER, USUAL, OTHER * 1e3, USUAL):
        same(run, f, x)


def test_a_loop_that_is_often_left_at_its_first_step_stays_as_it_is():
    """At its later steps the branch has one outcome, and so in seven of eight iterations."""

    def f(x):
        for _ in range(16):
            x = x @ x / 4
            if x.sum() > 1e4:
                break
        return x + 1

    run = jit(f)
    for number in range(40):
        same(run, f, USUAL if number % 3 else OTHER * 1e3)
    assert kinds(run) == ["code"]


def test_it_waits_until_the_break_has_cost_as_much_as_compiling(monkeypatch):
    run = warmed(branching, USUAL, calls=4)
    (entry,) = run.state.entries
    with SESSION.override(check=False, trials=True):
        for _ in range(36):
            same(run, branching, USUAL)
        assert kinds(run) == ["code"] and entry.hot_at > entry.hits == 40
        past = assumed_branches.past_of(entry)
        assert past.lost > 0 and past.compiled > 0
        dear = dataclasses.replace(past, lost=past.compiled + 1.0)
        monkeypatch.setattr(assumed_branches, "past_of", lambda entry: dear)
        while entry.hits < entry.hot_at:
            same(run, branching, USUAL)
        same(run, branching, USUAL)
    assert kinds(run) == ["direct"]


def test_a_loop_of_unknown_length_stays_as_it_is():
    def f(x):
        while x.sum() > 1:
            x = x @ x / 16
        return x

    run = warmed(f, USUAL)
    same(run, f, OTHER / 20)


def test_writes_and_random_numbers_wait_for_the_outcome():
    def f(x, kept):
        kept.add_(1)
        noise = torch.rand(4)
        h = x @ x + noise
        if h.sum() > 1000:
            kept.zero_()
            return h + torch.rand(4)
        kept.mul_(2)
        return h - torch.rand(4)

    run = warmed(f, USUAL, torch.ones(3))
    for x in (OTHER, USUAL, OTHER, USUAL):
        same(run, f, x, torch.ones(3))


def test_effects_stay_python_s():
    seen = []

    def f(x):
        h = x @ x
        seen.append("before")
        if h.sum() > 1000:
            seen.append("large")
            return h - 1
        seen.append("small")
        return h + 1

    run = warmed(f, USUAL)
    seen.clear()
    for x in (OTHER, USUAL):
        run(x)
    assert seen == ["before", "large", "before", "small"]


def test_an_error_after_the_branch():
    def f(x, index):
        h = x @ x
        if h.sum() > 1000:
            return h[index + 1]
        return nn.functional.embedding(index, h)

    fine, wrong = torch.tensor([1, 2]), torch.tensor([1, 9])
    run = warmed(f, USUAL, fine)
    for x, index in ((USUAL, wrong), (OTHER, fine), (OTHER, wrong), (USUAL, fine)):
        same(run, f, x, index)


def test_another_shape_is_compiled_as_always():
    run = warmed(branching, USUAL)
    same(run, branching, torch.ones(3, 3))
    same(run, branching, USUAL)
    same(run, branching, OTHER)


def test_gradients():
    layer = nn.Linear(4, 4)
    with torch.no_grad():
        layer.weight.fill_(0.5)

    def f(x):
        h = layer(x).relu()
        if h.sum() > 100:
            return (h * 2).sum()
        return (h**2).sum()

    run = jit(f)
    for number, x in enumerate([USUAL] * 12 + [OTHER, USUAL, OTHER]):
        found = []
        for one in (f, run):
            layer.zero_grad()
            one(x).backward()
            found.append(layer.weight.grad.clone())
        torch.testing.assert_close(*found, msg=f"call {number}")
    assert kinds(run) == ["direct"]


def test_nothing_lives_longer_for_it():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4, 4))

        def forward(self, x):
            h = x @ self.weight
            if h.sum() > 1000:
                return h - 1
            return h + 1

    def used():
        model = Model()
        run = jit(model)
        with torch.no_grad():
            for x in (*[USUAL] * 12, OTHER):
                run(x)
        return weakref.ref(model), weakref.ref(model.weight)

    gone = used()
    gc.collect()
    assert [one() for one in gone] == [None, None]
