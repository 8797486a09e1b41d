"""A backward inside a jitted step over a DistributedDataParallel module: forward and loss are one graph, autograd's
engine runs the compiled backward at its place, and the reducer's hooks with it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from . import whole_steps
from .ranks import on_two

# what keeps the module's forward out of the graph
LEFT = ("unused", "static_graph", "buffers_used_before")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return on_two(tmp_path_factory.mktemp("whole"), "whole_steps", "all_steps")


@pytest.mark.parametrize("name", whole_steps.NAMES)
def test_steps_are_eagers_to_the_bit(found: list[Any], name: str) -> None:
    for rank in found:
        eager, ours, _ = rank[name]
        assert len(eager) == len(ours)
        assert all(map(torch.equal, ours, eager))


@pytest.mark.parametrize("name", ["plain", "accumulated", "buffers", "gradient_as_bucket_view"])
def test_a_step_has_one_break(found: list[Any], name: str) -> None:
    for rank in found:
        assert rank[name][2] == [("GB114", "a backward to a tensor with hooks")]


@pytest.mark.parametrize("name", LEFT)
def test_the_report_says_why_a_forward_is_apart(found: list[Any], name: str) -> None:
    for rank in found:
        breaks = dict(rank[name][2])
        assert "DistributedDataParallel" in breaks["GB103"]


def test_a_compiled_module_sends_its_buffers_as_eager_does(found: list[Any]) -> None:
    for rank in found:
        eager, (ours, versions, breaks) = rank["modules"]
        assert all(map(torch.equal, ours, eager[0])) and versions == eager[1]
        assert breaks == []


def test_an_error_of_the_reducer_is_eagers(found: list[Any]) -> None:
    for rank in found:
        eager, ours = rank["refused"]
        assert eager.startswith("RuntimeError: Expected to have finished reduction")
        assert ours == eager
