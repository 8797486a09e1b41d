"""Decompositions of backward operators into pointwise operators and sums, which fuse.

The formulas are those of the derivatives. Sums of floats are in float32 at least, and a result is
rounded once, as in eager's kernels. Pointwise backwards (gelu_backward, ...) have loops of their
own (codegen/lower/backward.py) and no rule here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..graph.layout import is_contiguous
from ..graph.nodes import Meta, Node
from ..symbolic.expr import is_symbolic, product
from .losses_pointwise import MEAN, of_one_wide_type
from .rewriter import Rewriter, Table

aten = torch.ops.aten
HALF = (torch.bfloat16, torch.float16)


def _wide(at: Rewriter, value: Node) -> Node:
    """The value as a float of at least 32 bits."""
    if value.meta.dtype not in HALF:
        return value
    return at.call(aten._to_copy.default, value, dtype=torch.float32)


def _as(at: Rewriter, value: Node, meta: Meta) -> Node:
    """The value in the dtype and memory layout of `meta`."""
    if value.meta.dtype is not meta.dtype:
        value = at.call(aten._to_copy.default, value, dtype=meta.dtype)
    if value.meta.stride != meta.stride and is_contiguous(meta.shape, meta.stride):
        value = at.call(aten.clone.default, value, memory_format=torch.contiguous_format)
    return value


def _sum(at: Rewriter, value: Node, dims: tuple[int, ...], keep: bool = True) -> Node:
    return at.call(aten.sum.dim_IntList, value, dims, keep) if dims else value


def _mul(at: Rewriter, *values: Any) -> Node:
    found = values[0]
    for value in values[1:]:
        op = aten.mul.Tensor if type(value) is Node else aten.mul.Scalar
        found = at.call(op, found, value)
    return found  # type: ignore[no-any-return]


def _sub(at: Rewriter, a: Node, b: Node) -> Node:
    return at.call(aten.sub.Tensor, a, b)


def _floating(*nodes: Node | None) -> bool:
    return all(n is None or n.meta.dtype.is_floating_point for n in nodes)


def _rows(at: Rewriter, node: Node) -> tuple[Node, Node, Any] | None:
    """(gradient, result, dimension) of a softmax, in 32 bits at least."""
    given, result, dim, source = node.args
    if source is not node.meta.dtype or given.meta.dtype is not result.meta.dtype:
        return None
    # On a GPU a half-precision operand may have a float32 result.
    on_gpu = node.meta.device.type == "cuda"
    if given.meta.dtype is not source and not (on_gpu and given.meta.dtype is torch.float32):
        return None
    if not given.meta.shape or not _floating(given, result):
        return None
    return _wide(at, given), _wide(at, result), dim


def _softmax(at: Rewriter, node: Node) -> Node | None:
    """y * (g - sum(g * y))"""
    if (rows := _rows(at, node)) is None:
        return None
    g, y, dim = rows
    return _as(at, _mul(at, y, _sub(at, g, _sum(at, _mul(at, g, y), (dim,)))), node.meta)


def _log_softmax(at: Rewriter, node: Node) -> Node | None:
    """g - exp(y) * sum(g)"""
    if (rows := _rows(at, node)) is None:
        return None
    g, y, dim = rows
    return _as(
        at, _sub(at, g, _mul(at, at.call(aten.exp.default, y), _sum(at, g, (dim,)))), node.meta
    )


def _freed(at: Rewriter, h: Node, n: Node, dims: tuple[int, ...], share: float) -> Node:
    """h without its mean and its part along n; share: 1 / count.

    h - mean(h) - n * mean(h * n)
    """
    first = _mul(at, _sum(at, h, dims), share)
    second = _mul(at, _sum(at, _mul(at, h, n), dims), share)
    return _sub(at, _sub(at, h, first), _mul(at, n, second))


def _layer_norm(at: Rewriter, node: Node) -> Node | None:
    """One of three results, with n = (x - mean) * rstd and h = g * weight:

    rstd * (h - mean(h) - n * mean(h * n)); sum(g * n); sum(g).
    """
    given, x, shape, mean, rstd, weight, _, mask = node.args[0].args
    if not mask[node.target] or not _floating(given, x, weight):
        return None
    rank, inner = len(x.meta.shape), len(shape)
    rows, columns = tuple(range(rank - inner)), tuple(range(rank - inner, rank))
    if not rows or 0 in x.meta.shape or is_symbolic(tuple(shape)):
        return None
    g = _wide(at, given)
    if node.target == 2:
        return _as(at, _sum(at, g, rows, False), node.meta)
    n = _mul(at, _sub(at, _wide(at, x), _wide(at, mean)), _wide(at, rstd))
    if node.target == 1:
        return _as(at, _sum(at, _mul(at, g, n), rows, False), node.meta)
    h = g if weight is None else _mul(at, g, _wide(at, weight))
    share = 1.0 / product(shape)
    return _as(at, _mul(at, _wide(at, rstd), _freed(at, h, n, columns, share)), node.meta)


def _batch_norm(at: Rewriter, node: Node) -> Node | None:
    """As layer norm, over all dimensions but 1; in evaluation the statistics are constants."""
    given, x, weight, mean, variance, saved_mean, saved_spread, train, eps, mask = _ARGUMENTS[
        node.args[0].target
    ](*node.args[0].args)
    if not mask[node.target] or not _floating(given, x, weight) or len(x.meta.shape) < 2:
        return None
    if 0 in x.meta.shape or is_symbolic(x.meta.shape[1]):
        return None
    if is_symbolic(x.meta.shape) and x.meta.stride[1] == 1:
        # Columns with an unknown number of rows stay with ATen, as in `norms`.
        return None
    rank, channels = len(x.meta.shape), x.meta.shape[1]
    dims = (0, *range(2, rank))

    def lifted(value: Node) -> Node:
        return at.call(aten.view.default, _wide(at, value), (1, channels) + (1,) * (rank - 2))

    g = _wide(at, given)
    if node.target == 2:
        return _as(at, _sum(at, g, dims, False), node.meta)
    if train:
        spread, middle = lifted(saved_spread), saved_mean
    else:
        spread = lifted(
            at.call(aten.rsqrt.default, at.call(aten.add.Scalar, _wide(at, variance), eps))
        )
        middle = mean
    n = _mul(at, _sub(at, _wide(at, x), lifted(middle)), spread)
    if node.target == 1:
        return _as(at, _sum(at, _mul(at, g, n), dims, False), node.meta)
    scale = spread if weight is None else _mul(at, spread, lifted(weight))
    if not train:
        return _as(at, _mul(at, g, scale), node.meta)
    share = 1.0 / product(x.meta.shape[dim] for dim in dims)
    return _as(at, _mul(at, _freed(at, g, n, dims, share), scale), node.meta)


def _of_cudnn(x: Any, given: Any, weight: Any, mean: Any, variance: Any, *saved: Any) -> Any:
    """cuDNN's arguments in the order of the operator without cuDNN; it also saves 1 / deviation."""
    saved_mean, saved_spread, eps, _room = saved
    return given, x, weight, mean, variance, saved_mean, saved_spread, True, eps, (True,) * 3


