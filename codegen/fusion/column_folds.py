"""Column folds beside row folds: a sum over all rows, in the kernel that reduces each row.

The backward of a norm reduces each row (the gradient of its input) and sums the same elements over
all rows (the gradients of its parameters). On a GPU one kernel does both and reads its operands
once: its programs keep sums of the columns of their rows, and a small kernel adds up the sums of
all programs (`triton.column_folds`). In: the graph. Out: `Fusion.across`, the sums for which this
is possible; a sum whose kernel reduces no rows in the end becomes a plain one (`settle`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from ...ir.graph.effects import reads
from ...ir.graph.nodes import Meta, Node
from ...ir.symbolic.expr import is_symbolic, product
from ..analysis.dataflow import Flow
from ..loops import affine
from ..loops.affine import Map
from ..lower.builder import RULES, scatters
from .places import identity, place_of

if TYPE_CHECKING:
    from .fuse import Fusion, Unit

LEAST, MOST = 64, 8192  # columns: a program holds a row as a whole, and a sum for each column
SUMS = 4  # sums over the rows in one kernel: each takes a register per element of a row
aten = torch.ops.aten
Rows = tuple[int, ...]  # the dimensions of a row


def found(flow: Flow) -> dict[Node, Rows]:
    """The sums over the leading dimensions of what another operator reduces along the others, with
    the dimensions of a row.
    """
    folds = {
        (node.args[0].meta.shape, dims)
        for node in flow.nodes
        if on_gpu(node) and (dims := reduced(node))
    }
    if not folds:
        return {}
    sums = [node for node in flow.nodes if node.target is aten.sum.dim_IntList and on_gpu(node)]
    found = {node: _rest(node) for node in sums}
    return {
        node: rows
        for node, rows in found.items()
        if (node.args[0].meta.shape, rows) in folds and _fits(node.args[0].meta, rows)
    }


def on_gpu(node: Node) -> bool:
    """Whether its (first) result is on a GPU."""
    metas = [node.meta] if isinstance(node.meta, Meta) else list(node.meta or ())
    return bool(metas) and metas[0] is not None and metas[0].device.type == "cuda"


def reduced(node: Node) -> Rows:
    """The dimensions of its first operand that an operator reduces; empty for any other one."""
    rule = RULES.get(node.target)
    if rule is None or rule.folds is None or not reads(node):
        return ()
    return rule.folds(node)[1]  # type: ignore[index]


def _rest(node: Node) -> Rows:
    """The dimensions that a sum over leading dimensions keeps; empty for any other sum."""
    dims, rank = reduced(node), len(node.args[0].meta.shape)
    return tuple(range(len(dims), rank)) if dims == tuple(range(len(dims))) else ()


def _fits(operand: Meta, rows: Rows) -> bool:
    sizes = operand.shape[rows[0] :] if rows else ()
    if not sizes or rows[0] == 0 or is_symbolic(sizes) or operand.dtype not in _FLOATS:
        return False
    steps = [product(sizes[at + 1 :]) for at in range(len(sizes))]
    lies = all(
        size == 1 or stride == step
        for size, stride, step in zip(sizes, operand.stride[rows[0] :], steps, strict=True)
    )
    return lies and LEAST <= product(sizes) <= MOST


_FLOATS = frozenset((torch.float32, torch.bfloat16, torch.float16, torch.float64))


def rows_of(fusion: Fusion, unit: Unit) -> Rows | None:
    """The dimensions of a row in the sums over rows of a unit; None if it has none."""
    return next((fusion.across[node] for node in unit.nodes if node in fusion.across), None)


def without(fusion: Fusion, members: Mapping[Node, Map]) -> Mapping[Node, Map]:
    """The members of a unit whose values exist at positions of its iteration."""
    if not fusion.across:
        return members
    return {node: where for node, where in members.items() if node not in fusion.across}


def place_in(fusion: Fusion, node: Node, unit: Unit) -> Map | None:
    """The map of a sum over rows in a unit, which is at no position; None if it does not fit."""
    rows, operand = fusion.across[node], node.args[0]
    others = [one for one in unit.nodes if one in fusion.across and one is not node]
    if unit.rows is not None or unit.shape is None or len(others) >= SUMS:
        return None
    if unit.shape != operand.meta.shape:
        return None
    if unit.folded not in (None, rows) or any(fusion.across[one] != rows for one in others):
        return None
    kinds = {fusion.rules[one].kind for one in unit.nodes if one in fusion.rules}
    if not kinds <= {"pointwise", "fold", "normalize"} or any(map(scatters, unit.nodes)):
        return None
    if not fusion._agrees(operand, identity(unit.shape), unit):
        return None
    return (affine.zero(len(unit.shape)),) * len(node.meta.shape)


def result_place(fusion: Fusion, node: Node, shape: tuple[Any, ...]) -> Map:
    """Where in the iteration the elements of a sum over rows are: at their columns."""
    rows, full = fusion.across[node], identity(shape)
    kept = len(node.meta.shape) == len(shape)
    zero = affine.zero(len(shape))
    return tuple(
        full[dim] if dim in rows else zero for dim in range(len(shape)) if kept or dim in rows
    )


def settle(fusion: Fusion) -> None:
    """A sum over rows in a unit that reduces no rows is a plain reduction."""
    for unit in {fusion.unit_of(node) for node in fusion.across if node in fusion.home}:
        if not unit.is_kernel or unit.folded is not None:
            continue
        for node in [one for one in unit.nodes if one in fusion.across]:
            rows = fusion.across.pop(node)
            unit.folded = tuple(range(rows[0]))
            unit.where[node] = place_of(unit.shape, unit.folded, node.meta.shape, True)
