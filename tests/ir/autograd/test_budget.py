"""Memory budgets: fewer bytes are saved for the backward, values and gradients stay the same to the
bit, and the report says what it costs."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import graftjit
from graftjit.ir.autograd.min_cut import Network
from graftjit.runtime.errors import OptionError

X = torch.linspace(-1.0, 1.0, 64 * 32).reshape(4, 16, 32)


class Block(nn.Module):
    """Attention and a perceptron, with dropout: products, reductions and random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(32), nn.LayerNorm(32)
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.up, self.down = nn.Linear(32, 128), nn.Linear(128, 32)
        self.drop = nn.Dropout(0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.qkv(self.first(x)).view(*x.shape[:2], 3, 2, 16).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(*heads.unbind(0)).transpose(1, 2).reshape(x.shape)
        x = x + self.drop(self.out(y))
        return x + self.down(F.gelu(self.up(self.second(x))))


def _net(layers: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*[Block() for _ in range(layers)])


def _step(net: nn.Module, forward: Any, x: torch.Tensor = X) -> list[torch.Tensor]:
    """The loss and all gradients."""
    net.zero_grad()
    torch.manual_seed(7)
    leaf = x.clone().requires_grad_()
    loss = forward(leaf).square().mean()
    loss.backward()
    found = [loss.detach(), leaf.grad, *(p.grad.clone() for p in net.parameters())]
    return [one for one in found if one is not None]


def _under(net: nn.Module, budget: float | None, **options: Any) -> Any:
    return graftjit.compile(net, config=graftjit.JitConfig(memory_budget=budget, **options))


def _entry(compiled: Any) -> Any:
    return compiled.report().entries[0]


def test_less_is_saved_and_values_are_the_same_to_the_bit() -> None:
    net = _net()
    eager = _step(net, net)
    plain = _under(net, None)
    expected = _step(net, plain)
    torch.testing.assert_close(expected, eager)
    most = _entry(plain).saved_bytes
    assert most > 0 and _entry(plain).spared_bytes == _entry(plain).again == 0
    saved, paid = [most], [0.0]
    for budget in (1.0, 0.8, 0.6, 0.4, 0.0):
        compiled = _under(net, budget)
        found = _step(net, compiled)
        assert all(map(torch.equal, found, expected)), budget
        entry = _entry(compiled)
        assert entry.saved_bytes + entry.spared_bytes == most
        saved.append(entry.saved_bytes)
        paid.append(entry.again_seconds)
        if budget >= 0.6:
            assert entry.saved_bytes <= budget * most
    assert saved == sorted(saved, reverse=True) and saved[-1] < 0.4 * most
    assert paid == sorted(paid) and paid[-1] > 0


def test_bytes() -> None:
    net = _net()
    plain = _under(net, None)
    _step(net, plain)
    most = _entry(plain).saved_bytes
    enough, less = _under(net, most), _under(net, most // 2)
    for compiled in (enough, less):
        _step(net, compiled)
    assert _entry(enough).saved_bytes == most and _entry(enough).again == 0
    assert _entry(less).saved_bytes <= most // 2


HELD = """
import torch
from torch.profiler import ProfilerActivity, profile
import graftjit

layers = [m for _ in range(4) for m in (torch.nn.Linear(64, 64), torch.nn.Tanh())]
net = torch.nn.Sequential(*layers)
x = torch.randn(128, 64, requires_grad=True)
for budget in (None, 0.3):
    compiled = graftjit.compile(net, config=graftjit.JitConfig(memory_budget=budget))
    compiled(x).sum().backward()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        y = compiled(x)
    events = seen.profiler.kineto_results.events()
    held = sum(event.nbytes() for event in events if event.name() == "[memory]")
    print(held - y.nbytes, compiled.report().entries[0].saved_bytes)
    del y
"""


def test_a_result_holds_what_the_report_says() -> None:
    """By torch's allocator, without GRAFTJIT_CHECK, under which eager's values live beside."""
    done = subprocess.run(
        [sys.executable, "-c", HELD],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "GRAFTJIT_CHECK": "0"},
    )
    assert done.returncode == 0, done.stderr
    (all_held, all_saved), (held, saved) = (
        map(int, line.split()) for line in done.stdout.splitlines()
    )
    assert (all_held, held) == (all_saved, saved)
    assert 0 < held <= 0.3 * all_held


def test_random_numbers_are_drawn_once() -> None:
    net = nn.Sequential(*[m for _ in range(3) for m in (nn.Linear(32, 32), nn.Dropout(0.5))])
    expected = _step(net, _under(net, None))
    state = torch.random.get_rng_state()
    assert all(map(torch.equal, _step(net, _under(net, 0.0)), expected))
    assert torch.equal(torch.random.get_rng_state(), state)


def test_written_memory_is_not_read_again() -> None:
    """Batch norm writes its statistics, and the program writes to a result before the backward."""
    net = nn.Sequential(nn.Linear(32, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 16))
    twin = nn.Sequential(nn.Linear(32, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 16))
    twin.load_state_dict(net.state_dict())
    compiled = _under(net, 0.0)
    for _ in range(2):
        found, expected = _step(net, compiled, X[0]), _step(twin, twin, X[0])
        torch.testing.assert_close(found, expected)
    torch.testing.assert_close(net[1].running_mean, twin[1].running_mean)
    y = compiled(X[0].clone().requires_grad_())
    with torch.no_grad():
        net[0].weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_two_backwards_through_one_forward() -> None:
    net = nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU())
    compiled = _under(net, 0.0)
    loss = compiled(X).square().mean()
    once = torch.autograd.grad(loss, list(net.parameters()), retain_graph=True)
    assert all(map(torch.equal, once, torch.autograd.grad(loss, list(net.parameters()))))


