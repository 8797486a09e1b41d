"""Operators that raise in eager raise compiled: with eager's class and text, whether somebody reads the result or not."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from graftjit import jit
from graftjit.ir.graph.opdef import OPS
from graftjit.ir.ops.may_raise import RAISES

I = torch.tensor  # noqa: E741
ROW, TABLE, IMAGE = torch.arange(5.0), torch.arange(6.0).view(2, 3), torch.ones(2, 3, 8, 8)
ONES = torch.ones(3, dtype=torch.int64)
KERNEL, TURNED, WIDE = torch.ones(4, 3, 3, 3), torch.ones(3, 4, 3, 3), torch.ones((1,) * 65)

Case = tuple[Callable[..., Any], tuple[Any, ...]]

# Refused for their metadata and options.
BY_ARGUMENTS: dict[str, Case] = {
    "conv padding": (lambda x, w: F.conv2d(x, w, padding=-1), (IMAGE, KERNEL)),
    "conv padding of one side": (lambda x, w: F.conv2d(x, w, padding=(0, -1)), (IMAGE, KERNEL)),
    "conv dilation": (lambda x, w: F.conv2d(x, w, dilation=0), (IMAGE, KERNEL)),
    "conv dilation below": (lambda x, w: F.conv2d(x, w, dilation=(1, -3)), (IMAGE, KERNEL)),
    "conv stride": (lambda x, w: F.conv2d(x, w, stride=-1), (IMAGE, KERNEL)),
    "conv turned": (lambda x, w: F.conv_transpose2d(x, w, padding=-1), (IMAGE, TURNED)),
    "conv extra": (lambda x, w: F.conv_transpose2d(x, w, output_padding=5), (IMAGE, TURNED)),
    "divisor": (lambda x: F.avg_pool2d(x, 2, divisor_override=0), (IMAGE,)),
    "weights of classes": (lambda x, i: F.nll_loss(x, i, ROW[:2]), (TABLE, I([0, 1]))),
    "sum of 65": (lambda x: x.sum(0), (WIDE,)),
    "flip of 65": (lambda x: x.flip(0), (WIDE,)),
    "argmax of bool": (lambda x: (x > 0).argmax(), (ROW,)),
    "topk of bool": (lambda x: (x > 0).topk(2), (ROW,)),
    "roll of a number": (lambda x: x.sum().roll(1, 0), (ROW,)),
    "complex out": (
        lambda x, out: torch.complex(x, x, out=out),
        (ROW.double(), torch.empty(5, dtype=torch.complex64)),
    ),
    "product out": (
        lambda x, out: torch.mm(x, x, out=out),
        (torch.ones(2, 2), torch.empty(2, 2).double()),
    ),
    "full of a float too large": (lambda x: torch.full((2, 2), -1e300), (ROW,)),
    "linspace too far": (lambda x: torch.linspace(0, 1e300, 3), (ROW,)),
    "a size below zero": (lambda x: F.adaptive_max_pool2d(x, (-1, 0)), (IMAGE,)),
    "memory that is not there": (lambda x: x.as_strided((9, 9), (9, 9)), (ROW,)),
}
# Refused for what is in them.
BY_VALUE: dict[str, Case] = {
    "gather": (lambda x, i: x.gather(1, i), (TABLE, I([[0], [23]]))),
    "scatter": (lambda x, i: x.scatter(0, i, 1.0), (ROW, I([34]))),
    "take": (lambda x, i: x.take(i), (ROW, I([9]))),
    "index_select": (lambda x, i: x.index_select(0, i), (ROW, I([9]))),
    "getitem": (lambda x, i: x[i], (ROW, I([9]))),
    "setitem": (lambda x, i: x.clone().__setitem__(i, 1.0), (ROW, I([9]))),
    "embedding": (lambda x, i: F.embedding(i, x), (TABLE, I([9]))),
    "nll": (lambda x, i: F.nll_loss(x, i), (TABLE, I([1, 7]))),
    "cross entropy": (lambda x, i: F.cross_entropy(x, i), (TABLE, I([1, 7]))),
    "floor division": (lambda x, y: x // y, (ONES, ONES * 0)),
    "remainder": (lambda x, y: x % y, (ONES, ONES * 0)),
    "division of two widths": (
        lambda x, y: torch.div(x, y, rounding_mode="trunc"),
        (ONES.int(), ONES.to(torch.int8) * 0),
    ),
    "cholesky": (torch.linalg.cholesky, (-torch.eye(3),)),
    "inverse": (torch.linalg.inv, (torch.zeros(3, 3),)),
    "masked scatter": (lambda x, m, s: x.masked_scatter(m, s), (ROW, ROW == ROW, ROW[:2])),
    "cross entropy of two": (lambda x, y: F.binary_cross_entropy(x, y), (I([2.0]), I([1.0]))),
    "unpool": (lambda x, i: F.max_unpool2d(x, i, 2), (IMAGE[:1, :1, :2, :2], I([[[[99, 0], [1, 2]]]]))),
    "quantile": (lambda x, q: torch.quantile(x, q), (ROW, I(1.5))),
    "bernoulli": (torch.bernoulli, (I([2.0]),)),
    "multinomial": (lambda x: torch.multinomial(x, 1), (I([-1.0, 1.0]),)),
    "normal": (lambda x: torch.normal(0.0, x), (I([-1.0]),)),
    "poisson": (torch.poisson, (I([-1.0]),)),
    "classes": (lambda i: F.one_hot(i, 3), (I([1, 7]),)),
    "classes below": (lambda i: F.one_hot(i, 3), (I([-1, 2]),)),
    "masked fill": (lambda x, m, y: x.masked_fill(m, y), (ONES.to(torch.int8), ONES == 1, I(300))),
}  # fmt: skip
CASES = BY_ARGUMENTS | BY_VALUE


def _fresh(fn: Any) -> Any:
    """The function with code of its own."""
    return types.FunctionType(
        fn.__code__.replace(), fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__
    )


def _told(fn: Any, arguments: Any) -> str:
    torch.manual_seed(0)
    try:
        result = fn(*arguments)
    except Exception as error:  # that is what is compared
        return f"{type(error).__name__}: {error}"
    return f"nothing: {result}"


@pytest.mark.parametrize("name", CASES)
def test_a_result_that_is_used(name: str) -> None:
    call, arguments = CASES[name]

    def used(call: Any, *arguments: Any) -> Any:
        return call(*arguments)

    plain = _told(used, (call, *arguments))
    assert not plain.startswith("nothing")
    compiled = jit(_fresh(used))
    for _ in range(2):
        assert _told(compiled, (call, *arguments)) == plain


@pytest.mark.parametrize("name", CASES)
def test_a_result_that_nobody_reads(name: str) -> None:
    call, arguments = CASES[name]

    def dropped(log: list[str], call: Any, *arguments: Any) -> Any:
        log.append("before")
        call(*arguments)
        log.append("behind")
        return 7

    seen: list[str] = []
    plain = _told(dropped, (seen, call, *arguments))
    assert seen == ["before"]
    compiled = jit(_fresh(dropped))
    for _ in range(2):
        seen = []
        assert _told(compiled, (seen, call, *arguments)) == plain
        assert seen == ["before"]


@pytest.mark.parametrize("name", BY_VALUE)
def test_nobody_reads_it_and_something_else_is_computed(name: str) -> None:
    call, arguments = BY_VALUE[name]

    def beside(other: torch.Tensor, call: Any, *arguments: Any) -> Any:
        found = other.sin() + 1
        call(*arguments)
        return found * 2

    plain = _told(beside, (ROW, call, *arguments))
    assert _told(jit(_fresh(beside)), (ROW, call, *arguments)) == plain


def test_a_gradient_is_asked_for() -> None:
    def dropped(weight: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        F.embedding(at, weight)
        return weight.sin()

    weight = torch.ones(2, 3, requires_grad=True)
    assert _told(jit(dropped), (weight, I([9]))) == _told(_fresh(dropped), (weight, I([9])))

    def alone(weight: torch.Tensor, at: torch.Tensor) -> int:
        F.embedding(at, weight)
        return 3

    call = jit(alone)
    assert call(weight, I([1])) == 3
    assert _told(call, (weight, I([9]))) == _told(_fresh(alone), (weight, I([9])))


def test_values_that_are_fine_after_ones_that_are_not() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> int:
        x // y
        return 7

    call = jit(f)
    assert call(ONES, ONES) == 7
    assert _told(call, (ONES, ONES * 0)) == "RuntimeError: ZeroDivisionError"
    assert call(ONES, ONES * 2) == 7


@pytest.mark.parametrize(
    "f",
    [
        lambda x, i: (x / 0, 7)[1],
        lambda x, i: (i // 2, 7)[1],
        lambda x, i: (x.exp(), 7)[1],
        lambda x, i: (x.index_select(0, torch.arange(3)), 7)[1],
    ],
)
def test_what_cannot_raise_is_not_computed(f: Any) -> None:
    call = jit(f)
    assert call(ROW, ONES) == 7
    assert not call.report().kernels


def test_classes_in_range_and_out_of_it() -> None:
    call = jit(lambda i: F.one_hot(i, 3).float() * 2)
    assert torch.equal(call(I([1, 2])), F.one_hot(I([1, 2]), 3).float() * 2)
    report = call.report()
    assert (report.graph_count, report.break_count) == (1, 0)
    assert _told(call, (I([3]),)).startswith("RuntimeError: Class values must be smaller")


def test_one_hot_is_one_kernel_that_looks_at_the_classes() -> None:
    classes = torch.arange(6).view(2, 3).t()
    call = jit(lambda i: F.one_hot(i, 6))
    found, plain = call(classes), F.one_hot(classes, 6)
    assert torch.equal(found, plain) and found.stride() == plain.stride()
    assert [kernel.kind for kernel in call.report().kernels] == ["kernel"]
    assert _told(call, (classes + 1,)) == _told(lambda i: F.one_hot(i, 6), (classes + 1,))


def test_the_table_names_operators_of_torch() -> None:
    for name in RAISES:
        known = hasattr(torch.ops.aten, name) or any(f".{name}." in row for row in OPS)
        assert known, name
