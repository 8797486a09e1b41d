"""Operators that may raise because of their operands' data, and on what.

In: a node. Out: whether a run of it can fail although metadata and options of its operands are
valid (an index out of range, a singular matrix, an integer divided by zero). Capture keeps
operators that can fail apart from effects that it cannot undo, and keeps them in the graph even if
their results are unused. Passes and codegen use it as well.

`RAISES` is the table: operator -> what it raises on. An operator may also raise if it has no row in
the op table and is in neither `RAISES` nor `_TOTAL`: its behaviour is unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from ..graph.nodes import Meta, Node
from ..graph.opdef import OPS

aten = torch.ops.aten

INDEX = "an index out of range"
LABEL = "a label out of range"
ZERO = "an integer divided by zero"
NUMBER = "a number that the integer dtype cannot hold"
PROBABILITY = "a probability outside of [0, 1]"
SINGULAR = "a matrix that cannot be factorised"
LENGTHS = "lengths that do not fit the data"

# Reason -> names of functional operators; their in-place twins raise on the same data.
_BY_REASON = {
    INDEX: "embedding index_select gather scatter scatter_add scatter_reduce index_add index_copy"
    " index_fill index_reduce index _unsafe_index index_put _unsafe_index_put _index_put_impl"
    " take put embedding_bag _embedding_bag _embedding_bag_forward_only max_unpool2d"
    " max_unpool3d embedding_renorm _pdist_forward embedding_dense_backward"
    " _unsafe_masked_index _unsafe_masked_index_put_accumulate",
    LABEL: "nll_loss_forward nll_loss2d_forward nll_loss_backward nll_loss2d_backward"
    " multi_margin_loss multilabel_margin_loss_forward multi_margin_loss_backward"
    " multilabel_margin_loss_backward one_hot",
    ZERO: "div floor_divide remainder fmod",
    NUMBER: "masked_fill",
    PROBABILITY: "bernoulli binary_cross_entropy multinomial",
    "a negative rate or deviation": "poisson normal normal_functional",
    SINGULAR: "_linalg_check_errors linalg_eig linalg_eigh _linalg_eigh linalg_eigvals"
    " _linalg_eigvals _linalg_svd linalg_lstsq linalg_lu linalg_lu_factor_ex ormqr"
    " linalg_ldl_solve lu_unpack",
    LENGTHS: "_ctc_loss segment_reduce masked_scatter _pack_padded_sequence",
    "an assertion of the program's": "_assert_async _assert_scalar _functional_assert_async"
    " leave_unless",
    "bounds that are not finite": "histc",
}
RAISES = {name: reason for reason, names in _BY_REASON.items() for name in names.split()}
# Operators without a row in the op table whose kernels check metadata only. These do not raise
# either: pointwise operators by torch's tag, random operators that `RAISES` does not name, and
# operators that make a view.
_TOTAL = frozenset(
    {
        "huber_loss_backward",
        "smooth_l1_loss_backward",
        "soft_margin_loss_backward",
        "native_layer_norm_backward",
        "native_group_norm_backward",
        "native_batch_norm_backward",
        "_fused_rms_norm",
        "_fused_rms_norm_backward",
        "_weight_norm_interface",
        "_weight_norm_interface_backward",
        "_softmax_backward_data",
        "_log_softmax_backward_data",
        "native_dropout_backward",
        "convolution_backward",
        "avg_pool2d_backward",
        "avg_pool3d_backward",
        "_adaptive_avg_pool2d_backward",
        "max_pool2d_with_indices_backward",
        "max_pool3d_with_indices_backward",
        "upsample_linear1d_backward",
        "upsample_bilinear2d_backward",
        "upsample_bicubic2d_backward",
        "upsample_nearest1d_backward",
        "upsample_nearest2d_backward",
        "upsample_nearest3d_backward",
        "reflection_pad1d_backward",
        "reflection_pad2d_backward",
        "replication_pad1d_backward",
        "replication_pad2d_backward",
        "select_backward",
        "slice_backward",
        "diagonal_backward",
        "unfold_backward",
        "glu",
        "glu_backward",
        "_prelu_kernel_backward",
        "hardshrink_backward",
        "softshrink_backward",
        "log_sigmoid_backward",
        "logit_backward",
        "_scaled_dot_product_flash_attention_for_cpu_backward",
        "cudnn_batch_norm_backward",
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_flash_attention_backward",
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_efficient_attention_backward",
        "_scaled_dot_product_cudnn_attention",
        "_scaled_dot_product_cudnn_attention_backward",
        "_scaled_dot_product_fused_attention_overrideable",
        "_scaled_dot_product_fused_attention_overrideable_backward",
        "copy",
        "fill",
        "zero",
        "uniform",
        "random",
        "exponential",
    }
)


def looks_at_no_data(op: Any) -> bool:
    """Whether no run of an operator fails because of data, by the tables."""
    return reason(op) is None


def reason(op: Any) -> str | None:
    """What an operator raises on; None if it does not raise because of data."""
    name, short = _names(op)
    if short in RAISES:
        return RAISES[short]
    if short in _TOTAL or name in OPS or name.replace("_.", ".", 1) in OPS:
        return None
    if op.namespace == "aten" and torch.Tag.pointwise in op.tags:
        return None
    return "it is not known whether it can raise"


def may_raise(node: Node) -> bool:
    """Whether a run of the node may raise because of data, see the module's docstring."""
    if node.op != "call":
        return False
    found = reason(node.target)
    if found is None:
        return False
    harmless = _HARMLESS.get(found)
    return harmless is None or not harmless(node)


