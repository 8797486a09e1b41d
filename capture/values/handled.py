"""Whether a frame of the walk handles what a call raises.

`is_handled` asks for any handler, `is_observed` for one that the program sees: the exit of a block
that the walk has entered (grad mode, autocast) only restores a state, which the program does too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..bytecode.decoder import Instr
from .frames import Frame
from .value import ContextExit

if TYPE_CHECKING:
    from ..interpreter.machine import Machine


def is_handled(m: Machine) -> bool:
    """Whether a frame of the walk has a handler for an exception of this call."""
    return any(_instruction(frame).handler is not None for frame in m.frames if frame.pc)


def is_observed(m: Machine) -> bool:
    """Whether the program would see that this call raises before the call of the root frame ends:
    a handler of its own runs."""
    return any(_has_own(frame) for frame in m.frames if frame.pc)


def _instruction(frame: Frame) -> Instr:
    return frame.decoded.instrs[frame.pc - 1]


def _has_own(frame: Frame) -> bool:
    instr = _instruction(frame)
    while (at := instr.handler) is not None:
        handler = frame.decoded.instrs[at]
        # It puts back a local variable that a comprehension has hidden (3.12), and raises again.
        if handler.op == "SWAP":
            instr = handler
            continue
        depth = instr.handler_depth
        exits = frame.stack[depth - 1] if 0 < depth <= len(frame.stack) else None
        if not isinstance(exits, ContextExit):
            return True
        # The handler of the block is covered by its own cleanup, and that by what is around it.
        instr = handler
        while instr.handler is not None and instr.handler_depth >= depth:
            instr = frame.decoded.instrs[instr.handler]
    return False
