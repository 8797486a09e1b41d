"""What a backward keeps alive: each saved tensor dies after its last use, unless the graph is retained."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from typing import Any

import pytest
import torch

import graftjit

STEPS = """
import torch
from torch.profiler import ProfilerActivity, profile
import graftjit

def peak(run):  # the highest sum of what torch's allocator gave and took back
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        run()
    events = seen.profiler.kineto_results.events()
    live = highest = 0
    for _, size in sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"):
        live += size
        highest = max(highest, live)
    return highest

layers = [p for _ in range(6) for p in (torch.nn.Linear(256, 256), torch.nn.Tanh())]
model = torch.nn.Sequential(*layers)
x = torch.randn(512, 256)
found = []
for forward in (model, graftjit.compile(model)):
    def step():
        forward(x).sum().backward()
        model.zero_grad(set_to_none=True)
    for _ in range(2):
        step()
    found.append(peak(step))
print(*found)
"""


# `peak` as in `STEPS`, and a whole step
WITH_SGD = (
    STEPS.partition("layers =")[0]
    + """
def step_of(model, x):
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    def step():
        opt.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        opt.step()
    return step
"""
)

WHOLE = (
    WITH_SGD
    + """
found = []
x = torch.randn(8, 512)
for wrap in (lambda step: step, graftjit.jit):
    model = torch.nn.Linear(512, 512)
    step = step_of(model, x)
    run = wrap(step)
    for _ in range(3):
        run()
    found.append(peak(lambda: [run() for _ in range(3)]))
print(*found)
"""
)


def _peaks(text: str) -> list[int]:
    """What the program prints. Without GRAFTJIT_CHECK, under which eager runs beside."""
    environment = {**os.environ, "GRAFTJIT_CHECK": "0"}
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=300, env=environment
    )
    assert done.returncode == 0, done.stderr
    return list(map(int, done.stdout.split()))


def test_gradients_of_the_last_step_make_room_for_those_of_this_one() -> None:
    eager, ours = _peaks(WHOLE)
    assert ours <= eager + 8 * 512 * 4


def test_peak_memory_of_a_step_is_eagers() -> None:
    """Gradients take the place of what is saved: together they would be beyond eager's peak."""
    eager, ours = _peaks(STEPS)
    # beside eager's: the gradient that comes in is held by autograd's engine all the while
    assert ours <= eager + 512 * 256 * 4 + 4096


BUDGET = (
    WITH_SGD
    + """
found = []
x = torch.randn(2048, 64)
for budget in (None, 0.5, 0.25):
    parts = [(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64), torch.nn.Tanh()) for _ in range(6)]
    model = torch.nn.Sequential(*(one for part in parts for one in part))
    step = step_of(model, x)
    run = graftjit.jit(step, config=graftjit.JitConfig(memory_budget=budget))
    for _ in range(3):
        run()
    model.zero_grad()
    found.append(peak(run))
print(*found)
"""
)


def test_a_budget_lowers_the_peak_of_a_whole_step() -> None:
    whole, half, quarter = _peaks(BUDGET)
    # Where a library computes the products, both recomputed values of a layer are in memory beside the gradient.
    assert half < 0.65 * whole and quarter < 0.6 * whole


def test_consume() -> None:
    seen = []
    jitted = graftjit.jit(lambda x: (x.sin() * 2).sum())
    x = torch.randn(8, requires_grad=True)
    y = jitted(x)
    y.backward(retain_graph=True)
    y.backward()
    torch.testing.assert_close(x.grad, 4 * x.detach().cos())
    program, _ = y.grad_fn.joint._backwards[()]
    owner = program.__self__
    arguments = [torch.randn(8), torch.ones(())]
    expected = owner(*arguments)
    seen.extend(arguments)
    torch.testing.assert_close(program(arguments), expected)
    assert arguments == []
    with pytest.raises(TypeError, match="a list expected"):
        program((1, 2))
    with pytest.raises(TypeError, match="is no tensor"):
        program([1, 2])
    with pytest.raises(TypeError, match="was called with 1"):
        program(seen[:1])


# `peak_of_steps(wrap, net, data, loss)`: of zero_grad, forward, backward and AdamW's step.
WHOLE_STEPS = (
    STEPS.partition("layers =")[0]
    + """
from graftjit.runtime import _native

def peak_of_steps(wrap, net, data, loss=lambda found: found):
    opt = torch.optim.AdamW(net.parameters())
    def step():
        opt.zero_grad()
        value = loss(net(data))
        value.backward()
        opt.step()
    run = wrap(step)
    for _ in range(3):
        run()
    opt.zero_grad()
    return peak(run) + _native.kept_workspace()
"""
)
OPTIMIZED = (
    WHOLE_STEPS
    + """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(4000, 128)
        self.up = torch.nn.ModuleList(torch.nn.Linear(128, 1024) for _ in range(3))
        self.down = torch.nn.ModuleList(torch.nn.Linear(512, 128) for _ in range(3))

    def forward(self, tokens):
        x = self.words(tokens)
        for up, down in zip(self.up, self.down):
            left, right = up(torch.nn.functional.rms_norm(x, (128,))).chunk(2, -1)
            x = x + down(torch.nn.functional.silu(left) * right)
        return x.square().mean()

found = []
tokens = torch.randint(0, 4000, (256,))
for wrap in (lambda step: step, graftjit.jit):
    found.append(peak_of_steps(wrap, Net(), tokens))
print(*found)
"""
)


