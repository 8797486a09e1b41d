"""A fixed batch of fuzzed programs with their gradients, and that most of them have some."""

from __future__ import annotations

import warnings

import pytest
import torch

from .gradients import APART, HABITS, KNOTS, WILD, arguments, difference, program, source

BATCH = range(80)
CHUNK = 20


@pytest.mark.parametrize("start", range(BATCH.start, BATCH.stop, CHUNK))
def test_gradients_are_eagers(start: int) -> None:
    for seed in range(start, start + CHUNK):
        found = difference(seed)
        assert not found, (
            f"python -m tests.fuzz.gradients --seed {seed} --show\n{found}\n{source(seed)}"
        )


@pytest.mark.parametrize("start", range(WILD, WILD + 40, CHUNK))
def test_gradients_of_arguments_that_are_written_to(start: int) -> None:
    test_gradients_are_eagers(start)


@pytest.mark.parametrize("start", range(APART, APART + 80, CHUNK))
def test_gradients_of_results_apart(start: int) -> None:
    test_gradients_are_eagers(start)


@pytest.mark.parametrize("start", [HABITS, KNOTS])
def test_gradients_of_what_users_do_besides(start: int) -> None:
    test_gradients_are_eagers(start)


CUSTOM = [WILD + 490_000, APART + 500_000]


@pytest.mark.parametrize("start", [at + more for at in CUSTOM for more in (0, CHUNK)])
def test_gradients_of_custom_functions(start: int) -> None:
    test_gradients_are_eagers(start)


@pytest.mark.parametrize("seed", [APART + 500_000 + at for at in (35, 66, 85)])
def test_seeds_of_custom_functions_that_were_found(seed: int) -> None:
    assert not difference(seed)


@pytest.mark.parametrize("seed", [APART + at for at in (23, 96, 120, 302, 10738)])
def test_seeds_of_results_apart_that_were_found(seed: int) -> None:
    assert not difference(seed)


@pytest.mark.parametrize("seed", [154, 562, 1041, 3230, 21686])
def test_seeds_that_were_found(seed: int) -> None:
    assert not difference(seed)


def test_most_programs_have_gradients() -> None:
    having = 0
    for seed in BATCH:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = program(seed)(*arguments(seed, torch.float64))
        having += any(
            one.requires_grad for one in ([found] if isinstance(found, torch.Tensor) else found)
        )
    assert having > 0.7 * len(BATCH)
