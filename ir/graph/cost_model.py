"""The cost model: arithmetic operations of each operator, and the least number of bytes it moves.

`flops(node)` counts arithmetic operations; `moved(node)` counts bytes, `traffic(node)` the same as
(read, written). In: nodes of a graph, forward or backward. Symbolic sizes count with their values
at capture. Reports and `Lowered.cost()` call it.

One operation is an addition, multiplication, division, comparison, selection or rounding, or a
function of the mathematical library (exp, tanh, erf, sqrt ...), of any type. A fused multiply-add
is two. Moves, casts, views and constants count nothing. Neither do the bias of a product or a
convolution and the softmax of an attention, as in torch.utils.flop_counter, which agrees for
products, convolutions and attention (tests/ir/graph/test_cost.py).

matmul       2 m n k
convolution  2 x (batch and positions of the result) x (elements of the weight); positions of the
             input if transposed; backward: as much for each gradient of input and weight
attention    2 b h s t (d + d_v); backward five products instead of two (Dao et al.,
             FlashAttention, appendix B)
others       operations per element of the result (`PER_RESULT`), or of the first operand for
             reductions (`PER_OPERAND`), from the formulas in torch's documentation
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch

from ..symbolic.expr import hint_of
from .effects import reads
from .nodes import Meta, Node
from .opdef import OPS
from .schema import SILENT_VIEWS, plan_of


def elements(meta: Meta) -> int:
    """Number of elements of a tensor, at capture."""
    return math.prod(int(hint_of(size)) for size in meta.shape)


def nbytes(meta: Meta) -> int:
    """Bytes of a tensor's distinct elements: expanded ones and overlaps count once."""
    sizes = [int(hint_of(size)) for size in meta.shape]
    if 0 in sizes:
        return 0
    steps = [abs(int(hint_of(step))) for step in meta.stride]
    counted = math.prod(size for size, step in zip(sizes, steps, strict=True) if step)
    reach = 1 + sum((size - 1) * step for size, step in zip(sizes, steps, strict=True))
    return min(counted, reach) * meta.dtype.itemsize


def metas(value: Any) -> Iterator[Meta]:
    """The tensors' metadata in a result or an operand."""
    if type(value) is Meta:
        yield value
    elif type(value) is Node:
        yield from metas(value.meta)
    elif type(value) in (tuple, list):
        for item in value:
            yield from metas(item)


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(int(hint_of(size)) for size in next(metas(value)).shape)


# -- products, convolutions, attention -------------------------------------------------------------


def _product(left: int) -> Callable[..., int]:
    """2 m n k, from the shapes of the factors; the left factor is argument `left`."""

    def count(node: Node) -> int:
        (*rows, k), right = _shape(node.args[left]), _shape(node.args[left + 1])
        columns = right[-1] if len(right) > 1 else 1
        return 2 * math.prod(rows) * columns * k

    return count


def _windows(places: tuple[int, ...], weight: tuple[int, ...]) -> int:
    """Operations of a convolution. `places`: batch, channels (unused), window positions."""
    return 2 * places[0] * math.prod(places[2:]) * math.prod(weight)


def _convolution(node: Node) -> int:
    transposed = bool(node.args[6])
    return _windows(_shape(node.args[0] if transposed else node.meta), _shape(node.args[1]))


def _library_convolution(node: Node) -> int:
    return _windows(_shape(node.meta), _shape(node.args[1]))


def _convolution_backward(node: Node) -> int:
    gradient, x, weight, transposed, wanted = (node.args[i] for i in (0, 1, 2, 7, 10))
    once = _windows(_shape(x if transposed else gradient), _shape(weight))
    return once * sum(map(bool, wanted[:2]))


def _attention(first: int, with_keys: int, with_values: int) -> Callable[..., int]:
    """Products over (queries, keys): numbers of those along the keys' and values' sizes."""

    def count(node: Node) -> int:
        query, key, value = (_shape(node.args[first + i]) for i in range(3))
        pairs = math.prod(query[:-1]) * key[-2]
        return 2 * pairs * (with_keys * key[-1] + with_values * value[-1])

    return count


_FUSED = "_scaled_dot_product_"
_KERNELS = (
    "flash_attention",
    "flash_attention_for_cpu",
    "efficient_attention",
    "cudnn_attention",
    "fused_attention_overrideable",
)
PRODUCTS: dict[str, Callable[[Node], int]] = {
    "mm": _product(0),
    "bmm": _product(0),
    "mv": _product(0),
    "dot": _product(0),
    "vdot": _product(0),
    "addmm": _product(1),
    "_addmm_activation": _product(1),
    "baddbmm": _product(1),
    "addmv": _product(1),
    "_scaled_mm": _product(0),
    "_int_mm": _product(0),
    "convolution": _convolution,
    "_convolution": _convolution,
    "convolution_overrideable": _convolution,
    "cudnn_convolution": _library_convolution,
    "mkldnn_convolution": _library_convolution,
    "convolution_backward": _convolution_backward,
    **{_FUSED + kernel: _attention(0, 1, 1) for kernel in _KERNELS},
    **{f"{_FUSED}{kernel}_backward": _attention(1, 3, 2) for kernel in _KERNELS},
}
"""Operations as a function of the node, by the operator's name."""

