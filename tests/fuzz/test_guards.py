"""A fixed batch of the guard fuzzer, and its own tests: it finds what it must, and makes small."""

from __future__ import annotations

import random

import pytest

from graftjit.capture.interpreter.machine import Machine

from .changes import CHANGES, _fits, change
from .guards import Case, check, minimise
from .objects import make_roots, places

CHUNK = 20


@pytest.mark.parametrize("start", range(0, 60, CHUNK))
def test_guards_accept_what_a_capture_would_state(start):
    for seed in range(start, start + CHUNK):
        found = check(Case(seed))
        assert found is None, f"python -m tests.fuzz.guards --seed {seed}\n{found}"


def test_a_seed_is_a_case():
    assert Case(5).build()[1] == Case(5).build()[1]
    assert len({Case(seed).build()[1] for seed in range(50)}) > 45


def test_changes_of_all_kinds_are_made():
    """Each kind of value turns up, and most changes can be made."""
    made, roots = set(), []
    for seed in range(150):
        rng = random.Random(seed)
        roots.append(make_roots(rng))
        made |= {change(rng, roots[-1]).partition(": ")[2] for _ in range(12)}
    assert {what for _, what, _ in CHANGES} - made == set()
    values = [value for world in roots for _, value in places(world)]
    for kind, _, _ in CHANGES:
        assert kind == "class" or any(_fits(kind, value) for value in values), kind


@pytest.mark.parametrize("kind", ["equals", "type", "len", "no_attr"])
def test_a_guard_that_is_missing_is_found(kind, monkeypatch):
    whole = Machine.guard

    def guard(self, row_kind, source, expected):
        if row_kind != kind:
            whole(self, row_kind, source, expected)

    found = None
    monkeypatch.setattr(Machine, "guard", guard)
    for seed in range(300):
        try:
            found = check(Case(seed))
        except Exception:  # a fault of the capture that lacks its guards
            continue
        if found is not None:
            break
    assert found is not None
    if "wrong result:" in found:
        small = minimise(Case(seed))
        assert len(small.changes) <= 4
        assert len(small.reads) <= 2