_ARGUMENTS: dict[Any, Callable[..., Any]] = {
    aten.native_batch_norm_backward.default: lambda *args: args,
    aten.cudnn_batch_norm_backward.default: _of_cudnn,
}


def _mse_loss(at: Rewriter, node: Node) -> Node | None:
    """2 / count * (x - y) * g"""
    given, x, y, reduction = node.args
    if not of_one_wide_type(given, x, y):
        return None
    if is_symbolic(x.meta.shape) or x.meta.shape != y.meta.shape or 0 in x.meta.shape:
        return None
    norm = 2.0 / product(x.meta.shape) if reduction == MEAN else 2.0
    return _as(at, _mul(at, _mul(at, _sub(at, x, y), norm), given), node.meta)


def _nll_loss(at: Rewriter, node: Node) -> Node | None:
    """-g / total at the target class of each row that counts, else 0."""
    given, x, target, weight, reduction, ignored, total = node.args
    if (
        weight is not None
        or len(x.meta.shape) != 2
        or not _floating(x)
        or is_symbolic(x.meta.shape)
    ):
        return None
    if target.meta.dtype is not torch.int64 or 0 in x.meta.shape:
        return None
    g = _wide(at, given)
    if reduction == MEAN:
        g = at.call(aten.div.Tensor, g, _wide(at, total))
    if g.meta.shape:
        g = at.call(aten.unsqueeze.default, g, 1)
    device = x.meta.device
    classes = at.call(
        aten.arange.start_step, 0, x.meta.shape[1], 1, dtype=torch.int64, device=device
    )
    wanted = at.call(aten.unsqueeze.default, target, 1)
    hit = at.call(aten.eq.Tensor, classes, wanted)
    counts = at.call(aten.ne.Scalar, wanted, ignored)
    hit = at.call(aten.logical_and.default, hit, counts)
    nothing = at.call(aten.scalar_tensor.default, 0.0, dtype=g.meta.dtype, device=device)
    value = at.call(aten.where.self, hit, at.call(aten.neg.default, g), nothing)
    return _as(at, value, node.meta)


def _dropout(at: Rewriter, node: Node) -> Node | None:
    """g * (mask * scale)"""
    given, mask, scale = node.args
    if given.meta.dtype not in (torch.float32, torch.float64):
        return None
    kept = at.call(aten._to_copy.default, mask, dtype=given.meta.dtype)
    return _as(at, _mul(at, given, _mul(at, kept, scale)), node.meta)


def _slice(at: Rewriter, node: Node) -> Node | None:
    given, sizes, dim, start, end, step = node.args
    if step != 1 or is_symbolic((tuple(sizes), start, end)) or 0 in given.meta.shape:
        return None
    size = sizes[dim]
    return _around(at, given, node, dim, min(max(start + size if start < 0 else start, 0), size))


def _select(at: Rewriter, node: Node) -> Node | None:
    given, sizes, dim, index = node.args
    if is_symbolic((tuple(sizes), index)) or 0 in sizes:
        return None
    lifted = at.call(aten.unsqueeze.default, given, dim % len(sizes))
    return _around(at, lifted, node, dim, index % sizes[dim])


def _around(at: Rewriter, part: Node, node: Node, dim: int, start: int) -> Node:
    """Padding: the part at its position in the whole, with zeros around it."""
    shape = node.meta.shape
    dim %= len(shape)
    after = shape[dim] - start - part.meta.shape[dim]
    pads = (0, 0) * (len(shape) - 1 - dim) + (start, after)
    return _as(at, at.call(aten.constant_pad_nd.default, part, pads, 0), node.meta)


BACKWARD: Table = {
    aten._softmax_backward_data.default: (_softmax,),
    aten._log_softmax_backward_data.default: (_log_softmax,),
    aten.mse_loss_backward.default: (_mse_loss,),
    aten.nll_loss_backward.default: (_nll_loss,),
    aten.native_dropout_backward.default: (_dropout,),
    aten.slice_backward.default: (_slice,),
    aten.select_backward.default: (_select,),
}
BACKWARD_RESULTS: Table = {
    aten.native_layer_norm_backward.default: (_layer_norm,),
    aten.native_batch_norm_backward.default: (_batch_norm,),
    aten.cudnn_batch_norm_backward.default: (_batch_norm,),
}
