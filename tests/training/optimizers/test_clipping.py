"""Gradient clipping inside of a jitted training step, beside plain Python: gradients, the norm that is returned, exceptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import (
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)

import graftjit

from ..steps import Beside, batch, model

INF = float("inf")


def gradients(net: Any) -> list[Any]:
    return [p.grad for p in net.parameters() if p.grad is not None]


CLIPS: dict[str, Callable[[Any], Any]] = {
    "2": lambda net: clip_grad_norm_(net.parameters(), 0.1),
    "inf": lambda net: clip_grad_norm_(net.parameters(), 0.1, INF),
    "least": lambda net: clip_grad_norm_(net.parameters(), 0.1, -INF),
    "text": lambda net: clip_grad_norm_(list(net.parameters()), 0.1, "inf"),
    "1": lambda net: clip_grad_norm_(net.parameters(), 0.1, 1),
    "3": lambda net: clip_grad_norm_(net.parameters(), 0.1, norm_type=3.0),
    "0": lambda net: clip_grad_norm_(net.parameters(), 0.1, 0),
    "half": lambda net: clip_grad_norm_(net.parameters(), 0.1, 0.5),
    "lists": lambda net: clip_grad_norm_(net.parameters(), 0.1, foreach=True),
    "one by one": lambda net: clip_grad_norm_(net.parameters(), 0.1, foreach=False),
    "one tensor": lambda net: clip_grad_norm_(net[0].weight, 0.1),
    "nothing to do": lambda net: clip_grad_norm_(net.parameters(), 100.0),
    "no tensors": lambda net: clip_grad_norm_([], 0.1),
    "value": lambda net: clip_grad_value_(net.parameters(), 0.01),
    "value, lists": lambda net: clip_grad_value_(net.parameters(), 0.01, foreach=True),
    "value, one by one": lambda net: clip_grad_value_(net.parameters(), 0.01, foreach=False),
    "total": lambda net: get_total_norm(gradients(net)),
    "total and then": lambda net: clip_grads_with_norm_(
        net.parameters(), 0.1, get_total_norm(gradients(net), INF, foreach=False), foreach=False
    ),
}


def step_with(clip: Callable[[Any], Any]) -> Any:
    def step(net: Any, opt: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
        opt.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        norm = clip(net)
        opt.step()
        return loss, norm

    return step


@pytest.mark.parametrize("clip", CLIPS)
def test_in_the_graph(clip: str) -> None:
    both = Beside(step_with(CLIPS[clip]), "adam")
    for number in range(4):
        both.run(number)
    both.whole()


def test_equal_to_the_bit_without_fusion() -> None:
    both = Beside(step_with(CLIPS["2"]), config=graftjit.JitConfig(jit_level="O0"))
    for number in range(3):
        (loss, norm), (other, theirs) = (
            fn(net, opt, *batch(number))
            for fn, net, opt in zip((both.jitted, both.function), both.nets, both.opts, strict=True)
        )
        assert torch.equal(loss, other)
        assert torch.equal(norm, theirs)
    for p, q in zip(both.nets[0].parameters(), both.nets[1].parameters(), strict=True):
        assert torch.equal(p, q)


def test_a_norm_that_is_not_finite() -> None:
    def step(net: Any, opt: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
        opt.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        norm = clip_grad_norm_(net.parameters(), 0.1, error_if_nonfinite=True)
        opt.step()
        return loss, norm

    both = Beside(step)
    for number in range(3):
        both.run(number)
    said = []
    for fn, net, opt in zip((both.jitted, step), both.nets, both.opts, strict=True):
        with pytest.raises(RuntimeError, match="non-finite") as raised:
            fn(net, opt, torch.full((5, 4), INF), torch.ones(5, 1))
        said.append(str(raised.value))
    assert said[0] == said[1]
    both.run(4)
    assert not both.jitted.report().breaks


def test_gradients_of_several_dtypes() -> None:
    def make() -> nn.Module:
        net = model()
        net.append(nn.Linear(1, 1).double())
        return net

    def step(net: Any, opt: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
        opt.zero_grad()
        loss = ((net[3](net[:3](x).double()) - y) ** 2).mean()
        loss.backward()
        norm = clip_grad_norm_(net.parameters(), 0.1)
        opt.step()
        return loss, norm

    both = Beside(step, make=make)
    for number in range(3):
        both.run(number)
    both.whole()


def test_a_bound_that_varies_and_lists_that_are_refused() -> None:
    def scaled(xs: list[torch.Tensor], by: Any) -> Any:
        torch._foreach_mul_(xs, by)
        return torch._foreach_norm(xs)

    jitted = graftjit.jit(scaled)
    for by in (2.0, 3.0, 0.5, torch.tensor(2.0), torch.tensor([2.0]), [1.0, 2.0]):
        ours, theirs = ([torch.arange(3.0), torch.ones(2, 2)] for _ in range(2))
        found = []
        for fn, xs in ((jitted, ours), (scaled, theirs)):
            try:
                found.append(fn(xs, by))
            except RuntimeError as error:
                found.append(str(error))
        torch.testing.assert_close(ours, theirs)
        if isinstance(found[1], str):
            assert found[0] == found[1]
        else:
            torch.testing.assert_close(found[0], found[1])


LISTS = {
    "maximum": lambda xs, ys: torch._foreach_maximum(xs, ys),
    "number": lambda xs, ys: torch._foreach_mul([x * 1 for x in xs], 0.5),
    "in place": lambda xs, ys: (made := [x * 1 for x in xs], torch._foreach_mul_(made, 0.5))[0],
    "norm": lambda xs, ys: torch._foreach_norm(xs),
    "detached": lambda xs, ys: torch._foreach_add([x.detach() for x in xs], 2.0),
}


@pytest.mark.parametrize("name", LISTS)
def test_lists_that_autograd_follows(name: str) -> None:
    """List operators have formulas of their own: where both operands of a maximum are equal, each
    gets half of the gradient; a product with a number saves nothing that a backward frees."""
    found = []
    for run in (LISTS[name], graftjit.jit(LISTS[name])):
        xs = [torch.ones(3, requires_grad=True), torch.arange(2.0).requires_grad_()]
        ys = [torch.ones(3, requires_grad=True), torch.ones(2, requires_grad=True)]
        made = run(xs, ys)
        kinds = [type(one.grad_fn).__name__ for one in made]
        if made[0].requires_grad:
            total = sum(one.sum() for one in made)
            total.backward(retain_graph=True)
        found.append(str((made, kinds, [one.grad for one in (*xs, *ys)])))
    assert found[0] == found[1]
