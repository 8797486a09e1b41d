"""Results that share a value and lead to different histories: a backward of one of them runs what eager runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import graftjit

T = torch.Tensor


def heads(x: T, w: T) -> Any:
    h = torch.tanh(x)
    return h.exp(), h * h * w


def three_heads(x: T, w: T, v: T) -> Any:
    h = torch.tanh(x)
    return h.exp(), h * h * w, h * v.sin()


def normalised(x: T, w: T) -> Any:
    h = F.layer_norm(x, (4,))
    return h.sin(), h * h * w


def in_steps(x: T, w: T) -> Any:
    h = torch.tanh(x)
    k = (h.sin() * h).cos()
    return (k * h).sum(), k * w * h


def two_of_three(x: T, w: T) -> Any:
    h = torch.tanh(x)
    y = h * w
    return y.exp(), y * h, h.sin()


def beside_inner_results(x: T, w: T) -> Any:
    y, h = torch.tanh(x), x.sin()
    z = y * w
    return y, h * h * y, h.cos() * z, z.exp()


PROGRAMS = (heads, three_heads, normalised, in_steps, two_of_three, beside_inner_results)
CASES = [
    (one, at)
    for one in PROGRAMS
    for at in range(len(one(*[torch.ones(2, 4)] * len(inspect.signature(one).parameters))))
]


def run(function: Callable[..., Any], made: Any, at: int) -> tuple[list[Any], list[Any]]:
    """Which hooks a backward of one result calls, and with what; and the gradients."""
    generator = torch.Generator().manual_seed(0)
    names = inspect.signature(function).parameters
    leaves = [torch.rand(2, 4, generator=generator).requires_grad_() for _ in names]
    inputs = [leaf * leaf for leaf in leaves]
    heard: list[Any] = []
    for name, one in zip(names, inputs, strict=True):
        one.register_hook(lambda g, name=name: heard.append((name, g)))
    made(*inputs)[at].sum().backward()
    return heard, [leaf.grad for leaf in leaves]


@pytest.mark.parametrize(("function", "at"), CASES)
def test_a_backward_calls_the_hooks_that_eagers_calls(function: Any, at: int) -> None:
    jitted = graftjit.jit(function)
    for _ in range(2):
        (heard, gradients), (found, ours) = run(function, function, at), run(function, jitted, at)
        assert [name for name, _ in found] == [name for name, _ in heard]
        for a, b in zip(
            [*(g for _, g in found), *ours], [*(g for _, g in heard), *gradients], strict=True
        ):
            assert (a is None) == (b is None)
            if a is not None:
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert not jitted.report().breaks


def test_a_history_that_is_freed_and_that_another_result_leads_to() -> None:
    jitted = graftjit.jit(heads)
    for function in (heads, jitted, jitted):
        x, w = (torch.ones(3, requires_grad=True) for _ in range(2))
        before = w * w
        result = function(x, before)[0].sum()
        before.sum().backward()
        result.backward()  # does not raise
        assert x.grad is not None
    assert "FB301" not in str(jitted.report())


def test_what_a_torch_function_shares_inside_is_not_parted() -> None:
    """Its calls run under autograd."""
    generator = torch.Generator().manual_seed(0)
    p, b, o = (torch.rand(*size, generator=generator) for size in ((12, 4), (12,), (4, 4)))

    def attention(x: T, w: T) -> Any:
        return F.multi_head_attention_forward(
            x, x, w, 4, 2, p, b, None, None, False, 0.0, o, None, average_attn_weights=False
        )  # fmt: skip

    jitted, found = graftjit.jit(attention), []
    for function in (attention, jitted):
        x, w = (torch.ones(3, 2, 4, requires_grad=True) for _ in range(2))
        heard: list[Any] = []
        kept, value = x * x, w * w
        value.register_hook(heard.append)
        function(kept, value)[1].sum().backward()
        found.append(len(heard))
    assert found == [0, 0]
    assert "FB301" in str(jitted.report())
