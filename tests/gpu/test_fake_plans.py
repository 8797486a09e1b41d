"""Whole programs on the fake device: captured, planned, their kernels run by Triton's interpreter, beside eager and under
GRAFTJIT_CHECK; plans that are kept; what is left where a kernel cannot be had."""

from __future__ import annotations

import importlib.util

import pytest
import torch
import torch.nn.functional as F

import graftjit
from benchmarks.models import llama, vision
from graftjit.codegen import pipeline as planned
from graftjit.codegen.programs.shadow import differs
from graftjit.codegen.triton import cubins
from graftjit.codegen.triton.compiler import Fault
from graftjit.runtime.cuda import driver
from graftjit.runtime.process.session import SESSION

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)


def on_device(*shapes):
    return [torch.randn(shape).to("cuda") for shape in shapes]


def same(found, wanted):
    for ours, theirs in zip(found, wanted, strict=True):
        problem = differs(ours.detach().cpu(), theirs.detach().cpu())
        assert not problem, (problem, ours, theirs)


def mlp(x, w, b):
    return F.gelu(x @ w + b).softmax(-1), (x * 2).sum(0)


def test_a_function(compiled):
    given = on_device((6, 8), (8, 8), (8,))
    jitted = graftjit.jit(mlp)
    for _ in range(2):
        same(jitted(*given), mlp(*given))
    assert len(compiled) >= 2


def test_gradients(compiled):
    given = [one.requires_grad_() for one in on_device((6, 8), (8, 8), (8,))]
    twins = [one.detach().clone().requires_grad_() for one in given]
    for fn, leaves in ((mlp, twins), (graftjit.jit(mlp), given)):
        first, second = fn(*leaves)
        (first.square().sum() + second.sum()).backward()
    same([one.grad for one in given], [one.grad for one in twins])


def test_writes_into_inputs(compiled):
    def step(p, g, m):
        m.mul_(0.9).add_(g, alpha=0.1)
        p.sub_(m * 0.01)
        return p.sum()

    given = on_device((5, 7), (5, 7), (5, 7))
    twins = [one.clone() for one in given]
    versions = [one._version for one in given]
    same([graftjit.jit(step)(*given)], [step(*twins)])
    same(given, twins)
    moved = [one._version - before for one, before in zip(given, versions, strict=True)]
    assert moved == [1, 0, 2] and compiled


MODELS = {
    "llama": lambda: (llama.Llama(words=50, width=32, heads=4, groups=2, layers=1), torch.randint(0, 50, (2, 8))),
    "resnet": lambda: (vision.ResNet((4, 8), 1), torch.randn(2, 3, 32, 32)),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_models_in_training(compiled, name):
    model, given = MODELS[name]()
    model, given = model.to("cuda"), given.to("cuda")
    found = graftjit.jit(model)(given)
    found.square().mean().backward()  # compared with eager's under GRAFTJIT_CHECK
    assert len(compiled) > 10 and all(one.grad is not None for one in model.parameters())


def test_a_plan_that_is_kept_needs_neither_planner_nor_compiler(compiled, monkeypatch):
    given = on_device((6, 8), (8, 8), (8,))
    wanted = graftjit.jit(mlp)(*given)
    assert compiled
    compiled.clear()
    monkeypatch.setattr(cubins, "PROCESS", cubins._Process())  # as in a process that has just begun
    with SESSION.override(check=False):  # with checks on the plan is made anew all the same
        monkeypatch.setattr(planned, "programmed", None)
        same(graftjit.jit(mlp)(*given), wanted)
    assert not compiled


def rejecting(monkeypatch, wrong):
    """A compiler that says no to the kernels with this in their text."""
    plain = cubins.COMPILER

    def compiler(jobs):
        answers = plain(jobs)
        return [
            Fault("ptxas is not content") if wrong in job["source"] else answer
            for job, answer in zip(jobs, answers, strict=True)
        ]

    monkeypatch.setattr(cubins, "COMPILER", compiler)


def test_what_the_compiler_rejects_is_atens_and_the_rest_stays(compiled, monkeypatch):
    rejecting(monkeypatch, "erf")
    given = on_device((6, 8), (8, 8), (8,))
    jitted = graftjit.jit(mlp)
    with SESSION.override(check=False):
        same(jitted(*given), mlp(*given))
    report = graftjit.report(jitted)
    assert "FB318" in str(report) and "FB319" not in str(report)
    (frame,) = report.frames
    assert frame.kernels


def test_a_compiler_that_rejects_all_leaves_aten(compiled, monkeypatch):
    rejecting(monkeypatch, "")
    given = on_device((6, 8), (8, 8), (8,))
    jitted = graftjit.jit(mlp)
    with SESSION.override(check=False):
        same(jitted(*given), mlp(*given))
    (frame,) = graftjit.report(jitted).frames
    assert not frame.kernels


def test_without_a_driver_all_is_atens(compiled, monkeypatch):
    monkeypatch.setattr(driver, "available", lambda: "there is no libcuda")
    given = on_device((6, 8), (8, 8), (8,))
    jitted = graftjit.jit(mlp)
    same(jitted(*given), mlp(*given))
    assert "FB319" in str(graftjit.report(jitted)) and not compiled
