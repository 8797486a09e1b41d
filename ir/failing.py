"""Which operators may raise because of the data in their operands.

In: a node. Out: whether a run of it can fail although its shapes and dtypes are fine (an index out of range, a
singular matrix, an integer divided by zero). Asked by capture, which keeps what can fail apart from what cannot
be taken back.
"""

from __future__ import annotations

from typing import Any

import torch

from .graph import Node
from .opdef import OPS

_KINDS = frozenset({"index", "loss"})
_INTEGER_DIVISIONS = frozenset({"div", "floor_divide", "remainder", "fmod", "pow"})
_SAFE = frozenset(
    {"copy_", "fill_", "zero_", "bernoulli_", "uniform_", "normal_", "random_", "exponential_"}
)
# Operators without a row, or of the kinds above, whose kernels look at shapes and dtypes alone.
_TOTAL = frozenset(
    {
        "mse_loss", "huber_loss", "smooth_l1_loss", "soft_margin_loss", "binary_cross_entropy_with_logits",
        "huber_loss_backward", "smooth_l1_loss_backward", "soft_margin_loss_backward",
        "native_layer_norm_backward", "native_group_norm_backward", "native_batch_norm_backward",
        "_fused_rms_norm", "_fused_rms_norm_backward", "_weight_norm_interface", "_weight_norm_interface_backward",
        "_softmax_backward_data", "_log_softmax_backward_data", "native_dropout_backward", "convolution_backward",
        "avg_pool2d_backward", "avg_pool3d_backward", "_adaptive_avg_pool2d_backward",
        "max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward",
        "upsample_linear1d_backward", "upsample_bilinear2d_backward", "upsample_bicubic2d_backward",
        "upsample_nearest1d_backward", "upsample_nearest2d_backward", "upsample_nearest3d_backward",
        "reflection_pad1d_backward", "reflection_pad2d_backward", "replication_pad1d_backward",
        "replication_pad2d_backward", "select_backward", "slice_backward", "diagonal_backward", "unfold_backward",
        "glu", "glu_backward", "_prelu_kernel_backward", "hardshrink_backward", "softshrink_backward",
        "log_sigmoid_backward", "logit_backward", "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_flash_attention_for_cpu_backward",
        "cudnn_batch_norm_backward", "_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_backward",
        "_scaled_dot_product_efficient_attention", "_scaled_dot_product_efficient_attention_backward",
        "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_cudnn_attention_backward",
        "_scaled_dot_product_fused_attention_overrideable", "_scaled_dot_product_fused_attention_overrideable_backward",
    }
)  # fmt: skip


def looks_at_no_data(op: Any) -> bool:
    """Whether no run of an operator fails because of data, as far as the tables tell."""
    name = str(op)
    row = OPS.get(name)
    return name.split(".")[1] in _TOTAL or (row is not None and row.kind not in _KINDS)


def may_raise(node: Node) -> bool:
    """See the module's docstring; an operator that the table does not have may."""
    if node.op != "call":
        return False
    name = str(node.target)
    _, short, _ = name.split(".")
    row = OPS.get(name) or OPS.get(name.replace("_.", ".", 1))
    if short in _SAFE or short in _TOTAL:
        return False
    if row is None or row.kind in _KINDS:
        return True
    if row.kind != "pointwise" or short.rstrip("_") not in _INTEGER_DIVISIONS:
        return False
    return not (_floats(node) or _by_a_number(node))


def _by_a_number(node: Node) -> bool:
    """Whether an integer is divided by one that is known, and is none that raises."""
    by = node.args[1] if len(node.args) > 1 else None
    return type(by) is int and by > 0


def _floats(node: Node) -> bool:
    dtype = getattr(node.meta, "dtype", None)
    return isinstance(dtype, torch.dtype) and (dtype.is_floating_point or dtype.is_complex)
