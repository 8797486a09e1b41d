"""Lowering of scatters: elements stored at positions given by other tensors, over a copy of the
first operand.

The iteration is that of the scattered elements, so the operators that compute them (the messages of
a graph layer) are in the same kernel, and the elements are never in memory. Elements go in the
order of the axes, as in eager: a sum has eager's order, and of several elements for one position
the last one stays. Indices are checked as in `gather`. A rule returns the value, the map of its
position in the result, and a key of `loop_nest.MERGES`.
"""

from __future__ import annotations

from typing import Any

import torch

from ...ir.graph.effects import operands
from ...ir.graph.nodes import Node
from ...ir.symbolic.expr import is_symbolic
from ..analysis.dataflow import is_plain_view
from ..loops import affine
from ..loops.affine import Map
from ..loops.extents import dense, positive
from . import gather
from .builder import CONSTANTS, RULES, At, Scalar, argument, fill, first_operand

aten = torch.ops.aten
Found = tuple[Scalar, Map, str]  # (value, position, how to merge)

# dtypes that eager sums one element at a time, rounding at each store; narrow floats it sometimes
# sums in another way
ADDED = frozenset({
    torch.float32, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
})  # fmt: skip
# dtypes that the memory of a GPU merges
ATOMIC = frozenset({torch.float32, torch.float64, torch.int64, torch.int32})
MERGE = {
    "sum": "sum",
    "add": "sum",
    "prod": "prod",
    "multiply": "prod",
    "amax": "max",
    "amin": "min",
}


# --- scatter, scatter_add, scatter_reduce: an index for each element ---


def _scatter(at: At) -> Found:
    dim, given = gather.dim_of(at.node), at.arg(3)
    if isinstance(given, Node):
        value = at.full(given, at.where).to(at.dtype)
    else:
        value = at.const(bool(given) if at.dtype == torch.bool else given, at.dtype)
    place = gather.position(at, at.arg(2), at.where, 0, at.meta.shape[dim])
    return value, gather.moved(at, dim, place), _how(at.node)


def _how(node: Node) -> str:
    if node.target is aten.scatter_add.default:
        return "sum"
    if node.target is aten.scatter_reduce.two:
        return MERGE.get(node.args[4], "")
    return MERGE.get(node.kwargs["reduce"], "") if "reduce" in node.kwargs else "set"


def _scatter_space(node: Node) -> tuple[tuple[Any, ...], None]:
    return node.args[2].meta.shape, None


def _scatter_near(node: Node, where: Map) -> list[tuple[Node, Map]]:
    given = [one for one in node.args[2:4] if isinstance(one, Node)]
    return [(one, where) for one in given]


def _scatter_when(node: Node) -> bool:
    index, given = node.args[2:4]
    same = not isinstance(given, Node) or (
        given.meta.dtype == node.meta.dtype and len(given.meta.shape) == len(node.meta.shape)
    )
    return (
        same
        and not is_symbolic(given)
        and bool(node.args[0].meta.shape)
        and len(index.meta.shape) == len(node.meta.shape)
        and node.kwargs.get("include_self", True)
        and (_how(node) == "set" or (_adds(node) and bool(_how(node))))
        and _may(node, index)
    )


# --- index_add, index_copy, index_fill: an index for each slice ---


def _along(at: At) -> Found:
    node, dim, given = at.node, gather.dim_of(at.node), at.arg(3)
    fills, size = node.target in _FILLS, at.meta.shape[dim]
    if not isinstance(given, Node):
        value = at.const(given, at.dtype)
    else:
        value = at.full(given, () if fills else at.where).to(at.dtype)
    place = gather.position(at, at.arg(2), (at.where[dim],), -size if fills else 0, size)
    return (
        value,
        gather.moved(at, dim, place),
        "sum" if node.target is aten.index_add.default else "set",
    )


_FILLS = (aten.index_fill.int_Scalar, aten.index_fill.int_Tensor)


def _along_space(node: Node) -> tuple[tuple[Any, ...], None]:
    dim, shape = gather.dim_of(node), node.meta.shape
    return (*shape[:dim], node.args[2].meta.shape[0], *shape[dim + 1 :]), None


