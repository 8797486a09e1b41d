"""Operators and gradients against numpy and torch.autograd."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graftjit import Tensor, nn, ops

X = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4) - 5
N = X.numpy()


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (lambda: ops.reduce_sum(X), N.sum()),
        (lambda: ops.reduce_sum(X, (0, 2), keep_dims=True), N.sum((0, 2), keepdims=True)),
        (lambda: ops.reduce_mean(X, 1), N.mean(1)),
        (lambda: ops.reduce_mean(X, ()), N.mean()),
        (lambda: ops.reduce_max(X, -1), N.max(-1)),
        (lambda: ops.reduce_min(X, (0, 1)), N.min((0, 1))),
        (lambda: ops.reduce_prod(X, (0, -1)), N.prod((0, -1))),
        (lambda: ops.reduce_prod(X, (0, 1), True), N.prod((0, 1), keepdims=True)),
        (lambda: ops.concat([X, X], axis=1), np.concatenate([N, N], 1)),
        (lambda: ops.stack((X, X), axis=-1), np.stack([N, N], -1)),
        (lambda: ops.unstack(X, axis=1)[2], N[:, 2]),
        (lambda: ops.split(X, 2, axis=2)[1], N[:, :, 2:]),
        (lambda: ops.reshape(X, [4, 6]), N.reshape(4, 6)),
        (lambda: ops.transpose(X, (2, 0, 1)), N.transpose(2, 0, 1)),
        (lambda: ops.swapaxes(X, 0, 2), N.swapaxes(0, 2)),
        (lambda: ops.flatten(X), N.reshape(2, 12)),
        (lambda: ops.flatten(X, "F"), N.transpose(0, 2, 1).reshape(2, 12)),
        (lambda: ops.expand_dims(X, 1), N[:, None]),
        (lambda: ops.squeeze(X[:1]), N[0]),
        (lambda: ops.squeeze(X[:1], 0), N[0]),
        (lambda: ops.broadcast_to(X[0, 0], [5, 4]), np.broadcast_to(N[0, 0], (5, 4))),
        (lambda: ops.tile(X, (1, 2, 1)), np.tile(N, (1, 2, 1))),
        (lambda: ops.cast(X, torch.int32), N.astype(np.int32)),
        (lambda: ops.cast(2.5, torch.int32), np.int32(2)),
        (lambda: ops.gather(X, torch.tensor([[2, 0], [1, 1]]), 1), N[:, [[2, 0], [1, 1]]]),
        (lambda: ops.one_hot(torch.tensor([2, 0]), 3, 5.0, -1.0), [[-1, -1, 5], [5, -1, -1]]),
        (lambda: ops.one_hot(torch.tensor([2, 0]), 3, axis=0), [[0, 1], [0, 0], [1, 0]]),
        (lambda: ops.cumsum(X, 1), N.cumsum(1)),
        (lambda: ops.argmax(X, 1), N.argmax(1)),
        (lambda: ops.argmax(X, axis=2), N.argmax(2)),
        (lambda: ops.zeros((2, 2)), np.zeros((2, 2))),
        (lambda: ops.ones(3), np.ones(3)),
        (lambda: ops.full(2, 7.5), np.full(2, 7.5)),
        (lambda: ops.arange(3), np.arange(3)),
        (lambda: ops.arange(1, 7, 2), np.arange(1, 7, 2)),
        (lambda: ops.softmax(X, axis=0), np.exp(N - N.max(0)) / np.exp(N - N.max(0)).sum(0)),
        (lambda: ops.add(X, 1), N + 1),
        (lambda: ops.floor_mod(X, 3), np.mod(N, 3)),
        (lambda: ops.less_equal(X, 2), N <= 2),
        (lambda: ops.clip_by_value(X, -1, 3), N.clip(-1, 3)),
        (lambda: ops.exp(X / 10), np.exp(N / 10)),
        (lambda: ops.hardtanh(X), N.clip(-1, 1)),
    ],
)
def test_an_operator(found, expected):
    np.testing.assert_allclose(found().numpy(), expected, rtol=1e-5, atol=1e-6)


def test_what_is_no_tensor():
    assert (ops.shape(X), ops.rank(X), ops.size(X)) == ((2, 3, 4), 3, 24)
    assert not ops.stop_gradient(X.clone().requires_grad_()).requires_grad


def test_an_unknown_operator_has_a_suggestion():
    with pytest.raises(AttributeError, match="did you mean 'softmax'"):
        ops.sofmax  # noqa: B018
    with pytest.raises(ValueError, match="order"):
        ops.flatten(X, "A")


class Product(nn.Cell):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor([2.0, 3.0]))

    def construct(self, x, y):
        return self.w * x * y


def test_grad_operation_forms():
    x, y = Tensor([1.0, 2.0]), Tensor([5.0, 7.0])
    cell = Product()
    w = [2.0, 3.0]
    of = lambda **k: ops.GradOperation(**k)  # noqa: E731
    assert of()(cell)(x, y).tolist() == [10.0, 21.0]
    assert [g.tolist() for g in of(get_all=True)(cell)(x, y)] == [[10.0, 21.0], [2.0, 6.0]]
    (weight,) = of(get_by_list=True)(cell)(x, y)
    assert weight.tolist() == [5.0, 14.0]
    inputs, weights = of(get_all=True, get_by_list=True)(cell, cell.trainable_params())(x, y)
    assert [g.tolist() for g in (*inputs, *weights)] == [[10, 21], [2, 6], [5, 14]]
    assert of(sens_param=True)(cell)(x, y, Tensor([1.0, 0.5])).tolist() == [10.0, 10.5]
    assert cell.w.grad is None and not x.requires_grad and w == cell.w.tolist()


def test_the_same_tensor_twice_has_two_gradients():
    x = Tensor([3.0])
    first, second = ops.GradOperation(get_all=True)(lambda a, b: a * a * b)(x, x)
    assert (first.item(), second.item()) == (18.0, 9.0)


def test_gradients_nest():
    third = ops.grad(ops.grad(ops.grad(lambda x: x**4)))
    assert third(Tensor([2.0])).item() == pytest.approx(48.0)
    cell = Product()
    penalty = lambda x, y: (ops.grad(cell)(x, y) ** 2).sum()  # noqa: E731
    (of_weight,) = ops.GradOperation(get_by_list=True)(penalty, [cell.w])(
        Tensor([1.0, 1.0]), Tensor([2.0, 3.0])
    )
    assert of_weight.tolist() == [2 * 2.0 * 4, 2 * 3.0 * 9]


def test_positions_weights_and_aux():
    cell = Product()
    x, y = Tensor([1.0, 2.0]), Tensor([5.0, 7.0])
    value, gradient = ops.value_and_grad(lambda x, y: cell(x, y).sum(), 1)(x, y)
    assert value.item() == 52.0 and gradient.tolist() == [2.0, 6.0]
    _, ((gx, gy), (gw,)) = ops.value_and_grad(cell, (0, 1), weights=cell.trainable_params())(x, y)
    assert (gx.tolist(), gy.tolist(), gw.tolist()) == ([10, 21], [2, 6], [5, 14])
    assert ops.grad(cell, None, weights=cell.w)(x, y).tolist() == [5.0, 14.0]
    (value, aux), gradient = ops.value_and_grad(lambda x: (x * x, x + 100), has_aux=True)(x)
    assert gradient.tolist() == [2.0, 4.0] and aux.tolist() == [101.0, 102.0]
    gradient, rest = ops.grad(lambda x: (x * x, x), has_aux=True)(x)
    assert gradient.tolist() == [2.0, 4.0] and len(rest) == 1


def test_what_has_no_gradient_has_zeros():
    x, n = Tensor([1.0]), Tensor([2])
    gx, gn = ops.GradOperation(get_all=True)(lambda x, n: ops.stop_gradient(x) * n)(x, n)
    assert gx.tolist() == [0.0] and gn.tolist() == [0]
    with torch.no_grad():
        assert ops.grad(lambda x: x * x)(x).item() == 2.0


def test_misuse_is_refused():
    with pytest.raises(TypeError, match="needed"):
        ops.grad(3)
    with pytest.raises(TypeError, match="True or False"):
        ops.GradOperation(get_all="yes")
    with pytest.raises(TypeError, match="weights"):
        ops.GradOperation(get_by_list=True)(lambda x: x)(X)
    with pytest.raises(IndexError, match="position 1"):
        ops.grad(lambda x: x, 1)(X)
    with pytest.raises(ValueError, match="needs weights"):
        ops.grad(lambda x: x, None)
    with pytest.raises(ValueError, match="sens has 2"):
        ops.GradOperation(sens_param=True)(lambda x: x)(X, (X, X))
