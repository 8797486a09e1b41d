"""Buckets of a reducer are ready while the backward of a compiled module still runs, with the gradients of the
undivided backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from .ranks import on_two


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return on_two(tmp_path_factory.mktemp("overlap"), "overlap", "all_of_them")


@pytest.mark.parametrize("where", ["inside", "outside"])
def test_buckets_are_ready_before_the_backward_ends(found: list[Any], where: str) -> None:
    for rank in found:
        early, buckets = rank[where]["early"]
        assert buckets >= 10
        assert early >= 0.7 * buckets
        assert "backward in" in rank[where]["report"]


def test_none_is_in_an_undivided_backward(found: list[Any]) -> None:
    for rank in found:
        assert rank["undivided"]["early"][0] == 0
        assert "backward in" not in rank["undivided"]["report"]


@pytest.mark.parametrize("where", ["inside", "outside"])
def test_gradients_are_those_of_the_undivided_backward(found: list[Any], where: str) -> None:
    for rank in found:
        for one, other in zip(
            rank[where]["gradients"], rank["undivided"]["gradients"], strict=True
        ):
            assert all(map(torch.equal, one, other))


def test_gradients_are_eagers(found: list[Any]) -> None:
    for rank in found:
        torch.testing.assert_close(rank["inside"]["gradients"], rank["eager"]["gradients"])