def _along_near(node: Node, where: Map) -> list[tuple[Node, Map]]:
    near: list[tuple[Node, Map]] = [(node.args[2], (where[gather.dim_of(node)],))]
    if isinstance(node.args[3], Node):
        near.append((node.args[3], () if node.target in _FILLS else where))
    return near


def _along_when(node: Node) -> bool:
    index, given = node.args[2:4]
    if not node.meta.shape or len(index.meta.shape) != 1 or is_symbolic(given):
        return False
    if node.target in _FILLS:
        plain = not isinstance(given, Node) or given.meta.shape == ()
        same = plain and (node.meta.dtype != torch.bool or isinstance(given, (Node, bool)))
    else:
        same = given.meta.dtype == node.meta.dtype and given.meta.shape == _along_space(node)[0]
    adds = node.target is aten.index_add.default
    return (
        same
        and node.kwargs.get("alpha", 1) == 1
        and (not adds or _adds(node))
        and _may(node, index)
    )


# --- x[i, :, j] = v: integers from -size on, several of them broadcast ---


def _put_space(node: Node) -> tuple[tuple[Any, ...], None]:
    pairs = zip(node.meta.shape, gather.indices_of(node), strict=True)
    kept, lead = [size for size, index in pairs if index is None], gather.lead_of(node)
    return (*kept[:lead], *gather.picked_shape(node), *kept[lead:]), None


def _put(at: At) -> Found:
    place, values = gather.picked_map(at), at.arg(2)
    where = affine.broadcast(at.where, _put_space(at.node)[0], values.meta.shape)
    value = at.full(values, where).to(at.dtype)
    return value, place, "sum" if _accumulates(at.node) else "set"


def _accumulates(node: Node) -> bool:
    return bool(argument(node, 3, "accumulate", False))


def _put_near(node: Node, where: Map) -> list[tuple[Node, Map]]:
    values = node.args[2]
    whole = affine.broadcast(where, _put_space(node)[0], values.meta.shape)
    return [*gather.index_maps(node, where), (values, whole)]


def _put_when(node: Node) -> bool:
    """Whether eager's order is fixed: of positions that occur twice eager takes the last one only
    then.
    """
    given = [index for index in node.args[1] if index is not None]
    if (
        not given
        or is_symbolic(node.args[1])
        or any(i.meta.dtype not in gather.INTEGERS for i in given)
    ):
        return False
    if is_symbolic([index.meta.shape for index in given]) or not node.meta.shape:
        return False
    space, values = _put_space(node)[0], node.args[2].meta
    if len(values.shape) > len(space) or values.dtype != node.meta.dtype:
        return False
    ordered = _adds(node) if _accumulates(node) else len(gather.picked_shape(node)) <= 1
    return ordered and all(_may(node, index) for index in given) and positive(space)


# --- the gradient of an embedding ---


def _embedding(at: At) -> Found:
    """Rows of the gradient summed from zero; an index that is the padding's or no row adds
    nothing.
    """
    gradient, indices, rows, padding = (at.arg(i) for i in range(4))
    given = at.full(indices, at.where[:-1]).to(torch.int64)
    used = (given >= 0) & (given < rows) & (given != padding)
    value = used.where(at.full(gradient, at.where).to(at.dtype), 0.0)
    return value, (at.place(used.where(given, 0)), at.where[-1]), "sum"


def _embedding_space(node: Node) -> tuple[tuple[Any, ...], None]:
    return node.args[0].meta.shape, None


def _embedding_near(node: Node, where: Map) -> list[tuple[Node, Map]]:
    return [(node.args[0], where), (node.args[1], where[:-1])]


def _embedding_when(node: Node) -> bool:
    gradient, indices, _rows, _padding, by_count = node.args
    shapes = (*indices.meta.shape, node.meta.shape[-1])
    return (
        not by_count
        and gradient.meta.shape == shapes
        and not is_symbolic(node.args)
        and _adds(node)
        and gradient.meta.dtype == node.meta.dtype
        and _may(node, indices)
    )


# --- conditions ---


def _sizes(node: Node) -> tuple[Any, ...]:
    """The iteration's sizes."""
    return RULES[node.target].space(node)[0]  # type: ignore[misc]


def _adds(node: Node) -> bool:
    return node.meta.dtype in ADDED


