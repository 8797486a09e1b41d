"""The stages of a plan are one table: each runs, is timed and logged, and has a reason."""

from __future__ import annotations

import logging

import torch

from graftjit.codegen.fusion.fuse import KINDS
from graftjit.codegen.schedule import stages
from graftjit.ir.passes.pipeline import optimize

from ..harness import trace


def test_stages_are_logged_in_order(caplog):
    graph = optimize(trace(lambda x: torch.softmax(x * 2, -1), torch.ones(4, 8)), check=True)
    with caplog.at_level(logging.DEBUG, "graftjit.ir"):
        made = stages.drafted(stages.Task(graph, {}, KINDS))
    (text,) = [one.getMessage() for one in caplog.records if one.getMessage().startswith("planned")]
    rows = text.splitlines()[1:]
    assert [row.partition(" (")[0] for row in rows] == [one.name for one in stages.STAGES]
    assert all(
        one.why and f"({one.why}; " in row for one, row in zip(stages.STAGES, rows, strict=True)
    )
    assert len(made.kernels) == 1
