"""Random programs of values, views, in-place operators and copies: trace, passes and replay against eager.

A failure names its seed; `program(seed)` prints the steps.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from graftjit.ir.errors import CannotTrace

from .tracing import check

T = torch.Tensor
STEPS = 14
UNARY = (torch.sin, torch.relu, torch.neg, torch.abs, T.clone, T.contiguous, T.detach)
BINARY = (torch.add, torch.mul, torch.sub, torch.maximum)
IN_PLACE = (T.add_, T.mul_, T.sub_, T.copy_)
IN_PLACE_UNARY = (T.sin_, T.relu_, T.neg_, T.zero_)
NUMBERS = (0, 1, -1, 2, 0.0, -0.0, 1.0, 0.5)


def step(rng: random.Random, run: Any, pool: list[Any]) -> None:
    """One random call; programs that eager refuses are filtered by the caller."""
    x = rng.choice(pool)
    kind = rng.randrange(10)
    if kind == 0:
        pool.append(run(rng.choice(UNARY), x))
    elif kind == 1:
        pool.append(run(rng.choice(BINARY), x, rng.choice(NUMBERS)))
    elif kind == 2:
        pool.append(run(rng.choice(BINARY), x, rng.choice(pool)))
    elif kind == 3:
        run(rng.choice(IN_PLACE[:3]), x, rng.choice(NUMBERS))
    elif kind == 4:
        run(rng.choice(IN_PLACE), x, rng.choice(pool))
    elif kind == 5:
        run(rng.choice(IN_PLACE_UNARY), x)
    elif kind == 6:
        view(rng, run, pool, x)
    elif kind == 7:
        run(T.__setitem__, x, rng.randrange(2), rng.choice([3.0, rng.choice(pool)]))
    elif kind == 8:
        pool.append(run(torch.cat, [x, rng.choice(pool)], 0))
    else:
        dtype = rng.choice([torch.float32, torch.float64, torch.bfloat16])
        pool.append(run(T.to, x, dtype))
    if rng.random() < 0.2 and len(pool) > 3:
        pool.pop(rng.randrange(len(pool)))


def view(rng: random.Random, run: Any, pool: list[Any], x: Any) -> None:
    kind = rng.randrange(8)
    if kind == 0:
        pool.append(run(T.view, x, -1))
    elif kind == 1:
        pool.append(run(T.t, x))
    elif kind == 2:
        pool.append(run(T.__getitem__, x, rng.randrange(2)))
    elif kind == 3:
        pool.append(run(T.__getitem__, x, slice(None, None, 2)))
    elif kind == 4:
        pool.append(run(T.unsqueeze, x, rng.randrange(2)))
    elif kind == 5:
        pool.append(run(T.expand_as, x, rng.choice(pool)))
    elif kind == 6:
        pool.extend(run(torch.split, x, 2)[:2])
    else:
        pool.append(run(T.reshape, x, (-1, 2)))


def program(seed: int) -> Any:
    """A function of (run, *inputs) with the same steps each time it is called. Steps that the first call (the
    trace) refuses are left out of the others (where capture would break the graph)."""
    refused: set[int] = set()

    def fuzzed(run: Any, *inputs: Any) -> list[Any]:
        pool: list[Any] = list(inputs)
        for number in range(STEPS):
            if number in refused:
                continue
            try:
                step(random.Random(seed * 1000 + number), run, pool)
            except CannotTrace:
                refused.add(number)
        rng = random.Random(seed)
        return [pool[i] for i in sorted(rng.sample(range(len(pool)), min(3, len(pool))))]

    return fuzzed


def inputs(seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    base = torch.randn(6, 4, generator=generator)
    other = torch.randn(4, 6, generator=generator).t()
    return [base[:4], base[2:], other][: 1 + seed % 3]


@pytest.mark.parametrize("shard", range(6))
def test_random_programs(shard: int) -> None:
    for seed in range(shard * 100, shard * 100 + 40):
        try:
            check(program(seed), *inputs(seed))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}\n{error}") from error