def _may(node: Node, index: Node) -> bool:
    """Whether there is something to scatter, by integers, over memory that a plain copy makes."""
    space = _sizes(node)
    return (
        index.meta.dtype in gather.INTEGERS
        and _merged_there(node)
        and dense(node.meta)
        and positive(space)
        and positive(node.meta.shape)
        and (node.target is aten.embedding_dense_backward.default or _below(node.args[0], node))
        and not any(one is node.args[0] for one in operands(node.args[1:]))
    )


def _merged_there(node: Node) -> bool:
    """Whether the node's device merges this way.

    On a GPU eager too sums by atomic operations, unless deterministic algorithms are required. It
    sorts the sums of `x[i] += v` and of an embedding's gradient.
    """
    if node.meta.device.type == "cpu":
        return True
    if node.meta.device.type != "cuda" or torch.are_deterministic_algorithms_enabled():
        return False
    if node.target in _PUTS:
        return not _accumulates(node)
    if node.target is aten.embedding_dense_backward.default:
        return False
    adds = node.target is aten.index_add.default
    how = "sum" if adds else "set" if node.target in _SLICES else _how(node)
    return how == "set" or (how in ("sum", "max", "min") and node.meta.dtype in ATOMIC)


def _below(first: Node, node: Node) -> bool:
    """Whether the first operand is a constant, or memory with the layout of the result."""
    if first.meta.dtype != node.meta.dtype or first.meta.shape != node.meta.shape:
        return False
    source = first
    while is_plain_view(source):
        source = source.alias  # type: ignore[assignment]
    rule = RULES.get(source.target) if source.op == "call" else None
    if rule is not None and rule.kind == "create":
        return source.target in CONSTANTS and dense(node.meta)
    return first.meta.stride == node.meta.stride


def _alone(node: Node) -> bool:
    """Whether a kernel of only this scatter is better than ATen's.

    It is not if neighbours are stored at separate positions, lane by lane: ATen takes 0.5 to 0.9 of
    that time. ATen is slow for sums by `x[i] += v`.
    """
    if node.meta.device.type != "cpu":  # two launches, as in eager
        return False
    space = _sizes(node)
    if len(space) - 1 not in _scattered_dims(node, len(space)):
        return True
    numbers = node.target in (aten.scatter.value, aten.scatter.value_reduce)
    return numbers or (node.target in _PUTS and _accumulates(node))


def spread_over_threads(node: Node) -> bool:
    """Whether threads may share the work: whether the iteration has long rows in which no two
    elements have the same position.
    """
    if node.meta.device.type != "cpu":
        return True
    space = _sizes(node)
    dims = _scattered_dims(node, len(space))
    return 0 not in dims or (len(space) - 1 not in dims and _long(space[-1]))


def _long(size: Any) -> bool:
    return is_symbolic(size) or size >= 32


def _scattered_dims(node: Node, rank: int) -> set[int]:
    if node.target is aten.embedding_dense_backward.default:
        return set(range(rank - 1))
    if node.target not in _PUTS:
        return {gather.dim_of(node)}
    lead = gather.lead_of(node)
    return set(range(lead, lead + len(gather.picked_shape(node))))


def _nothing(node: Node) -> tuple[Node, ...]:
    return ()


_SLICES = (aten.index_copy.default, *_FILLS)
_PUTS = (aten.index_put.default, aten._unsafe_index_put.default)
_SCATTERS = (
    aten.scatter.src, aten.scatter.value, aten.scatter.reduce, aten.scatter.value_reduce,
    aten.scatter_add.default, aten.scatter_reduce.two,
)  # fmt: skip
for _when, _ops, _build, _space, _near, _far in (
    (_scatter_when, _SCATTERS, _scatter, _scatter_space, _scatter_near, first_operand),
    (_along_when, (aten.index_add.default, *_SLICES), _along, _along_space, _along_near,
     first_operand),
    (_put_when, _PUTS, _put, _put_space, _put_near, first_operand),
    (_embedding_when, (aten.embedding_dense_backward.default,), _embedding, _embedding_space,
     _embedding_near, _nothing),
):  # fmt: skip
    fill(
        _when, {_ops: _build}, kind="scatter", far=_far, near=_near, space=_space, alone=_alone,
        symbolic="sizes",
    )  # fmt: skip
