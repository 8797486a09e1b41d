"""Assertions on tensor data: one graph, and the exception of plain Python where one fails."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import distributions

from graftjit import jit

from ..harness import t


def outcome(fn: Any, *args: Any) -> Any:
    torch.manual_seed(0)
    random.seed(0)
    try:
        found = fn(*args)
    except Exception as error:
        # pytest writes addresses into messages of assertions.
        found = type(error).__name__, isinstance(error, AssertionError) or str(error)
    state = torch.get_rng_state(), hash(random.getstate())
    return found, state


def same(fn: Any, good: Any, bad: Any, breaks: int = 0) -> None:
    """The function does the same jitted, for arguments for which it raises and others."""
    run = jit(fn)
    for args in (good, good, bad, good, bad):
        args = [one.clone() if isinstance(one, torch.Tensor) else one for one in args]
        copies = [one.clone() if isinstance(one, torch.Tensor) else one for one in args]
        (wanted, states), (got, states_after) = outcome(fn, *args), outcome(run, *copies)
        if isinstance(wanted, torch.Tensor):
            torch.testing.assert_close(got, wanted, equal_nan=True)
        else:
            assert wanted == got
        assert torch.equal(states[0], states_after[0])
        assert states[1] == states_after[1]
        for one, other in zip(args, copies, strict=True):
            torch.testing.assert_close(one, other, equal_nan=True)
    report = run.report()
    assert report.break_count == breaks, report


def x23() -> torch.Tensor:
    return t(2, 3) + 3


# Compiled here, since pytest writes assertions anew.
_ASSERTS = """
def asserts(x):
    assert (x @ x.T > 0).all(), f"not positive: {x.shape}"
    return x * 2
"""
_SCOPE: dict[str, Any] = {}
exec(_ASSERTS, _SCOPE)
asserts = _SCOPE["asserts"]


def raises_for_nan(x):
    y = torch.sin(x).exp() @ x.T
    if torch.isnan(y).any():
        raise ValueError("nan")
    return y * 2


def caught(x):
    try:
        if not torch.isfinite(x @ x.T).all():
            raise ValueError("not finite")
        y = x + 1
    except ValueError:
        y = x * 0
    return y.nan_to_num()


def inside_a_function(x):
    def checked(y):
        if (y < 0).any():
            raise RuntimeError("negative")
        return y.sqrt()

    return checked(x @ x.T) + 1


def after_a_write(x):
    x.add_(1)
    if not (x @ x.T > 0).all():
        raise ValueError("not positive")
    return x


def between_random_numbers(x):
    y = x * torch.rand(3) * random.random()
    if not (y @ y.T >= 0).all():
        raise ValueError("negative")
    return y + torch.rand(3)


@pytest.mark.parametrize(
    "fn",
    [asserts, raises_for_nan, caught, inside_a_function, after_a_write, between_random_numbers],
)
@pytest.mark.parametrize("wrong", [-100.0, float("nan")])
def test_a_way_that_only_raises(fn, wrong):
    bad = x23()
    bad[0, 0] = wrong
    # A branch whose exception the frame catches decides how the frame goes on.
    same(fn, [x23()], [bad], breaks=int(fn is caught))


def test_two_ways_that_go_on_are_a_break():
    def f(x):
        y = x + 1
        if (x @ x.T > 0).all():
            y = y[:1] * 2
        return y

    bad = x23()
    bad[0, 0] = -100
    same(f, [x23()], [bad], breaks=1)


def normal(x):
    return distributions.Normal(x, x.exp()).log_prob(x + 0.5).sum()


def categorical(x):
    made = distributions.Categorical(logits=x)
    return made.entropy() + made.log_prob(made.sample())


def sampled(x):
    return distributions.Normal(x, 1.0).rsample()


def divergence(x):
    other = distributions.Normal(torch.zeros_like(x), 2.0)
    return distributions.kl_divergence(distributions.Normal(x, 1.0), other).mean()


def independent(x):
    return distributions.Independent(distributions.Normal(x, x.exp()), 1).log_prob(x)


def bernoulli(x):
    return distributions.Bernoulli(logits=x).log_prob((x > 3).float())


def beta(x):
    return distributions.Beta(x, x + 1).mean


@pytest.mark.parametrize(
    "fn", [normal, categorical, sampled, divergence, independent, bernoulli, beta]
)
def test_distributions_check_their_arguments(fn):
    bad = x23()
    bad[0, 0] = float("nan")
    same(fn, [x23()], [bad])


def test_gradients_beside_an_assertion():
    run, x = jit(normal), x23().requires_grad_()
    for _ in range(2):
        (wanted,) = torch.autograd.grad(normal(x), x)
        (got,) = torch.autograd.grad(run(x), x)
        torch.testing.assert_close(got, wanted)
    assert run.report().break_count == 0


def test_a_rule_that_is_registered_later():
    class Own(distributions.Normal):
        pass

    def f(x):
        return distributions.kl_divergence(Own(x, 1.0), Own(x + 1, 1.0)).sum()

    run, x = jit(f), x23()
    torch.testing.assert_close(run(x), f(x))
    distributions.kl.register_kl(Own, Own)(lambda p, q: p.loc * 0)
    torch.testing.assert_close(run(x), f(x))