def test_a_step_with_its_optimizer_takes_no_more_than_eager() -> None:
    """Updates of parameters and moments take no memory in eager mode, and what the first step kept
    for its kernels is freed."""
    eager, ours = _peaks(OPTIMIZED)
    assert ours <= eager


NESTED = (
    STEPS.partition("layers =")[0]
    + """
from torch.utils.checkpoint import checkpoint

def chain(weights, count):
    def run(a):
        for k in range(0, len(weights), count):
            part = weights[k : k + count]
            inner = chain(part, count // 3) if count > 1 else (
                lambda a, w=part[0]: ((a @ w).tanh() @ w).tanh())
            a = checkpoint(inner, a, use_reentrant=False)
        return a
    return run

found = []
x = torch.randn(1024, 64)
for whole in (False, True):
    for wrap in (lambda step: step, graftjit.jit):
        weights = [torch.randn(64, 64).mul_(0.1).requires_grad_() for _ in range(9)]
        forward = chain(weights, 3)
        loss = lambda: forward(x).sum()
        run = wrap((lambda: loss().backward()) if whole else loss)
        def step():
            y = run()
            if not whole:
                y.backward()
            for w in weights:
                w.grad = None
        for _ in range(2):
            step()
        found.append(peak(step))
print(*found)
"""
)


def test_nested_checkpoints_take_no_more_than_eager() -> None:
    """What the outer one has computed again for the inner ones does not live on inside them."""
    eager, ours, eager_whole, ours_whole = _peaks(NESTED)
    assert ours <= eager and ours_whole <= eager_whole


BIASES = (
    WHOLE_STEPS
    + """
from graftjit.codegen.plan_cache import cache
from graftjit.codegen.schedule import step_order

cache.key_of = lambda graph: None  # each plan is made anew
found = []
x = torch.randn(256, 256)
for wrap, forward in ((lambda step: step, True), (graftjit.jit, True), (graftjit.jit, False)):
    if not forward:
        step_order.bring_forward = lambda steps, follows, flow: steps
    layers = [m for _ in range(2) for m in (torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256))]
    net = torch.nn.Sequential(torch.nn.LayerNorm(256), *layers)
    found.append(peak_of_steps(wrap, net, x, lambda found: found.square().mean()))
print(*found)
"""
)


def test_a_bias_is_updated_as_soon_as_its_gradient_can_be_summed() -> None:
    """In the order of the program the update comes last, and with it the sum that it is fused with:
    the summed values would be alive until then."""
    eager, ours, before = _peaks(BIASES)
    assert ours < min(before, eager)


class _Held:
    pass


HISTORIES: dict[str, Any] = {
    "gradient": lambda x, y: torch.autograd.grad(y[0].sum(), x, create_graph=True),
    "penalty": lambda x, y: (
        torch.autograd.grad(y[0].sum(), x, create_graph=True)[0].sum().backward()
    ),
    "of two": lambda x, y: torch.autograd.grad(y[0].sum() * y[-1].sum(), x, create_graph=True),
    "third": lambda x, y: torch.autograd.grad(
        torch.autograd.grad(y[0].sum(), x, create_graph=True)[0].sum(), x, create_graph=True
    ),
    "retained": lambda x, y: [
        torch.autograd.grad(y[0].sum(), x, create_graph=True)[0].sum().backward(retain_graph=True)
        for _ in range(2)
    ],
}


@pytest.mark.parametrize("name", HISTORIES)
@pytest.mark.parametrize("program", [lambda x: (x.exp(),), lambda x: (x.exp() * 2, x.sin().exp())])
def test_a_history_ends_with_its_tensors(name: str, program: Any) -> None:
    """No cycle holds a node, and so the tensors that it has saved, until a collection."""
    jitted = graftjit.jit(program)
    for run in (program, jitted, jitted):
        gc.collect()
        gc.disable()
        try:
            x, held = torch.ones(3, requires_grad=True), _Held()
            results = run(x)
            results[0].grad_fn.metadata["held"] = held
            end = weakref.ref(held)
            del held
            HISTORIES[name](x, results)
            del results, x
            assert end() is None
        finally:
            gc.enable()
