"""Conditions on how many elements a mask selects: `if x[mask].shape[0] == 0:`.

In: a truth value that the graph would compute from sizes of `nonzero`. Out: its truth, answered
before the graph as a condition on the mask itself (`value_questions`); None where that costs too
much, or where the mask has changed since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ...ir.graph.nodes import Node
from ...ir.symbolic.expr import Expr, Symbol, fold, symbols_of
from ..values.value import Tensor
from . import value_questions

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

_NUMBER = "aten.scalar_tensor.default"
# Operators of one element over such numbers.
_OVER_NUMBERS = frozenset(
    {
        *(f"aten.{name}.Scalar" for name in ("lt", "le", "gt", "ge", "eq", "ne")),
        *(f"aten.{name}.Tensor" for name in ("lt", "le", "gt", "ge", "eq", "ne")),
        *("aten.logical_not.default", "aten.logical_and.default", "aten.logical_or.default"),
        *("aten.bitwise_and.Tensor", "aten.bitwise_or.Tensor", "aten.bitwise_not.default"),
        *("aten.detach.default", "aten._to_copy.default", "aten.clone.default"),
        *("aten.view.default", "aten.reshape.default"),
    }
)
_SUMS = {"add": torch.add, "mul": torch.mul}
_MOST_NODES = 12


class _Unknown(Exception):
    """The truth value depends on something else."""


def answered(m: Machine, held: Any) -> bool | None:
    """The truth of the tensor that holds a truth value, if sizes of `nonzero` decide it."""
    if m.inner or m.modes or m.tracer is not m.root_tracer or m.open_bodies:
        return None
    try:
        made = _Rebuilt(m).of(held._node)
    except _Unknown:
        return None
    return value_questions.answered(m, Tensor(made, torch.Tensor))


class _Rebuilt:
    """The same computation over counts of the masks, which need no `nonzero`."""

    def __init__(self, m: Machine) -> None:
        self.m, self.left = m, _MOST_NODES

    def of(self, node: Node) -> Any:
        self.left -= 1
        name = str(node.target)
        if node.op != "call" or self.left < 0:
            raise _Unknown
        if name == _NUMBER:
            return self._number(node.args[0])
        if name not in _OVER_NUMBERS or not isinstance(node.args[0], Node):
            raise _Unknown
        given = [self.of(one) if isinstance(one, Node) else one for one in node.args]
        return self._run(node.target, *given, **node.kwargs)

    def _run(self, fn: Any, *args: Any, **kwargs: Any) -> Any:
        return self.m.tracer.run(fn, args, kwargs, self.m.users_line)

    def _number(self, expr: Any) -> Any:
        expr = self.m.facts.form(expr)
        if not isinstance(expr, Expr) or not symbols_of(expr):
            raise _Unknown
        return fold(expr, lambda number: number, self._counted, self._computed)

    def _counted(self, symbol: Symbol) -> Any:
        mask = self.m.numbers.counted.get(symbol)
        if mask is None or mask._store.written:
            raise _Unknown
        return self._run(_count, mask)

    def _computed(self, op: str, kind: str, *parts: Any) -> Any:
        if op not in _SUMS or kind != "int":
            raise _Unknown
        *others, last = parts if isinstance(parts[0], torch.Tensor) else reversed(parts)
        return self._run(_SUMS[op], *others, last)


def _count(mask: torch.Tensor) -> torch.Tensor:
    return (mask.detach() != 0).sum()
