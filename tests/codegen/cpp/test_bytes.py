"""Kernels of which all values are bytes (bool, int8, uint8) have as many lanes as a register has bytes."""

from __future__ import annotations

from typing import Any

import torch

from graftjit.codegen.build import cxx as build
from graftjit.codegen.cpp.loop_plan import lane_count, of_bytes

from ..harness import check, make

SHAPES = ((1, 64), (4, 17), (3, 200), (70, 127), (70, 33), (1, 5))


def flags(*shape: int) -> torch.Tensor:
    """A bool tensor of which some bytes are neither 0 nor 1."""
    generator = torch.Generator().manual_seed(sum(shape))
    places = torch.randint(0, 4, shape, generator=generator)
    return torch.tensor([0, 1, 85, 254], dtype=torch.uint8)[places].view(torch.bool)


def of_flags(x: Any, y: Any, row: Any, column: Any, turned: Any) -> tuple[Any, ...]:
    return (
        x & y, x | row, x ^ column, ~x, x == y, x != turned, x < y, x <= row, x > column, x >= turned, x.clone(),
        torch.where(x, y, turned), torch.where(x, y, True), x.logical_not(), x.maximum(y), x + y, x * row,
        (x ^ y).any(1, keepdim=True) & x, x.any(), x.all(), x.any(0), x.all(1), (x & y).any(1), (~x).all(0),
    )  # fmt: skip


def of_integers(x: Any, u: Any, i: Any, turned: Any) -> tuple[Any, ...]:
    return (
        u.bool() & x, u < 3, u > 200, x.to(torch.uint8) + u, i < x.to(torch.int8), torch.where(x, u, 7), ~u,
        torch.where(turned, i, -i), i.clamp(-5, 100), u * 3 - u, i * i, u.to(torch.int8) >= i, u.logical_and(i),
        i.bool() ^ x, u.amax(0), i.amin(1),
    )  # fmt: skip


def test_as_eager(vector_set: str) -> None:
    for a, b in SHAPES:
        x, y, turned = flags(a, b), flags(b, a).t().contiguous(), flags(b, a).t()
        u = torch.arange(a * b, dtype=torch.int32).to(torch.uint8).view(a, b)
        check(of_flags, x, y, flags(b), flags(a, 1), turned, library=None)
        check(of_integers, x, u, u.flip(1).view(torch.int8), turned, library=None)


def test_apart_in_memory() -> None:
    for a, b in SHAPES:
        x, y = flags(a, 3 * b)[:, ::3], flags(a, b)
        check(lambda x, y: (x & y, ~x, x.any(0), x.any(1), x.t().clone()), x, y, library=None)


def _kept(x: Any, y: Any) -> Any:
    z = x
    for _ in range(5):
        z = (z ^ y) & (x | ~z) ^ (y & x.logical_not()) | (z ^ x)
    return torch.where(z ^ z.any(1, keepdim=True), x.to(torch.uint8), y.to(torch.uint8) * 2)


def test_masks_that_are_kept_for_the_next_pass() -> None:
    for columns in (33, 65, 97, 300):
        made = check(_kept, flags(5, columns), flags(columns, 5).t().contiguous(), kernels=1)
        assert "i8_t t" in made.source


def test_lanes() -> None:
    for fn in (lambda x: ~x, lambda x: x.clone(), lambda x: x.any(1), lambda x: x.all(0)):
        nest = make(fn, flags(64, 200)).kernels[0].nest
        assert of_bytes(nest)
        assert lane_count(nest, build.vector_bytes()) == build.vector_bytes()


def test_wider_values_keep_wide_masks() -> None:
    nest = make(lambda x, y: torch.where(x, y, 0), flags(4, 50), torch.ones(4, 50)).kernels[0].nest
    assert not of_bytes(nest)
