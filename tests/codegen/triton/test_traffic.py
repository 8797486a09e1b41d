"""The bytes that plans for a GPU read and write, beside those that each family of kernels needs."""

from __future__ import annotations

import importlib.util

import pytest
import torch

import graftjit
from benchmarks.gpu.families import FAMILIES
from graftjit.codegen.programs import step_facts
from graftjit.ir.graph import cost_model
from graftjit.ir.graph.nodes import Node
from graftjit.runtime.process.session import SESSION

from ..on_cuda import Written, relabelled
from .gpu_models import recorded

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)
SIZE = 1 << 23  # bytes of a family's first matrix
MOST = 1.5  # times the bytes that have to be moved
LOOKUPS = (torch.ops.aten.nll_loss_forward.default,)  # calls that read one element per row
ALL = [name for name in FAMILIES if not name.endswith("_262k") and "_long" not in name]


def planned(name: str) -> tuple[int, list[Written]]:
    """(the bytes to move, the programs of the family)."""
    case = FAMILIES[name](SIZE, "cpu")
    config = graftjit.JitConfig(dynamic=False)
    with (
        SESSION.override(check=False),
        recorded() as graphs,
    ):  # what the CPU gives is no matter here
        found = graftjit.jit(case.function, config=config)(*case.inputs)
        if case.trains:
            torch.autograd.grad(found, case.asked)
    assert len(graphs) == 1 + case.trains
    return case.moved, [Written(relabelled(graph)) for graph in graphs]


def moved(made: Written) -> int:
    """Bytes of all steps: each buffer of a kernel once, what its launches pass on twice."""
    total = 0
    for step in made.plan.steps:
        if isinstance(step, Node):
            total += 0 if step.target in LOOKUPS else sum(cost_model.traffic(step))
            continue
        launches = made.kernels.launches[step.nest.name]
        # as many sums of programs as a device has programs: no more for more rows
        partial = 0 if step.nest.folds_across else 2 * sum(launches.partial)
        total += sum(step_facts._moved(step.nest)) + partial
    return total


@pytest.mark.parametrize("name", ALL)
def test_families_move_little_more_than_they_have_to(name):
    least, programs = planned(name)
    found = sum(map(moved, programs))
    assert found <= MOST * least, f"{found / least:.2f} of what has to be moved"


@pytest.mark.parametrize("name", ["rms_norm_backward", "layer_norm_backward_bf16"])
def test_a_backward_of_a_norm_reads_its_operands_once(name):
    """Once in the forward, once in the backward, and a write."""
    least, programs = planned(name)
    assert sum(map(moved, programs)) <= 1.02 * least
    for made in programs:
        large = [one for one in made.plan.kernels if one.bytes >= SIZE]
        assert len(large) == 1 and not made.aten
