"""Modules under `fully_shard`: their hooks run in plain Python, and each block is one graph, forward and backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from . import sharded
from .ranks import on_two

BLOCKS = tuple(name for name in sharded.OURS if name not in ("whole", "around_checkpoints"))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return on_two(tmp_path_factory.mktemp("sharded"), "sharded", "all_of_them")


@pytest.mark.parametrize("name", sharded.OURS)
def test_trainings_are_eagers(found: list[Any], name: str) -> None:
    near = {"rtol": 2e-2, "atol": 2e-2} if name == "mixed" else {"rtol": 1e-5, "atol": 1e-5}
    for rank in found:
        eager, ours, _ = rank[name]
        torch.testing.assert_close(ours, eager, **near)


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_is_one_graph(found: list[Any], name: str) -> None:
    """All blocks share it."""
    for rank in found:
        plain = [] if name == "forwards" else ["PL216"]
        assert rank[name][2] == [(1, plain, 0)] * sharded.BLOCKS


def test_a_block_in_a_checkpoint_has_a_graph_for_each_of_its_runs(found: list[Any]) -> None:
    """The second run is inside of autocast blocks, which are off."""
    for rank in found:
        for graphs, breaks, _ in rank["around_checkpoints"][2]:
            assert (graphs, set(breaks)) == (2, {"PL216"})


def test_a_whole_model_ends_its_graphs_at_the_hooks(found: list[Any]) -> None:
    for rank in found:
        ((graphs, breaks, recompiles),) = rank["whole"][2]
        assert (graphs, breaks, recompiles) == (3, ["GB142", "PL216"], 0)
