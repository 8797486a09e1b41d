"""Items that are written (`a[0] = b`), a call that returns nothing, change histories and gradients as in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import graftjit

T = torch.Tensor
WEIGHT = nn.Parameter(torch.tensor(0.5))


def a_number(a: T) -> T:
    a[0] = 3.0
    return a


def a_number_alone(a: T) -> None:
    a[0] = 3.0


def a_slice(a: T) -> None:
    a[1:3] = -1.0


def all_of_them(a: T) -> None:
    a[:] = 1.0


def a_product_without_gradient(a: T) -> None:
    a[0] = a.detach()[1] * 2


def a_parameter(a: T) -> None:
    a[0] = WEIGHT


def a_parameter_into_new_memory(a: T) -> T:
    b = torch.zeros(5)
    b[0] = WEIGHT
    return b + a.detach()


def only_a_parameter(a: T) -> T:
    b = torch.zeros(5)
    b[0] = WEIGHT
    return b


def an_item_into_new_memory(a: T) -> T:
    b = torch.zeros(5)
    b[0] = a[1]
    return b


def behind_a_break(a: T) -> T:
    str(id(a))
    a[0] = 2.0
    return a


def in_a_loop_with_a_branch(a: T) -> T:
    b = torch.zeros(5)
    for i in range(2):
        if a[i].detach().cos() > 0.7:
            b = b + 1
        a[i] = 0.5
    return a + b


PROGRAMS: tuple[Callable[[T], Any], ...] = (
    a_number, a_number_alone, a_slice, all_of_them, a_product_without_gradient, a_parameter,
    a_parameter_into_new_memory, only_a_parameter, an_item_into_new_memory, behind_a_break,
    in_a_loop_with_a_branch,
)  # fmt: skip


@pytest.mark.parametrize("level", ["O0", "O1"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_gradients_are_those_of_eager(program: Callable[[T], Any], level: str) -> None:
    def found(run: Callable[[T], Any], scale: float) -> list[T | None]:
        WEIGHT.grad = None
        x = (torch.tensor([1.0, 1.2, 0.3, -1.0, 0.5]) * scale).requires_grad_()
        a = x.sin()
        result = run(a)
        result = a if result is None else result
        (result * result).sum().backward()
        return [result.detach(), x.grad, WEIGHT.grad]

    jitted = graftjit.jit(program, config=graftjit.JitConfig(jit_level=level))
    for scale in (1.0, 1.1, 0.2, -1.0):
        torch.testing.assert_close(found(jitted, scale), found(program, scale))


def test_integers_with_a_history_are_a_break() -> None:
    """Autograd gives them one where a differentiable value is written to an item."""

    def f(a: T, b: T) -> T:
        a[0] = b.sum()
        graftjit.graft_break()
        return a.float() + b.sum()

    jitted = graftjit.jit(f)
    for run in (f, jitted):
        a, b = torch.ones(3, 4, dtype=torch.int64), torch.ones(3, requires_grad=True)
        assert float(run(a, b).sum().detach()) == 56
    assert "PL205" not in {note.code for note in jitted.report().notes}
