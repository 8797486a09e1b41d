"""Lowering of reductions, and of operators that reduce and return to elements: softmax, layer norm.

The result of a "fold" rule is one value per row: its operand is read at `_operand_map` (kept
dimensions from the result, reduced ones from the nest's inner axes). The result of a "normalize"
rule is one value per element. Accumulation is in float32 for bfloat16 and float16, rounded once at
the end, as in eager; variance takes two passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ...ir.graph.nodes import Node
from ...ir.symbolic.expr import Expr, greatest
from ..loops import affine
from ..loops.affine import Map
from ..loops.extents import as_real, positive
from .builder import RULES, At, Scalar, argument, fill, first_meta, opmath
from .conditions import float_result

aten = torch.ops.aten


def _normal(dims: Any, rank: int) -> tuple[int, ...]:
    """Dimensions as sorted non-negative numbers; none or empty: all."""
    if isinstance(dims, int):
        dims = (dims,)
    if not dims:
        return tuple(range(rank))
    return tuple(sorted({dim % rank if rank else 0 for dim in dims})) if rank else ()


Reduced = tuple[Node, tuple[int, ...], bool]  # (operand, dimensions, keepdim)


def fold_dims(dim_at: int = 1, keep_at: int = 2) -> Callable[[Node], Reduced]:
    """A reader of (operand, dims, keepdim) from the arguments; no dims: all."""

    def read(node: Node) -> Reduced:
        operand = node.args[0]
        dims = _normal(argument(node, dim_at, "dim"), len(operand.meta.shape))
        return operand, dims, bool(argument(node, keep_at, "keepdim", False))

    return read


def one_dim(node: Node) -> Reduced:
    """softmax and similar operators: one dimension, whose size stays."""
    operand = node.args[0]
    return operand, _normal(node.args[1], len(operand.meta.shape)), True


def _norm_dims(node: Node) -> Reduced:
    operand = node.args[0]
    rank = len(operand.meta.shape)
    return operand, tuple(range(rank - len(node.args[1]), rank)), True


def _operand_map(at: At) -> Map:
    """The operand's map, given the map of the row's result."""
    operand, dims, keep = RULES[at.node.target].folds(at.node)  # type: ignore[misc]
    axes, first = at.builder.axes, at.builder.n_outer
    rest = list(at.where)
    found = []
    for dim in range(len(operand.meta.shape)):
        if dim in dims:
            found.append(affine.axis_form(first + dims.index(dim), len(axes)))
            if keep:
                rest.pop(0)
        else:
            found.append(rest.pop(0))
    return tuple(found)


def own_map(at: At) -> Map:
    """The map of the reduced operand of a "normalize" rule: its result may be read at another
    position of the row.
    """
    _operand, dims, _keep = RULES[at.node.target].folds(at.node)  # type: ignore[misc]
    axes, first = at.builder.axes, at.builder.n_outer
    return tuple(
        affine.axis_form(first + dims.index(dim), len(axes)) if dim in dims else form
        for dim, form in enumerate(at.where)
    )


def _count(node: Node) -> Any:
    operand, dims, _keep = RULES[node.target].folds(node)  # type: ignore[misc]
    return math.prod(operand.meta.shape[dim] for dim in dims)


def folded(at: At, dtype: torch.dtype) -> Scalar:
    """The operand's element at the position of the reduction, as dtype."""
    return at.full(at.arg(0), _operand_map(at)).to(dtype)


def addend(at: At, where: Map) -> Scalar:
    """The element at `where` of the operand of a sum, in the type of the accumulator."""
    exact = at.arg(3, "dtype") is not None or not at.dtype.is_floating_point
    return at.full(at.arg(0), where).to(at.dtype if exact else at.math).to(at.math)


def _sum(at: At) -> Scalar:
    return addend(at, _operand_map(at)).reduce("sum")


def _fold(kind: str) -> Callable[[At], Scalar]:
    def build(at: At) -> Scalar:
        exact = not at.dtype.is_floating_point
        return folded(at, at.dtype if exact else at.math).to(at.math).reduce(kind)

    return build