# -- the others ------------------------------------------------------------------------------------

PER_RESULT: dict[str, int] = {
    # Compositions of several operations; every other pointwise operator counts as one.
    "sigmoid": 4,  # 1 / (1 + exp(-x))
    "log_sigmoid_forward": 5,
    "logit": 4,
    "silu": 5,
    "mish": 6,  # x * tanh(log(1 + exp(x))), with its selection
    "gelu": 5,  # x / 2 * (1 + erf(x / sqrt(2)))
    "softplus": 5,
    "elu": 4,
    "celu": 5,
    "hardsigmoid": 4,
    "hardswish": 5,
    "hardtanh": 2,
    "leaky_relu": 2,
    "_prelu_kernel": 2,
    "threshold": 2,
    "hardshrink": 3,
    "softshrink": 4,
    "rsqrt": 2,
    "clamp": 2,
    "lerp": 3,
    "addcmul": 3,
    "addcdiv": 3,
    "hypot": 4,
    "logaddexp": 5,
    "logaddexp2": 5,
    "xlogy": 3,
    "sinc": 4,
    "gelu_backward": 12,
    "sigmoid_backward": 3,  # g * y * (1 - y)
    "tanh_backward": 3,
    "silu_backward": 8,
    "mish_backward": 12,
    "softplus_backward": 5,
    "elu_backward": 4,
    "hardsigmoid_backward": 4,
    "hardswish_backward": 6,
    "hardtanh_backward": 3,
    "leaky_relu_backward": 3,
    "threshold_backward": 2,
    "log_sigmoid_backward": 6,
    "mse_loss_backward": 3,
    # Each random number is one operation.
    "native_dropout": 3,  # a number, a comparison, the scaled selection
    "native_dropout_backward": 2,
    # Interpolation: the weighted sum of 2, 4, 8 or 16 neighbours.
    "upsample_linear1d": 3,
    "upsample_bilinear2d": 7,
    "upsample_trilinear3d": 15,
    "upsample_bicubic2d": 31,
}
"""Operations per element of the result."""

PER_OPERAND: dict[str, int] = {
    # A reduction is one operation per element unless a row says otherwise.
    "mean": 1,
    "nansum": 2,
    "aminmax": 2,
    "any": 1,
    "count_nonzero": 2,
    "var": 4,  # sum, difference, square, sum
    "std": 4,
    "var_mean": 4,
    "std_mean": 4,
    "logsumexp": 4,  # max, difference, exp, sum
    "linalg_vector_norm": 2,
    "norm": 2,
    # A reduction and its pointwise use.
    "_softmax": 5,  # max, difference, exp, sum, quotient
    "_safe_softmax": 5,
    "_log_softmax": 5,
    "native_layer_norm": 8,  # moments 4, difference, scale, weight, bias
    "native_group_norm": 8,
    "native_batch_norm": 8,
    "cudnn_batch_norm": 8,
    "_native_batch_norm_legit": 8,
    "_native_batch_norm_legit_no_training": 4,
    "_fused_rms_norm": 4,
    "_softmax_backward_data": 4,  # y * g, sum, difference, product
    "_log_softmax_backward_data": 4,
    "native_layer_norm_backward": 14,
    "native_group_norm_backward": 14,
    "native_batch_norm_backward": 14,
    "cudnn_batch_norm_backward": 14,
    "_fused_rms_norm_backward": 10,
    # losses
    "nll_loss_forward": 0,  # a gather; the sum is over rows
    "nll_loss2d_forward": 0,
    "mse_loss": 3,
    "smooth_l1_loss": 5,
    "huber_loss": 5,
    "soft_margin_loss": 5,
    "binary_cross_entropy": 7,
    "binary_cross_entropy_with_logits": 9,
}
"""Operations per element of the first operand."""

FREE = frozenset({"view", "create", "copy", "join", "barrier", "check"})
"""Kinds of operators without arithmetic."""

ADDING = frozenset(
    {"scatter_add", "index_add", "scatter_reduce", "index_reduce", "embedding_dense_backward"}
)
"""Operators of kind "index" that compute: one operation per element of the scattered operand.

That is the last operand, or the first for the embedding's gradient.
"""


