"""Group norm, and batch norm by the statistics of the batch, in parts: folds and what is done to each element.

`split_norms` is a pass: the operators become moments (two passes over the values, as layer norm's) and a pointwise rest in the
type that eager computes in. Batch norm that keeps running statistics stays as it is. Instance
norm comes as batch norm over a view; it is computed over the dimensions that it is a view of, so that it fuses
with what follows. A graph to graph function of its own, for the operators give several results. Run by `ir.passes`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch

from .graph import Graph, Node
from .rewrite import Rewriter, split_results
from .symbols import bounds_of, is_symbolic

aten = torch.ops.aten
IN_CACHE = 1 << 19  # elements
VIEWS = (aten.view.default, aten._unsafe_view.default)


def split_norms(graph: Graph) -> Graph:
    """The same graph with each such norm in parts."""
    if not any(node.op == "call" and node.target in NORMS for node in graph.nodes):
        return graph
    return split_results(graph, _splits, lambda at, node: NORMS[node.target](at, node))


Parts = tuple[Node, ...]


def _splits(node: Node) -> bool:
    if node.target not in NORMS:
        return False
    x = node.args[0].meta
    return (
        x.dtype.is_floating_point
        and x.device.type == "cpu"
        and len(x.shape) >= 2
        and all(bounds_of(size)[0] > 0 for size in x.shape)
        and not is_symbolic(x.shape[1])
        and not _is_atens(node)
        and (node.target is aten.native_group_norm.default or _trains(node))
        and all(one is None or one.meta.dtype.is_floating_point for one in node.args[1:3])
    )


def _is_atens(node: Node) -> bool:
    """Where channels lie side by side, ATen's own passes over memory are the better ones: for groups, which are pieces of
    a pixel, and for a batch that the caches do not hold."""
    x = node.args[0].meta
    if len(x.shape) < 3 or x.stride[1] != 1 or all(size == 1 for size in x.shape[2:]):
        return False
    if node.target is aten.native_group_norm.default:
        return True
    return is_symbolic(x.shape) or prod(x.shape) > IN_CACHE


def _trains(node: Node) -> bool:
    """Batch norm by the batch. With running statistics it stays ATen's, which writes them and leaves their versions as
    they are."""
    if node.target is aten._native_batch_norm_legit.no_stats:
        return node.args[3] is True
    return node.args[5] is True and node.args[3] is None and node.args[4] is None


def _math(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _cast(at: Rewriter, node: Node, dtype: torch.dtype) -> Node:
    return node if node.meta.dtype == dtype else at.call(aten._to_copy.default, node, dtype=dtype)


def _view(at: Rewriter, node: Node, shape: tuple[Any, ...]) -> Node:
    return node if node.meta.shape == shape else at.call(aten.view.default, node, shape)


def _moments(at: Rewriter, x: Node, dims: tuple[int, ...]) -> tuple[Node, Node, Node]:
    """(mean, distances from it, variance) over these dimensions, which stay; in the type of x, where var_mean adds up
    float32 in double."""
    mean = at.call(aten.mean.dim, x, dims, True)
    away = at.call(aten.sub.Tensor, x, mean)
    return mean, away, at.call(aten.mean.dim, at.call(aten.mul.Tensor, away, away), dims, True)


def _normed(
    at: Rewriter, x: Node, dims: tuple[int, ...], eps: Any, weight: Node | None, bias: Node | None,
) -> tuple[Node, Node, Node, Node]:  # fmt: skip
    """(the elements, mean, variance, reciprocal of the deviation) of x in the type it is computed in."""
    mean, away, variance = _moments(at, x, dims)
    spread = at.call(aten.rsqrt.default, at.call(aten.add.Scalar, variance, eps))
    found = at.call(aten.mul.Tensor, away, spread)
    if weight is not None:
        found = at.call(aten.mul.Tensor, found, weight)
    if bias is not None:
        found = at.call(aten.add.Tensor, found, bias)
    return found, mean, variance, spread


def _group_norm(at: Rewriter, node: Node) -> Parts:
    x, weight, bias, count, channels, _pixels, groups, eps = node.args
    kind, shape = x.meta.dtype, x.meta.shape
    split = (count, groups, channels // groups, *shape[2:])
    dims = tuple(range(2, len(split)))

    def own(one: Node | None) -> Node | None:
        """A value a channel, beside the elements."""
        if one is None:
            return None
        view = _view(at, one, (1, *split[1:3], *(1,) * (len(split) - 3)))
        return _cast(at, view, _math(kind))

    values = _cast(at, _view(at, x, split), _math(kind))
    found, mean, _variance, spread = _normed(at, values, dims, eps, own(weight), own(bias))
    rows = tuple(
        _cast(at, _view(at, one, (count, groups)), meta.dtype)
        for one, meta in zip((mean, spread), node.meta[1:], strict=True)
    )
    return (_view(at, _cast(at, found, kind), shape), *rows)


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
    found, mean, _variance, spread = _normed(at, values, dims, eps, own(weight), own(bias))
    rows = tuple(
        _cast(at, _view(at, one, meta.shape), meta.dtype)
        for one, meta in zip((mean, spread), node.meta[1:], strict=True)
    )
    return (_view(at, _cast(at, found, kind), shape), *rows)


def _instances(x: Node) -> tuple[Node, tuple[Any, Any]]:
    """What instance norm made a batch of one of, and its (batch, channels); else the node itself."""
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
}
