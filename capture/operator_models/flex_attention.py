"""A model of `torch.nn.attention.flex_attention`: attention with functions over scores.

In: a call of `flex_attention`. Out: `attention`, walked in its place: the same mathematics as eager
mode's dense form. Eager mode maps `score_mod` and `mask_mod` over four dimensions with `vmap`; here
they run once, on positions with a dimension of their own each, and what they compute fuses with the
softmax. That is the same for functions that compute element by element, and read tables at full
indices (`_check_elements`). Anything else, and what eager mode refuses, is a break.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.attention import flex_attention as flex

from ...ir.graph.effects import reads
from ...ir.graph.nodes import Meta, Node
from ...ir.graph.opdef import OPS
from ...ir.trace.autocast_cache import AUTOCAST_DEVICES
from ..breaks import Break
from ..data_model.polyfills import stands_for
from ..exact_type import is_kind
from ..values.registry import NONE, Args, Kwargs, models
from ..values.value import Const, Function, Obj, Tensor, Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

_CODE = "GB124"
_WHOLE = flex._LARGE_SPARSE_BLOCK_SIZE  # the block size of a mask of any size
_INDEXING = frozenset({"aten.index.Tensor", "aten._unsafe_index.Tensor"})
_ELEMENTWISE = frozenset({"pointwise", "copy"})
# Asked of a position, these would tell that it has dimensions.
_METADATA = frozenset(
    ["shape", "size", "dim", "ndim", "ndimension", "numel", "nelement", "stride", "is_contiguous"]
)


# -- walked in the place of torch's function -------------------------------------------------------
@stands_for(flex.flex_attention)
def attention(
    query: Any,
    key: Any,
    value: Any,
    score_mod: Any = None,
    block_mask: Any = None,
    scale: Any = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
    *,
    return_aux: Any = None,
) -> Any:
    """As torch's; see `_math_attention_inner` and `math_attention` there."""
    check(query, key, value, kernel_options)
    if return_lse or return_aux is not None:
        leave("with further results")
    batches, heads, rows, width = query.size()
    _, own_heads, columns, _ = key.size()
    if (heads != own_heads and not enable_gqa) or heads % own_heads or key.size(-1) != width:
        leave("of sizes that do not fit")
    if query.size(0) != key.size(0) and (key.size(0) != 1 or block_mask is None):
        leave("of sizes that do not fit")
    if key.size(0) != value.size(0) or value.size()[1:3] != (own_heads, columns):
        leave("of sizes that do not fit")
    if block_mask is not None:
        check_mask(block_mask, query, rows, columns)
    if heads != own_heads:
        key = torch.repeat_interleave(key, heads // own_heads, dim=1)
        value = torch.repeat_interleave(value, heads // own_heads, dim=1)
    key = key.expand((batches, *key.size()[1:]))
    value = value.expand((batches, *value.size()[1:]))
    if scale is None:
        scale = 1.0 / math.sqrt(width)
    working = torch.float64 if query.dtype == torch.float64 else torch.float32
    scores = query.to(working) @ key.to(working).transpose(-2, -1)
    scores = (scores * scale).to(working)
    b = torch.arange(0, batches, device=scores.device).view(-1, 1, 1, 1)
    h = torch.arange(0, heads, device=scores.device).view(1, -1, 1, 1)
    m = torch.arange(0, rows, device=scores.device).view(1, 1, -1, 1)
    n = torch.arange(0, columns, device=scores.device).view(1, 1, 1, -1)
    changed = scores
    if score_mod is not None:
        changed = by_elements(score_mod, scores, b, h, m, n).expand(scores.size())
    if block_mask is not None:
        shown = by_elements(block_mask.mask_mod, b, h, m, n)
        changed = torch.where(shown, changed, torch.tensor(-float("inf"), dtype=working))
    nothing = changed.amax(dim=-1, keepdim=True) == -float("inf")
    weights = torch.where(nothing, 0.0, torch.softmax(changed, dim=-1))
    return laid_out(weights.to(query.dtype) @ value.to(query.dtype), query.stride())


def check_mask(block_mask: Any, query: Any, rows: Any, columns: Any) -> None:
    """Leave for a mask that torch would refuse."""
    if query.device != block_mask.kv_num_blocks.device:
        leave("with a mask on another device")
    if block_mask.BLOCK_SIZE[0] == _WHOLE and block_mask.BLOCK_SIZE[1] == _WHOLE:
        return
    if block_mask.seq_lengths[0] != rows or block_mask.seq_lengths[1] != columns:
        leave("with a mask of other sizes")


def laid_out(result: Any, strides: Any) -> Any:
    """The result with its dimensions in the order of the query's in memory; the last is dense."""
    order = sorted(range(3, -1, -1), key=strides.__getitem__)
    if result.size(order[0]) != 1 and order[0] != 3:
        order.remove(3)
        order = [3, *order]
    wanted, step = [0, 0, 0, 0], 1
    for dim in order:
        wanted[dim] = step
        step = step * result.size(dim)
    if tuple(wanted) == result.stride():
        return result
    return result.new_empty_strided(result.size(), wanted).copy_(result)


def check(query: Any, key: Any, value: Any, kernel_options: Any) -> None:
    """Break for what has no model here, and for what torch refuses."""


def leave(why: str) -> None:
    """Break."""


def by_elements(function: Any, *given: Any) -> Any:
    """function(*given), if it computes element by element; else a break."""


# -- models of the functions above -----------------------------------------------------------------
@models(leave)
def _leave(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    (why,) = args
    assert isinstance(why, Const)
    raise Break(_CODE, f"flex_attention {why.value}")


@models(check)
def _check(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    *tensors, options = args
    if m.modes or any(torch.is_autocast_enabled(kind) for kind in AUTOCAST_DEVICES):
        raise Break(_CODE, "flex_attention under autocast or a mode")
    if not isinstance(options, Const) or options.value is not None:
        raise Break(_CODE, "flex_attention with options for its kernel")
    ghosts = [value.ghost for value in tensors if isinstance(value, Tensor)]
    if len(ghosts) != 3 or len({(one.device, one.dtype) for one in ghosts}) != 1:
        raise Break(_CODE, "flex_attention of tensors of several kinds")
    if not all(one.dim() == 4 and one.dtype.is_floating_point for one in ghosts):
        raise Break(_CODE, "flex_attention of tensors of another kind")
    if any(one.dtype.itemsize == 1 for one in ghosts):
        raise Break(_CODE, "flex_attention of tensors of another kind")
    if ghosts[0].device.type == "cpu" and any(one.requires_grad for one in ghosts):
        raise Break(_CODE, "flex_attention on a CPU with a gradient, which torch refuses")
    return NONE


@models(by_elements)
def _by_elements(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    function, *given = args
    if _names_of(function) & _METADATA:
        raise Break(_CODE, "flex_attention whose function asks for the sizes of a position")
    start, effects = m.tracer.n_nodes, len(m.journal.effects)
    result = m.call(function, list(given), {})
    if len(m.journal.effects) != effects:
        raise Break(_CODE, "flex_attention whose function has effects")
    if not isinstance(result, Tensor):
        raise Break(_CODE, "flex_attention whose function returns no tensor")
    _, nodes = m.tracer.values()
    varying = {value.ghost._node for value in given if isinstance(value, Tensor)}
    _check_elements(nodes[start:], varying)
    return result


def _names_of(function: Value) -> frozenset[str]:
    code: Any = None
    if isinstance(function, Function):
        code = function.code
    elif isinstance(function, Obj) and hasattr(function.value, "__code__"):
        code = function.value.__code__
    return frozenset(code.co_names) if code is not None else frozenset()


def _check_elements(nodes: list[Node], varying: set[Node]) -> None:
    """Break unless each node computes an element from elements at the same position.

    `varying`: the nodes with a dimension for each kind of position.
    """
    for node in nodes:
        if node.op != "call" or not any(one in varying for one in reads(node)):
            continue
        varying.add(node)
        row, name = OPS.get(str(node.target)), str(node.target)
        others = [one for one in reads(node) if one not in varying]
        if name in _INDEXING:
            table, index = node.args[:2]
            full = len(index) == len(table.meta.shape) and None not in index
            if table in varying or not full:
                raise Break(_CODE, "flex_attention whose function reads parts of a table")
        elif row is None or row.kind not in _ELEMENTWISE:
            raise Break(_CODE, f"flex_attention whose function calls {name}")
        elif not all(_is_number(one.meta, node.meta) for one in others):
            raise Break(_CODE, "flex_attention whose function computes with a tensor of elements")


def _is_number(meta: Any, of: Any) -> bool:
    """Whether a tensor has one element, of a dtype that does not change the result's."""
    if not is_kind(meta, Meta) or meta.shape:
        return False
    kinds = [one.dtype.is_floating_point for one in (meta, of)]
    return meta.dtype == of.dtype or kinds[0] != kinds[1] or of.dtype is torch.bool
