"""Memory overlap of strided tensors, against the sets of their elements."""

from __future__ import annotations

import random

import torch

from graftjit.ir.graph.layout import are_apart
from graftjit.ir.graph.nodes import Meta


def _elements(meta: Meta) -> set[int]:
    found = {meta.offset}
    for size, stride in zip(meta.shape, meta.stride, strict=True):
        found = {at + i * stride for at in found for i in range(size)}
    return found


def _some(rank: int, draw: random.Random) -> Meta:
    shape = tuple(draw.randint(1, 4) for _ in range(rank))
    stride = tuple(draw.choice((0, 1, 2, 3, 4, 6, 12)) for _ in range(rank))
    return Meta(shape, stride, torch.float32, torch.device("cpu"), draw.randint(0, 20))


def test_apart_is_no_common_element():
    draw = random.Random(0)
    for _ in range(3000):
        rank = draw.randint(1, 3)
        one, other = _some(rank, draw), _some(rank, draw)
        assert are_apart(one, other) == (not _elements(one) & _elements(other)), (one, other)


def test_chunks_of_a_matrix():
    parts = [Meta((5, 4), (12, 1), torch.float32, torch.device("cpu"), at) for at in (0, 4, 8)]
    assert are_apart(parts[0], parts[1])
    assert are_apart(parts[2], parts[0])
    assert not are_apart(parts[1], parts[1])