@cache
def _known(op: Any) -> tuple[str, str]:
    """(name without overload, kind) of an operator, or of its functional twin."""
    plan = plan_of(op)
    if plan.row is None and plan.functional is not None:
        return _known(plan.functional)
    short = op._schema.name.split("::")[1]
    row = plan.row or OPS.get(f"aten.{short.rstrip('_')}.default")
    if row is not None:
        return short, row.kind
    if plan.kind == "view" or plan.name in SILENT_VIEWS:
        return short, "view"
    return short, "pointwise" if torch.Tag.pointwise in op.tags else ""


def product(node: Node) -> str:
    """The name of the product, convolution or attention that a node calls; "" for other nodes."""
    name = _known(node.target)[0] if node.op == "call" else ""
    return name if name in PRODUCTS else ""


def flops(node: Node) -> int:
    """Arithmetic operations of one run of a node; 0 unless it calls an operator."""
    if node.op != "call":
        return 0
    name, kind = _known(node.target)
    found = PRODUCTS.get(name)
    if found is not None:
        return found(node)
    result = next(metas(node.meta), None)
    if name in PER_RESULT:
        return PER_RESULT[name] * (0 if result is None else elements(result))
    operand = next(metas(node.args), None)
    if name in PER_OPERAND:
        return PER_OPERAND[name] * (0 if operand is None else elements(operand))
    if kind in FREE:
        return 0
    return 0 if result is None else _BY_KIND.get(kind, _each_result)(node, name)


def _each_result(node: Node, name: str) -> int:
    return elements(next(metas(node.meta)))


def _each_operand(node: Node, name: str) -> int:
    return elements(next(metas(node.args)))


def _sorted(node: Node, name: str) -> int:
    """n log2 n comparisons."""
    found = next(metas(node.args))
    at = 2 if name == "topk" else 1
    dim = node.args[at] if len(node.args) > at else node.kwargs.get("dim", -1)
    sizes = _shape(found)
    along = sizes[dim] if sizes and type(dim) is int and -len(sizes) <= dim < len(sizes) else 1
    return elements(found) * math.ceil(math.log2(max(along, 2)))


def _window(node: Node, name: str) -> int:
    """Pools: one operation per element of each window. Nearest neighbours only move."""
    if "nearest" in name:
        return 0
    if "pool" not in name or "backward" in name:
        return _each_operand(node, name)
    if "adaptive" in name:
        return _each_operand(node, name)
    return _each_result(node, name) * math.prod(_kernel(node))


def _kernel(node: Node) -> tuple[int, ...]:
    sizes = tuple(int(hint_of(size)) for size in node.args[1])
    rank = 3 if "3d" in str(node.target) else 2
    return sizes * rank if len(sizes) == 1 else sizes


def _scattered(node: Node, name: str) -> int:
    if name not in ADDING and not _accumulates(node, name):
        return 0
    tensors = list(metas(node.args))
    return elements(tensors[0] if name == "embedding_dense_backward" else tensors[-1])


def _accumulates(node: Node, name: str) -> bool:
    given = node.args[3] if len(node.args) > 3 else node.kwargs.get("accumulate", False)
    return "index_put" in name and bool(given)


_BY_KIND: dict[str, Callable[[Node, str], int]] = {
    "reduction": _each_operand,
    "scan": _each_operand,
    "loss": _each_operand,
    "sort": _sorted,
    "window": _window,
    "index": _scattered,
}
"""Functions by kind for the remaining operators.

For other kinds the count is one operation per element of the first result: a guess for operators
without a row in the op table.
"""

# -- bytes -----------------------------------------------------------------------------------------

GATHERS = frozenset(
    {"embedding", "index_select", "gather", "index", "_unsafe_index", "take", "_embedding_bag"}
)
"""Operators that read no more of their first operand than they return."""
OVERWRITES = frozenset({"fill_", "zero_", "copy_", "normal_", "uniform_", "bernoulli_"})
"""In-place operators that do not read their target."""


def traffic(node: Node) -> tuple[int, int]:
    """Bytes (read, written) of one run of a node; each element counts once. Views: none."""
    if node.op != "call":
        return 0, 0
    name, kind = _known(node.target)
    if kind == "view" or node.meta is None:
        return 0, 0
    own = node.target._schema.name.split("::")[1]
    written = sum(map(nbytes, metas(node.meta)))
    operands = [meta for one in dict.fromkeys(reads(node)) for meta in metas(one)]
    counted = [nbytes(meta) for meta in operands]
    if name in GATHERS and counted:
        counted[0] = min(counted[0], written)
    elif own in OVERWRITES and counted:
        counted[0] = 0
    elif node.alias is not None and kind == "index" and len(counted) > 1:
        # An in-place write of some positions.
        written = min(written, counted[-1])
        counted[0] = written if _scattered(node, name) else 0
    return sum(counted), written


def moved(node: Node) -> int:
    """Bytes read and written by one run of a node alone."""
    return sum(traffic(node))
