"""Backwards outside of the frame that are themselves differentiated: programs with a backward of their own, beside plain autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import graftjit
from graftjit.runtime.errors import GraftError

from ..beside import fresh, tensors

grad = torch.autograd.grad


def t(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).requires_grad_()


def weighted(values: Any) -> torch.Tensor:
    values = [one for one in tensors(values) if one.requires_grad]
    parts = [(one * torch.linspace(1, 2, one.numel()).view(one.shape)).sum() for one in values]
    return torch.stack(parts).sum()


def up_to_third(function: Callable[..., Any], args: list[Any]) -> list[Any]:
    """The gradients of first, second and third order of all leaves, and whether they have a history."""
    leaves = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
    values: Any = function(*args)
    found: list[Any] = []
    for order in range(3):
        values = grad(weighted(values), leaves, create_graph=order < 2, allow_unused=True)
        found += values
        values = [one for one in values if one is not None and one.requires_grad]
        if not values:
            break
    return found


def same_to_third_order(function: Callable[..., Any], *args: Any, runs: int = 2) -> Any:
    jitted = graftjit.jit(function)
    for number in range(runs):
        found = []
        for run in (function, jitted):
            torch.manual_seed(number)
            found.append(up_to_third(run, fresh(args)))
        assert len(found[0]) == len(found[1])
        for expected, ours in zip(*found, strict=True):
            assert (expected is None) == (ours is None)
            if expected is not None:
                torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)
                assert ours.requires_grad == expected.requires_grad
    return jitted


def written(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = (x * w).clone()
    y.add_(1).mul_(w)
    y[1:] = x[1:].exp()
    return y.sin()


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "pointwise": lambda x, w: (x.sin() * w).exp(),
    "a product": lambda x, w: torch.tanh(x @ w.t()).sum(),
    "two segments": lambda x, w: (x.sin().sum(), (w * x).exp()),
    "a result of a result": lambda x, w: ((y := x * w.sin()), (y * y).sum()),
    "a view": lambda x, w: (x.sin() * w).t()[1:],
    "a norm": lambda x, w: F.layer_norm(x * w, (3,)),
    "dropout": lambda x, w: F.dropout(x * w, 0.5).exp(),
    "linear": lambda x, w: x * 2 + w,
    "writes": written,
    "a loss": lambda x, w: F.cross_entropy(x @ w.t(), torch.arange(4)),
    "detached": lambda x, w: (x.sin().detach() * w).exp(),
    "a block without gradients": lambda x, w: _half_quiet(x, w),
}  # fmt: skip


def _half_quiet(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        scale = w.abs().sum()
    return (x * scale).sin() * w


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_of_higher_order_are_programs(name: str) -> None:
    jitted = same_to_third_order(FUNCTIONS[name], t(4, 3), t(4, 3, seed=1))
    assert not jitted.report().break_count
    assert "FB3" not in str(jitted.report())


def test_a_tensor_given_twice() -> None:
    jitted, found = graftjit.jit(lambda x, y: (x * y.sin()).exp().sum()), []
    for function in (jitted.__wrapped__, jitted):
        x = t(3)
        (g,) = grad(function(x, x), x, create_graph=True)
        found.append((g, *grad(g.sum(), x)))
    torch.testing.assert_close(found[1], found[0])
    assert "FB317" not in str(jitted.report())


def test_inputs_and_arriving_gradients_with_histories() -> None:
    """The gradients lead to what computed the inputs, and to the seed."""
    found = []
    jitted = graftjit.jit(lambda x, w: (x * w).sin())
    for function in (jitted.__wrapped__, jitted, jitted):
        a, w, v = t(3), t(3, seed=1), t(3, seed=2)
        x = a.exp()
        (g,) = grad(function(x, w), x, v.cos(), create_graph=True)
        found.append((g, *grad(g.square().sum(), (a, w, v))))
    torch.testing.assert_close(found[1], found[0])
    torch.testing.assert_close(found[2], found[0])
    assert "FB317" not in str(jitted.report())


def test_only_what_is_asked_is_computed() -> None:
    """A gradient by the inputs alone needs no gradient of the weights."""
    net = nn.Linear(4, 4)
    jitted = graftjit.jit(lambda x: torch.tanh(net(x)).sum())
    x = t(8, 4)
    (g,) = grad(jitted(x), x, create_graph=True)
    assert g.grad_fn is not None
    made = g.grad_fn.joint.plan
    assert len(made.results) == 1
    g.square().sum().backward()
    ours = [x.grad, net.weight.grad, net.bias.grad]
    x2, net.weight.grad, net.bias.grad = t(8, 4), None, None
    (g,) = grad(torch.tanh(net(x2)).sum(), x2, create_graph=True)
    g.square().sum().backward()
    torch.testing.assert_close(ours, [x2.grad, net.weight.grad, net.bias.grad])
    assert "FB317" not in str(jitted.report())


def net_of(act: type[nn.Module] = nn.Tanh) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 8), act(), nn.Linear(8, 8), act(), nn.Linear(8, 1))


def gradient_penalty(model: Any) -> torch.Tensor:
    x = torch.randn(6, 2, requires_grad=True)
    (g,) = grad(model(x).sum(), x, create_graph=True)
    return model(x).mean() + ((g.norm(2, dim=1) - 1) ** 2).mean()


def pde(model: Any) -> torch.Tensor:
    x = torch.rand(6, 2, requires_grad=True)
    u = model(x)
    (du,) = grad(u.sum(), x, create_graph=True)
    (ddu,) = grad(du[:, 0].sum(), x, create_graph=True)
    return ((du[:, 1:] + u * du[:, :1] - 0.1 * ddu[:, :1]) ** 2).mean()


@pytest.mark.parametrize("loss_of", [gradient_penalty, pde])
def test_training_by_gradients_of_a_compiled_model(loss_of: Any) -> None:
    plain, ours = net_of(), net_of()
    model = graftjit.compile(ours)
    opts = [torch.optim.SGD(one.parameters(), lr=0.05) for one in (plain, ours)]
    for number in range(4):
        for run, opt in zip((plain, model), opts, strict=True):
            torch.manual_seed(number)
            opt.zero_grad()
            loss_of(run).backward()
            opt.step()
        for p, q in zip(plain.parameters(), ours.parameters(), strict=True):
            torch.testing.assert_close(q.grad, p.grad)
            torch.testing.assert_close(q, p)
    assert "FB317" not in str(graftjit.report(model))


def test_hooks_errors_and_freed_histories_are_those_of_eager() -> None:
    function = lambda x, w: (x * w).exp().sum()
    jitted, logs = graftjit.jit(function), []
    for run in (function, jitted):
        x, w, log = t(3), t(3, seed=1), []
        y = run(x, w)
        y.register_hook(lambda g: g * 3)
        x.register_hook(lambda g, log=log: log.append(g.detach().clone()))
        (g,) = grad(y, x, create_graph=True)
        log += grad(g.sum(), w, retain_graph=True)
        log += grad(g.sum(), (x, w))
        with pytest.raises(RuntimeError) as freed:
            g.sum().backward()
        y = run(x, w)
        grad(y, x, create_graph=True, retain_graph=False)
        with pytest.raises(RuntimeError) as refused:
            grad(y, x)
        logs.append((log, [str(freed.value), str(refused.value)]))
    torch.testing.assert_close(logs[1][0], logs[0][0])
    assert logs[1][1] == logs[0][1]
    assert "FB317" not in str(jitted.report())


def test_inputs_that_the_region_writes() -> None:
    def function(x: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
        y = (x * buffer).sin()
        buffer.add_(1)
        return y.sum()

    jitted, found = graftjit.jit(function), []
    for run in (function, jitted, jitted):
        x, buffer = t(3), torch.full((3,), 2.0)
        made = run(x, buffer)
        try:
            (g,) = grad(made, x, create_graph=True)
            found.append((g, *grad(g.sum(), x)))
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
            found.append(())
    torch.testing.assert_close(found[1], found[0])
    torch.testing.assert_close(found[2], found[0])


def test_a_write_after_the_forward_to_an_input() -> None:
    """A second derivative that depends on the value of the input raises, others do not."""
    linear = lambda x: torch.cat([x, x * 2])
    jitted, found = graftjit.jit(linear), []
    for run in (linear, jitted, jitted):
        x = t(3)
        y = x * 1
        made = run(y)
        y.detach().mul_(2)
        (g,) = grad(made.square().sum(), x, create_graph=True)
        found.append((g, *grad(g.square().sum(), x)))
    torch.testing.assert_close(found[1], found[0])
    torch.testing.assert_close(found[2], found[0])
    y = t(3) * 1
    made = graftjit.jit(lambda x: (x * 2).sin())(y)
    y.detach().mul_(2)
    with pytest.raises(GraftError, match="written to after the forward"):
        grad(made.sum(), y, create_graph=True)


def test_under_autocast() -> None:
    """The calls take the autocast of the forward, also where the backward runs outside of it."""
    function = lambda x, w: torch.tanh(x @ w).sum()
    jitted, found = graftjit.jit(function), []
    for run in (function, jitted, jitted):
        x, w = t(4, 64), t(64, 64, seed=1)
        with torch.autocast("cpu", torch.bfloat16):
            y = run(x, w)
        (g,) = grad(y, x, create_graph=True)
        found.append((g, *grad(g.square().sum(), w)))
    torch.testing.assert_close(found[1], found[0], rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(found[2], found[0], rtol=2e-2, atol=2e-2)


def test_sizes_that_vary() -> None:
    function = lambda x, w: (x * w).tanh().sum(0)
    jitted = graftjit.jit(function, dynamic=True)
    for size in range(2, 14):
        found = []
        for run in (function, jitted):
            x, w = t(size, 3), t(3, seed=1)
            (g,) = grad(run(x, w).sum(), x, create_graph=True)
            found.append((g, *grad(g.square().sum(), (x, w))))
        torch.testing.assert_close(found[1], found[0])


def test_what_no_program_computes_runs_the_calls_again() -> None:
    function = lambda x: (x**3).sin()
    jitted, found = graftjit.jit(function), []
    for run in (function, jitted):
        x = t(3)
        seeds = torch.eye(3)
        (g,) = grad(run(x), x, seeds, create_graph=True, is_grads_batched=True)
        found.append((g, *grad(g.sum(), x)))
    torch.testing.assert_close(found[1], found[0])
    assert "FB317" in str(jitted.report())


def test_saved_tensor_hooks_see_the_operators_of_the_first_backward() -> None:
    function = lambda x: (x.sin() * x).exp().sum()
    jitted, counts = graftjit.jit(function), []
    for run in (function, jitted):
        x, seen = t(3), []
        y = run(x)
        with torch.autograd.graph.saved_tensors_hooks(
            lambda s: (seen.append(1), s)[1], lambda s: s
        ):
            (g,) = grad(y, x, create_graph=True)
        (h,) = grad(g.sum(), x)
        counts.append((bool(seen), g.detach(), h))
    assert counts[0][0] and counts[1][0]
    torch.testing.assert_close(counts[1][1:], counts[0][1:])
    assert "FB317" in str(jitted.report())


def shifted(x, y):
    """The gradient of `y` is three times that of `x`."""
    return grad((x + 3 * y).exp().sum(), (x, y), create_graph=True)


def shifted_and_squared(x, y):
    first, second = grad((x + 3 * y).exp().sum(), (x, y), create_graph=True)
    return first, second * second


def backwards(x, y):
    """Each gradient is computed from the one after it."""
    first = x * y
    second = first * 2
    found = grad(second.exp().sum(), (second, first, x), create_graph=True)
    return found[::-1]


def curvature(x, y):
    """The products of a Hessian with a vector, by two backwards."""
    return torch.autograd.functional.hvp(
        lambda a, b: (a + 3 * b.narrow(0, 0, 3)).exp().sum(), (x, y), (y, x), create_graph=True
    )[1]


@pytest.mark.parametrize("function", [shifted, shifted_and_squared, backwards, curvature])
@pytest.mark.parametrize("how", ["first", "history", "batched"])
def test_a_result_computed_from_another_inside_of_one_call(function, how):
    """The second result's calls, run again, do not read the first result."""
    options: dict[str, Any] = {
        "first": {"retain_graph": True},
        "history": {"create_graph": True},
        "batched": {"retain_graph": True, "is_grads_batched": True},
    }[how]

    def gradients(run: Any) -> list[Any]:
        x, y = t(3), t(3, seed=1)
        results, found = run(x, y), []
        for result in results:
            rows = torch.linspace(1, 2, 6).view(2, 3)
            arriving = rows if how == "batched" else rows[0]
            found += grad(result, (x, y, results[0]), arriving, allow_unused=True, **options)
        return found

    jitted = graftjit.jit(function)
    for _ in range(2):
        for ours, expected in zip(gradients(jitted), gradients(function), strict=True):
            assert (ours is None) == (expected is None)
            if expected is not None:
                torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)
                assert ours.requires_grad == expected.requires_grad
    (note,) = [one for one in jitted.report().notes if one.code == "FB301"]
    assert "inside a torch function" in note.reason
