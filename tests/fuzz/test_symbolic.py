"""A fixed batch of fuzzed programs over sizes and numbers that vary, and that most of their calls return."""

from __future__ import annotations

import functools

import pytest

from graftjit import JitConfig

from ..capture.harness import LEVELS
from .pool import Pool
from .programs import check, identity, run
from .symbolic import generate, jitted

BATCH = range(80)
CHUNK = 20


@pytest.mark.parametrize("start", range(BATCH.start, BATCH.stop, CHUNK))
@pytest.mark.parametrize("level", LEVELS)
def test_programs_agree(start, level):
    transform = functools.partial(jitted, config=JitConfig(jit_level=level))
    seeds = range(start, start + CHUNK)
    pool = Pool(lambda seed: check(generate(seed), transform), jobs=1, seconds=60)
    for seed, found in pool.run(seeds):
        assert found is None, f"python -m tests.fuzz.symbolic --seed {seed}\n{found}"


def test_most_calls_return():
    """A fuzzer whose programs mostly raise would find little; some must, and one seed is one program."""
    outcomes = []
    for seed in range(30):
        program = generate(seed)
        assert program == generate(seed)
        steps = run(program, identity)[:-1]
        outcomes += [what[0][1][0][1] for step, what in steps if step.startswith("(")]
    returned = outcomes.count("returned")
    assert 0.7 * len(outcomes) < returned < len(outcomes)
