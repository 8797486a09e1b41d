"""A backward inside a frame ends at its inputs only where autograd ends there: at leaves."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest
import torch

import graftjit

T = torch.Tensor


def backward(x: T, y: T) -> None:
    (x * y).sum().backward()


def backward_to_one(x: T, y: T) -> None:
    (x * y).sum().backward(inputs=[x])


def gradient(x: T, y: T) -> T:
    return torch.autograd.grad((x * y).sum(), x)[0]


def gradient_with_a_history(x: T, y: T) -> T:
    return torch.autograd.grad((x * y).square().sum(), x, create_graph=True)[0]


def of_a_copy(x: T, y: T) -> None:
    new = torch.zeros(3)
    new.copy_(x * y.detach())
    new.sum().backward()


def leaves() -> tuple[T, T]:
    return torch.tensor([1.0, 2.0, 3.0]).requires_grad_(), torch.ones(3).requires_grad_()


def both_are_leaves() -> tuple[list[T], tuple[T, T]]:
    x, y = leaves()
    return [x, y], (x, y)


def y_depends_on_x() -> tuple[list[T], tuple[T, T]]:
    x, y = leaves()
    return [x, y], (x, x * 2)


def x_has_a_history() -> tuple[list[T], tuple[T, T]]:
    x, y = leaves()
    return [x, y], (x * 1, y)


def x_is_a_view_of_a_leaf() -> tuple[list[T], tuple[T, T]]:
    x, y = leaves()
    return [x, y], (x[:], y)


def x_is_a_leaf_and_a_view() -> tuple[list[T], tuple[T, T]]:
    x, y = leaves()
    return [x, y], (x.detach()[:].requires_grad_(), y)


GIVEN = (both_are_leaves, y_depends_on_x, x_has_a_history, x_is_a_view_of_a_leaf, x_is_a_leaf_and_a_view)  # fmt: skip
PROGRAMS: tuple[Callable[[T, T], Any], ...] = (
    backward, backward_to_one, gradient, gradient_with_a_history, of_a_copy,
)  # fmt: skip


@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_arguments_that_are_leaves_of_one_call_only(program: Callable[[T, T], Any]) -> None:
    def found(run: Callable[[T, T], Any], given: Any) -> list[T | None]:
        inputs, arguments = given()
        result = run(*arguments)
        return [result, *(x.grad for x in (*inputs, *arguments))]

    for first, second in permutations(GIVEN, 2):
        jitted = graftjit.jit(lambda x, y: program(x, y))
        for given in (first, second, first):
            torch.testing.assert_close(found(jitted, given), found(program, given))


def test_a_leaf_that_is_a_view_keeps_its_entry() -> None:
    jitted = graftjit.jit(backward)
    for given in (x_is_a_leaf_and_a_view,) * 3:
        jitted(*given()[1])
    report = jitted.report()
    assert (report.break_count, report.recompile_count) == (0, 0)
