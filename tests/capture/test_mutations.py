"""Whatever changes between two calls is seen by the next one, and what does not matter captures nothing.

The table is tests/mutations: each world is played in plain Python and jitted, call by call the same must be seen.
"""

from __future__ import annotations

import functools

import pytest

from graftjit import JitConfig, jit
from graftjit.jit import _unit_of
from graftjit.runtime.events.events import Captured
from graftjit.runtime.process.session import SESSION

from ..mutations import KINDS, play
from .harness import LEVELS, TOLERANCE, Describer, _call, difference


def described(run, fn, args):
    outcome, text, result = _call(run, fn, args, False)
    return Describer().describe((outcome, text, result))


def captures(run):
    counted = getattr(run, "report", None)
    return 0 if counted is None else sum(type(e) is Captured for e in counted().events)


class Afresh:
    """A program that is compiled anew for each call: all share compilations, so that what one has compiled answers for
    the next wherever nothing has changed, and nowhere else."""

    def __init__(self, level, fn):
        self.config, self.fn, self.made = JitConfig(jit_level=level), fn, []

    def __call__(self, *args):
        run = jit(self.fn, config=self.config)
        self.made.append(run)
        return run(*args)

    def captures(self):
        """Of their own frames: those that the hook meets belong to their code, whatever calls it."""
        states = [state for run in self.made for state in _unit_of(run)._unit.states]
        return sum(type(event) is Captured for event in SESSION.log.of(states))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", KINDS, ids=lambda name: name.replace(" ", "_"))
def test_mutation_seen_by_a_second_callable(name, level):
    row = KINDS[name]
    plain = play(row.world, lambda fn: fn, described, lambda run: 0)
    found = play(
        row.world,
        functools.partial(Afresh, level),
        lambda run, fn, args: described(run, fn, args),
        Afresh.captures,
    )
    assert len(plain) == len(found) > 1
    for number, (wanted, got) in enumerate(zip(plain, found, strict=True)):
        for call, (one, other) in enumerate(zip(wanted.calls, got.calls, strict=True)):
            where = difference(one, other, TOLERANCE[level])
            assert where is None, f"step {number}, call {call}: plain {where}"
        before, first, second = got.captures
        assert not (got.same and second > before), f"step {number} captured anew"
        assert not (row.settles and second > first), f"step {number}, call 1 captured"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", KINDS, ids=lambda name: name.replace(" ", "_"))
def test_mutation(name, level):
    row = KINDS[name]
    plain = play(row.world, lambda fn: fn, described, lambda run: 0)
    run = []

    def wrap(fn):
        run.append(jit(fn, config=JitConfig(jit_level=level)))
        return run[0]

    found = play(row.world, wrap, described, captures)
    report = run[0].report()
    assert len(plain) == len(found) > 1
    for number, (wanted, got) in enumerate(zip(plain, found, strict=True)):
        for call, (one, other) in enumerate(zip(wanted.calls, got.calls, strict=True)):
            where = difference(one, other, TOLERANCE[level])
            assert where is None, f"step {number}, call {call}: plain {where}\n{report}"
        before, first, second = got.captures
        assert not (got.same and second > before), f"step {number} captured anew\n{report}"
        assert not (row.settles and second > first), f"step {number}, call 1 captured\n{report}"
    assert all(note.code != "PL205" for note in report.notes), f"an internal fault\n{report}"
