"""What a backward keeps alive: each saved tensor dies after its last use, unless the graph is retained."""

from __future__ import annotations

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import graftjit


def _peak(run):
    """The highest sum of what torch's allocator gave and took back."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        run()
    events = sorted(
        (e.start_ns(), e.nbytes()) for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"
    )  # fmt: skip
    live = highest = 0
    for _, size in events:
        live += size
        highest = max(highest, live)
    return highest


def test_peak_memory_of_a_step_is_eagers() -> None:
    """Gradients take the place of what is saved: together they would be far beyond eager's peak."""
    model = torch.nn.Sequential(
        *(part for _ in range(6) for part in (torch.nn.Linear(256, 256), torch.nn.Tanh()))
    )
    x = torch.randn(512, 256)
    found = []
    for forward in (model, graftjit.compile(model)):

        def step(forward=forward):
            forward(x).sum().backward()
            model.zero_grad(set_to_none=True)

        for _ in range(2):
            step()
        found.append(_peak(step))
    assert found[1] <= 1.02 * found[0] + 2 * x.nbytes


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
