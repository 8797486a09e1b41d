"""Decompositions: operators as compositions that fuse better, with the results of eager's kernels.

Operators that codegen lowers well itself (gelu, softmax, layer norm...) have no rule here. The
`Rewriter` drops a rule's result if it does not reproduce the operator's metadata exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..graph.nodes import Node
from ..symbolic.expr import is_symbolic
from .losses_pointwise import LOSSES
from .rewriter import Rewriter, Table

aten = torch.ops.aten


def _arange(at: Rewriter, node: Node) -> Node | None:
    bounds = (0, *node.args, 1) if len(node.args) == 1 else (*node.args, 1)
    return at.call(aten.arange.start_step, *bounds, **node.kwargs)


def _stack(at: Rewriter, node: Node) -> Node | None:
    tensors = node.args[0]
    dim = (node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)) % len(node.meta.shape)
    if len({one.meta.dtype for one in tensors}) > 1:
        return None
    return at.call(
        aten.cat.default, tuple(at.call(aten.unsqueeze.default, t, dim) for t in tensors), dim
    )


def _glu(at: Rewriter, node: Node) -> Node | None:
    x = node.args[0]
    rank = len(x.meta.shape)
    dim = (node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", -1)) % rank
    half = x.meta.shape[dim] // 2
    if x.meta.dtype not in (torch.float32, torch.float64):
        return None
    value = at.call(aten.slice.Tensor, x, dim, 0, half)
    gate = at.call(aten.slice.Tensor, x, dim, half, 2 * half)
    return at.call(aten.mul.Tensor, value, at.call(aten.sigmoid.default, gate))


def _repeat(at: Rewriter, node: Node) -> Node | None:
    x, counts = node.args
    lead = len(counts) - len(x.meta.shape)
    shape = (1,) * lead + x.meta.shape
    if 0 in node.meta.shape or not counts:
        return None
    pairs: list[int] = []
    for count, size in zip(counts, shape, strict=True):
        pairs += [count, size]
    split: list[int] = []
    for size in shape:
        split += [1, size]
    return _expanded_copy(at, node, split, pairs)


def _expanded_copy(
    at: Rewriter, node: Node, split: Sequence[int], wide: Sequence[int]
) -> Node | None:
    """The operand viewed as `split`, expanded to `wide`, and copied into the node's shape."""
    try:
        spread = at.call(aten.view.default, node.args[0], tuple(split))
    except RuntimeError:
        return None  # the memory does not allow that view
    spread = at.call(aten.expand.default, spread, tuple(wide))
    copy = at.call(aten.clone.default, spread, memory_format=torch.contiguous_format)
    return at.call(aten._unsafe_view.default, copy, node.meta.shape)  # no view, as in eager


def _nearest(at: Rewriter, node: Node) -> Node | None:
    """Upsampling by a whole number: an expanded view, copied.

    Eager reads element min(floor(i * scale), size - 1), computed in float32; the rule applies if
    that is i // times.
    """
    x, sizes, *scales = node.args
    rank = len(sizes)
    if is_symbolic((x.meta.shape, sizes)) or node.kwargs:
        return None
    scales += [None] * (rank - len(scales))
    if x.meta.shape[:2] != node.meta.shape[:2] or 0 in x.meta.shape:
        return None
    view, wide = list(x.meta.shape[:2]), list(x.meta.shape[:2])
    for size, out, scale in zip(x.meta.shape[2:], sizes, scales, strict=True):
        times = out // size
        step = 1.0 / scale if scale is not None and scale > 0 else size / out
        places = torch.arange(out, dtype=torch.float32, device="cpu")
        named = (places * torch.tensor(step, dtype=torch.float32)).floor().clamp(max=size - 1)
        if times * size != out or named.tolist() != [i // times for i in range(out)]:
            return None
        view += [size, 1]
        wide += [size, times]
    return _expanded_copy(at, node, view, wide)


def _slice_of(at: Rewriter, node: Node) -> Node | None:
    """One part of a split, as a slice."""
    call, number = node.args[0], node.target
    dim = _dim_of(call, 2)
    start = sum(part.shape[dim] for part in call.meta[:number])
    return at.call(aten.slice.Tensor, call.args[0], dim, start, start + node.meta.shape[dim])


def _select_of(at: Rewriter, node: Node) -> Node | None:
    call, number = node.args[0], node.target
    return at.call(aten.select.int, call.args[0], _dim_of(call, 1), number)


def _dim_of(call: Node, position: int) -> int:
    dim = call.args[position] if len(call.args) > position else call.kwargs.get("dim", 0)
    return dim % len(call.args[0].meta.shape)


DECOMPOSITIONS: Table = LOSSES | {
    aten.arange.default: (_arange,),  # arange(n) = arange(0, n, 1)
    aten.arange.start: (_arange,),  # arange(a, b) = arange(a, b, 1)
    aten.stack.default: (_stack,),  # cat of unsqueezed tensors
    aten.glu.default: (_glu,),  # a * sigmoid(b)
    aten.repeat.default: (_repeat,),  # an expanded view, copied
    aten.upsample_nearest1d.default: (_nearest,),  # integer factors: an expanded view, copied
    aten.upsample_nearest2d.default: (_nearest,),
    aten.upsample_nearest3d.default: (_nearest,),
}

# Operator with many results -> rules for one of them; the operator is dropped when no result is
# used.
RESULTS: Table = {
    aten.split.Tensor: (_slice_of,),  # x[start:end]
    aten.split_with_sizes.default: (_slice_of,),
    aten.unsafe_split.Tensor: (_slice_of,),
    aten.unsafe_split_with_sizes.default: (_slice_of,),
    aten.unbind.int: (_select_of,),  # x[i]
}
