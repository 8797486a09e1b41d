"""Functional collectives: steps of a graph, with what eager mode shows of their results."""

from __future__ import annotations

from typing import Any

import pytest

from . import functional
from .ranks import on_two

BREAKS = {
    "history_across_a_break": "get_threshold",
    "across_a_break": "get_threshold",
    "op_upper_case": "an operator",
}
NAMES = [*functional.FUNCTIONS, *functional.OPERATORS]


@pytest.fixture(scope="module", params=[False, True], ids=["values", "gradients"])
def found(request: Any, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    folder = tmp_path_factory.mktemp("functional")
    return on_two(folder, "functional", "all_programs", request.param)


@pytest.mark.parametrize("name", NAMES)
def test_programs_are_eagers_in_one_graph(found: list[Any], name: str) -> None:
    for rank in found:
        eager, ours, breaks, graphs = rank[name]
        assert ours == eager
        if name in BREAKS:
            assert any(BREAKS[name] in reason for _, reason in breaks)
        else:
            assert (breaks, graphs) == ([], 1)


def test_nothing_reads_a_result_before_the_wait(tmp_path: Any) -> None:
    for rank in on_two(tmp_path, "functional", "late_messages"):
        for name, (eager, ours, _, _) in rank.items():
            assert ours == eager, name


def test_groups_are_given_in_all_forms(tmp_path: Any) -> None:
    for rank in on_two(tmp_path, "functional", "all_groups"):
        for eager, ours, breaks, _ in rank:
            assert ours == eager
            assert not breaks


def test_results_that_come_from_outside(tmp_path: Any) -> None:
    for rank in on_two(tmp_path, "functional", "entering"):
        for eager, ours, breaks, _ in rank:
            assert ours == eager
            reasons = {reason for _, reason in breaks}
            assert all("before a message" in one or "truth" in one for one in reasons)


def test_breaks_at_what_no_graph_holds(tmp_path: Any) -> None:
    words = {
        "told_of_groups": [],
        "batched": ["P2POp"],
        "of_objects": ["all_gather_object", "broadcast_object_list"],
        "new_groups": ["new_group()"],
    }
    for rank in on_two(tmp_path, "functional", "all_others"):
        for name, (eager, ours, breaks, _) in rank.items():
            if name == "new_groups":  # each call makes a group of another name
                eager, ours = ([one[1:3] for one in some] for some in (eager, ours))
            assert ours == eager, name
            told = " ".join(reason for _, reason in breaks)
            assert all(word in told for word in words[name])
            assert bool(breaks) == bool(words[name])


def test_what_is_told_of_groups_that_vary(tmp_path: Any) -> None:
    for eager, ours, breaks, _ in on_two(tmp_path, "functional", "varying_groups"):
        assert ours == eager
        assert not breaks
