"""Results that are written over operands nobody reads any more: where that is done, where it is not, and that values stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from graftjit.runtime.process import hardware as device

from ..harness import check, make

T = torch.Tensor
X = torch.linspace(-1.0, 1.0, 48 * 160).reshape(48, 160)
W = torch.linspace(-0.1, 0.1, 160 * 160).reshape(160, 160)
BACK = torch.linspace(0.1, -0.1, 160 * 160).reshape(160, 160)


@pytest.fixture(autouse=True)
def products_of_aten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows a product of ours is its epilogue, and the product is nowhere to be written over."""
    monkeypatch.setattr(device, "slow_mkl", lambda: False)


def _gelu(x: T) -> T:
    return F.gelu(x @ W) @ BACK


def _twice(x: T) -> T:
    """Each pass of the norm loads the product once more, and the last one stores there."""
    return F.layer_norm(F.gelu(x @ W), (160,)) @ BACK


def _viewed(x: T) -> T:
    return torch.softmax((x @ W).view(4, 12, 160), -1).view(48, 160) @ BACK


IMAGES = torch.linspace(-1.0, 1.0, 2 * 4 * 8 * 8).reshape(2, 4, 8, 8)
FILTER = torch.linspace(-0.1, 0.1, 4 * 4 * 9).reshape(4, 4, 3, 3)


def _pooled_backward(x: T) -> T:
    places = F.max_pool2d(IMAGES, 2, return_indices=True)[1]
    given = x[:32].view(2, 4, 16, 40)[:, :, :4, :4].clone()
    back = torch.ops.aten.max_pool2d_with_indices_backward(
        given, IMAGES, [2, 2], [2, 2], [0, 0], [1, 1], False, places
    )
    return torch.where(IMAGES > 0, back, 0.0).sin().flatten(1) @ torch.ones(256, 8)


def _convolved_backward(x: T) -> T:
    given = x[:32].view(2, 4, 16, 40)[:, :, :8, :8].clone()
    back, weight, _ = torch.ops.aten.convolution_backward(
        given, IMAGES, FILTER, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False]
    )
    return torch.relu(back).flatten(1) @ torch.ones(256, 8) + weight.sin().sum()


OVER: tuple[tuple[str, Callable[[T], Any], int], ...] = (
    ("activation", _gelu, 1),
    ("norm of an activation", _twice, 1),
    ("softmax", lambda x: torch.softmax(x @ W, -1) @ BACK, 1),
    ("softmax down the columns", lambda x: torch.softmax(x @ W, 0) @ BACK, 1),
    ("softmax of a view", _viewed, 1),
    ("what is returned", lambda x: torch.relu(x @ W), 1),
    ("residual", lambda x: ((x @ W).sin() + x) @ BACK, 1),
    ("one after the other", lambda x: torch.tanh(torch.relu(x @ W) @ BACK) @ W, 2),
    ("cumulative sum", lambda x: (x @ W).sin().cumsum(-1) @ BACK, 1),
    ("two dead operands", lambda x: ((x @ W).sin() + (x @ BACK)) @ W, 1),
    ("gradient of a pooling", _pooled_backward, 1),
    ("gradient of a convolution", _convolved_backward, 1),
    # a pass behind the one that stores needs the operand again
    ("softmax and its operand", lambda x: (lambda s: torch.softmax(s, -1) + s)(x @ W) @ BACK, -1),
)
NOT_OVER: tuple[tuple[str, Callable[[T], Any]], ...] = (
    ("an input", lambda x: x.sin() @ W),
    ("read again", lambda x: (lambda y: (torch.relu(y) @ W, y @ BACK))(x @ W)),
    ("both returned", lambda x: (lambda y: (y, torch.relu(y)))(x @ W)),
    ("a view returned", lambda x: (lambda y: (y[:2], torch.relu(y)))(x @ W)),
    ("returned under other sizes", lambda x: (x @ W).view(-1, 4, 160).sin()),
    ("read across", lambda x: (lambda y: (y + y.t()).relu())(x @ x.t())),
    ("other dtype", lambda x: (x @ W).double().sin().mm(BACK.double())),
    ("a part", lambda x: torch.relu((x @ W)[:, :80])),
    ("repeated", lambda x: torch.relu((x @ W).expand(2, 48, 160))),
    ("statistics", lambda x: (x @ W).sum(-1)),
)


@pytest.mark.parametrize("row", OVER, ids=[row[0] for row in OVER])
def test_written_over_its_operand(row, monkeypatch: pytest.MonkeyPatch) -> None:
    _name, fn, count = row
    made = check(fn, X, library=None)
    assert count < 0 or len(made.plan.over) == count
    for node, given in made.plan.over.items():
        (kernel,) = (kernel for kernel in made.kernels if node in kernel.stores)
        shared = [buffer.name for buffer in kernel.nest.buffers if buffer.shared]
        assert shared == [given.name, node.name]
    first, second = made.run(X), made.run(X)  # memory of one run is not another's
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert all(a.data_ptr() != b.data_ptr() for a, b in zip(first, second, strict=True))
    assert all(out._base is None for out in first)


@pytest.mark.parametrize("row", NOT_OVER, ids=[row[0] for row in NOT_OVER])
def test_memory_that_is_needed_stays(row) -> None:
    _name, fn = row
    made = check(fn, X, library=None)
    taken = {id(given) for given in made.plan.over.values()}
    assert len(taken) == len(made.plan.over)
    assert not made.plan.over


def test_nothing_of_the_program_is_written_over() -> None:
    x, kept = X.clone(), X.clone()
    made = make(lambda x: torch.relu(x * 2).cumsum(0).sin() @ W, x)
    made.run(x)
    assert torch.equal(x, kept)
    assert not {node.op for node in made.plan.over.values()} - {"call"}


def test_in_place_where_rows_lie_in_lanes_and_in_narrow_floats() -> None:
    for dtype in (torch.bfloat16, torch.float64):
        w = W.to(dtype)
        check(lambda x, w=w: torch.softmax(x @ w, 0) @ w, X.to(dtype), library=None)
        check(lambda x, w=w: F.layer_norm((x @ w).sin(), (160,)) @ w, X.to(dtype), library=None)
    check(lambda x: torch.softmax((x @ W).view(48, 4, 40).transpose(1, 2), 1).sum(2), X, library=None)  # fmt: skip
