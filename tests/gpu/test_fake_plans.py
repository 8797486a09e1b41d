"""Whole programs on the fake device: captured, planned, their kernels run by Triton's interpreter, beside eager and under
GRAFTJIT_CHECK; plans that are kept; what is left where a kernel cannot be had."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

import graftjit
from benchmarks.models import llama, vision
from graftjit.codegen import gpus, plan_form
from graftjit.codegen.shadow import differs
from graftjit.runtime import driver
from graftjit.runtime.errors import BuildError
from graftjit.runtime.session import SESSION

from ..fake_cuda import driver as fake

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)


@pytest.fixture
def compiled(fake_cuda, monkeypatch):
    """The fake driver, with its images in place of cubins; the names of the kernels that were asked for."""
    names: list[str] = []

    def load(texts, _capabilities, *_more):
        found = {}
        for key, text in texts.items():
            handle, keep = driver.load(fake.image(text), text.name, fake.SHARED)
            names.append(text.name)
            found[key] = SimpleNamespace(
                function=handle, threads=32 * text.warps, shared=fake.SHARED, hidden=fake.HIDDEN, keep=keep,
                cached=False,
            )  # fmt: skip
        return found

    monkeypatch.setattr(plan_form, "load_kernels", load)
    monkeypatch.setattr(gpus, "why_not", lambda found: driver.available())
    with fake.fake_libcuda():
        driver.DRIVER.use(fake.library_path(), fake.library_path())
        yield names
        driver.DRIVER.use()


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


def test_a_second_process_finds_the_plan(compiled):
    given = on_device((6, 8), (8, 8), (8,))
    first = graftjit.jit(mlp)
    wanted = first(*given)
    before = len(compiled)
    graftjit.reset()
    again = graftjit.jit(mlp)(*given)
    same(again, wanted)
    assert compiled[before:] and set(compiled[before:]) == set(compiled[:before])


def test_a_failing_compiler_leaves_aten(compiled, monkeypatch):
    def fails(*_args):
        raise BuildError("ptxas is not there")

    monkeypatch.setattr(plan_form, "load_kernels", fails)
    given = on_device((6, 8), (8, 8), (8,))
    with (
        SESSION.override(check=False),
        pytest.warns(UserWarning) if False else SESSION.override(check=False),
    ):
        same(graftjit.jit(mlp)(*given), mlp(*given))
