"""A backward inside a frame whose gradients have a history of their own (`create_graph=True`), and leaves that the frame makes."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import graftjit

from ..beside import tensors

grad = torch.autograd.grad


def net(n_in: int = 2) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(n_in, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1)
    )


def wgan_gp(critic: nn.Module) -> torch.Tensor:
    real, fake, part = torch.randn(8, 2), torch.randn(8, 2), torch.rand(8, 1)
    between = (part * real + (1 - part) * fake).requires_grad_(True)
    out = critic(between)
    (g,) = grad(out, between, torch.ones_like(out), create_graph=True)
    penalty = ((g.norm(2, dim=1) - 1) ** 2).mean()
    return critic(fake).mean() - critic(real).mean() + 10 * penalty


def pinn(model: nn.Module) -> torch.Tensor:
    x = torch.rand(16, 1, requires_grad=True)
    t = torch.rand(16, 1).requires_grad_()
    u = model(torch.cat([x, t], 1))
    ones = torch.ones_like(u)
    u_x, u_t = grad(u, (x, t), ones, create_graph=True)
    (u_xx,) = grad(u_x, x, ones, create_graph=True)
    return ((u_t + u * u_x - 0.01 * u_xx) ** 2).mean()


def korteweg_de_vries(model: nn.Module) -> torch.Tensor:
    x = torch.rand(16, 2).requires_grad_()
    u = model(x)
    u_x = grad(u.sum(), x, create_graph=True)[0]
    u_xx = grad(u_x[:, 0].sum(), x, create_graph=True)[0]
    u_xxx = grad(u_xx[:, 0].sum(), x, create_graph=True)[0]
    return ((u_x[:, 1:] + 6 * u * u_x[:, :1] + u_xxx[:, :1]) ** 2).mean()


def by_weights(weights: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    a, b, c, d, e, f = weights
    return F.linear(torch.tanh(F.linear(torch.tanh(F.linear(x, a, b)), c, d)), e, f)


def maml(model: nn.Module) -> torch.Tensor:
    weights, total = list(model.parameters()), torch.zeros(())
    for task in range(2):
        x, y = torch.randn(8, 2), torch.randn(8, 1)
        inner = F.mse_loss(by_weights(weights, x + task), y)
        steps = grad(inner, weights, create_graph=True)
        fast = [weight - 0.1 * step for weight, step in zip(weights, steps, strict=True)]
        total = total + F.mse_loss(by_weights(fast, x * 2), y)
    return total


def r1(critic: nn.Module) -> torch.Tensor:
    x = torch.randn(8, 2, requires_grad=True)
    g = grad(critic(x).sum(), x, create_graph=True)[0]
    return F.softplus(-critic(x)).mean() + g.square().sum(1).mean()


def dropped(model: nn.Module) -> torch.Tensor:
    x = torch.randn(8, 2, requires_grad=True)
    g = grad(F.dropout(model(x), 0.5).exp().sum(), x, create_graph=True)[0]
    return g.square().mean()


LOSSES: dict[str, Callable[[nn.Module], torch.Tensor]] = {
    "WGAN-GP": wgan_gp,
    "PINN": pinn,
    "third derivative": korteweg_de_vries,
    "MAML": maml,
    "R1": r1,
    "dropout": dropped,
}  # fmt: skip


@pytest.mark.parametrize("inside", [True, False], ids=["backward inside", "backward outside"])
@pytest.mark.parametrize("name", LOSSES)
def test_training_by_gradients_of_gradients_is_one_graph(name: str, inside: bool) -> None:
    loss_of = LOSSES[name]

    def step(model: nn.Module, opt: Any) -> torch.Tensor:
        if not inside:
            return loss_of(model)
        opt.zero_grad()
        loss = loss_of(model)
        loss.backward()
        opt.step()
        return loss.detach()

    jitted = graftjit.jit(step)
    models = [net(), net()]
    opts = [torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9) for model in models]
    for number in range(5):
        losses = []
        for run, model, opt in zip((step, jitted), models, opts, strict=True):
            torch.manual_seed(number)
            loss = run(model, opt)
            if not inside:
                opt.zero_grad()
                loss.backward()
                opt.step()
            losses.append(loss.detach())
        torch.testing.assert_close(*losses)
        for p, q in zip(models[0].parameters(), models[1].parameters(), strict=True):
            torch.testing.assert_close(q.grad, p.grad)
            torch.testing.assert_close(q, p)
    report = jitted.report()
    assert not report.break_count, report
    assert report.graph_count <= 2, report  # an optimizer's first step is another
    assert "FB3" not in str(report), report


def by_a_vector(model: nn.Module, v: list[torch.Tensor], x: torch.Tensor) -> Any:
    weights = list(model.parameters())
    gradients = grad(model(x).square().mean(), weights, create_graph=True)
    return grad(gradients, weights, v)


def by_a_product(model: nn.Module, v: list[torch.Tensor], x: torch.Tensor) -> Any:
    weights = list(model.parameters())
    gradients = grad(model(x).square().mean(), weights, create_graph=True)
    total = sum((one * other).sum() for one, other in zip(gradients, v, strict=True))
    return grad(total, weights)


def forward_over_backward(model: nn.Module, v: list[torch.Tensor], x: torch.Tensor) -> Any:
    """J v by two products with the transposed matrix."""
    weights = list(model.parameters())
    out = model(x)
    seed = torch.zeros_like(out, requires_grad=True)
    return grad(grad(out, weights, seed, create_graph=True), seed, v)


@pytest.mark.parametrize("function", [by_a_vector, by_a_product, forward_over_backward])
def test_products_with_a_hessian_are_one_graph(function: Any) -> None:
    model, jitted = net(), graftjit.jit(function)
    for number in range(3):
        torch.manual_seed(number)
        v, x = [torch.randn_like(p) for p in model.parameters()], torch.randn(8, 2)
        expected, found = function(model, v, x), jitted(model, v, x)
        torch.testing.assert_close(found, expected)
        assert not any(one.requires_grad for one in found)
    assert not jitted.report().break_count


def separate(x: torch.Tensor, w: torch.Tensor) -> Any:
    between = (x * 2).detach().requires_grad_()
    (g,) = grad((between * w).sin().sum(), between, create_graph=True)
    return (x * w).cos().mean(), (g * g).mean()


def sharing(x: torch.Tensor, w: torch.Tensor) -> Any:
    loss = (w.exp() * x).sum()
    (g,) = grad(loss, w, create_graph=True)
    return loss, (g * g).sum(), w.sin().sum()


def freed(x: torch.Tensor, w: torch.Tensor) -> Any:
    loss = (w.exp() * x).sum()
    (g,) = grad(loss, w, create_graph=True)
    return loss, g, grad(g.sum(), w)[0]


def not_kept(x: torch.Tensor, w: torch.Tensor) -> Any:
    loss = (w.exp() * x).sum()
    (g,) = grad(loss, w, create_graph=True, retain_graph=False)
    return loss, g


def unused(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = (x * 2).requires_grad_()
    g = grad((y * w).sin().sum(), (y, w), create_graph=True)
    return grad(g[0].sum(), (y, w), allow_unused=True, create_graph=True)


def seeded(x: torch.Tensor, w: torch.Tensor) -> Any:
    return grad(torch.exp(w) * x, w, w * 2, create_graph=True)


@pytest.mark.parametrize("function", [separate, sharing, freed, not_kept, unused, seeded])
def test_results_are_differentiated_in_any_order_as_in_eager(function: Any) -> None:
    jitted = graftjit.jit(function)
    count = len(function(torch.ones(3), torch.ones(3, requires_grad=True)))
    for order in itertools.permutations(range(count)):
        logs, texts = [], []
        for run in (function, jitted):
            torch.manual_seed(1)
            x, w = torch.randn(3), torch.randn(3, requires_grad=True)
            results, log = run(x, w), []
            for at in order:
                try:
                    results[at].sum().backward()
                    texts.append("")
                except RuntimeError as error:
                    texts.append(str(error))
                log.append(None if w.grad is None else w.grad.clone())
            logs.append(log + [one.detach() for one in results])
        torch.testing.assert_close(logs[1], logs[0])
        assert texts[:count] == texts[count:]
    assert not jitted.report().break_count


def dependent(x: torch.Tensor, w: torch.Tensor) -> Any:
    (g,) = grad((w.exp() * x).sin().sum(), w, create_graph=True)
    h = g * w
    return g, h.sum(), (h * g).sum()


def dependent_on_a_view(x: torch.Tensor, w: torch.Tensor) -> Any:
    (g,) = grad((w.exp() * x).sin().sum(), w, create_graph=True)
    v = g.view(-1)
    return v, (v * w).sum(), g


def dependent_on_a_function(x: torch.Tensor, w: torch.Tensor) -> Any:
    g = graftjit.grad(lambda z: (z.exp() * x).sin().sum())(w)
    return g, (g * g).sum()


def before_the_backward(x: torch.Tensor, w: torch.Tensor) -> Any:
    loss = (w.exp() * x).sum()
    (g,) = grad(loss, w, create_graph=True)
    return loss, loss * 2 + (g * g).sum()


DEPENDENT = [dependent, dependent_on_a_view, dependent_on_a_function]


@pytest.mark.parametrize("function", [*DEPENDENT, before_the_backward])
@pytest.mark.parametrize("twice", [False, True])
def test_results_that_depend_on_a_gradient(function: Any, twice: bool) -> None:
    jitted = graftjit.jit(function)
    count = len(function(torch.ones(3), torch.ones(3, requires_grad=True)))
    for order in itertools.permutations(range(count)):
        logs = []
        for run in (function, jitted):
            torch.manual_seed(1)
            x, w = torch.randn(3).double(), torch.randn(3).double().requires_grad_()
            results, log = run(x, w), []
            last = results[order[-1]].sum()
            log += [*grad(last, results[order[0]], retain_graph=True, allow_unused=True)]
            for at in order:
                (found,) = grad(results[at].sum(), w, create_graph=twice, retain_graph=True)
                log += [found, *(grad(found.exp().sum(), w, retain_graph=True) if twice else ())]
            logs.append(log + [one.detach() for one in results])
        torch.testing.assert_close(logs[1], logs[0])
    report = jitted.report()
    assert not report.break_count and ("FB301" in str(report)) == (function not in DEPENDENT), (
        report
    )


# -- leaves that the frame makes
def read_inside(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = (x * 2).requires_grad_()
    (y * w).sin().sum().backward()
    first = y.grad
    (y * 3).sum().backward()
    return first, y.grad, first is y.grad


def of_an_input(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = x.detach().requires_grad_()
    (g,) = grad((y * w).sin().sum(), y, create_graph=True)
    return (g * g).sum()


def of_a_value_with_history(x: torch.Tensor, w: torch.Tensor) -> Any:
    h = x * w
    y = h.detach().requires_grad_()
    (g,) = grad((y * w).sin().sum(), y, create_graph=True)
    return (g * g).sum() + h.sum()


def set_as_an_attribute(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = x * 2
    y.requires_grad = True
    (y * w).sin().sum().backward()
    return y.grad * 2


def from_a_factory(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = torch.ones(3, requires_grad=True)
    (y * w).sin().sum().backward()
    return y.grad * 2


def written(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = (x * 2).requires_grad_()
    with torch.no_grad():
        y.add_(1)
    (g,) = grad((y * w).sin().sum(), y, create_graph=True)
    return (g * g).sum()


def returned(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = (x * 2).requires_grad_()
    return (y * w).sin().sum(), y


def returned_with_gradient(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = (x * 2).requires_grad_()
    (y * w).sin().sum().backward()
    return y


def returned_in_a_view(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = (x * 2).requires_grad_()
    return y.view(-1), (y * w).sum()


def over_a_break(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = (x * 2).requires_grad_()
    loss = (y * w).sin().sum()
    loss.backward()
    print(end="")
    (y * w).sum().backward()
    return y.grad * 2, y


INSIDE = [read_inside, of_an_input, of_a_value_with_history, set_as_an_attribute, from_a_factory, written]  # fmt: skip
OUTSIDE = [returned, returned_with_gradient, returned_in_a_view, over_a_break]


@pytest.mark.parametrize("function", [*INSIDE, *OUTSIDE])
def test_a_leaf_that_the_frame_makes(function: Any) -> None:
    jitted = graftjit.jit(function)
    for number in range(3):
        logs = []
        for run in (function, jitted):
            torch.manual_seed(number)
            x, w = torch.randn(3), torch.randn(3, requires_grad=True)
            results = tensors(run(x, w))
            log = [one.grad for one in results if one.is_leaf]
            log += [torch.tensor([one.requires_grad, one.is_leaf]) for one in results]
            differentiable = [one.sum() for one in results if one.requires_grad]
            if differentiable:
                sum(differentiable).backward()
            logs.append([*log, *[one.grad for one in results if one.is_leaf], *results, w.grad])
        torch.testing.assert_close(logs[1], logs[0])
    report = jitted.report()
    assert report.break_count == 0 if function in INSIDE else "GB114" in str(report), report


def test_what_requires_no_gradient_raises_as_in_eager() -> None:
    def integers(x: torch.Tensor) -> torch.Tensor:
        return (x > 0).requires_grad_()

    def of_a_result(w: torch.Tensor) -> torch.Tensor:
        return (w * 2).requires_grad_(False)

    w = torch.ones(3, requires_grad=True)
    for function in (integers, of_a_result):
        with pytest.raises(RuntimeError) as expected:
            function(copy.copy(w))
        with pytest.raises(RuntimeError) as found:
            graftjit.jit(function)(w)
        assert str(found.value) == str(expected.value)


# -- torch.autograd.functional and torch.func
def _total(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x * x.flip(0)).sin().sum()


def _vector(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x * x.flip(0)).sin()


ONES = torch.ones(3)
FUNCTIONALS: dict[str, Callable[[torch.Tensor], Any]] = {
    "hessian": lambda x: torch.autograd.functional.hessian(_total, x),
    "jacobian": lambda x: torch.autograd.functional.jacobian(_vector, x),
    "batched hessian": lambda x: torch.autograd.functional.hessian(_total, x, vectorize=True),
    "batched jacobian": lambda x: torch.autograd.functional.jacobian(_vector, x, vectorize=True),
    "func.vjp": lambda x: torch.func.vjp(_vector, x)[1](ONES),
    "hvp": lambda x: torch.autograd.functional.hvp(_total, x, ONES),
    "vhp": lambda x: torch.autograd.functional.vhp(_total, x, ONES),
    "vjp": lambda x: torch.autograd.functional.vjp(_vector, x, ONES),
    "jvp": lambda x: torch.autograd.functional.jvp(_vector, x, ONES),
    "func.hessian": lambda x: torch.func.hessian(_total)(x),
    "func.grad of func.grad": lambda x: torch.func.grad(lambda y: torch.func.grad(_total)(y).sum())(x),
    "func.jvp of func.grad": lambda x: torch.func.jvp(torch.func.grad(_total), (x,), (ONES,)),
    "zeros in place of None": lambda x: grad(
        _total(y := x.detach().requires_grad_()), (y, y * 2), materialize_grads=True
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONALS)
def test_derivatives_as_functions_are_one_graph(name: str) -> None:
    function = FUNCTIONALS[name]
    jitted = graftjit.jit(function)
    for number in range(2):
        torch.manual_seed(number)
        x = torch.randn(3)
        expected = tensors(function(x))  # first: torch warns when it loads forward mode
        found = tensors(jitted(x))
        torch.testing.assert_close(found, expected)
        assert not any(one.requires_grad for one in found)
    assert not jitted.report().break_count, jitted.report()


@pytest.mark.parametrize("name", ["hessian", "jvp", "hvp", "batched hessian"])
def test_derivatives_as_functions_that_are_differentiated(name: str) -> None:
    batched, call = "batched" in name, getattr(torch.autograd.functional, name.split()[-1])
    inner, more = (_vector, (ONES,)) if name == "jvp" else (_total, (ONES,) * (name == "hvp"))
    options = {"create_graph": True, **({"vectorize": True} if batched else {})}

    def function(x: torch.Tensor) -> torch.Tensor:
        return sum(one.square().sum() for one in tensors(call(inner, x, *more, **options)))

    jitted, found = graftjit.jit(function), []
    for run in (function, jitted, jitted):
        x = torch.linspace(-1, 1, 3).requires_grad_()
        run(x).backward()
        found.append(x.grad)
    torch.testing.assert_close(found[1:], found[:1] * 2)
    assert not jitted.report().break_count, jitted.report()


def of_weights(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = (w.exp() * x).sin()
    rows = grad(
        y, (w, x), torch.eye(3), is_grads_batched=True, allow_unused=True, create_graph=True
    )
    return grad(rows[0].square().sum(), w)


def unused_in_a_batch(x: torch.Tensor, w: torch.Tensor) -> Any:
    y, z = (w * x).sin(), w * 2
    rows = grad((y,), (w, z), (torch.eye(3),), is_grads_batched=True, allow_unused=True)
    return rows[0], torch.tensor(rows[1] is None)


def without_a_batch(x: torch.Tensor, w: torch.Tensor) -> Any:
    try:
        return grad((w * x).sin(), w, torch.ones(()), is_grads_batched=True)
    except (RuntimeError, IndexError) as error:
        return torch.tensor(len(str(error)))


@pytest.mark.parametrize("function", [of_weights, unused_in_a_batch, without_a_batch])
def test_a_batch_of_gradients(function: Any) -> None:
    jitted = graftjit.jit(function)
    for number in range(2):
        torch.manual_seed(number)
        x, w = (torch.randn(3, requires_grad=True) for _ in range(2))
        torch.testing.assert_close(tensors(jitted(x, w)), tensors(function(x, w)))
    assert bool(jitted.report().break_count) == (function is without_a_batch), jitted.report()
