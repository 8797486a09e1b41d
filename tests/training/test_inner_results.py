"""A result of a part that another result of it depends on: its gradient, watched as in eager."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import graftjit


def t(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def with_sum(x: torch.Tensor) -> Any:
    y = torch.sin(x)
    return y, (y * x).sum()


def chain(x: torch.Tensor) -> Any:
    a = x.exp()
    b = a * x
    return b.sum(), a, b


def cell(x: torch.Tensor) -> Any:
    c = (x * 2).tanh()
    return c.sigmoid() * c.tanh(), c


def dropped(x: torch.Tensor) -> Any:
    y = torch.nn.functional.dropout(x * 2, 0.5)
    return y, y.square().sum()


def written(x: torch.Tensor) -> Any:
    x = x * 1
    x.mul_(3)
    return x, (x * x).sum()


def apart(x: torch.Tensor) -> Any:
    return x.sin(), x.cos().sum()


def beside_a_view(x: torch.Tensor) -> Any:
    y = x.sin()
    return y[0], y.cos().sum()


def shared(x: torch.Tensor) -> Any:
    """Both results need what `h` saves; one depends on the other."""
    h = torch.sin(x)
    y = h * h
    return y, (y * h).sum()


PROGRAMS = [with_sum, chain, cell, dropped, written, shared]


def total(found: Any, direct: bool) -> torch.Tensor:
    """Of the results; without `direct` of those alone that nothing depends on."""
    last = [found[0]] if found[0].dim() == 0 or len(found) == 2 and found[1].dim() else [found[1]]
    return sum((one * 3).sum() for one in (found if direct else last))  # type: ignore[return-value]


def run(fn: Any, watch: Callable[[Any, list[Any]], Any], direct: bool) -> list[Any]:
    torch.manual_seed(3)
    x, seen = t(4, 3), list[Any]()
    found = fn(x)
    kept = watch(found, seen)
    total(found, direct).backward()
    grads = [one.grad for one in found if one.retains_grad]
    assert kept is not found
    return [x.grad, *grads, *seen]


def hooks(found: Any, seen: list[Any]) -> None:
    for one in found:
        one.register_hook(lambda g: seen.append(g.clone()))


def changes(found: Any, seen: list[Any]) -> None:
    for one in found:
        one.register_hook(lambda g: g * 2)
        one.register_hook(lambda g: seen.append(g.clone()))


def retains(found: Any, seen: list[Any]) -> None:
    for one in found:
        one.retain_grad()


def both(found: Any, seen: list[Any]) -> None:
    changes(found, seen)
    retains(found, seen)


def removed(found: Any, seen: list[Any]) -> None:
    for one in found:
        one.register_hook(lambda g: g * 7).remove()


def nobody(found: Any, seen: list[Any]) -> None:
    pass


def check(ours: list[Any], theirs: list[Any]) -> None:
    key = lambda g: (g.dim(), g.sum().item())  # noqa: E731  # results that do not depend on each other come in any order
    torch.testing.assert_close(ours[0], theirs[0])
    assert [g is None for g in ours] == [g is None for g in theirs]
    torch.testing.assert_close(sorted(ours[1:], key=key), sorted(theirs[1:], key=key))


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("watch", [hooks, changes, retains, both, removed, nobody])
@pytest.mark.parametrize("function", PROGRAMS)
def test_the_gradient_of_an_inner_result(function: Any, watch: Any, direct: bool) -> None:
    jitted = graftjit.jit(function)
    theirs = run(function, watch, direct)
    for _ in range(2):
        check(run(jitted, watch, direct), theirs)
    assert "FB317" not in str(jitted.report())  # each result has its node, and autograd its hooks


def test_retained_gradients_add_up() -> None:
    found = []
    for function in (with_sum, graftjit.jit(with_sum)):
        x = t(4)
        y, loss = function(x)
        y.retain_grad()
        (loss + y.sum()).backward(retain_graph=True)
        loss.backward()
        found.append((y.grad, x.grad))
    torch.testing.assert_close(found[1], found[0])


def test_double_backward_through_a_hook() -> None:
    found = []
    for function in (with_sum, graftjit.jit(with_sum)):
        x = t(4)
        y, loss = function(x)
        y.register_hook(lambda g: g * g)
        (g,) = torch.autograd.grad(loss, x, create_graph=True)
        found.append((g, torch.autograd.grad(g.sum(), x)))
    torch.testing.assert_close(found[1], found[0])


def test_hooks_where_autograd_stops_at_the_result() -> None:
    y, _ = graftjit.jit(with_sum)(t(4))
    y.register_hook(lambda g: g * 5)
    assert torch.autograd.grad(y.sum(), y)[0].tolist() == [5] * 4


@pytest.mark.parametrize("function", [apart, beside_a_view])
def test_results_apart_stay_with_their_program(function: Any) -> None:
    jitted = graftjit.jit(function)
    check(run(jitted, hooks, True), run(function, hooks, True))
    assert "FB317" not in str(jitted.report())


def test_what_is_watched_is_let_go() -> None:
    y, loss = graftjit.jit(with_sum)(t(4))
    y.register_hook(lambda g: None)
    gone = weakref.ref(y.grad_fn)
    gc.disable()
    try:
        loss.backward()
        del y, loss
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("several", (False, True))
def test_a_saved_result_that_no_gradient_reads(several: bool) -> None:
    """The formula of `prod` asks for its result, whose version autograd compares, and may compute the gradient without it."""

    def f(x: torch.Tensor) -> Any:
        y = (x * 0.1 + 1).prod(1)
        return (y, (x * x).mean(1)) if several else (y,)

    for function in (f, graftjit.jit(f)):
        x = t(3, 2)
        found = function(x)
        with torch.no_grad():
            found[0].mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            found[0].sum().backward()


def passed_on(x: torch.Tensor, w: torch.Tensor) -> Any:
    view = x[:]
    y = w + view
    return y, view, y.sin()


def passed_on_twice(x: torch.Tensor, w: torch.Tensor) -> Any:
    view, other = x.unsqueeze(0), w[None]
    y = other + view
    return view, y, other, (y * y).sum()


@pytest.mark.parametrize("fn", [passed_on, passed_on_twice])
def test_a_result_passes_its_whole_gradient_on_to_a_view(fn: Any) -> None:
    """The view's gradient is that of `y`, and not what `y` and the results behind it add to it."""
    jitted = graftjit.jit(fn)
    for at in range(len(fn(t(4), t(4)))):
        found = []
        for f in (fn, jitted):
            x, w = t(4), t(4)
            made = f(x, w)
            weight = made[at].detach().cos()
            found.append(torch.autograd.grad(made[at], [*made, x, w], weight, allow_unused=True))
        torch.testing.assert_close(*found)
