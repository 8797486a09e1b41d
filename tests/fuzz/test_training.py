"""A fixed batch of fuzzed training steps, and that their programs write, break and have gradients."""

from __future__ import annotations

import linecache

import pytest
import torch

from .training import Run, case, difference, world

FIRST, COUNT, CHUNK = 30_000_000, 40, 10


@pytest.mark.parametrize("start", range(FIRST, FIRST + COUNT, CHUNK))
def test_training_steps_are_eagers(start: int) -> None:
    for seed in range(start, start + CHUNK):
        found = difference(seed)
        assert not found, (
            f"python -m tests.fuzz.training --seed {seed}\n{found}\n{case(seed, world).source()}"
        )


def test_a_seed_makes_the_same_program_again() -> None:
    first, second = case(FIRST, world), case(FIRST, world)
    assert (first.lines, first.steps) == (second.lines, second.steps)


def test_most_programs_have_gradients() -> None:
    having = 0
    for seed in range(FIRST, FIRST + COUNT):
        seen = Run(seed, case(seed, world), lambda program: program).seen
        linecache.cache.pop(f"<training {seed}>", None)
        having += any("gradient" in what and isinstance(one, torch.Tensor) for what, one in seen)
    assert having > 0.7 * COUNT
