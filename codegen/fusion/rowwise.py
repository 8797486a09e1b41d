"""Row-wise units: chains of operators over short rows, as one nest over the rows. This file decides
which nodes can be part of one.

A product of a few columns (Linear(4)) costs the library more in calls than in work, and each layer
reduces along another axis than its result has. Here every column of a row is a value of its own
(`rowwise_nest` writes them): a sum over columns is a few additions, and products, activations and
norms over the columns follow each other in registers. A tensor of such a unit has `count` rows, its
leading dimensions taken together; the other dimensions are its columns. `fuse` starts a unit with a
small product (`begins`) and adds nodes that `fits` allows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch

from ...ir.graph.effects import reads
from ...ir.graph.nodes import Meta, Node
from ...ir.symbolic.expr import hint_of, is_symbolic
from ..analysis.dataflow import is_plain_view
from ..analysis.products import LETTERS, factors, sizes
from ..loops import affine
from ..loops.extents import product
from ..lower.builder import Rule, first_meta
from ..lower.matmul import unrolled

aten = torch.ops.aten

MAX_COLUMNS = 32
MAX_VALUES = 600  # about the values of one kernel: a bound on the time of the C++ compiler (0.2 s)
MAX_BUFFERS = 32
FOLDED = 4  # the most dimensions that a reduction or a norm may reduce here

_FOLDS = frozenset({
    aten.sum.dim_IntList, aten.mean.dim, aten.amax.default, aten.amin.default, aten.var.correction,
    aten.std.correction, aten.logsumexp.default,
})  # fmt: skip
_NORMS = frozenset(
    {aten._softmax.default, aten._log_softmax.default, aten.native_layer_norm.default}
) | ({aten._fused_rms_norm.default} if hasattr(aten, "_fused_rms_norm") else set())
# pointwise operators whose rules read their operands only at the element of the result
_ELEMENTS = frozenset(
    {
        getattr(getattr(aten, name), overload)
        for name, overloads in {
            "add sub mul div": "Tensor Scalar",
            "rsub": "Scalar",
            "pow": "Tensor_Scalar",
            "where": "self",
            "lt le gt ge eq ne": "Tensor Scalar",
            "masked_fill": "Scalar",
            "clone _to_copy": "default",
            "neg abs relu sigmoid tanh exp log sqrt rsqrt reciprocal sin cos erf expm1"
            " log1p": "default",
            "gelu silu leaky_relu elu hardtanh hardswish hardsigmoid softplus mish"
            " relu6": "default",
            "clamp clamp_min clamp_max maximum minimum logical_not": "default",
            "addcmul": "default",
        }.items()
        for name in name.split()
        for overload in overloads.split()
    }
)


def leading(shape: tuple[Any, ...], count: Any) -> int | None:
    """The number of leading dimensions that hold the rows; None if there are none, or the columns
    are too many.
    """
    for dims in range(len(shape), -1, -1):
        if product(shape[:dims]) == count:
            columns = shape[dims:]
            plain = not is_symbolic(columns) and 0 < math.prod(columns) <= MAX_COLUMNS
            return dims if plain else None
    return None


def begins(node: Node) -> Any:
    """The number of rows if this is a product whose columns are unrolled; else None."""
    if node.target not in LETTERS:
        return None
    found, result = sizes(node), LETTERS[node.target][3]
    if not unrolled(found, result):
        return None
    count = found[result[0]]  # in a batch of products each product is a row, which may be too long
    return None if leading(node.meta.shape, count) is None else count


def cost(node: Node, count: Any) -> int:
    """About how many values a row of this node takes."""
    if node.op == "get":
        return 0
    if node.target in LETTERS:
        rest = list(sizes(node).values())
        rest.remove(count)
        return 3 * math.prod(rest)
    shape = first_meta(node).shape
    columns = math.prod(hint_of(size) for size in shape[leading(shape, count) :])
    return (8 if node.target in _NORMS else 3) * columns


def full(nodes: list[Node], count: Any, buffers: int) -> bool:
    """Whether these are too many for one kernel. Operators after a product have a higher limit than
    a further product.
    """
    parts = 1 if nodes[-1].target in LETTERS else 2
    total = sum(cost(node, count) for node in nodes[: len(nodes) - (parts == 1)])
    return total >= parts * MAX_VALUES or buffers >= parts * MAX_BUFFERS


def fits(node: Node, rule: Rule, count: Any, member: Callable[[Node], bool]) -> bool:
    """Whether the node can be computed in a unit of `count` rows. `member`: whether the unit
    computes the value of a tensor.
    """
    if node.target in LETTERS:
        return _product_fits(node, count, member)
    if node.target in _ELEMENTS:
        return _at_element(node, node.meta, reads(node), count, member)
    if node.target not in _FOLDS | _NORMS or rule.folds is None:
        return False
    operand, dims, _keep = rule.folds(node)  # type: ignore[misc]
    lead = leading(operand.meta.shape, count)
    if lead is None or not 0 < len(dims) <= FOLDED or min(dims) < lead:
        return False
    metas = [node.meta] if isinstance(node.meta, Meta) else list(node.meta)
    if any(leading(meta.shape, count) is None or not _walked(meta, count) for meta in metas):
        return False
    return _at_element(node, operand.meta, reads(node), count, member)


def _product_fits(node: Node, count: Any, member: Callable[[Node], bool]) -> bool:
    _first, left, right, result = LETTERS[node.target]
    if begins(node) != count or not _walked(node.meta, count):
        return False
    for factor, letters in zip(factors(node), (left, right), strict=True):
        if letters[0] != result[0]:
            if member(factor):  # its rows are not the unit's
                return False
        elif member(factor) and not followed(factor, count, member):
            return False
    added = [operand for operand in reads(node) if operand not in factors(node)]
    return _at_element(node, node.meta, added, count, member)


def _at_element(
    node: Node, meta: Meta, operands: list[Node], count: Any, member: Callable[[Node], bool]
) -> bool:
    """Whether each operand, broadcast to a tensor like `meta`, is available at any row and
    column.
    """
    lead = leading(meta.shape, count)
    if lead is None or not _walked(meta, count):
        return False
    for operand in operands:
        shape = operand.meta.shape
        behind = len(meta.shape) - lead
        own = shape[: max(len(shape) - behind, 0)]  # the dimensions along the rows
        if member(operand):
            if product(own) != count or not followed(operand, count, member):
                return False
        elif product(own) != 1 and (
            product(own) != count or not _one_stride(operand.meta, len(own))
        ):
            return False
    return True


def _walked(meta: Meta, count: Any) -> bool:
    """Whether the rows of such a tensor have a constant distance in memory."""
    lead = leading(meta.shape, count)
    return lead is not None and _one_stride(meta, lead)


def _one_stride(meta: Meta, lead: int) -> bool:
    dims = [dim for dim in range(lead) if meta.shape[dim] != 1]
    return all(
        meta.stride[a] == meta.stride[b] * meta.shape[b] for a, b in itertools.pairwise(dims)
    )


def followed(node: Node, count: Any, member: Callable[[Node], bool]) -> bool:
    """Whether the views between this tensor and its member map rows to rows."""
    while is_plain_view(node):
        if not _keeps_rows(node, count):
            return False
        node = node.alias  # type: ignore[assignment]
    return True


def _keeps_rows(view: Node, count: Any) -> bool:
    base = view.alias
    assert base is not None
    ours, theirs = leading(view.meta.shape, count), leading(base.meta.shape, count)
    if ours is None or theirs is None:
        return False
    if is_flat(view):
        return product(view.meta.shape[ours:]) == product(base.meta.shape[theirs:])
    rows = base.meta.shape[:theirs]
    if rows != view.meta.shape[:theirs] or product(rows) != count:
        return False
    axes = rows
    where = tuple(
        affine.axis_form(dim, len(axes)) if dim < theirs else affine.zero(len(axes))
        for dim in range(len(view.meta.shape))
    )
    moved = affine.through_view(view, where, axes)
    if moved is None:
        return False
    same = affine.clean(moved, base.meta.shape, axes)
    kept = affine.clean(where[:theirs], rows, axes)
    return same[:theirs] == kept and not any(any(form.strides) for form in same[theirs:])


def is_flat(view: Node) -> bool:
    """Whether it is a view with the elements of its base in the same row-major order."""
    return view.target in affine.FLAT
