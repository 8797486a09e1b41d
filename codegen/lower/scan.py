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
from .builder import RULES, At, Rule, Scalar, opmath
from .reduction import _elements, _own_map

aten = torch.ops.aten


def _along(node: Node) -> tuple[Node, tuple[int, ...], bool]:
    """(operand, the one dimension, which stays)."""
    operand = node.args[0]
    rank = len(operand.meta.shape)
    return operand, (node.args[1] % rank,) if rank else (), True


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


def _cumulative(kind: str) -> Callable[[At], int]:
    def build(at: At) -> int:
        value = Scalar.to(at.full(at.arg(0), _own_map(at)), at.dtype)
        value = Scalar.to(value, _carried(at.meta))
        order = f"{kind} in turn" if _in_turn(kind, at.meta) else kind
        return at.done(at.scan(order, value))

    return build


def _best_so_far(kind: str) -> Callable[[At], tuple[int, int]]:
    """cummax, cummin: the value, and the last position that had it; a nan stays, and each later nan
    replaces it.
    """

    def build(at: At) -> tuple[int, int]:
        where = _own_map(at)
        value = Scalar.to(at.full(at.arg(0), where), opmath(at.dtype))
        best = at.scan(kind, value)
        taken = at.apply("eq", value, best)
        if at.dtype.is_floating_point:
            taken = at.apply("or", taken, at.apply("isnan", value))
        axis = affine.axis_form(at.builder.n_outer, len(at.builder.axes))
        place = at.apply("where", taken, at.index(axis), at.const(0, torch.int64))
        return at.done(best), at.scan("max", place)

    return build


def _cumulative_when(node: Node) -> bool:
    meta = node.meta[0] if isinstance(node.meta, tuple) else node.meta
    shape = node.args[0].meta.shape
    along = bool(shape) and shape[node.args[1] % len(shape)] != 1
    return along and _elements(node) and meta.dtype != torch.bool


def _alone(kind: str) -> Callable[[Node], bool]:
    """Whether a kernel of only this operator is better than ATen's: lane by lane along contiguous
    elements both take the same time.
    """

    def better(node: Node) -> bool:
        neighbours = node.meta.stride[node.args[1]] == 1 == node.args[0].meta.stride[node.args[1]]
        return not (neighbours and _in_turn(kind, node.meta))

    return better


RULES.update(
    {
        aten.cumsum.default: Rule(
            _cumulative("sum"), "normalize", _along, _cumulative_when, alone=_alone("sum")
        ),
        aten.cumprod.default: Rule(
            _cumulative("prod"), "normalize", _along, _cumulative_when, alone=_alone("prod")
        ),
        aten.cummax.default: Rule(_best_so_far("max"), "normalize", _along, _cumulative_when),
        aten.cummin.default: Rule(_best_so_far("min"), "normalize", _along, _cumulative_when),
    }
)
