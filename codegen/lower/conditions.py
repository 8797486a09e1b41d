"""Conditions of lowering rules: the operands for which a loop nest computes exactly what
eager does.
"""

from __future__ import annotations

import torch

from ...ir.graph.nodes import Node


def float_result(node: Node) -> bool:
    return node.meta.dtype.is_floating_point


def not_bool(node: Node) -> bool:
    return node.meta.dtype != torch.bool


def real_numbers(node: Node) -> bool:
    """Whether no Python number among the operands is complex: no loop computes with those."""
    return not any(isinstance(a, complex) for a in (*node.args, *node.kwargs.values()))


def fits_integer(node: Node) -> bool:
    """Whether the Python numbers among the operands are in the range of the result's
    integer type.
    """
    dtype = node.meta.dtype
    if dtype.is_floating_point or dtype == torch.bool:
        return dtype != torch.bool
    limits = torch.iinfo(dtype)
    numbers = [a for a in (*node.args, *node.kwargs.values()) if isinstance(a, (int, float))]
    return all(isinstance(n, int) and limits.min <= n <= limits.max for n in numbers)
