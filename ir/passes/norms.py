"""Group norm, and batch norm in training, in parts: reductions and pointwise operators.

`split_norms` is a pass: the operators become moments (two passes over the values, as in layer norm)
and a pointwise rest in the dtype that eager computes in. Running statistics are updated by separate
values, in double as in eager, with writes that leave their versions unchanged. Instance norm
arrives as batch norm over a view; the norm then runs over the dimensions of the view's base, so
that it fuses with what follows. It is a function Graph -> Graph, not a rule, because the operators
have several results. A pass of `ir.passes.pipeline`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch

from ..graph.effects import root
from ..graph.nodes import Graph, Meta, Node
from ..symbolic.expr import bounds_of, is_symbolic, product
from .defer_writes import put_back
from .rewriter import Rewriter, split_results

aten = torch.ops.aten
IN_CACHE = 1 << 19  # elements
CUDNN = aten.cudnn_batch_norm.default
VIEWS = (aten.view.default, aten._unsafe_view.default)


def split_norms(graph: Graph) -> Graph:
    """The graph with each such norm in parts."""
    if not any(node.op == "call" and node.target in NORMS for node in graph.nodes):
        return graph
    shared = {graph.inputs[at] for group in graph.overlaps for at in group}

    def splits(node: Node) -> bool:
        kept = {root(one) for one in _statistics(node)}
        return _splits(node) and all(one.op == "input" for one in kept) and shared.isdisjoint(kept)

    return split_results(graph, splits, lambda at, node: NORMS[node.target](at, node))


Parts = tuple[Node, ...]


def _splits(node: Node) -> bool:
    if node.target not in NORMS:
        return False
    x = node.args[0].meta
    return (
        x.dtype.is_floating_point
        and x.device.type in ("cpu", "cuda")
        and len(x.shape) >= 2
        and all(bounds_of(size)[0] > 0 for size in x.shape)
        and not is_symbolic(x.shape[1])
        and not _is_atens(node)
        and (node.target is aten.native_group_norm.default or _trains(node))
        and not (node.target is CUDNN and is_symbolic(x.shape))
        and all(one.meta.dtype.is_floating_point for one in node.args[1:5] if isinstance(one, Node))
    )


def _is_atens(node: Node) -> bool:
    """Whether ATen's own kernel is faster: the channels are innermost in memory, on the CPU.

    That holds for groups, which are parts of a pixel, and for a batch larger than the caches.
    """
    x = node.args[0].meta
    if (
        x.device.type != "cpu"
        or len(x.shape) < 3
        or x.stride[1] != 1
        or all(size == 1 for size in x.shape[2:])
    ):
        return False
    if node.target is aten.native_group_norm.default:
        return True
    return is_symbolic(x.shape) or prod(x.shape) > IN_CACHE


def _trains(node: Node) -> bool:
    """Whether batch norm uses the batch's statistics in a form that the rule covers.

    Running statistics, if given, must be separate tensors with a known momentum, and a channel must
    have at least two elements.
    """
    if node.target is aten._native_batch_norm_legit.no_stats:
        return node.args[3] is True
    kept = _statistics(node)
    if node.args[5] is not True or not kept:
        return node.args[5] is True
    apart = len({root(one) for one in kept}) == len(kept)
    return apart and type(node.args[6]) is float and bounds_of(_count(node.args[0]))[0] > 1


def _statistics(node: Node) -> list[Node]:
    """The running statistics that a norm updates."""
    return [one for one in node.args[3:5] if one is not None] if node.target in STATISTICS else []


def _count(x: Node) -> Any:
    """Number of elements per channel."""
    return product(size for dim, size in enumerate(x.meta.shape) if dim != 1)


def _math(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _counted_in(meta: Meta) -> torch.dtype:
    """The dtype in which eager adds up the elements of a batch: on the CPU double for float32."""
    wide = meta.dtype == torch.float32 and meta.device.type == "cpu"
    return torch.float64 if wide else _math(meta.dtype)


def _cast(at: Rewriter, node: Node, dtype: torch.dtype) -> Node:
    return node if node.meta.dtype == dtype else at.call(aten._to_copy.default, node, dtype=dtype)


def _view(at: Rewriter, node: Node, shape: tuple[Any, ...]) -> Node:
    return node if node.meta.shape == shape else at.call(aten.view.default, node, shape)


def _result(at: Rewriter, node: Node, shape: tuple[Any, ...]) -> Node:
    """The node in the shape of a result of the norm, which is no view in eager."""
    return node if node.meta.shape == shape else at.call(aten._unsafe_view.default, node, shape)


def _moments(
    at: Rewriter, x: Node, dims: tuple[int, ...], total: torch.dtype
) -> tuple[Node, Node, Node]:
    """(mean, distances from it, variance) over `dims`, with keepdim, in x's dtype.

    `total`: the dtype in which the mean adds up the elements.
    """
    mean = _cast(at, at.call(aten.mean.dim, _cast(at, x, total), dims, True), x.meta.dtype)
    away = at.call(aten.sub.Tensor, x, mean)
    return mean, away, at.call(aten.mean.dim, at.call(aten.mul.Tensor, away, away), dims, True)


def _normed(
    at: Rewriter,
    x: Node,
    dims: tuple[int, ...],
    eps: Any,
    weight: Node | None,
    bias: Node | None,
    total: torch.dtype,
    zero: bool = False,
) -> tuple[Node, Node, Node, Node]:
    """(normalised elements, mean, variance, 1 / deviation) of x, in x's dtype.

    `zero`: eager adds a bias of zeros if none is given.
    """
    mean, away, variance = _moments(at, x, dims, total)
    spread = at.call(aten.rsqrt.default, at.call(aten.add.Scalar, variance, eps))
    found = at.call(aten.mul.Tensor, away, spread)
    if weight is not None:
        found = at.call(aten.mul.Tensor, found, weight)
    if bias is not None:
        found = at.call(aten.add.Tensor, found, bias)
    elif zero:
        found = at.call(aten.add.Scalar, found, 0.0)  # -0 becomes 0
    return found, mean, variance, spread


def _group_norm(at: Rewriter, node: Node) -> Parts:
    x, weight, bias, count, channels, _pixels, groups, eps = node.args
    kind, shape = x.meta.dtype, x.meta.shape
    split = (count, groups, channels // groups, *shape[2:])
    dims = tuple(range(2, len(split)))

    def own(one: Node | None) -> Node | None:
        """A value per channel, in a shape that broadcasts with the elements."""
        if one is None:
            return None
        view = _view(at, one, (1, *split[1:3], *(1,) * (len(split) - 3)))
        return _cast(at, view, _math(kind))

    values = _cast(at, _view(at, x, split), _math(kind))
    found, mean, _variance, spread = _normed(
        at, values, dims, eps, own(weight), own(bias), _math(kind)
    )
    rows = tuple(
        _cast(at, _result(at, one, (count, groups)), meta.dtype)
        for one, meta in zip((mean, spread), node.meta[1:], strict=True)
    )
    return (_result(at, _cast(at, found, kind), shape), *rows)


def _batch_norm(at: Rewriter, node: Node) -> Parts:
    x, weight, bias, eps = *node.args[:3], node.args[-1]
    kind, shape = x.meta.dtype, x.meta.shape
    base, lead = _instances(x)
    dims = (0, *range(2, len(shape))) if base is x else tuple(range(2, len(shape)))

    def own(one: Node | None) -> Node | None:
        if one is None:
            return None
        return _cast(at, _view(at, one, (*lead, *(1,) * (len(shape) - 2))), _math(kind))

    values = _cast(at, base, _math(kind))
    total = _counted_in(x.meta)
    found, mean, variance, spread = _normed(
        at, values, dims, eps, own(weight), own(bias), total, zero=True
    )
    if node.target in STATISTICS:
        _move_statistics(at, node, mean, variance)
    rows = tuple(
        _cast(at, _result(at, one, meta.shape), meta.dtype)
        for one, meta in zip((mean, spread), node.meta[1:3], strict=True)
    )
    # The backward, in parts as well, needs no workspace.
    if node.target is CUDNN:
        nothing = at.call(aten.empty.memory_format, [0], dtype=torch.uint8, device=x.meta.device)
        rows = (*rows, nothing)
    found = _result(at, _cast(at, found, kind), shape)
    # The result of a transposed batch has the order of its dimensions.
    if found.meta.stride != node.meta[0].stride:
        found = at.call(aten.clone.default, found, memory_format=torch.contiguous_format)
    return (found, *rows)


def _move_statistics(at: Rewriter, node: Node, mean: Node, variance: Node) -> None:
    """Update the running statistics: old * (1 - momentum) + new * momentum, in double.

    The variance is the unbiased one. On a GPU the dtype is that of the computation.
    """
    count, momentum = _count(node.args[0]), node.args[6]
    wide = (
        _counted_in(node.args[0].meta) if node.args[0].meta.device.type != "cpu" else torch.float64
    )
    for kept, found in zip(node.args[3:5], (mean, variance), strict=True):
        if kept is None:
            continue
        new = _view(at, _cast(at, found, wide), kept.meta.shape)
        if found is variance:
            new = at.call(aten.mul.Scalar, new, count / (count - 1))
        new = at.call(aten.mul.Scalar, new, momentum)
        new = at.call(aten.add.Tensor, new, kept, alpha=1 - momentum)
        at.call(put_back, kept, _cast(at, new, kept.meta.dtype))


def _instances(x: Node) -> tuple[Node, tuple[Any, Any]]:
    """Instance norm's input behind its view and (batch, channels); else x, (1, channels)."""
    if x.op == "call" and x.target in VIEWS and x.meta.shape[0] == 1:
        base = x.args[0].meta
        if len(base.shape) == len(x.meta.shape) and base.shape[2:] == x.meta.shape[2:]:
            return x.args[0], base.shape[:2]
    return x, (1, x.meta.shape[1])


NORMS: dict[Any, Callable[[Rewriter, Node], Parts]] = {
    aten.native_group_norm.default: _group_norm,
    aten.native_batch_norm.default: _batch_norm,
    aten._native_batch_norm_legit.default: _batch_norm,
    aten._native_batch_norm_legit.no_stats: _batch_norm,
    CUDNN: _batch_norm,
}
# Operators that write running statistics and leave the versions unchanged.
STATISTICS = (aten.native_batch_norm.default, aten._native_batch_norm_legit.default, CUDNN)
