"""Messages of `torch.distributed` are steps of a graph: each is sent once, in the program's order."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import graftjit

from . import messages
from .ranks import on_two

BREAKS = {
    "begun_and_looked_at": {"looked at"},
    "begun_and_waited_for_after_a_break": {"get_threshold"},
    "functional_and_waited_for_after_a_break": {"get_threshold"},
    "handled": {"handler"},
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return on_two(tmp_path_factory.mktemp("messages"), "messages", "all_programs")


@pytest.mark.parametrize("name", messages.PROGRAMS)
def test_programs_are_eagers_in_one_graph(found: list[Any], name: str) -> None:
    for rank in found:
        eager, ours, breaks, graphs = rank[name]
        assert len(eager) == len(ours) and all(map(torch.equal, ours, eager))
        reasons = " ".join(reason for _, reason in breaks)
        if name in BREAKS:
            assert all(word in reasons for word in BREAKS[name])
        else:
            assert (breaks, graphs) == ([], 1)


@pytest.mark.parametrize("name", ["divided_layers", "whole_step"])
def test_training_is_one_graph(tmp_path: Any, name: str) -> None:
    for eager, ours, breaks, graphs in on_two(tmp_path, "messages", name):
        assert len(eager) == len(ours) and all(map(torch.equal, ours, eager))
        assert (breaks, graphs) == ([], 1)


@pytest.mark.parametrize("name", ["by_arguments", "by_groups"])
def test_what_varies_is_seen(tmp_path: Any, name: str) -> None:
    for eager, ours, breaks, _ in on_two(tmp_path, "messages", name):
        assert len(eager) == len(ours) and all(map(torch.equal, ours, eager))
        assert not breaks


def test_a_second_derivative_sends_nothing_again(tmp_path: Any) -> None:
    for error in on_two(tmp_path, "messages", "second_derivative"):
        assert "would send them again" in error


def test_each_library_is_built_by_one_rank(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "store").mkdir(mode=0o700)
    monkeypatch.setenv("GRAFTJIT_CACHE_DIR", str(tmp_path / "store"))
    monkeypatch.setenv("GRAFTJIT_CHECK", "0")
    one, other = on_two(tmp_path, "messages", "cold")
    assert one[0] == other[0] >= 2
    assert one[1] + other[1] == one[0]


def test_without_a_group_python_raises() -> None:
    def reduced(x: torch.Tensor) -> Any:
        torch.distributed.all_reduce(x)

    for call in (reduced, graftjit.jit(reduced)):
        with pytest.raises(ValueError, match="Default process group has not been initialized"):
            call(torch.ones(2))
