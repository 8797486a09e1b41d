"""Kernels that differ only in their length have one text, and give what a text for each length gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from graftjit.codegen.cpp import families
from graftjit.codegen.cpp.loop_plan import CHUNK

from ..harness import check, make, normal, threads

LENGTHS = (65, 100, 1024, CHUNK - 1, CHUNK, 2 * CHUNK, 5 * CHUNK + 7)
FUNCTIONS: dict[str, Any] = {
    "float32": lambda x: torch.tanh(x) * 2 + x.abs().sqrt(),
    "float64": lambda x: x.double().exp() / 3,
    "bfloat16": lambda x: x.bfloat16() * 1.5 + 1,
    "several results": lambda x: (x > 0, (x * 100).to(torch.int64) % 7),
    "positions": lambda x: torch.arange(x.numel()) * x.flip(0),
}


def each(function: Any) -> Any:
    def f(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = [function(x) for x in inputs]
        return tuple(y for one in found for y in (one if isinstance(one, tuple) else (one,)))

    return f


@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_eager(name: str) -> None:
    inputs = [normal(length) for length in LENGTHS]
    for count in (1, 3):
        with threads(count):
            check(each(FUNCTIONS[name]), *inputs, library=None)


def test_one_text() -> None:
    f = each(FUNCTIONS["float32"])
    few = make(f, *[normal(length) for length in LENGTHS[: families.LEAST - 1]])
    assert few.source.count('extern "C" void k') == families.LEAST - 1
    assert make(f, *[normal(length) for length in LENGTHS]).source.count('extern "C" void k') == 1


def test_a_family_beside_other_kernels() -> None:
    """A scale that is read once per kernel, other constants, two shapes of one length, short tensors."""

    def f(scale: torch.Tensor, *inputs: torch.Tensor) -> list[torch.Tensor]:
        found = [x * scale + 0.0 for x in inputs]
        return found + [x * scale + -0.0 for x in inputs[:5]] + [x.sum() for x in inputs]

    shapes = [(3,), (64,), (64, 64), (16, 256), (4096,), (80,), (9, 33), (700,), (1, 1)]
    check(f, torch.tensor(0.3), *[normal(*shape, seed=at) for at, shape in enumerate(shapes)])
