"""Conditions on tensors that hold for all numbers which an operator can give.

In: a node and the nodes recorded so far. Out: its truth where the range of a random number decides
it, else None: `torch.rand([]) < p` is False for p = 0, as in models whose layers are not dropped,
and so is `torch.bernoulli(p)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..symbolic.expr import Expr, bounds_of, decided_by
from .effects import root
from .nodes import Node
from .writers import Writers

Range = tuple[float, float]

# Numbers of [0, 1): the greatest float64 below 1 is no less than that of any narrower dtype.
FRACTION = (0.0, 1 - 2.0**-53)
_BITS = (0.0, 1.0)
_FRACTIONS = frozenset({"rand", "rand_like"})
# The place of the number that fills a new tensor.
_FILLED = {"full": 1, "full_like": 1, "new_full": 2, "scalar_tensor": 0, "fill": 1, "fill_": 1}
_SAME_NUMBER = {"zero_": 0, "zeros": 0, "zeros_like": 0, "new_zeros": 0}
_SAME_NUMBER |= {"ones": 1, "ones_like": 1, "new_ones": 1}
_OPERATORS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
# The element of another tensor, or a copy of it.
_SAME = frozenset(
    {"_to_copy", "alias", "clone", "detach", "lift_fresh", "select", "squeeze", "unsqueeze", "view"}
)
_MOST_ELEMENTS = 64  # of a constant whose numbers are looked at


def certain_truth(node: Node, recorded: Sequence[Node], writers: Writers) -> bool | None:
    """The truth of a tensor of one element."""
    if node.op != "call":
        return None
    ranges = _Ranges(recorded, writers)
    name, _, overload = _named(node)
    if name not in _OPERATORS:
        known = ranges.of(node, len(recorded))
        return None if known is None else _decided("!=", known, 0)
    if overload != "Scalar":
        return None
    drawn, other = node.args
    if ranges.of(drawn, len(recorded)) is None or node not in recorded:
        return None
    # Later writes do not count.
    known = ranges.of(drawn, recorded.index(node))
    if known is None or isinstance(other, Expr) or other != other:
        return None
    if ranges.written(root(node)):
        return None
    rounded = _of_number(other, drawn.meta.dtype)
    if rounded is None or (not drawn.meta.dtype.is_floating_point and rounded[0] != other):
        return None
    # Some dtypes compare with the scalar that is rounded to them.
    found = {_decided(_OPERATORS[name], known, scalar) for scalar in (other, rounded[0])}
    return found.pop() if len(found) == 1 else None


def _named(node: Node) -> tuple[str, str, str]:
    return str(node.target).removeprefix("aten.").partition(".")


def _decided(op: str, known: Range, other: float) -> bool | None:
    low, high = known
    # No difference: it may round to 0.
    ends = [(one > other) - (one < other) for one in (low, high)]
    return decided_by(op, *ends)


class _Ranges:
    """Ranges that certainly contain the numbers in a tensor."""

    def __init__(self, recorded: Sequence[Node], writers: Writers) -> None:
        self.recorded, self.writers = recorded, writers

    def written(self, memory: Node) -> list[tuple[int, Node]]:
        """The nodes that write to this memory, with their places."""
        return self.writers.of_memory({memory})

    def of(self, node: Node, at: int) -> Range | None:
        """Of the numbers that a node at this place among the nodes reads."""
        while True:
            made = root(node)
            if made.op == "constant":
                return None if self.written(made) else _of_constant(made)
            if made.op != "call" or not self._may_be_known(node):
                return None
            if writing := [one for one in self.written(made) if one[0] < at]:
                return self._after_write(made, writing)
            if node.alias is None and _named(node)[0] not in _SAME:
                return self._made(node, at)
            source = node.args[0]
            if not _keeps_numbers(node, source):
                return None
            if node.alias is None:  # a copy of what was there
                at = self.recorded.index(node)
            node = source

    def _may_be_known(self, node: Node) -> bool:
        """Whether these are elements of the tensor that made the memory, in its dtype."""
        while node.alias is not None:
            if _named(node)[0] not in _SAME or not isinstance(node.args[0], Node):
                return False
            if node.meta.dtype != node.alias.meta.dtype:
                return False
            node = node.alias
        return isinstance(node.target, torch._ops.OpOverload)

    def _after_write(self, made: Node, writing: list[tuple[int, Node]]) -> Range | None:
        """Of memory that one node has written as a whole."""
        (place, writer), *others = writing
        # Parts that run only if a number is not zero may not have written.
        if others or writer.args[:1] != (made,):
            return None
        if self.writers.has_parts:
            return None
        return self._made(writer, place)

    def _made(self, node: Node, at: int) -> Range | None:
        """Of what an operator makes, or writes over all of its first operand."""
        name, _, overload = _named(node)
        dtype = node.meta.dtype
        if name in _FRACTIONS:
            return FRACTION if dtype.is_floating_point else None
        if name == "uniform_":
            ends = [*node.args[1:], *node.kwargs.values()]
            return FRACTION if ends in ([], [0], [0, 1]) and dtype.is_floating_point else None
        if name in ("bernoulli", "bernoulli_"):
            return self._bernoulli(node, overload, at)
        if name in _SAME_NUMBER:
            return _of_number(float(_SAME_NUMBER[name]), dtype)
        if name in _FILLED and overload in ("default", "Scalar"):
            place = _FILLED[name]
            return _of_number(node.args[place], dtype) if place < len(node.args) else None
        return None

    def _bernoulli(self, node: Node, overload: str, at: int) -> Range:
        share: Any = node.args[0] if overload in ("default", "out") else None
        if overload in ("p", "float", "Tensor"):
            share = node.args[1] if len(node.args) > 1 else node.kwargs.get("p", 0.5)
        known = self.of(share, at) if isinstance(share, Node) else None
        if type(share) in (int, float):
            known = share, share
        return known if known in ((0, 0), (1, 1)) else _BITS  # type: ignore[return-value]


def _keeps_numbers(node: Node, source: Any) -> bool:
    if not isinstance(source, Node) or _named(node)[0] not in _SAME:
        return False
    return node.meta.dtype in (source.meta.dtype, torch.float64)


def _of_number(number: Any, dtype: torch.dtype) -> Range | None:
    if isinstance(number, Expr):
        return bounds_of(number) if dtype is torch.float64 else None
    if type(number) not in (bool, int, float) or dtype.is_complex:
        return None
    try:
        rounded = torch.tensor(number, dtype=dtype).item()
    except (OverflowError, RuntimeError, ValueError):  # out of its range
        return None
    return None if rounded != rounded else (rounded, rounded)


def _of_constant(node: Node) -> Range | None:
    """Of a tensor that the frame has made of numbers, which nothing else can write to."""
    tensor: Any = node.target
    if node.args != ("own",) or not isinstance(tensor, torch.Tensor):
        return None
    if tensor.is_complex() or not 0 < tensor.numel() <= _MOST_ELEMENTS or tensor.is_meta:
        return None
    low, high = tensor.min().item(), tensor.max().item()
    return None if low != low or high != high else (low, high)