def _mean(at: At) -> Scalar:
    return folded(at, at.math).reduce("sum") / as_real(_count(at.node))


def _argument(kind: str) -> Callable[[At], Scalar]:
    return lambda at: folded(at, opmath(at.arg(0).meta.dtype)).reduce(kind, torch.int64)


def _with_place(kind: str) -> Callable[[At], tuple[Scalar, Scalar]]:
    """max.dim, min.dim: the value and its position. Of zeros of both signs eager's value is the
    first one.
    """

    def build(at: At) -> tuple[Scalar, Scalar]:
        value = folded(at, opmath(at.dtype))
        best = value.reduce(f"first {kind}" if at.dtype.is_floating_point else kind)
        return best.to(at.dtype), value.reduce(f"arg{kind}", torch.int64)

    return build


def _moments(value: Scalar, count: Any) -> tuple[Scalar, Scalar]:
    """(mean, sum of squared distances from it)."""
    mean = value.reduce("sum") / as_real(count)
    away = value - mean
    return mean, (away * away).reduce("sum")


def _variance(root: bool, with_mean: bool = False) -> Callable[[At], Any]:
    def build(at: At) -> Any:
        correction = argument(at.node, 2, "correction")
        count = _count(at.node)
        mean, squares = _moments(folded(at, _variance_math(at)), count)
        found = squares / as_real(greatest(count - (1 if correction is None else correction), 0))
        if root:
            found = found.sqrt()
        return (found, mean) if with_mean else found

    return build


def _variance_math(at: At) -> torch.dtype:
    """The accumulator of a variance. Eager sums float32 in double; a narrower result is rounded by
    far more than float32 loses.
    """
    wide = at.dtype == torch.float32 and at.meta.device.type == "cpu"
    return torch.float64 if wide else at.math


def _logsumexp(at: At) -> Scalar:
    value = folded(at, at.math)
    top = value.reduce("max")
    top = top.isinf().where(0.0, top)
    return (value - top).exp().reduce("sum").log() + top


def _vector_norm(at: At) -> Scalar:
    order, size = at.arg(1, "ord", 2), abs(folded(at, at.math))
    if order in (math.inf, -math.inf):
        return size.reduce("max" if order > 0 else "min")
    return size.reduce("sum") if order == 1 else (size * size).reduce("sum").sqrt()


def _vector_norm_when(node: Node) -> bool:
    plain = node.kwargs.get("dtype") is None and node.meta.dtype.is_floating_point
    return plain and argument(node, 1, "ord", 2) in (1, 2, math.inf, -math.inf)


def _softmax(logarithm: bool) -> Callable[[At], Scalar]:
    def build(at: At) -> Scalar:
        element = at.full(at.arg(0), own_map(at)).to(at.math)
        top = element.reduce("max")
        total = (element - top).exp().reduce("sum")
        away = at.full(at.arg(0), at.where).to(at.math) - top
        return away - total.log() if logarithm else away.exp() / total

    return build


def _layer_norm(at: At) -> tuple[Scalar, Scalar, Scalar]:
    x, shape, weight, bias, eps = (at.arg(i) for i in range(5))
    count = math.prod(shape)
    value = at.full(x, at.where).to(at.math)
    mean, squares = _moments(value, count)
    spread = (squares / as_real(count) + eps).rsqrt()
    found = (value - mean) * spread
    if weight is not None:
        found = found * at.get(weight, at.math)
    if bias is not None:
        found = found + at.get(bias, at.math)
    elif at.meta.device.type == "cpu":
        found = found + 0.0  # eager adds a bias here: -0 becomes 0
    return found, mean, spread


def _rms_norm(at: At) -> tuple[Scalar, Scalar]:
    x, shape, weight, eps = (at.arg(i) for i in range(4))
    eps = torch.finfo(at.dtype).eps if eps is None else eps
    value = at.full(x, at.where).to(at.math)
    mean = (value * value).reduce("sum") / as_real(math.prod(shape))
    spread = (mean + eps).rsqrt()
    found = value * spread
    return found if weight is None else found * at.get(weight, at.math), spread


