"""`explain` tells of all that ran below its callable, also of what was compiled before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import graftjit

MODEL = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())


def named(x: Any) -> Any:
    return MODEL(x).sum() if x.sum() > 0 else MODEL(x).mean()


unnamed = lambda x: MODEL(x).sum() if x.sum() > 0 else MODEL(x).mean()  # noqa: E731


@pytest.mark.parametrize("inner", [named, unnamed])
@pytest.mark.parametrize("before", [False, True])
def test_frames_met_below(inner: Callable[..., Any], before: bool) -> None:
    graftjit.reset()
    if before:
        graftjit.jit(lambda x: inner(x))(torch.ones(3))
    report = graftjit.explain(lambda x: inner(x), torch.ones(3))
    assert report.graph_count == 2
    assert len(report.kernels) >= 2


def test_jitted_functions_and_models_below() -> None:
    graftjit.reset()
    jitted = graftjit.jit(named)
    model = graftjit.compile(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU()))
    for _ in range(2):
        jitted(torch.ones(3))
        model(torch.ones(3))
    report = graftjit.explain(lambda x: jitted(x) * model(x), torch.ones(3))
    assert {"named"} <= {frame.frame for frame in report.frames}
    assert report.graph_count >= 3


def test_what_did_not_run_is_not_told() -> None:
    graftjit.reset()
    graftjit.jit(named)(torch.ones(3))
    report = graftjit.explain(lambda x: x * 2, torch.ones(3))
    assert report.graph_count == 1
    assert {frame.frame for frame in report.frames} == {
        "test_what_did_not_run_is_not_told.<locals>.<lambda>"
    }
