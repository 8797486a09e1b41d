"""Numbers read from tensors that are not known before the graph runs: `loss.item()`.

In: a tensor of one element. Out: an unbound number (`values.symbolic_numbers`) that the graph reads
when it runs; None where the frame has to break. Python's number is built from the tensor that the
graph returns for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ...ir.graph.nodes import Node
from ...ir.graph.schema import plan_of
from ...ir.trace.read_numbers import numbers_read, read_number
from ..values import symbolic_numbers
from ..values.value import Const, Sequence, Tensor, Value
from . import symbolic_math

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

_MOST_ITEMS = 16  # of a list
_WHOLE = frozenset({torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8})
_REAL = frozenset({torch.float64, torch.float32, torch.float16, torch.bfloat16})


def number(m: Machine, value: Tensor, name: str) -> Value | None:
    """tensor.name(), for a name of `value_questions.NUMBERS`."""
    if name == "tolist":
        return _list(m, value)
    ghost = value.ghost
    sizes = m.facts.form(ghost._node.meta.shape)
    if not _may_read(m, value) or any(type(size) is not int or size != 1 for size in sizes):
        return None
    if name == "item":
        return _read(m, ghost)
    if ghost.requires_grad:  # torch warns
        return None
    if name == "__int__":
        return symbolic_math.called(m, int, [_read(m, ghost)])
    if name == "__float__":
        return symbolic_math.called(m, float, [_read(m, ghost)])
    if name == "__index__" and ghost.dim() == 0 and ghost.dtype in _WHOLE:
        return _read(m, ghost)
    return None


def _list(m: Machine, value: Tensor) -> Value | None:
    """tensor.tolist() of a short tensor."""
    shape = value.ghost._node.meta.shape
    if not _may_read(m, value) or any(type(size) is not int for size in shape):
        return None
    if torch.Size(shape).numel() > _MOST_ITEMS or 0 in shape:
        return None
    return _listed(m, value.ghost)


def _listed(m: Machine, ghost: Any) -> Value:
    if ghost.dim() == 0:
        return _read(m, ghost)
    parts = m.tracer.run(torch.Tensor.unbind, (ghost,), where=m.users_line)
    return Sequence([_listed(m, part) for part in parts], list)


def _may_read(m: Machine, value: Tensor) -> bool:
    if m.inner or m.modes or m.varied.plain or not m.tracer.owns(value.ghost):
        return False
    if m.tracer.regions is not None or m.differentiating:
        return False
    return value.ghost.dtype in _WHOLE | _REAL and value.ghost.device.type in ("cpu", "cuda")


def _read(m: Machine, ghost: Any) -> Const:
    m.activity += 1
    m.numbers.give = give_numbers
    place = None if ghost._store.written else _place(ghost._node)
    symbol = m.numbers.places.get(place)
    if symbol is None:
        held, symbol = read_number(m.tracer, ghost, m.users_line)
        m.numbers.read[symbol] = m.heap.known[id(held)] = Tensor(held, torch.Tensor)
        m.heap.keep.append(held)
        if place is not None:
            m.numbers.places[place] = symbol
    return symbolic_numbers.number(m, symbol)


def _place(node: Node) -> tuple[Any, ...]:
    """The same for views of the same element: `t[0]` twice is one number of the graph."""
    steps: list[Any] = []
    while isinstance(node.target, torch._ops.OpOverload) and plan_of(node.target).kind == "view":
        base, *rest = node.args
        if node.kwargs or any(type(part) is not int for part in rest):
            break
        steps += (node.target, *rest)
        node = base
    return (node, *steps)


def give_numbers(m: Machine, outputs: list[Tensor]) -> None:
    """Add the tensors of numbers that the graph reads, and needs itself, to its outputs."""
    for ghost in numbers_read(m.tracer):
        value = next(value for value in m.numbers.read.values() if value.ghost is ghost)
        if value not in outputs:
            outputs.append(value)
