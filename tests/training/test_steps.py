"""A whole training step in one jitted function, beside plain Python: losses, parameters, gradients and their identity,
the optimizer's state, versions."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import graftjit

from .steps import OPTIMIZERS, Beside, batch, model, step


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_twenty_steps(optimizer: str) -> None:
    both = Beside(step, optimizer)
    for number in range(20):
        both.run(number)
        for opt in both.opts:
            opt.param_groups[0]["lr"] *= 0.9
    both.whole()
    assert len(both.jitted.report().recompiles) <= 1  # state comes with the first step


def test_a_step_first_met_under_a_profiler() -> None:
    """What looks on at the first call is no part of what later calls are."""
    both = Beside(step, "adamw")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        both.run(0)
    for number in range(1, 4):
        both.run(number)
    assert graftjit.report(both.jitted).break_count == 0


def test_methods_that_torch_compile_has_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch does so to its optimizers at the first use of torch.compile; it says nothing to us."""
    wrapped = torch.compiler.disable(torch.optim.AdamW._init_group)
    monkeypatch.setattr(torch.optim.AdamW, "_init_group", wrapped)
    both = Beside(step, "adamw")
    for number in range(4):
        both.run(number)
    assert graftjit.report(both.jitted).break_count == 0


def test_backward_alone_accumulates() -> None:
    def accumulate(net: Any, opt: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        return loss

    both = Beside(accumulate)
    for number in range(4):
        both.run(number)
    both.whole()
    for opt in both.opts:
        opt.zero_grad()
    both.run(5)


def test_micro_batches() -> None:
    def train(net: Any, opt: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
        losses = []
        for part, wanted in zip(x.chunk(2), y.chunk(2), strict=True):
            loss = ((net(part) - wanted) ** 2).mean() / 2
            loss.backward()
            losses.append(loss.detach())
        opt.step()
        opt.zero_grad()
        return torch.stack(losses)

    both = Beside(train, "adamw")
    for number in range(4):
        both.run(number)
    both.whole()


def test_zeros_in_place_of_none() -> None:
    def train(net: Any, opt: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        opt.zero_grad(set_to_none=False)
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        opt.step()
        return loss

    both = Beside(train, "momentum")
    for number in range(4):
        both.run(number)
    both.whole()


def test_a_loss_that_has_gone_backward() -> None:
    both = Beside(step)
    for number in range(2):
        both.run(number)
    said = []
    for fn, net, opt in zip((both.jitted, step), both.nets, both.opts, strict=True):
        loss = fn(net, opt, *batch(3))
        assert loss.requires_grad
        assert not loss.is_leaf
        with pytest.raises(RuntimeError) as raised:
            loss.backward()
        said.append((str(raised.value), loss.grad_fn.name().split(".")[-1]))
    assert said[0] == said[1]


def test_a_loss_that_can_go_backward_again() -> None:
    def train(net: Any, opt: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
        hidden = net(x)
        loss = (hidden - y).square().mean()
        loss.backward(retain_graph=True)
        return loss, hidden.detach()

    both = Beside(train)
    for _ in range(3):
        grads = []
        for fn, net, opt in zip((both.jitted, train), both.nets, both.opts, strict=True):
            opt.zero_grad()
            loss, _ = fn(net, opt, *batch(1))
            (loss * 3).backward()
            grads.append([p.grad for p in net.parameters()])
        for a, b in zip(*grads, strict=True):
            torch.testing.assert_close(a, b)


def test_what_saves_nothing_can_go_backward_again() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        loss = (x + x).sum()
        loss.backward()
        return loss

    jitted = graftjit.jit(f)
    for fn in (f, jitted, jitted):
        x = torch.ones(3, requires_grad=True)
        loss = fn(x)
        loss.backward()
        assert torch.equal(x.grad, torch.full((3,), 4.0))


@pytest.mark.parametrize("level", ["O0", "O1"])
def test_gradients_by_a_call(level: str) -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> Any:
        y = (x @ w).tanh()
        (gx,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
        gw, none = torch.autograd.grad(
            y, (w, x.new_ones(2).requires_grad_()), y.detach(), allow_unused=True
        )
        return gx, gw * 2, none

    def g(x: torch.Tensor, w: torch.Tensor) -> Any:
        y = (x @ w).tanh()
        (gx,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
        gw, gx2 = torch.autograd.grad([y], [w, x], y.detach())
        return gx, gw * 2, gx2

    for function in (f, g):
        jitted = graftjit.jit(function, config=graftjit.JitConfig(jit_level=level))
        for number in range(3):
            x = torch.randn(3, 4, generator=torch.Generator().manual_seed(number)).requires_grad_()
            w = torch.randn(4, 2, generator=torch.Generator().manual_seed(number)).requires_grad_()
            for a, b in zip(jitted(x, w), function(x, w), strict=True):
                torch.testing.assert_close(a, b)
            assert x.grad is None
    assert jitted.report().break_count == 0


def test_a_hook_that_comes_later_is_called() -> None:
    both = Beside(step)
    both.run(0)
    both.run(1)
    called: list[int] = []
    for number, net in enumerate(both.nets):
        net[0].weight.register_hook(lambda g, number=number: called.append(number))
        net[2].weight.register_post_accumulate_grad_hook(
            lambda p, number=number: called.append(number + 2)
        )
    both.run(2)
    assert sorted(called) == [0, 1, 2, 3]
    assert "hooks" in str(both.jitted.report())


def test_hooks_of_the_optimizer() -> None:
    both = Beside(step, "adam")
    both.run(0)
    called: list[Any] = []
    handles = [opt.register_step_pre_hook(lambda o, a, k: called.append(o)) for opt in both.opts]
    both.run(1)
    assert called == both.opts
    for handle in handles:
        handle.remove()
    both.run(2)
    assert len(called) == 2


def test_leaves_change() -> None:
    both = Beside(step, "momentum")
    both.run(0)
    both.run(1)
    for net in both.nets:
        net[0].weight.requires_grad_(False)
    both.run(2)
    for net in both.nets:
        net[0].weight.requires_grad_(True)
    both.run(3)
    for net, opt in zip(both.nets, both.opts, strict=True):
        torch.manual_seed(1)
        net.append(nn.Linear(1, 1))
        opt.add_param_group({"params": net[3].parameters(), "lr": 0.5, "momentum": 0.0})
    both.run(4)
    both.run(5)


def test_state_dict_round_trip() -> None:
    both = Beside(step, "adam")
    for number in range(3):
        both.run(number)
    for net, opt in zip(both.nets, both.opts, strict=True):
        kept = copy.deepcopy((net.state_dict(), opt.state_dict()))
        step(net, opt, *batch(9))
        net.load_state_dict(kept[0])
        opt.load_state_dict(kept[1])
    for number in range(3, 6):
        both.run(number)
    both.whole()


def test_a_scheduler_does_not_recompile() -> None:
    both = Beside(step, "adamw")
    plans = [torch.optim.lr_scheduler.CosineAnnealingLR(opt, 50) for opt in both.opts]
    for number in range(8):
        both.run(number)
        for plan in plans:
            plan.step()
    both.whole()
    assert len(both.jitted.report().recompiles) <= 1


def test_two_optimizers() -> None:
    def train(net: Any, opts: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for opt in opts:
            opt.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        for opt in opts:
            opt.step()
        return loss

    nets = [model(), model()]
    opts = [
        (torch.optim.SGD(n[0].parameters(), lr=0.1), torch.optim.Adam(n[2].parameters(), lr=0.1))
        for n in nets
    ]
    jitted = graftjit.jit(train)
    for number in range(4):
        a = jitted(nets[0], opts[0], *batch(number))
        b = train(nets[1], opts[1], *batch(number))
        torch.testing.assert_close(a, b)
        for p, q in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
            torch.testing.assert_close(p, q)
    assert jitted.report().break_count == 0


def test_an_exception_between() -> None:
    def train(net: Any, opt: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        opt.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        if x.shape[0] == 5:
            raise ValueError("stop")
        opt.step()
        return loss

    both = Beside(train, "adam")
    for number in range(3):
        for fn, net, opt in zip((both.jitted, train), both.nets, both.opts, strict=True):
            with pytest.raises(ValueError, match="stop"):
                fn(net, opt, *batch(number))
        both.compare()


def test_an_index_out_of_range() -> None:
    def train(net: Any, opt: Any, x: torch.Tensor) -> torch.Tensor:
        opt.zero_grad()
        loss = net(x).square().sum()
        loss.backward()
        opt.step()
        return loss

    nets = [nn.Embedding(4, 3), nn.Embedding(4, 3)]
    nets[1].load_state_dict(nets[0].state_dict())
    opts = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]
    jitted = graftjit.jit(train)
    for index in (
        torch.tensor([1, 2]),
        torch.tensor([3, 0]),
        torch.tensor([1, 7]),
        torch.tensor([2, 2]),
    ):
        for fn, net, opt in zip((jitted, train), nets, opts, strict=True):
            if int(index.max()) < 4:
                fn(net, opt, index)
                continue
            with pytest.raises(IndexError):
                fn(net, opt, index)
            assert net.weight.grad is None
        torch.testing.assert_close(nets[0].weight, nets[1].weight)


def test_a_history_from_outside_of_a_call() -> None:
    def f(h: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> Any:
        loss = (h * w).tanh().sum()
        return torch.autograd.grad(loss, (x, w), allow_unused=True)

    def g(h: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> Any:
        return torch.autograd.grad((h * w).tanh().sum(), (h, w))

    for function, whole in ((f, False), (g, True)):
        jitted = graftjit.jit(function)
        for _ in range(3):
            found = []
            for fn in (function, jitted):
                x, w = torch.ones(3, requires_grad=True), torch.full((3,), 2.0, requires_grad=True)
                found.append(fn(x * 3, x, w))
            for a, b in zip(*found, strict=True):
                torch.testing.assert_close(a, b)
        assert ("GB114" in str(jitted.report())) != whole


def test_a_history_from_outside() -> None:
    def f(h: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        loss = (h * w).sum()
        loss.backward()
        return loss

    jitted = graftjit.jit(f)
    for fn in (f, jitted, jitted):
        x, w = torch.ones(3, requires_grad=True), torch.full((3,), 2.0, requires_grad=True)
        fn(x * 3, w)
        assert torch.equal(x.grad, torch.full((3,), 6.0))
        assert torch.equal(w.grad, torch.full((3,), 3.0))
    assert "GB114" in str(jitted.report())


def test_gradients_have_memory_of_their_own() -> None:
    def f(x: torch.Tensor, y: torch.Tensor, seed: torch.Tensor) -> None:
        (x + y).backward(seed)

    jitted = graftjit.jit(f)
    for _ in range(2):
        x, y = (torch.ones(2, 3, requires_grad=True) for _ in range(2))
        z = torch.ones(3, 2).t().requires_grad_()
        seed = torch.ones(2, 3)
        jitted(x, y, seed)
        jitted(z, y, seed)
        assert z.grad.stride() == z.stride()
        x.grad.add_(1)
        assert torch.equal(seed, torch.ones(2, 3))
        assert torch.equal(y.grad, torch.full((2, 3), 2.0))


def test_the_tensor_behind_two_names() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> None:
        (x * y).sum().backward()

    jitted = graftjit.jit(f)
    x, y = torch.full((2,), 2.0, requires_grad=True), torch.ones(2, requires_grad=True)
    jitted(x, y)
    x.grad = None
    jitted(x, x)
    assert torch.equal(x.grad, torch.full((2,), 4.0))


def test_gradients_are_attributes() -> None:
    def f(x: torch.Tensor, keep: bool) -> Any:
        first = x.grad
        x.grad = None
        (x * x).sum().backward()
        second = x.grad
        if keep:
            x.grad = first
        return first, second, x.grad is second

    jitted = graftjit.jit(f)
    for keep in (True, False, True, False, False):
        found = []
        for fn in (f, jitted):
            x = torch.ones(3, requires_grad=True)
            x.grad = torch.full((3,), 5.0)
            before = x.grad
            first, second, same = fn(x, keep)
            assert first is before
            assert (x.grad is first) == keep
            found.append((second, same))
        torch.testing.assert_close(found[0], found[1])


def test_a_rate_that_varies_is_an_argument_of_a_kernel() -> None:
    def f(x: torch.Tensor, g: torch.Tensor, rate: float) -> torch.Tensor:
        return torch.sub(x.add(g, alpha=-rate), g, alpha=rate * 2)

    jitted = graftjit.jit(f, dynamic=True)
    x, g = torch.randn(40), torch.randn(40)
    for rate in (0.3, 0.7, 2.5):
        torch.testing.assert_close(jitted(x, g, rate), f(x, g, rate), rtol=1e-6, atol=1e-6)
    report = str(jitted.report())
    assert "-> 1 kernel\n" in report, report
    assert not jitted.report().recompiles


def test_gradients_that_are_dropped_first_and_read() -> None:
    def train(net: Any, opt: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
        before = [p.grad for p in net.parameters()]
        net[0].weight.grad = None
        opt.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        scale = 0.0 if before[0] is None else before[0].sum() + before[1].mean()
        net[2].bias.grad = before[3]
        return loss.detach() + scale, before[2]

    both = Beside(train)
    for number in range(4):
        found = [
            fn(net, opt, *batch(number))
            for fn, net, opt in zip((both.jitted, train), both.nets, both.opts, strict=True)
        ]
        for a, b in zip(*found, strict=True):
            torch.testing.assert_close(a, b)
        both.compare()
    both.whole()


WRITTEN: dict[str, Callable[[Any, Any], Any]] = {
    "max_norm": lambda w, rows: nn.functional.embedding(rows, w, max_norm=1.0).sum(),
    "what is detached": lambda w, rows: (w.detach().mul_(0.5), (w[rows] * 2).sum())[1],
    "after it was read": lambda w, rows: (y := w * 2, w.detach().mul_(0.5), y[rows].sum())[2],
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_leaf_is_written_through_what_is_detached(name: str) -> None:
    """It stays the leaf that it is, and keeps its gradient."""
    found = []
    for run in (WRITTEN[name], graftjit.jit(WRITTEN[name])):
        torch.manual_seed(0)
        weight = torch.randn(5, 3, requires_grad=True)
        for _ in range(2):
            loss = run(weight, torch.tensor([1, 2]))
            loss.backward()
        assert weight.is_leaf
        found.append((loss.detach(), weight.detach(), weight.grad, torch.tensor(weight._version)))
    torch.testing.assert_close(found[1], found[0])
