"""The recompile policy: reasons with the user's line, a limit that evicts the least useful entry, never off for good."""

from __future__ import annotations

import gc
import os
import weakref

import pytest
import torch

import graftjit
from graftjit import JitConfig
from graftjit.dispatch.eviction import _DEAD, PATIENCE
from graftjit.runtime.events.events import RanPlain
from graftjit.runtime.process.session import SESSION

X = torch.arange(4.0)


def keyed(x, name):
    return {name: x + 1}


def small(limit: int = 4):
    return graftjit.jit(keyed, config=JitConfig(recompile_limit=limit))


def held(jitted) -> set[str]:
    """The names that the function's entries answer for."""
    return {
        str(row.expected)
        for entry in jitted.state.entries
        for row in entry.rows
        if row.kind == "equals" and type(row.expected) is str
    }


def codes_of(jitted) -> list[str]:
    return [note.code for note in jitted.report().notes]


def test_the_reason_is_told_with_the_line():
    def f(x, flag):
        y = x + 1
        return y if flag == "on" else -y  # the line

    jitted = graftjit.jit(f)
    jitted(X, "on")
    jitted(X, "off")
    (found,) = jitted.report().recompiles
    assert (found.source, found.now, found.before) == ("flag", "'off'", "'on'")
    assert found.line == f.__code__.co_firstlineno + 2
    text = jitted.report().text()
    assert "flag" in text and "'off'" in text and "'on'" in text


def test_the_reason_is_that_of_the_nearest_entry():
    jitted = small()
    jitted(X, "a")
    jitted(X.double(), "b")
    jitted(X, "c")
    assert jitted.report().recompiles[-1].source == "name"


def test_at_the_limit_the_least_useful_entry_goes(caplog):
    jitted = small()
    for name in "abcd":
        jitted(X, name)
    for _ in range(5):
        for name in "ab":
            jitted(X, name)
    jitted(X, "d")
    jitted(X, "e")
    assert held(jitted) == set("abde")
    jitted(X, "f")
    assert len(jitted.state.entries) == 4 and set("abf") < held(jitted)
    assert jitted.report().recompile_count == 5
    (note,) = [note for note in jitted.report().notes if note.code == "RC410"]
    assert note.count == 2 and note.line == keyed.__code__.co_firstlineno
    (seen,) = [r.getMessage() for r in caplog.records if "WN601" in r.getMessage()]
    assert "recompile_limit" in seen and "name is now 'e', before " in seen and __file__ in seen


def test_what_was_useful_long_ago_goes_in_the_end():
    jitted = small(2)
    for _ in range(20):
        jitted(X, "old")
    for number in range(12):
        for _ in range(3):
            jitted(X, f"new {number}")
    assert "old" not in held(jitted)


def test_values_that_never_come_again_are_not_compiled_for_ever():
    jitted = small()
    for number in range(PATIENCE + 4 + 1):
        assert list(jitted(X, f"{number}")) == [f"{number}"]
    before = jitted.report().recompile_count
    for number in range(100, 400):
        assert list(jitted(X, f"{number}")) == [f"{number}"]
    assert 3 < jitted.report().recompile_count - before < 20
    assert "PL207" in codes_of(jitted)
    assert not [e for e in SESSION.log.of([jitted.state]) if isinstance(e, RanPlain)]


def test_a_value_that_comes_again_is_compiled_whatever_was_before():
    jitted = small()
    for number in range(3 * PATIENCE):
        jitted(X, f"{number}")
    for _ in range(3):
        jitted(X, "again")
    assert "again" in held(jitted)
    hits = jitted.report().frames[0].hits
    jitted(X, "again")
    assert jitted.report().frames[0].hits == hits + 1


def test_a_round_longer_than_the_limit_is_compiled_less_and_less():
    jitted = small()
    for number in range(1200):
        assert list(jitted(X, f"{number % 6}")) == [f"{number % 6}"]
    count = jitted.report().recompile_count
    assert PATIENCE < count < 400


def test_functions_that_are_new_in_each_call():
    """Their entries die with them, and soon such a call runs in plain Python, until one function stays."""

    def applied(function, x):
        return function(x)

    jitted = graftjit.jit(applied, config=JitConfig(recompile_limit=3))

    def fresh(by):
        return eval(
            f"lambda x: x * {by}"
        )  # code of its own: functions of equal parts share entries

    for number in range(80):
        assert torch.equal(jitted(fresh(number), X), X * number)
    gc.collect()
    misses, compiled = jitted.state.misses, len(jitted.report().frames[0].kinds)
    assert misses == 80 and len(jitted.state.entries) == 0
    assert PATIENCE // _DEAD <= compiled < PATIENCE
    stays = fresh(7)
    for _ in range(200):
        assert torch.equal(jitted(stays, X), X * 7)
    assert [entry.hits > 50 for entry in jitted.state.entries] == [True]


def test_nothing_of_a_call_is_kept_while_it_waits():
    def applied(function, x):
        return function(x)

    jitted = graftjit.jit(applied, config=JitConfig(recompile_limit=2))
    jitted(torch.sin, X)
    jitted.state.eviction.useless = 10 * PATIENCE
    functions = [lambda x, by=n: x * by for n in range(5)]
    for function in functions:
        jitted(function, X)
    references = [weakref.ref(function) for function in functions]
    del function, functions
    gc.collect()
    assert [reference() for reference in references] == [None] * 5


@pytest.mark.parametrize("everything", [False, True])
def test_reset_begins_anew(everything):
    jitted = small()
    for number in range(8):
        jitted(X, f"{number}")
    graftjit.reset(None if everything else jitted)
    assert jitted.state.entries == () and jitted.report().recompile_count == 0
    assert jitted.state.eviction.useless == 0
    jitted(X, "a")
    jitted(X, "a")
    assert held(jitted) == {"a"} and jitted.report().frames[0].hits == 1
    jitted.reset()
    assert jitted.state.entries == ()


def test_the_default_is_32_entries():
    assert JitConfig().recompile_limit == 32
    assert graftjit.jit(keyed).state.eviction.limit == 32


def test_a_frame_without_tensor_operators_is_compiled_less_and_less():
    def count(words):
        found = {}
        for word in words:
            found[word] = str.format("{}", len(word)) + os.fspath(word)
        return list(found.items())

    jitted = graftjit.jit(count)
    for number in range(200):
        words = [f"{number}", f"{number + 1}"]
        assert jitted(words) == count(words)
    resumed = jitted.report().recompile_count
    assert resumed < 60
    assert "PL207" in codes_of(jitted)


def test_nor_is_a_frame_that_only_makes_views():
    def f(x, name):
        return {name: x[1:]}

    jitted = graftjit.jit(f, config=JitConfig(recompile_limit=64))
    for number in range(32):
        assert list(jitted(X, f"{number}")) == [f"{number}"]
    assert jitted.report().recompile_count == 4


def test_a_frame_that_computes_now_and_then_is_compiled_for_what_it_computes():
    def f(x, name, compute):
        return {name: x + 1 if compute else x}

    jitted = graftjit.jit(f, config=JitConfig(recompile_limit=64))
    for number in range(40):
        assert list(jitted(X, f"{number}", number % 2 == 1)) == [f"{number}"]
    assert jitted.report().recompile_count == 39
