"""A function with its gradients beside eager's: what the tests of this folder share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import graftjit
from graftjit.runtime.autograd.joint_program import GraftBackward


def tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for item in value for t in tensors(item)] if isinstance(value, (list, tuple)) else []


def fresh(args: Sequence[Any]) -> list[Any]:
    """Copies of the arguments, leaves where they were leaves."""
    return [
        a.detach().clone(memory_format=torch.preserve_format).requires_grad_(a.requires_grad)
        if isinstance(a, torch.Tensor)
        else a
        for a in args
    ]


def gradients(outputs: Any, leaves: Sequence[torch.Tensor], seed: int = 0) -> list[Any]:
    """Of a sum of the outputs with weights that are the same each time."""
    generator = torch.Generator().manual_seed(seed)
    outs = [out for out in tensors(outputs) if out.requires_grad]
    weights = [
        torch.empty_like(out).copy_(torch.randn(out.shape, generator=generator)) for out in outs
    ]
    return list(torch.autograd.grad(outs, leaves, weights, allow_unused=True))


def is_ours(out: torch.Tensor) -> bool:
    """Whether a tensor, or what it is a view of, comes from a node of graftjit."""
    return isinstance((out._base if out._is_view() else out).grad_fn, GraftBackward)


def same(
    function: Callable[..., Any], *args: Any, calls: int = 2, node: bool | None = True, **close: Any
) -> Any:
    """Values, gradients, their strides and which are missing are eager's. `node`: whether the results come from a node of
    graftjit. Returns the jitted function."""
    jitted = graftjit.jit(function)
    for _ in range(calls):
        ours, theirs = fresh(args), fresh(args)
        torch.manual_seed(7)
        expected = function(*theirs)
        torch.manual_seed(7)
        found = jitted(*ours)
        for a, b in zip(tensors(found), tensors(expected), strict=True):
            torch.testing.assert_close(a, b, equal_nan=True, **close)
            assert a.requires_grad == b.requires_grad
        made = [is_ours(out) for out in tensors(found) if out.grad_fn is not None]
        assert node is None or (all(made) if node else not any(made)), jitted.report()
        mine = [a for a in ours if isinstance(a, torch.Tensor) and a.requires_grad]
        other = [a for a in theirs if isinstance(a, torch.Tensor) and a.requires_grad]
        for a, b in zip(gradients(found, mine), gradients(expected, other), strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                torch.testing.assert_close(a, b, equal_nan=True, **close)
                assert a.stride() == b.stride()
        for a, b in zip(ours, theirs, strict=True):
            if isinstance(a, torch.Tensor):
                torch.testing.assert_close(a.detach(), b.detach(), **close)
                assert a._version == b._version
    return jitted
