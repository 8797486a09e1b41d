"""Indices checked before the first write: caches of any size are written in place, and after an
index out of range everything is as eager leaves it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import graftjit
from graftjit.codegen import backend
from graftjit.ir.passes.defer_writes import deferred


def write(s: Any, x: Any, at: Any) -> Any:
    """The caches of some layers, as in generation."""
    s.seen.append(1)
    for cache in s.caches:
        try:
            cache.index_copy_(1, at, x)
        except NotImplementedError:
            cache[:, at] = x
    s.seen.append(2)
    return [cache.sum(1) for cache in s.caches]


def write_beside(s: Any, x: Any, at: Any) -> Any:
    """Indices that the frame computes between the writes, and other operators of indices."""
    s.seen.append(1)
    s.caches[0].index_copy_(1, at, x)
    s.caches[1][:, at - 1] = x
    y = s.caches[0].index_select(1, (at * 2).clamp(max=3))
    s.caches[2].index_add_(1, at, x)
    s.seen.append(2)
    return (
        y,
        torch.nn.functional.embedding(at + 1, s.caches[0][0]),
        s.caches[1].gather(1, at[:, None, None]),
    )


def move_the_index(s: Any, x: Any, at: Any) -> Any:
    """The second index is known after a write only."""
    s.seen.append(1)
    s.caches[0].index_copy_(1, at, x)
    at.add_(1)
    s.caches[1].index_copy_(1, at, x)
    s.seen.append(2)
    return s.caches[1].sum(1)


def read_what_was_written(s: Any, x: Any, at: Any) -> Any:
    """The second index is what the first write leaves."""
    s.seen.append(1)
    s.places.index_copy_(0, at, at + 1)
    s.caches[1].index_copy_(1, s.places[at], x)
    s.seen.append(2)
    return s.caches[1].sum(1)


class State:
    def __init__(self, size: int) -> None:
        self.seen: list[int] = []
        self.caches = [torch.zeros(2, size, 3) for _ in range(3)]
        self.places = torch.zeros(size, dtype=torch.int64)


def outcome(function: Any, s: Any, x: Any, at: Any) -> str:
    try:
        return str(function(s, x, at))
    except (IndexError, RuntimeError) as error:
        return repr(error)


@pytest.mark.parametrize(
    ("function", "breaks"),
    [(write, 0), (write_beside, 0), (move_the_index, 1), (read_what_was_written, 1)],
)
def test_indices_are_checked_before_the_first_write(function: Any, breaks: int) -> None:
    compiled = graftjit.jit(function)
    for size in (4, 5, 6, 7):
        for place in (1, 2, 0, size - 1, size, -1):
            x = torch.randn(2, 1, 3)
            found = []
            for one in (function, compiled):
                s, at = State(size), torch.tensor([place])
                what = outcome(one, s, x, at)
                versions = [part._version for part in (*s.caches, s.places, at)]
                found.append((what, s.seen, str(s.caches), str(s.places), str(at), versions))
            assert found[0] == found[1]
    assert bool(graftjit.report(compiled).break_count) == breaks


def test_a_cache_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """What may raise is checked first, so that each layer writes its cache in place."""
    graphs = []

    def keep(graph: Any) -> Any:
        graphs.append(deferred(graph))
        return graphs[-1]

    monkeypatch.setattr(backend, "deferred", keep)
    graftjit.jit(write)(State(9), torch.randn(2, 1, 3), torch.tensor([1]))
    names = [str(node.target) for node in graphs[0].nodes if node.op == "call"]
    assert names.count("graftjit.leave_unless.default") == 1
    assert "aten.clone.default" not in names
