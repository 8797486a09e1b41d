"""`backward(create_graph=True)` inside a frame: gradients in `.grad` that have a history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import graftjit

from ..beside import tensors

pytestmark = pytest.mark.filterwarnings("ignore:Using backward")


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1)).double()


def penalty_inside(model: nn.Module, opt: Any, x: torch.Tensor) -> Any:
    opt.zero_grad()
    loss = model(x).square().mean()
    loss.backward(create_graph=True)
    penalty = sum(p.grad.norm() for p in model.parameters())
    (0.1 * penalty).backward()
    opt.step()
    return loss.detach(), penalty.detach()


def penalty_outside(model: nn.Module, opt: Any, x: torch.Tensor) -> Any:
    opt.zero_grad()
    loss = model(x).square().mean()
    loss.backward(create_graph=True)
    return loss.detach()


def accumulated(model: nn.Module, opt: Any, x: torch.Tensor) -> Any:
    opt.zero_grad()
    model(x).square().mean().backward()
    plain = [p.grad for p in model.parameters()]
    model(x + 1).pow(3).mean().backward(create_graph=True)
    same = [p.grad is one for p, one in zip(model.parameters(), plain, strict=True)]
    model(x - 1).pow(3).mean().backward(create_graph=True)
    return torch.tensor(same), plain


def added_in_place(model: nn.Module, opt: Any, x: torch.Tensor) -> Any:
    opt.zero_grad()
    model(x).square().mean().backward(create_graph=True)
    kept = [p.grad for p in model.parameters()]
    model(x + 1).pow(3).mean().backward()
    return torch.tensor([p.grad is one for p, one in zip(model.parameters(), kept, strict=True)])


def hutchinson(model: nn.Module, opt: Any, x: torch.Tensor) -> Any:
    opt.zero_grad()
    weights = list(model.parameters())
    F.mse_loss(model(x), x[:, :1]).backward(create_graph=True)
    signs = [torch.randint_like(p, 2) * 2 - 1 for p in weights]
    products = torch.autograd.grad([p.grad for p in weights], weights, signs)
    with torch.no_grad():
        for p, sign, product in zip(weights, signs, products, strict=True):
            p -= 0.1 * p.grad / (sign * product).abs().clamp(min=0.1)
    return products


def of_inputs(model: nn.Module, opt: Any, x: torch.Tensor) -> Any:
    first, *_, last = model.parameters()
    loss = model(x).square().mean()
    loss.backward(inputs=[first], create_graph=True)
    torch.autograd.backward(first.grad.square().sum(), inputs=last, retain_graph=True)
    return loss.detach()


def of_a_leaf_of_the_frame(model: nn.Module, opt: Any, x: torch.Tensor) -> Any:
    y = (x * 2).requires_grad_()
    model(y).sin().sum().backward(create_graph=True)
    return y.grad.square().sum()


def set_by_hand(model: nn.Module, opt: Any, x: torch.Tensor) -> Any:
    (weight, *_) = model.parameters()
    (found,) = torch.autograd.grad(model(x).exp().mean(), weight, create_graph=True)
    weight.grad = found * 2
    return weight.grad is found


FUNCTIONS: list[Callable[..., Any]] = [
    penalty_inside, penalty_outside, accumulated, added_in_place, hutchinson, of_inputs,
    of_a_leaf_of_the_frame, set_by_hand,
]  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS)
def test_gradients_with_a_history_are_stored_as_in_eager(function: Callable[..., Any]) -> None:
    jitted = graftjit.jit(function)
    models = [net(), net()]
    opts = [torch.optim.SGD(model.parameters(), lr=0.05) for model in models]
    for number in range(3):
        found = []
        for run, model, opt in zip((function, jitted), models, opts, strict=True):
            torch.manual_seed(number)
            results = tensors(run(model, opt, torch.randn(4, 3).double()))
            grads = [p.grad for p in model.parameters() if p.grad is not None]
            facts = [(one.requires_grad, type(one.grad_fn).__name__) for one in grads]
            tail = sum(one.norm() for one in [*grads, *results] if one.requires_grad)
            try:
                if isinstance(tail, torch.Tensor):
                    tail.backward()
                text = ""
            except RuntimeError as error:
                text = str(error).split(";")[0]
            grads = [
                None if p.grad is None else p.grad.detach().clone() for p in model.parameters()
            ]
            found.append(
                (facts, text, grads, [one.detach() for one in results], model.state_dict())
            )
            for p in model.parameters():
                p.grad = None
        torch.testing.assert_close(found[1][2:], found[0][2:])
        assert found[1][:2] == found[0][:2]
    report = jitted.report()
    assert not report.break_count and "FB3" not in str(report), report


def product(a: torch.Tensor, b: torch.Tensor) -> Any:
    """Autograd adds to `a.grad` before it runs the node that has saved it."""
    (a * b).sum().backward(create_graph=True)
    ((a.grad**2).sum() + (a * 5).sum()).backward()


def test_a_gradient_that_autograd_writes_before_it_is_read() -> None:
    """That backward is a break, and Python runs it. Where the calls run one by one it raises as in
    eager mode; the one node of a compiled region has read the gradient by then."""
    replayed = graftjit.jit(product, config=graftjit.JitConfig(jit_level="O0"))
    for run in (product, replayed):
        a, b = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            run(a, b)
    jitted = graftjit.jit(product)
    a, b = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    jitted(a, b)
    torch.testing.assert_close((a.grad, b.grad), (torch.full((3,), 6.0), torch.full((3,), 3.0)))
    assert [one.code for one in jitted.report().breaks] == ["GB108"], jitted.report()


def test_the_warning_about_cycles_comes_as_often_as_in_eager() -> None:
    jitted = graftjit.jit(penalty_outside)
    model = net()
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.set_warn_always(True)
    try:
        for _ in range(3):
            with pytest.warns(UserWarning, match="reference cycle"):
                jitted(model, opt, torch.ones(4, 3).double())
    finally:
        torch.set_warn_always(False)
