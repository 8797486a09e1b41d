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
from .builder import RULES, At, Rule, Scalar, opmath

aten = torch.ops.aten


def _normal(dims: Any, rank: int) -> tuple[int, ...]:
    """Dimensions as sorted non-negative numbers; none or empty: all."""
    if isinstance(dims, int):
        dims = (dims,)
    if not dims:
        return tuple(range(rank))
    return tuple(sorted({dim % rank if rank else 0 for dim in dims})) if rank else ()


def _arg(node: Node, position: int, name: str, default: Any = None) -> Any:
    return node.args[position] if len(node.args) > position else node.kwargs.get(name, default)


def _fold_dims(
    dim_at: int | None, keep_at: int = 2, empty_is_none: bool = False
) -> Callable[[Node], Any]:
    """A reader of (operand, dims, keepdim) from the arguments; dim_at None: all dimensions are
    reduced.
    """

    def read(node: Node) -> tuple[Node, tuple[int, ...], bool]:
        operand = node.args[0]
        rank = len(operand.meta.shape)
        if dim_at is None:
            return operand, tuple(range(rank)), False
        dims = _arg(node, dim_at, "dim")
        if dims == () and empty_is_none:
            return operand, (), True
        return operand, _normal(dims, rank), bool(_arg(node, keep_at, "keepdim", False))

    return read


def _one_dim(node: Node) -> tuple[Node, tuple[int, ...], bool]:
    """softmax and similar operators: one dimension, whose size stays."""
    operand = node.args[0]
    return operand, _normal(node.args[1], len(operand.meta.shape)), True


def _norm_dims(node: Node) -> tuple[Node, tuple[int, ...], bool]:
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


def _own_map(at: At) -> Map:
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


def _folded(at: At, dtype: torch.dtype) -> int:
    """The operand's element at the position of the reduction, as dtype."""
    return Scalar.to(at.full(at.arg(0), _operand_map(at)), dtype)


def _fold(kind: str) -> Callable[[At], int]:
    def build(at: At) -> int:
        given = at.arg(3, "dtype") if kind == "sum" else None
        value = _folded(
            at, at.dtype if given is not None or not at.dtype.is_floating_point else at.math
        )
        value = Scalar.to(value, at.math)
        return at.done(at.reduce(kind, value))

    return build


def _truth(kind: str) -> Callable[[At], int]:
    def build(at: At) -> int:
        return at.done(at.reduce(kind, _folded(at, torch.bool)))

    return build


def _mean(at: At) -> int:
    total = at.reduce("sum", _folded(at, at.math))
    return at.done(at.apply("div", total, at.const(as_real(_count(at.node)))))


def _argument(kind: str) -> Callable[[At], int]:
    def build(at: At) -> int:
        source = at.arg(0).meta.dtype
        return at.reduce(kind, _folded(at, opmath(source)), torch.int64)

    return build


def _with_place(kind: str) -> Callable[[At], tuple[int, int]]:
    """max.dim, min.dim: the value and its position. Of zeros of both signs eager's value is the
    first one.
    """

    def build(at: At) -> tuple[int, int]:
        value = _folded(at, opmath(at.dtype))
        best = at.reduce(f"first {kind}" if at.dtype.is_floating_point else kind, value)
        return at.done(best), at.reduce(f"arg{kind}", value, torch.int64)

    return build


def _moments(at: At, value: int, count: Any) -> tuple[int, int]:
    """(mean, sum of squared distances from it)."""
    mean = at.apply("div", at.reduce("sum", value), at.const(as_real(count), value.dtype))
    away = at.apply("sub", value, mean)
    return mean, at.reduce("sum", at.apply("mul", away, away))


def _variance(root: bool, with_mean: bool = False) -> Callable[[At], Any]:
    def build(at: At) -> Any:
        correction = _arg(at.node, 2, "correction")
        count, kind = _count(at.node), _variance_math(at)
        mean, squares = _moments(at, _folded(at, kind), count)
        divisor = greatest(count - (1 if correction is None else correction), 0)
        found = at.apply("div", squares, at.const(as_real(divisor), kind))
        if root:
            found = at.apply("sqrt", found)
        return (at.done(found), at.done(mean)) if with_mean else at.done(found)

    return build


def _variance_math(at: At) -> torch.dtype:
    """The accumulator of a variance. Eager sums float32 in double; a narrower result is rounded by
    far more than float32 loses.
    """
    wide = at.dtype == torch.float32 and at.meta.device.type == "cpu"
    return torch.float64 if wide else at.math