def test_sizes_that_vary() -> None:
    net = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32), nn.GELU())
    compiled = _under(net, 0.3, dynamic=True)
    for n in (5, 9, 64):
        x = torch.randn(n, 32)
        torch.testing.assert_close(_step(net, compiled, x), _step(net, net, x))
    assert _entry(compiled).again > 0
    plain = _under(net, None, dynamic=True)
    for n in (5, 9, 64):
        _step(net, plain, torch.randn(n, 32))
    assert compiled.report().recompile_count == plain.report().recompile_count


def test_report_text() -> None:
    net = _net()
    compiled = _under(net, 0.4)
    _step(net, compiled)
    text = " ".join(str(compiled.report()).split())
    entry = _entry(compiled)
    assert "saved for the backward; memory_budget spares" in text
    assert f"runs {entry.again} operators again, about" in text
    plain = _under(net, None)
    _step(net, plain)
    assert "memory_budget" not in str(plain.report())


@pytest.mark.parametrize("value", [-0.1, 1.5, -1, True, "half", float("nan")])
def test_values_that_are_not_allowed(value: Any) -> None:
    with pytest.raises(OptionError, match="memory_budget"):
        graftjit.JitConfig(memory_budget=value)


def test_budgets_share_no_entry() -> None:
    """The same code under two budgets is compiled twice."""

    def loss(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.tanh(torch.tanh(x @ w) @ w).sum()

    w = torch.eye(32).requires_grad_()
    found = []
    for budget in (None, 0.0):
        jitted = graftjit.jit(loss, config=graftjit.JitConfig(memory_budget=budget))
        jitted(X, w).backward()
        found.append(_entry(jitted).saved_bytes)
    assert found[1] < found[0]


def _step_of(net: nn.Module, make: Any) -> Any:
    optimizer = make(net.parameters())

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def _deep() -> nn.Module:
    """Products, an activation that saves its result, a norm, dropout and a buffer that is written."""
    torch.manual_seed(0)
    parts = [
        (
            nn.Linear(32, 64),
            nn.Tanh(),
            nn.LayerNorm(64),
            nn.Dropout(0.2),
            nn.Linear(64, 32),
            nn.GELU(),
        )
        for _ in range(3)
    ]
    return nn.Sequential(nn.BatchNorm1d(32), *(one for some in parts for one in some))


@pytest.mark.parametrize("budget", [0.5, 0.0, 150_000])
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_a_whole_step_keeps_to_its_budget(budget: float, optimizer: Any) -> None:
    config = graftjit.JitConfig(memory_budget=budget)
    nets = [_deep(), _deep()]
    make = functools.partial(optimizer, lr=0.01)
    plain, step = _step_of(nets[0], make), _step_of(nets[1], make)
    jitted = graftjit.jit(step, config=config)
    for number in range(3):
        losses = []
        for run in (plain, jitted):
            torch.manual_seed(number)
            losses.append(run(torch.randn(64, 32)))
        torch.testing.assert_close(*losses, atol=1e-4, rtol=1e-4)
    for one, other in zip(
        nets[0].state_dict().values(), nets[1].state_dict().values(), strict=True
    ):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-3)
    report = jitted.report()
    entry = report.entries[-1]
    assert report.break_count == 0 and entry.spared_bytes > 0 and entry.again > 0
    if isinstance(budget, int):
        assert entry.saved_bytes <= budget
    assert "memory_budget spares" in str(report)


def test_a_value_whose_operand_is_written_before_the_backward_is_kept() -> None:
    def step(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 3
        z = torch.tanh(y @ w)
        total = (z * z).sum()
        y.data.mul_(2)
        (gradient,) = torch.autograd.grad(total, w)
        return total.detach(), gradient

    w = torch.eye(32).requires_grad_()
    found = graftjit.jit(step, config=graftjit.JitConfig(memory_budget=0.0))(X, w)
    torch.testing.assert_close(found, step(X, w))


def test_a_source_with_a_cost() -> None:
    """Cutting the edge from the source is cheaper than cutting the vertex."""
    network = Network()
    network.vertex("input", 100)
    network.vertex("value", 10)
    network.source("input")
    network.source("value", 3)
    network.sink("value")
    assert network.cut() == set()
