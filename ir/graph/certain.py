"""Conditions on tensors that hold for all numbers which an operator can give.

In: a node and the nodes recorded so far. Out: its truth where the range of a random operator decides it, else None:
`torch.rand([]) < p` is False for p = 0, as in models whose layers are not dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..symbolic.expr import Expr
from .effects import root, writes
from .nodes import Node

# Of one number of [0, 1), by the other side of the comparison; None: the number decides.
_TRUTHS: dict[str, Callable[[Any], bool | None]] = {
    "lt": lambda c: False if c <= 0 else True if c >= 1 else None,
    "le": lambda c: False if c < 0 else True if c >= 1 else None,
    "gt": lambda c: True if c < 0 else False if c >= 1 else None,
    "ge": lambda c: True if c <= 0 else False if c >= 1 else None,
    "eq": lambda c: False if c < 0 or c >= 1 else None,
    "ne": lambda c: True if c < 0 or c >= 1 else None,
}
_FRACTIONS = frozenset({"aten.rand.default", "aten.rand.generator", "aten.rand_like.default"})


def certain_truth(node: Node, recorded: Sequence[Node]) -> bool | None:
    """The truth of a tensor of one element."""
    name, _, overload = str(node.target).removeprefix("aten.").partition(".")
    decide = _TRUTHS.get(name)
    if node.op != "call" or decide is None or overload != "Scalar":
        return None
    drawn, other = node.args
    if drawn.op != "call" or str(drawn.target) not in _FRACTIONS:
        return None
    if isinstance(other, Expr) or other != other:
        return None
    memory = (node, drawn)
    if any(root(target) in memory for one in recorded for target in writes(one)):
        return None
    return decide(other)