def _variance_dims(node: Node) -> tuple[Node, tuple[int, ...], bool]:
    operand = node.args[0]
    dims = _normal(_arg(node, 1, "dim"), len(operand.meta.shape))
    return operand, dims, bool(node.kwargs.get("keepdim", False))


def _logsumexp(at: At) -> int:
    value = _folded(at, at.math)
    top = at.reduce("max", value)
    top = at.apply("where", at.apply("isinf", top), at.const(0.0), top)
    total = at.reduce("sum", at.apply("exp", at.apply("sub", value, top)))
    return at.done(at.apply("add", at.apply("log", total), top))


def _vector_norm(at: At) -> int:
    order = at.arg(1, "ord", 2)
    kind = at.math
    size = at.apply("abs", _folded(at, kind))
    if order in (math.inf, -math.inf):
        return at.done(at.reduce("max" if order > 0 else "min", size))
    if order == 1:
        return at.done(at.reduce("sum", size))
    return at.done(at.apply("sqrt", at.reduce("sum", at.apply("mul", size, size))))


def _vector_norm_dims(node: Node) -> tuple[Node, tuple[int, ...], bool]:
    operand = node.args[0]
    dims = _normal(_arg(node, 2, "dim"), len(operand.meta.shape))
    return operand, dims, bool(_arg(node, 3, "keepdim", False))


def _vector_norm_when(node: Node) -> bool:
    plain = node.kwargs.get("dtype") is None and node.meta.dtype.is_floating_point
    return plain and _arg(node, 1, "ord", 2) in (1, 2, math.inf, -math.inf)


def _softmax(logarithm: bool) -> Callable[[At], int]:
    def build(at: At) -> int:
        folded = Scalar.to(at.full(at.arg(0), _own_map(at)), at.math)
        top = at.reduce("max", folded)
        total = at.reduce("sum", at.apply("exp", at.apply("sub", folded, top)))
        value = Scalar.to(at.full(at.arg(0), at.where), at.math)
        away = at.apply("sub", value, top)
        if logarithm:
            return at.done(at.apply("sub", away, at.apply("log", total)))
        return at.done(at.apply("div", at.apply("exp", away), total))

    return build


def _layer_norm(at: At) -> tuple[int, int, int]:
    x, shape, weight, bias, eps = (at.arg(i) for i in range(5))
    kind = opmath(at.dtype)
    value = Scalar.to(at.full(x, at.where), kind)
    mean, squares = _moments(at, value, math.prod(shape))
    variance = at.apply("div", squares, at.const(as_real(math.prod(shape)), kind))
    spread = at.apply("rsqrt", at.apply("add", variance, at.const(eps, kind)))
    found = at.apply("mul", at.apply("sub", value, mean), spread)
    if weight is not None:
        found = at.apply("mul", found, at.get(weight, kind))
    if bias is not None:
        found = at.apply("add", found, at.get(bias, kind))
    elif at.meta.device.type == "cpu":
        found = at.apply("add", found, at.const(0.0, kind))  # eager adds a bias here: -0 becomes 0
    metas = at.node.meta
    rows = (Scalar.to(n, m.dtype) for n, m in zip((mean, spread), metas[1:], strict=True))
    return (at.done(found), *rows)  # type: ignore[return-value]


def _rms_norm(at: At) -> tuple[int, int]:
    x, shape, weight, eps = (at.arg(i) for i in range(4))
    kind = opmath(at.dtype)
    eps = torch.finfo(at.dtype).eps if eps is None else eps
    value = Scalar.to(at.full(x, at.where), kind)
    total = at.reduce("sum", at.apply("mul", value, value))
    mean = at.apply("div", total, at.const(as_real(math.prod(shape)), kind))
    spread = at.apply("rsqrt", at.apply("add", mean, at.const(eps, kind)))
    found = at.apply("mul", value, spread)
    if weight is not None:
        found = at.apply("mul", found, at.get(weight, kind))
    return at.done(found), Scalar.to(spread, at.node.meta[1].dtype)


# --- conditions ---


def _elements(node: Node) -> bool:
    """Whether there is an element to reduce; otherwise eager raises, or the result is not a plain
    identity.
    """
    return positive(node.args[0].meta.shape)


def _number_result(node: Node) -> bool:
    meta = node.meta[0] if isinstance(node.meta, tuple) else node.meta
    return _elements(node) and meta.dtype != torch.bool