# --- conditions ---


def elements(node: Node) -> bool:
    """Whether there is an element to reduce; otherwise eager raises, or the result is not a plain
    identity.
    """
    return positive(node.args[0].meta.shape)


def number_result(node: Node) -> bool:
    return elements(node) and first_meta(node).dtype != torch.bool


def _float_operand(node: Node) -> bool:
    return (
        elements(node)
        and first_meta(node).dtype.is_floating_point
        and node.args[0].meta.dtype.is_floating_point
    )


def _variance_when(node: Node) -> bool:
    whole = isinstance(argument(node, 2, "correction"), (int, type(None)))
    return _float_operand(node) and (whole or not isinstance(_count(node), Expr))


def _float_sum(node: Node) -> bool:
    return elements(node) and float_result(node)


def _same_dtype(node: Node) -> bool:
    """_softmax(half_to_float=True) exists on CUDA: it rounds no more often than the
    computation does.
    """
    return _float_operand(node) and (not node.args[2] or node.meta.device.type == "cuda")


def _layer_norm_when(node: Node) -> bool:
    others = [n for n in node.args[2:4] if isinstance(n, Node)]
    plain = all(n.meta.dtype == node.args[0].meta.dtype for n in others)
    return elements(node) and plain and node.args[0].meta.dtype.is_floating_point


def _bool_result(node: Node) -> bool:
    return elements(node) and node.meta.dtype == torch.bool


DIMS = fold_dims()

fill(number_result, {
    (aten.sum.default, aten.sum.dim_IntList): _sum,
    (aten.prod.default, aten.prod.dim_int): _fold("prod"),
    (aten.amax.default, aten.max.default): _fold("max"),
    (aten.amin.default, aten.min.default): _fold("min"),
    aten.argmax.default: _argument("argmax"),
    aten.argmin.default: _argument("argmin"),
}, kind="fold", folds=DIMS)  # fmt: skip
fill(number_result, {
    aten.max.dim: _with_place("max"),
    aten.min.dim: _with_place("min"),
}, kind="fold", folds=DIMS, rows=(0, 1))  # fmt: skip
fill(_bool_result, {
    (aten.any.default, aten.any.dim, aten.any.dims): _fold("any"),
    (aten.all.default, aten.all.dim, aten.all.dims): _fold("all"),
}, kind="fold", folds=DIMS)  # fmt: skip
fill(_float_sum, {(aten.mean.default, aten.mean.dim): _mean}, kind="fold", folds=DIMS)
fill(_variance_when, {
    aten.var.correction: _variance(root=False),
    aten.std.correction: _variance(root=True),
}, kind="fold", folds=DIMS)  # fmt: skip
fill(_variance_when, {
    aten.var_mean.correction: _variance(root=False, with_mean=True),
    aten.std_mean.correction: _variance(root=True, with_mean=True),
}, kind="fold", folds=DIMS, rows=(0, 1))  # fmt: skip
fill(_float_operand, {aten.logsumexp.default: _logsumexp}, kind="fold", folds=DIMS)
fill(
    _vector_norm_when, {aten.linalg_vector_norm.default: _vector_norm},
    kind="fold", folds=fold_dims(2, 3),
)  # fmt: skip
fill(_same_dtype, {
    aten._softmax.default: _softmax(logarithm=False),
    aten._log_softmax.default: _softmax(logarithm=True),
}, kind="normalize", folds=one_dim)  # fmt: skip
fill(
    _layer_norm_when, {aten.native_layer_norm.default: _layer_norm},
    kind="normalize", folds=_norm_dims, rows=(1, 2), symbolic="sizes",
)  # fmt: skip
if hasattr(aten, "_fused_rms_norm"):
    fill(
        _layer_norm_when, {aten._fused_rms_norm.default: _rms_norm},
        kind="normalize", folds=_norm_dims, rows=(1,), symbolic="sizes",
    )  # fmt: skip
