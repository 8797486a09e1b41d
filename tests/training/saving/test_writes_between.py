"""Writes between forward and backward: each result's backward raises where eager mode raises, and
reads what eager mode reads."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import graftjit

T = torch.Tensor
again = functools.partial(checkpoint, use_reentrant=False)


def computed_again(a: T, b: T) -> Any:
    """The product's backward can compute its factor again from `a`, which only the sine saves."""
    return b * (a + a), a.sin()


def a_copy(a: T, b: T) -> Any:
    return b * a.clone(), a.sin()


def of_a_region(a: T, b: T) -> Any:
    """One region reads `a` when the backward runs, the other gets it as its argument."""
    return again(lambda s: s.exp() * a, b * 0.2), again(lambda s: s.sin() * s, a)


def of_a_region_and_an_operator(a: T, b: T) -> Any:
    return again(lambda s: s.exp() * a, b), a.sin()


def of_an_inner_region(a: T, b: T) -> Any:
    return again(lambda s: s * again(lambda u: u.sin() * s, a), b), a.sin()


def of_a_result(a: T, b: T) -> Any:
    y = b * 2
    return again(lambda s: s.cos() * y, a), y, y.sin()


def a_copy_in_a_region(a: T, b: T) -> Any:
    copy = a.clone()
    return again(lambda s: s.cos() * copy, b), again(lambda s, t: s.cos() * t, b, a * 1)


def views_of_a_copy_in_a_region(a: T, b: T) -> Any:
    copy = a.clone()
    return (again(lambda s: s[:, ::2].cos() * copy[:, ::2], b),)


def a_copy_of_a_result_in_a_region(a: T, b: T) -> Any:
    y = a + 1
    copy = y.clone()
    return again(lambda s: s.cos() * copy, b), y


def of_one_node(a: T, b: T) -> Any:
    """Both read `h`, so they share a node; only the second one reads `b`."""
    h = a.tanh()
    return h.exp(), h * h * b


PROGRAMS = (
    of_one_node,
    computed_again,
    a_copy,
    of_a_region,
    of_a_region_and_an_operator,
    of_an_inner_region,
    of_a_result,
    a_copy_in_a_region,
    views_of_a_copy_in_a_region,
    a_copy_of_a_result_in_a_region,
)


def of_an_unread_argument(a: T, b: T) -> Any:
    """The backward reads `b` alone; eager mode computes the whole region again."""
    return (again(lambda s, t: (s.square(), t.sin())[1], a, b),)


def beside_others(a: T, b: T) -> Any:
    """Only the backward of the first result computes the region again."""
    return again(lambda s, t: (s.square(), t.sin())[1], a, b), a * 2, b.exp(), (a + b).sum()


def of_inner_results(a: T, b: T) -> Any:
    """A result goes into a region, and what comes out is one on which another one depends."""
    h = a * 1.5
    y = again(lambda s: (s.sin() * s).tanh(), h)
    return y, h, y.cumsum(0), again(lambda s, t: s + t, h, b)


def of_two_regions(a: T, b: T) -> Any:
    return again(lambda s, t: s + t, a, b), again(lambda s, t: s.exp() * t.detach(), b, a * 2)


@pytest.mark.parametrize(
    "function", [*PROGRAMS, of_an_unread_argument, beside_others, of_inner_results, of_two_regions]
)
def test_a_write_between_forward_and_backward(function: Any) -> None:
    n = len(function(torch.ones(2, 4), torch.ones(2, 4)))
    jitted = graftjit.jit(function)
    for at in range(n):
        for written in range(-2, n):
            found = [_outcome(each, at, written) for each in (function, jitted)]
            assert type(found[0]) is type(found[1]), (at, written, found)
            if isinstance(found[0], str):
                assert found[0] == found[1], (at, written)
            else:
                torch.testing.assert_close(*found, msg=str((at, written)))
    assert jitted.report().break_count == 0


BATCHED = {
    "one result": lambda a, b: ((a * 2 + 1).sum(0) * b.sum(1, keepdim=True),),
    "what is saved is a result": lambda a, b: ((a.exp() + b).sum(1),),
    "several results": lambda a, b: ((h := (a * 3).tanh()) * 2, (h + b.exp()).sum(), b - 1),
}


@pytest.mark.parametrize("name", BATCHED)
def test_batched_gradients_after_a_write_to_what_eager_mode_does_not_save(name: str) -> None:
    """The calls of the region would run with other values."""
    function, jitted = BATCHED[name], graftjit.jit(BATCHED[name])
    n = len(function(torch.ones(2, 4), torch.ones(2, 4)))
    for at in range(n):
        found = [_outcome(each, at, -1, batched=True) for each in (function, jitted)]
        assert not isinstance(found[0], str)
        torch.testing.assert_close(*found)


def _outcome(function: Any, at: int, written: int, batched: bool = False) -> Any:
    """The gradients of a result after a write to a result, or to an argument (~position)."""
    generator = torch.Generator().manual_seed(0)
    leaves = [torch.randn(2, 4, generator=generator).requires_grad_() for _ in range(2)]
    results = function(*leaves)
    (results[written] if written >= 0 else leaves[~written]).detach().mul_(1.25)
    weights = torch.ones_like(results[at])
    weights = torch.stack([weights, weights * 2]) if batched else weights
    try:
        return torch.autograd.grad(
            results[at], leaves, weights, allow_unused=True, is_grads_batched=batched
        )
    except RuntimeError as error:
        return str(error).split(":")[0]