def _float_operand(node: Node) -> bool:
    meta = node.meta[0] if isinstance(node.meta, tuple) else node.meta
    return (
        _elements(node)
        and meta.dtype.is_floating_point
        and node.args[0].meta.dtype.is_floating_point
    )


def _variance_when(node: Node) -> bool:
    whole = isinstance(_arg(node, 2, "correction"), (int, type(None)))
    return _float_operand(node) and (whole or not isinstance(_count(node), Expr))


def _float_sum(node: Node) -> bool:
    meta = node.meta
    return _elements(node) and meta.dtype.is_floating_point


def _same_dtype(node: Node) -> bool:
    """_softmax(half_to_float=True) exists on CUDA: it rounds no more often than the
    computation does.
    """
    return _float_operand(node) and (not node.args[2] or node.meta.device.type == "cuda")


def _layer_norm_when(node: Node) -> bool:
    others = [n for n in node.args[2:4] if n is not None]
    plain = all(n.meta.dtype == node.args[0].meta.dtype for n in others)
    return _elements(node) and plain and node.args[0].meta.dtype.is_floating_point


def _bool_or_number(node: Node) -> bool:
    return _elements(node) and node.meta.dtype == torch.bool


_ALL, _DIM, _DIMS = _fold_dims(None), _fold_dims(1), _fold_dims(1)


def _fold_rule(build: Any, folds: Any, when: Any) -> Rule:
    return Rule(build, "fold", folds, when)


RULES.update(
    {
        aten.sum.default: _fold_rule(_fold("sum"), _ALL, _number_result),
        aten.sum.dim_IntList: _fold_rule(_fold("sum"), _DIMS, _number_result),
        aten.prod.default: _fold_rule(_fold("prod"), _ALL, _number_result),
        aten.prod.dim_int: _fold_rule(_fold("prod"), _DIM, _number_result),
        aten.amax.default: _fold_rule(_fold("max"), _DIMS, _number_result),
        aten.amin.default: _fold_rule(_fold("min"), _DIMS, _number_result),
        aten.max.default: _fold_rule(_fold("max"), _ALL, _number_result),
        aten.min.default: _fold_rule(_fold("min"), _ALL, _number_result),
        aten.max.dim: Rule(_with_place("max"), "fold", _DIM, _number_result, rows=(0, 1)),
        aten.min.dim: Rule(_with_place("min"), "fold", _DIM, _number_result, rows=(0, 1)),
        aten.argmax.default: _fold_rule(_argument("argmax"), _DIM, _number_result),
        aten.argmin.default: _fold_rule(_argument("argmin"), _DIM, _number_result),
        aten.any.default: _fold_rule(_truth("any"), _ALL, _bool_or_number),
        aten.any.dim: _fold_rule(_truth("any"), _DIM, _bool_or_number),
        aten.any.dims: _fold_rule(_truth("any"), _DIMS, _bool_or_number),
        aten.all.default: _fold_rule(_truth("all"), _ALL, _bool_or_number),
        aten.all.dim: _fold_rule(_truth("all"), _DIM, _bool_or_number),
        aten.all.dims: _fold_rule(_truth("all"), _DIMS, _bool_or_number),
        aten.mean.default: _fold_rule(_mean, _ALL, _float_sum),
        aten.mean.dim: _fold_rule(_mean, _DIMS, _float_sum),
        aten.var.correction: _fold_rule(_variance(False), _variance_dims, _variance_when),
        aten.std.correction: _fold_rule(_variance(True), _variance_dims, _variance_when),
        aten.var_mean.correction: Rule(
            _variance(False, True), "fold", _variance_dims, _variance_when, rows=(0, 1)
        ),
        aten.std_mean.correction: Rule(
            _variance(True, True), "fold", _variance_dims, _variance_when, rows=(0, 1)
        ),
        aten.logsumexp.default: _fold_rule(_logsumexp, _DIMS, _float_operand),
        aten.linalg_vector_norm.default: _fold_rule(
            _vector_norm, _vector_norm_dims, _vector_norm_when
        ),
        aten._softmax.default: Rule(_softmax(False), "normalize", _one_dim, _same_dtype),
        aten._log_softmax.default: Rule(_softmax(True), "normalize", _one_dim, _same_dtype),
        aten.native_layer_norm.default: Rule(
            _layer_norm, "normalize", _norm_dims, _layer_norm_when, (1, 2), "sizes"
        ),
    }
)
if hasattr(aten, "_fused_rms_norm"):
    RULES[aten._fused_rms_norm.default] = Rule(
        _rms_norm, "normalize", _norm_dims, _layer_norm_when, (1,), "sizes"
    )
