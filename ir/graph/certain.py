"""Conditions on tensors that hold for all numbers which an operator can give.

In: a node and the nodes recorded so far. Out: its truth where the range of a random number decides
it, else None: `torch.rand([]) < p` is False for p = 0, as in models whose layers are not dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..symbolic.expr import Expr, bounds_of, decided_by
from .effects import root, writes
from .nodes import Node

# Numbers of [0, 1): the greatest float64 below 1 is no less than that of any narrower dtype.
FRACTION = (0.0, 1 - 2.0**-53)
_FRACTIONS = frozenset({"aten.rand.default", "aten.rand.generator", "aten.rand_like.default"})
_OPERATORS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
# The element of another tensor, or a copy of it.
_SAME = frozenset(
    {"alias", "clone", "detach", "lift_fresh", "select", "squeeze", "unsqueeze", "view"}
)


def certain_truth(node: Node, recorded: Sequence[Node]) -> bool | None:
    """The truth of a tensor of one element."""
    name, _, overload = str(node.target).removeprefix("aten.").partition(".")
    if node.op != "call" or name not in _OPERATORS or overload != "Scalar":
        return None
    drawn, other = node.args
    memory = {node}
    known = _range(drawn, memory)
    if known is None or isinstance(other, Expr) or other != other:
        return None
    if any(root(target) in memory for one in recorded for target in writes(one)):
        return None
    # Some dtypes compare with the scalar that is rounded to them.
    rounded = torch.tensor(other, dtype=drawn.meta.dtype).item()
    found = {_decided(_OPERATORS[name], known, scalar) for scalar in (other, rounded)}
    return found.pop() if len(found) == 1 else None


def _decided(op: str, known: tuple[float, float], other: float) -> bool | None:
    low, high = known
    # No difference: it may round to 0.
    ends = [(one > other) - (one < other) for one in (low, high)]
    return decided_by(op, *ends)


def _range(node: Node, memory: set[Node]) -> tuple[float, float] | None:
    """A range that certainly contains the number in a tensor; adds the memory that is read."""
    while node.op == "call":
        memory.add(root(node))
        name = str(node.target)
        if name in _FRACTIONS:
            return FRACTION if node.meta.dtype.is_floating_point else None
        if name == "aten.scalar_tensor.default":
            return _of_number(node)
        source: Any = node.args[0] if node.args else None
        short = name.removeprefix("aten.").partition(".")[0]
        if not isinstance(source, Node) or not (short in _SAME or short == "_to_copy"):
            return None
        if node.meta.dtype not in (source.meta.dtype, torch.float64):
            return None
        node = source
    return None


def _of_number(node: Node) -> tuple[float, float] | None:
    number: Any = node.args[0]
    known = node.meta.dtype is torch.float64 and isinstance(number, Expr)
    return bounds_of(number) if known else None
