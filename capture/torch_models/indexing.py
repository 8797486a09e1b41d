"""Tensor indexing with an int that varies: `x[i]`, `x[i, 2:]`, `x[i] = y`.

torch's own indexing takes plain numbers. A first index of this kind becomes `select` along
dimension 0, whose result is indexed by the rest. A guard holds it within the dimension, where
select and indexing agree. Any other index of a tensor is recorded as a torch call: see `get_item`
in `capture.operations.operators`.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

from ..values import symbolic_numbers
from ..values.value import Const, Sequence, Tensor, Value
from . import calls

if TYPE_CHECKING:
    from ..interpreter.machine import Machine


def selected(m: Machine, value: Tensor, index: Value) -> tuple[Tensor, Value | None]:
    """(tensor, index) that remain; index None: the tensor is the result."""
    parts = index.items if isinstance(index, Sequence) and index.cls is tuple else [index]
    while parts and symbolic_numbers.is_whole(parts[0]) and not m.modes:
        if not _within(m, value, parts[0]):
            break
        calls.hold_operator(m, operator.getitem, [value])
        made = calls.call_torch(m, torch.Tensor.select, [value, Const(0), parts[0]], {})
        assert isinstance(made, Tensor)
        value = made
        parts = parts[1:]
        if not parts:
            return value, None
        index = Sequence(list(parts), tuple)
    return value, index


def _within(m: Machine, value: Tensor, at: Value) -> bool:
    if value.cls not in (torch.Tensor, torch.nn.Parameter) or not value.ghost.dim():
        return False
    place: Any = symbolic_numbers.operand(m, at)
    size = symbolic_numbers.operand(m, calls.from_result(m, value.ghost.shape[0]))
    if not symbolic_numbers.varies(m, place, size):
        return False
    facts = symbolic_numbers.with_where(m)
    return bool(facts.require("<", place, size)) and bool(facts.require(">=", place, -size))
