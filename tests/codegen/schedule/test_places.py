"""Writes into parts of memory that only the graph sees: values where the parts are apart, writes where they are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ..harness import check, make

T = torch.Tensor
X = torch.linspace(-2.0, 2.0, 4 * 8).reshape(4, 8)
COPY = torch.ops.aten.copy_.default


def _gates(x: T) -> T:
    gates = x * 3
    a, b, c, d = gates.unsafe_chunk(4, 1)
    a.sigmoid_(), b.sigmoid_(), c.tanh_(), d.sigmoid_()
    return a * c + b * d


def _often(x: T) -> T:
    y = x * 2
    left, right = y[:, :4], y[:, 4:]
    left.mul_(right)
    right.add_(left)
    left.sub_(right).mul_(2)
    return left / (right.abs() + 1)


def _rows(x: T) -> T:
    y = x.exp()
    for i in range(4):
        y[i].mul_(i + 1)
    return y[0] + y[1] * y[2] - y[3]


def _one_into_another(x: T) -> T:
    y = x + 1
    y[:, :4].copy_(y[:, 4:])
    y[:, 4:].mul_(3)
    return y[:, :4] + y[:, 4:]


def _transposed(x: T) -> T:
    y = x.t() * 2
    y[:2].neg_()
    return y[:2] + y[2:4]


def _whole_read(x: T) -> T:
    y = x * 2
    y[:, :4].neg_()
    return y.sin()


def _overlapping(x: T) -> T:
    y = x * 2
    y[:, :5].neg_()
    y[:, 3:].mul_(2)
    return y[:, :5] + y[:, 3:]


def _steps(x: T) -> T:
    y = x * 2
    y[:, ::2].neg_()
    return y[:, ::2] + y[:, 1::2]


def _returned(x: T) -> tuple[T, T]:
    y = x * 2
    y[:, :4].neg_()
    return y[:, :4] + 1, y


def _view_returned(x: T) -> T:
    y = x * 2
    y[:, :4].neg_()
    return y[:, :4]


def _converted(x: T) -> T:
    y = x * 2
    y[:, :4].copy_(x[:, 4:].double())
    y[:, 4:].copy_(x[:1, :4])
    return y[:, :4] + y[:, 4:]


def _before_the_source_changes(x: T) -> T:
    y, z = x * 2, x + 1
    y[:, :4].copy_(z[:, :4])
    z.mul_(5)
    return y[:, :4] + z[:, :4] + y[:, 4:]


def _of_a_product(x: T) -> T:
    y = x @ x.t()
    y[:2].relu_()
    return y[:2] @ y[2:].t()


# name, function, writes that are left
ROWS: tuple[tuple[str, Callable[[T], Any], int], ...] = (
    ("gates of a recurrent cell", _gates, 0),
    ("written and read several times", _often, 0),
    ("rows", _rows, 0),
    ("one part into another", _one_into_another, 0),
    ("transposed", _transposed, 0),
    ("of a product", _of_a_product, 0),
    ("the whole is read", _whole_read, 1),
    ("overlapping parts", _overlapping, 2),
    ("every other column", _steps, 1),
    ("the memory is returned", _returned, 1),
    ("a view is returned", _view_returned, 1),
    ("converting, broadcasting", _converted, 2),
    ("before the source changes", _before_the_source_changes, None),
)


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_writes_into_parts(row) -> None:
    _name, fn, writes = row
    made = check(fn, X, library=None)
    left = sum(op is COPY for op in made.library)
    assert writes is None or left == writes


def test_a_source_that_is_written_outside() -> None:
    def fn(x: T, other: T) -> T:
        y = x * 2
        y[:, :4].copy_(other)
        other.mul_(3)
        return y[:, :4] + y[:, 4:]

    other = torch.ones(4, 4)
    made = make(fn, X, other.clone())
    expected, given = fn(X, other.clone()), other.clone()
    assert torch.equal(made.run(X, given)[0], expected) and torch.equal(given, other * 3)


def test_a_recurrent_cell_calls_nothing_but_products() -> None:
    weights = [torch.randn(16, 8) * 0.3, torch.randn(16, 4) * 0.3, torch.randn(16), torch.randn(16)]

    def fn(x: T, *weights: T) -> T:
        h = c = torch.zeros(4, 4)
        for _ in range(3):
            h, c = torch.lstm_cell(x, (h, c), *weights)
        return h

    made = check(fn, X, *weights, library=None)
    assert COPY not in made.library and "python" not in made.run.routes
