"""Augmentation: loops over numbers drawn with `random`, each a break; what is drawn becomes an input behind it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import graftjit

from ..harness import agrees


def flipped(image: Any) -> Any:
    by = random.uniform(-1, 1)
    if random.random() < 0.5:
        image = image.flip(-1)
    return image * by + random.uniform(0, 1)


def turned(image: Any) -> Any:
    t = random.uniform(-1, 1)
    turn = torch.tensor([[math.cos(t), -math.sin(t), 0.0], [math.sin(t), math.cos(t), t * 0.1]])
    grid = F.affine_grid(turn[None], [1, 3, 12, 12], align_corners=False)
    return F.grid_sample(image[None], grid, align_corners=False)[0]


def in_degrees(image: Any) -> Any:
    return image * math.tan(math.radians(random.uniform(-40, 40))) + math.tanh(random.random())


@pytest.mark.parametrize("one", [flipped, turned, in_degrees])
def test_an_augmentation_settles(one: Callable[[Any], Any]) -> None:
    """Fifteen batches of six images: as plain Python has them, and compiled a few times."""
    graftjit.reset()

    def augment(batch: Any) -> Any:
        out = []
        for image in batch:
            out.append(one(image))
        return torch.stack(out)

    jitted = graftjit.jit(augment)
    random.seed(0)
    batch = [torch.randn(3, 12, 12) for _ in range(6)]
    for _ in range(15):
        state = random.getstate()
        found = jitted(batch)
        after = random.getstate()
        random.setstate(state)
        torch.testing.assert_close(found, augment(batch))
        assert after == random.getstate()
    assert jitted.report().recompile_count <= 10


def test_tensors_of_varying_numbers() -> None:
    programs: list[Callable[[Any, float], Any]] = [
        lambda x, t: x * torch.tensor([t, 1.0]),
        lambda x, t: x * torch.tensor([[t, 1], [2 * t, 3]], dtype=torch.float64),
        lambda x, t: x + torch.tensor(t),
    ]
    for plain in programs:
        jitted = graftjit.jit(plain)
        for t in (0.3, 0.1, 1 / 3, 1e-9, 12345.678, -0.7):
            x = torch.randn(2)
            found, expected = jitted(x, t), plain(x, t)
            assert found.dtype == expected.dtype
            torch.testing.assert_close(found, expected)
        assert jitted.report().graph_count <= 3


@agrees(calls=3)
def test_draws_into_memory_of_the_graph_keep_their_order():
    """What a kernel computes for several draws must not move one of them behind another."""

    def f(x):
        torch.manual_seed(3)
        filled = x.clone().uniform_()
        dropped = F.dropout(x, 0.5)
        normal = (x * 2).normal_()
        coins = x.clone().bernoulli_(0.5)
        again = F.dropout(x * 3, 0.25)
        return filled, dropped, normal, coins, again, torch.rand(2), x.clone().exponential_()

    return f, (torch.arange(6.0),)
