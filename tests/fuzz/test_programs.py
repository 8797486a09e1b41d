"""A fixed batch of fuzzed programs through `jit`, and the fuzzer's own tests: it sees what it must, and makes small."""

from __future__ import annotations

import copy
import functools

import pytest

from ..capture.harness import LEVELS
from . import operators
from .describe import Describer, difference, lines_of
from .grammar import generate
from .pool import Pool
from .prelude import needed
from .programs import check, check_apart, identity, minimise, run, script
from .statements import parse

BATCH = range(60)
CHUNK = 10
OPEN: set[int] = set()  # that part from plain Python: to be fixed


@pytest.mark.parametrize("start", range(BATCH.start, BATCH.stop, CHUNK))
@pytest.mark.parametrize("level", LEVELS)
def test_programs_agree(start, level):
    from graftjit import JitConfig, jit

    transform = functools.partial(jit, config=JitConfig(jit_level=level))
    seeds = range(start, start + CHUNK)
    pool = Pool(lambda seed: check(generate(seed), transform), jobs=1, seconds=60)
    for seed, found in pool.run(set(seeds) - OPEN):
        assert found is None, f"python -m tests.fuzz.programs --seed {seed}\n{found}"


@pytest.mark.parametrize("start", range(0, 60, CHUNK))
@pytest.mark.parametrize("level", LEVELS)
def test_programs_of_operators_agree(start, level):
    from graftjit import JitConfig, jit

    transform = functools.partial(jit, config=JitConfig(jit_level=level))
    pool = Pool(lambda seed: check(operators.generate(seed), transform), jobs=1, seconds=60)
    for seed, found in pool.run(range(start, start + CHUNK)):
        assert found is None, f"python -m tests.fuzz.operators --seed {seed}\n{found}"


def test_most_programs_of_operators_return():
    outcomes = []
    for seed in range(60):
        program = operators.generate(seed)
        assert program == operators.generate(seed)
        steps = run(program, identity)[:-1]
        outcomes += [what[0][1][0][1] for step, what in steps if step.startswith("(")]
    assert 0.6 * len(outcomes) < outcomes.count("returned") < len(outcomes)


def test_a_seed_is_a_program():
    assert generate(7).source() == generate(7).source()
    assert generate(7).source() != generate(8).source()
    for seed in range(300):
        program = generate(seed)
        compile(program.source(), "program", "exec")
        compile(script(program, "graftjit:jit"), "script", "exec")


def test_the_identity_agrees_with_itself():
    for seed in range(1000, 1010):
        assert check(generate(seed), identity) is None


def test_most_programs_return():
    """A fuzzer whose programs all raise at once would find nothing."""
    returned = 0
    for seed in range(60):
        program = generate(seed)
        del program.steps[1:]
        (_step, description), _faults = run(program, identity)
        returned += description[0][1][0] == ("str", "returned")
    assert returned > 30


# -- it sees each kind of fault -----------------------------------------------------------------------

SOURCE = """\
x = x + GI
o.scale = o.scale + i
js.append(i)
print(i, flag)
return {'r': (x, js, ts)}
"""
STEPS = ["(x=torch.ones(3), i=1, flag=True, js=[1], ts=[torch.ones(1)], o=OBJ)", "GI = 5"]


def sample():
    program = generate(0)
    program.head = "def f(x, i, flag, js, ts, o):"
    program.body = parse(SOURCE)
    program.prelude = needed("\n".join([SOURCE, *STEPS]))
    program.steps = [STEPS[0], STEPS[1], STEPS[0]]
    return program


def stale(function):
    kept = []

    def call(**arguments):
        kept.append(kept[0] if kept else function(**arguments))
        return kept[-1]

    return call


def copied(function):
    return lambda **arguments: function(**{**arguments, "js": list(arguments["js"])})


def silent(function):
    def call(**arguments):
        import contextlib
        import io

        with contextlib.redirect_stdout(io.StringIO()):
            return function(**arguments)

    return call


def changed(what):
    def transform(function):
        def call(**arguments):
            result = function(**arguments)
            return what(result, arguments)

        return call

    return transform


