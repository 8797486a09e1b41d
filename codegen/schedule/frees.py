"""Frees: tensors of a program are released after the last step that reads them.

In: the steps of a program in order. Out: the same steps with a Free wherever slots are dead.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...runtime.program.program import (
    Alloc,
    Aten,
    DeviceLaunch,
    Free,
    Launch,
    Otherwise,
    Scratch,
    Slot,
    Step,
    View,
)


def with_frees(
    steps: list[Step], n_inputs: int, outputs: Iterable[int], kept: Iterable[int], skip: set[int]
) -> list[Step]:
    """The same steps with a Free after the last use of each slot that is neither an output nor one
    of the first `n_inputs`.
    """
    never = {*range(n_inputs), *outputs, *kept, *skip}
    last: dict[int, int] = {}
    below: dict[int, int] = {}  # scratch slot -> the slot of the tensor that holds its memory
    for position, step in enumerate(steps):
        if isinstance(step, Scratch) and step.base >= 0:
            below[step.slot] = step.base
        for number in slots_of(step):
            last[number] = position
            if number in below:
                last[below[number]] = position
    dead: dict[int, list[int]] = {}
    for number, position in last.items():
        if number not in never:
            dead.setdefault(position, []).append(number)
    found: list[Step] = []
    for position, step in enumerate(steps):
        found.append(step)
        if position in dead:
            found.append(Free(tuple(dead[position])))
    return found


def slots_of(step: Step) -> list[int]:
    """Every slot that a step reads or writes."""
    match step:
        case Alloc():
            return [step.slot]
        case Scratch():
            return [step.slot] if step.base < 0 else [step.slot, step.base]
        case Launch() | DeviceLaunch() | Otherwise() | Free():
            return list(step.slots)
        case View():
            return [step.slot, step.base]
        case Aten():
            found = [number for number in step.results if number is not None]
            _collect((step.args, tuple(step.kwargs.values())), found)
            return found
    raise TypeError(step)


def _collect(value: Any, found: list[int]) -> None:
    if isinstance(value, Slot):
        found.append(value.index)
    elif isinstance(value, (tuple, list)):
        for item in value:
            _collect(item, found)
