"""Branches on tensor data of which one side only raises: `if isnan(h).any(): raise`, `assert`.

In: a jump and the tensor that it tests. Out: the outcome that does not raise; the graph checks it
(`ir.ops.checks.leave_unless`), and if it is another one, Python runs the frame again, as after any
operator that may raise. None: the branch decides how the frame goes on, or something was written
that Python's second run would see. Other branches are checked in the same way where most calls had
one outcome (`Machine.assumed`, from `graftjit.dispatch.assumed_branches`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ...ir.ops.checks import assumed
from ..breaks import Break
from ..bytecode.branches import place_of
from ..bytecode.decoder import Decoded, Instr
from ..values import symbolic_numbers
from ..values.registry import NONE, Args, Kwargs, models
from ..values.symbolic_sizes import has_one_element
from ..values.value import Const, Tensor, Value
from . import data_numbers, replaced_tensors, value_questions

if TYPE_CHECKING:
    from ..interpreter.machine import Machine
    from ..values.frames import Frame

# The most instructions of a side that only raises: those of its message.
_MOST_INSTRUCTIONS = 200


def outcome(m: Machine, frame: Frame, jump: Instr, value: Value) -> bool | None:
    """The truth of a value that a jump tests, if a tensor decides it and the other one certainly
    ends in `raise`."""
    tensor = value if isinstance(value, Tensor) else data_numbers.held_by(m, value)
    if tensor is None:
        return None
    if jump.target is None or jump.op != "POP_JUMP_IF":
        return None
    certain = value_questions.certain(m, tensor)
    if certain is not None:
        return certain
    jumps = jump.arg == "true"
    usual = m.assumed.get(place_of(frame.code, jump))
    if usual is not None and checked(m, tensor, usual):
        return usual
    raised = [_only_raises(frame.decoded, at) for at in (jump.target, jump.index + 1)]
    if raised[0] == raised[1]:
        return replaced_tensors.begin(m, frame, jump, tensor)
    expected = jumps != raised[0]
    return expected if not _caught(m, jump) and checked(m, tensor, expected) else None


def checked(m: Machine, value: Tensor, expected: bool) -> bool:
    """Record the check of a condition, if it can be one of the graph."""
    if m.inner or m.modes or not m.tracer.owns(value.ghost) or m.differentiating:
        return False
    if m.tracer.regions is not None or value.ghost.device.type not in ("cpu", "cuda"):
        return False
    if not has_one_element(m, value.ghost) or not m.may_check():
        return False
    m.activity += 1
    m.tracer.run(assumed, (value.ghost, expected), where=m.users_line)
    return True


def _only_raises(decoded: Decoded, start: int) -> bool:
    """Whether each path from an instruction ends in a `raise`, soon and without a loop."""
    seen: set[int] = set()
    pending = [start]
    while pending:
        at = pending.pop()
        if at in seen:
            continue
        seen.add(at)
        instr = decoded.instrs[at]
        if instr.op in ("RAISE", "RERAISE"):
            continue
        backwards = instr.target is not None and instr.target <= at
        if (
            instr.op in ("RETURN_VALUE", "YIELD_VALUE")
            or backwards
            or len(seen) > _MOST_INSTRUCTIONS
        ):
            return False
        if instr.target is not None:
            pending.append(instr.target)
        if instr.op != "JUMP":
            pending.append(at + 1)
    return True


def _caught(m: Machine, jump: Instr) -> bool:
    """Whether a frame of the walk may catch what is raised at this jump, and go on."""
    for frame in m.frames:
        instrs = frame.decoded.instrs
        instr = jump if frame is m.frames[-1] else instrs[frame.pc - 1]
        if instr.handler is None or _only_raises(frame.decoded, instr.handler):
            continue
        if all(one.op != "WITH_EXCEPT_START" for one in instrs[instr.handler : instr.handler + 3]):
            return True
    return False


@models(torch._assert_async)
def _assert_async(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    value = args[0] if args else kwargs.get("input")
    if not isinstance(value, Tensor) or not checked(m, value, True):
        raise Break("GB105", "the truth of a tensor decides whether _assert_async() raises")
    return NONE


@models(torch._check)
def _check(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    value = args[0] if args else kwargs.get("cond")
    if value is not None and symbolic_numbers.is_truth(value):
        if not checked(m, data_numbers.held_by(m, value), True):
            raise Break("GB105", "the truth of a tensor decides whether _check() raises")
    elif type(value) is not Const or value.value is not True:
        raise Break("GB112", "_check() of a condition that does not hold")
    return NONE
