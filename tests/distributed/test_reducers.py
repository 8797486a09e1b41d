"""Gradients of DistributedDataParallel modules pass through its reducer: parameters are the same on all ranks, and
eager's."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

import graftjit
from graftjit.runtime.autograd import reducers
from graftjit.runtime.guards import leaves

from . import trainings
from .ranks import on_two


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return on_two(tmp_path_factory.mktemp("trainings"), "trainings", "all_trainings")


@pytest.mark.parametrize("name", trainings.TRAININGS)
def test_ranks_stay_together(found: list[Any], name: str) -> None:
    parameters = []
    for one in found:
        assert not isinstance(one[name], str), one[name]
        eager, compiled = one[name]
        torch.testing.assert_close(compiled, eager)
        parameters.append([tensor for tensor in compiled if tensor.dim()])
    for one, other in zip(*parameters, strict=True):
        assert torch.equal(one, other)


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """A group of this process alone."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'group'}", rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


def test_parameters_are_hooked_while_a_reducer_lives(alone: None) -> None:
    inner = trainings.Net()

    @graftjit.jit
    def step(x: torch.Tensor) -> None:
        inner(x).sum().backward()

    def breaks() -> list[str]:
        step(torch.ones(6, 8))
        return [one.code for one in step.report().breaks]

    assert breaks() == []
    (one, *_) = inner.parameters()
    model: Any = DistributedDataParallel(inner)
    assert leaves.hooked(one) and reducers.limits_of(one)
    assert breaks() == ["GB114"]
    model = None
    gc.collect()
    assert not leaves.hooked(one) and reducers.limits_of(one) is None
    assert breaks() == ["GB114"]  # that of the earlier call


def test_a_parameter_of_two_reducers_is_hooked_until_both_end(alone: None) -> None:
    inner = trainings.Net()
    (one, *_) = inner.parameters()
    models = [DistributedDataParallel(inner, bucket_cap_mb=at) for at in (1, 2)]
    assert reducers.limits_of(one) == (2 << 20, 2 << 20)
    del models[1]
    gc.collect()
    assert leaves.hooked(one) and reducers.limits_of(one) == (1 << 20, 1 << 20)
    models.clear()
    gc.collect()
    assert not leaves.hooked(one)


def test_reducers_from_before_the_import_are_known(alone: None) -> None:
    inner = trainings.Net()
    noted = torch._C._distributed_c10d.Reducer.__init__
    torch._C._distributed_c10d.Reducer.__init__ = noted.__wrapped__
    model = DistributedDataParallel(inner)
    (one, *_) = model.parameters()
    assert not leaves.hooked(one)
    assert reducers.watch()
    assert leaves.hooked(one)
