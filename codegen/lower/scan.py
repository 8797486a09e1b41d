"""Lowering of cumulative operators: the reduction of a row up to each element.

Accumulation is in the type that eager's kernels carry from element to element: float64 for float32,
float32 for bfloat16 and float16. Where rounding and overflow depend on the order (products, sums in
float64), the order is eager's. On a GPU eager's threads share a row in an order of their own and
carry the type that they compute in; so do the kernels here.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ...ir.graph.nodes import Meta, Node
from ..loops import affine
from .builder import At, Scalar, fill, opmath
from .reduction import number_result, one_dim, own_map

aten = torch.ops.aten


def _carried(meta: Meta) -> torch.dtype:
    """The type of eager's accumulator; on a GPU it is no wider than the computation."""
    wide = meta.dtype == torch.float32 and meta.device.type == "cpu"
    return torch.float64 if wide else opmath(meta.dtype)


def _in_turn(kind: str, meta: Meta) -> bool:
    """Whether the elements are taken in order. Threads of a GPU cannot do that."""
    dtype = meta.dtype
    if meta.device.type != "cpu":
        return False
    return dtype.is_floating_point and (kind == "prod" or dtype == torch.float64)


def _cumulative(kind: str) -> Callable[[At], Scalar]:
    def build(at: At) -> Scalar:
        value = at.full(at.arg(0), own_map(at)).to(at.dtype)
        order = f"{kind} in turn" if _in_turn(kind, at.meta) else kind
        return value.to(_carried(at.meta)).scan(order)

    return build


def _best_so_far(kind: str) -> Callable[[At], tuple[Scalar, Scalar]]:
    """cummax, cummin: the value, and the last position that had it; a nan stays, and each later nan
    replaces it.
    """

    def build(at: At) -> tuple[Scalar, Scalar]:
        value = at.full(at.arg(0), own_map(at)).to(opmath(at.dtype))
        best = value.scan(kind)
        taken = value == best
        if at.dtype.is_floating_point:
            taken = taken | value.isnan()
        axis = affine.axis_form(at.builder.n_outer, len(at.builder.axes))
        place = taken.where(at.index(axis), 0)
        return best.to(at.dtype), place.scan("max")

    return build


def _cumulative_when(node: Node) -> bool:
    shape = node.args[0].meta.shape
    along = bool(shape) and shape[node.args[1] % len(shape)] != 1
    return along and number_result(node)


def _alone(kind: str) -> Callable[[Node], bool]:
    """Whether a kernel of only this operator is better than ATen's: lane by lane along contiguous
    elements both take the same time.
    """

    def better(node: Node) -> bool:
        neighbours = node.meta.stride[node.args[1]] == 1 == node.args[0].meta.stride[node.args[1]]
        return not (neighbours and _in_turn(kind, node.meta))

    return better


for _kind, _op in (("sum", aten.cumsum.default), ("prod", aten.cumprod.default)):
    fill(
        _cumulative_when, {_op: _cumulative(_kind)},
        kind="normalize", folds=one_dim, alone=_alone(_kind),
    )  # fmt: skip
fill(_cumulative_when, {
    aten.cummax.default: _best_so_far("max"),
    aten.cummin.default: _best_so_far("min"),
}, kind="normalize", folds=one_dim)  # fmt: skip
