"""Decompositions of losses: a pointwise function of each pair of elements, and its mean or sum.

They compute as eager's kernels do, and only for operands of one dtype that needs no wider
accumulation in between. binary_cross_entropy, which raises for values out of range, has no rule.
Part of `decompositions.DECOMPOSITIONS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..graph.nodes import Node
from .rewriter import Rewriter, Table

aten = torch.ops.aten
NONE, MEAN, SUM = 0, 1, 2


def argument(node: Node, position: int, name: str, default: Any = None) -> Any:
    """An argument by position or name."""
    return node.args[position] if len(node.args) > position else node.kwargs.get(name, default)


def reduced(at: Rewriter, value: Node, reduction: int) -> Node | None:
    """The mean, the sum, or the value itself."""
    if reduction == NONE:
        return value
    return at.call(aten.mean.default if reduction == MEAN else aten.sum.default, value)


def of_one_wide_type(*nodes: Node | None) -> bool:
    """Whether all operands are float32, or all float64: no wider accumulation is needed."""
    dtypes = {one.meta.dtype for one in nodes if one is not None}
    return dtypes <= {torch.float32} or dtypes <= {torch.float64}


def _pair(node: Node) -> tuple[Node, Node, int]:
    return node.args[0], node.args[1], argument(node, 2, "reduction", MEAN)


def _mse(at: Rewriter, node: Node) -> Node | None:
    x, y, reduction = _pair(node)
    if not of_one_wide_type(x, y):
        return None
    away = at.call(aten.sub.Tensor, x, y)
    return reduced(at, at.call(aten.mul.Tensor, away, away), reduction)


def _bent(
    at: Rewriter, node: Node, name: str, scaled: Callable[[Node, Node, float], tuple[Node, Node]]
) -> Node | None:
    """A loss that is quadratic below an edge and linear above.

    `scaled` gets (half the square, |d| - edge / 2, edge) and returns the two parts.
    """
    x, y, reduction = _pair(node)
    edge = argument(node, 3, name, 1.0)
    if not of_one_wide_type(x, y):
        return None
    away = at.call(aten.abs.default, at.call(aten.sub.Tensor, x, y))
    if edge == 0 and name == "beta":  # no quadratic part
        return reduced(at, away, reduction)
    square = at.call(aten.mul.Tensor, at.call(aten.mul.Scalar, away, 0.5), away)
    near, far = scaled(square, at.call(aten.sub.Scalar, away, 0.5 * edge), edge)
    found = at.call(aten.where.self, at.call(aten.lt.Scalar, away, edge), near, far)
    return reduced(at, found, reduction)


def _smooth_l1(at: Rewriter, node: Node) -> Node | None:
    return _bent(
        at, node, "beta", lambda square, line, beta: (at.call(aten.div.Scalar, square, beta), line)
    )


def _huber(at: Rewriter, node: Node) -> Node | None:
    return _bent(
        at,
        node,
        "delta",
        lambda square, line, delta: (square, at.call(aten.mul.Scalar, line, delta)),
    )


def _soft_margin(at: Rewriter, node: Node) -> Node | None:
    x, y, reduction = _pair(node)
    if not of_one_wide_type(x, y) or x.meta.shape != y.meta.shape:
        return None
    product = at.call(aten.mul.Tensor, at.call(aten.neg.default, y), x)
    return reduced(at, at.call(aten.log1p.default, at.call(aten.exp.default, product)), reduction)


def _bce_with_logits(at: Rewriter, node: Node) -> Node | None:
    """(1 - y) x - (1 + (p - 1) y) log_sigmoid(x), times the weight."""
    x, y = node.args[:2]
    weight, positive = argument(node, 2, "weight"), argument(node, 3, "pos_weight")
    if not of_one_wide_type(x, y, weight, positive):
        return None
    log = at.result(at.call(aten.log_sigmoid_forward.default, x), 0)
    if positive is not None:
        factor = at.call(aten.sub.Scalar, positive, 1)
        factor = at.call(aten.add.Scalar, at.call(aten.mul.Tensor, factor, y), 1)
        log = at.call(aten.mul.Tensor, factor, log)
    found = at.call(aten.mul.Tensor, at.call(aten.rsub.Scalar, y, 1), x)
    found = at.call(aten.sub.Tensor, found, log)
    if weight is not None:
        found = at.call(aten.mul.Tensor, found, weight)
    return reduced(at, found, argument(node, 4, "reduction", MEAN))


def _norm(_at: Rewriter, node: Node) -> Node | None:
    order = 2 if node.args[1] is None else node.args[1]
    if not of_one_wide_type(node.args[0]):
        return None
    return _at.call(aten.linalg_vector_norm.default, node.args[0], order, *node.args[2:4])


LOSSES: Table = {
    aten.mse_loss.default: (_mse,),  # mean((x - y) * (x - y))
    aten.smooth_l1_loss.default: (_smooth_l1,),  # |d| < beta ? d^2 / (2 beta) : |d| - beta / 2
    aten.huber_loss.default: (_huber,),  # |d| < delta ? d^2 / 2 : delta (|d| - delta / 2)
    aten.soft_margin_loss.default: (_soft_margin,),  # mean(log1p(exp(-y x)))
    aten.binary_cross_entropy_with_logits.default: (_bce_with_logits,),
    aten.norm.ScalarOpt_dim: (_norm,),  # eager calls the same
}
