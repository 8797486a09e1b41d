"""A tensor with `retain_grad` that a graph makes or writes has a node that autograd can replace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import graftjit

T = torch.Tensor


def a_write_behind_a_result_without_a_gradient(a: T, c: T) -> tuple[T, T]:
    v = a * 2
    v.retain_grad()
    w = c.detach() * 3
    v.mul_(3)
    return w, v


def a_write_behind_a_mask(a: T, c: T) -> tuple[T, T]:
    v = a * c
    v.retain_grad()
    mask = v > 0
    v[0] = c.sum()
    return mask, v


def two_that_are_written(a: T, c: T) -> tuple[T, T, T]:
    u, v = c * 2, a * 2
    u.retain_grad()
    v.retain_grad()
    w = c.detach() * 3
    u.mul_(2)
    v.mul_(u)
    return w, u, v


PROGRAMS: tuple[Callable[[T, T], Any], ...] = (
    a_write_behind_a_result_without_a_gradient, a_write_behind_a_mask, two_that_are_written,
)  # fmt: skip


def found(run: Callable[[T, T], Any]) -> list[T | None]:
    a, c = torch.ones(2).requires_grad_(), torch.full((2,), 2.0).requires_grad_()
    results = [one for one in run(a, c) if one.requires_grad]
    sum((one * n).sum() for n, one in enumerate(results, 2)).backward()  # type: ignore[union-attr]
    return [a.grad, c.grad, *(one.grad for one in results)]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_gradients_that_are_kept(program: Callable[[T, T], Any]) -> None:
    jitted = graftjit.jit(program)
    for _ in range(2):
        torch.testing.assert_close(found(jitted), found(program))


def test_a_result_that_python_writes() -> None:
    def f(a: T, c: T) -> tuple[T, T]:
        return c.detach() + 1, a * c

    def written(run: Callable[[T, T], Any]) -> Callable[[T, T], tuple[T]]:
        def whole(a: T, c: T) -> tuple[T]:
            _, v = run(a, c)
            v.retain_grad()
            return (v.mul_(2),)

        return whole

    torch.testing.assert_close(found(written(graftjit.jit(f))), found(written(f)))