def _short(op: Any) -> str:
    """ "div" for aten.div_.Tensor."""
    return _names(op)[1]


@cache
def _names(op: Any) -> tuple[str, str]:
    name: str = str(op).split(".")[1]
    return str(op), name if name.endswith("__") else name.rstrip("_")


def counts_places(node: Node) -> Node | None:
    """The arange that indexes a gather with positions that all exist along the dimension, or None.

    The gather raises nothing unless something has written to the arange.
    """
    short = _short(node.target) if node.op == "call" else ""
    if short not in ("index_select", "gather", "embedding"):
        return None
    table, index = node.args[0], node.args[1 if short == "embedding" else 2]
    dim = 0 if short == "embedding" else node.args[1]
    while type(index) is Node and index.alias is not None:
        index = index.alias
    if type(index) is not Node or index.target is not aten.arange.default or not table.meta.shape:
        return None
    size, count = table.meta.shape[dim], index.args[0]
    return index if type(size) is type(count) is int and count <= size else None


# -- operands for which an operator of a reason raises nothing


def _divides(node: Node) -> bool:
    """Whether the dtype is no integer, or the divisor is a known number other than zero."""
    dtype = getattr(node.meta, "dtype", None)
    if isinstance(dtype, torch.dtype) and (dtype.is_floating_point or dtype.is_complex):
        return True
    by = node.args[1] if len(node.args) > 1 else None
    return type(by) is int and by != 0


def _holds(node: Node) -> bool:
    """Whether the value is a Python number, which was checked at capture, or fits the dtype."""
    value = node.args[-1]
    meta = getattr(node.meta, "dtype", None)
    if type(value) is not Node or meta is None or meta.is_floating_point or meta.is_complex:
        return True
    return value.meta.dtype in (meta, torch.bool)


def _given(node: Node) -> bool:
    """Whether the probability is a Python number, which was checked at capture."""
    by_tensor = len(node.args) > 1 and type(node.args[1]) is Node
    return node.target in (aten.bernoulli.p, aten.bernoulli_.float) and not by_tensor


def _no_tensor_deviation(node: Node) -> bool:
    """Whether the deviation is a Python number, which was checked at capture."""
    return _short(node.target).startswith("normal") and not any(
        type(one) is Node and isinstance(one.meta, Meta) for one in node.args[1:2]
    )


_HARMLESS: dict[str, Callable[[Node], bool]] = {
    ZERO: _divides,
    NUMBER: _holds,
    PROBABILITY: _given,
    "a negative rate or deviation": _no_tensor_deviation,
}