FAULTS = {
    "stale": stale,
    "arguments copied": copied,
    "print lost": silent,
    "another value": changed(lambda r, a: {"r": (r["r"][0] + 1, *r["r"][1:])}),
    "another dtype": changed(lambda r, a: {"r": (r["r"][0].double(), *r["r"][1:])}),
    "another structure": changed(lambda r, a: {"r": list(r["r"])}),
    "identity lost": changed(lambda r, a: {"r": (r["r"][0], r["r"][1], list(r["r"][2]))}),
    "aliasing gained": changed(lambda r, a: {"r": (r["r"][0], r["r"][1], [a["x"]])}),
    "attribute lost": changed(lambda r, a: setattr(a["o"], "scale", 2.0) or r),
    "exception": changed(lambda r, a: 1 // 0),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_sees(fault):
    assert check(sample(), FAULTS[fault])
    assert check(sample(), identity) is None


def test_messages_of_exceptions_are_compared():
    def other(function):
        def call(**arguments):
            raise ValueError("bad 2")

        return call

    program = sample()
    program.body = parse("raise ValueError('bad 1')")
    assert "bad 1" in (check(program, other) or "")


def test_a_program_that_does_not_end_in_plain_python_says_nothing(monkeypatch):
    from . import programs

    def never(function):
        raise AssertionError("not reached")

    monkeypatch.setattr(programs, "SECONDS", 2)
    program = sample()
    program.body = parse("while True:\n    i = i + 1")
    assert check(program, never) is None


def test_descriptions():
    import torch

    def same(a, b):
        return difference(Describer().describe(a), Describer().describe(b)) is None

    shared = torch.ones(2)
    assert same([1.0, "a", None], [1.0 + 1e-7, "a", None])
    assert same(float("nan"), float("nan")) and not same(0.0, -0.0) and not same(1, True)
    assert same([shared, shared], [shared, shared])
    assert not same([shared, shared], [shared, shared.clone()])
    assert not same([shared, shared[:]], [shared, shared.clone()])
    assert not same({"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert not same(torch.ones(2), torch.ones(2, 1))
    assert not same(torch.ones(2, 3), torch.ones(3, 2).t())


def test_a_crash_is_a_finding():
    def crash(function):
        import os
        import signal

        return lambda **arguments: os.kill(os.getpid(), signal.SIGKILL)

    assert "SIGKILL" in (check_apart(sample(), crash) or "")


def test_minimise_leaves_what_matters():
    program = generate(12, size=25)
    program.body[1:1] = parse("if flag or not flag:\n    for e in range(2):\n        NEEDLE = e")
    before = copy.deepcopy(program)

    def fails(candidate):
        return "NEEDLE = e" in candidate.source() and len(candidate.steps) > 0

    small = minimise(program, fails, seconds=20)
    assert [line for statement in small.body for line in statement.lines(0)] == ["NEEDLE = e"]
    assert small.prelude == [] and len(small.steps) == 1
    assert program == before


def test_workers_find_what_a_fresh_child_confirms():
    """A difference, a death, and what only happens after other programs; all other seeds are run once."""
    import os
    import signal

    seen: list[int] = []

    def check(seed):
        if seed == 3:
            return "a difference"
        if seed == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        if seed == 8 and seen:
            return "left behind"
        seen.append(seed)
        return None

    found = dict(Pool(check, jobs=2, seconds=20).run(range(12)))
    assert sorted(found) == list(range(12))
    assert {seed: what for seed, what in found.items() if what} == {
        3: "a difference",
        5: "the child died of SIGKILL",
        8: "only after [6, 7] in one process: left behind",
    }


def test_what_is_said_of_two_outcomes():
    import torch

    from .programs import _outcomes

    def described(*outcome):
        return Describer().describe([outcome])[1]

    returned = described("returned", [torch.ones(2), {"a": 1}])
    raised = described("raised", "ValueError", "bad\nvery")
    assert _outcomes(returned, returned) is None
    assert _outcomes(returned, raised) == "returned, not raised ValueError bad"
    assert _outcomes(raised, described("raised", "KeyError", "'a'")) == (
        "raised ValueError bad, not raised KeyError 'a'"
    )


def test_an_unbound_local_has_the_same_lines_cold_and_warm():
    """CPython 3.11 names the line before, once the function is warm: that is no difference."""

    def unbound(number):
        number = number + 1
        del number
        other = 1
        return number + other  # noqa: F821

    lines = []
    for _ in range(50):
        with pytest.raises(UnboundLocalError) as described:
            unbound(1)
        lines.append(lines_of(described.value, __file__))
    assert len(lines[0]) == 2
    assert all(found == lines[0] for found in lines)
