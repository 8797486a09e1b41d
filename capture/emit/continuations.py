"""Breaks inside inlined functions: the rest of each inlined function is a continuation.

In: the frames of the walk where an instruction of the innermost one breaks. Out: a callable and its
arguments, which the root's replacement code calls in place of its own call instruction. The
innermost frame continues in a resume function, which begins with the broken instruction. Each frame
between it and the root continues in a function of its own code, which calls the next inner
continuation and then a resume function; so exception handlers, tracebacks and the depth of the
stack are those of plain Python.
"""

from __future__ import annotations

import types
from functools import partial
from typing import Any

from ...ir.dataclass import dataclass
from ...runtime import _native, own_files
from ...runtime.process.skipped_files import skipped_file
from ..breaks import Break, Thrown
from ..bytecode.assembler import Assembler, Emitter
from ..bytecode.decoder import PerCode, decode
from ..bytecode.opcodes import FINAL
from ..interpreter.machine import LIBRARY, Machine
from ..values.frames import Frame
from ..values.value import PREVIOUS, Cell, Const, Rest, Sequence, Value
from .break_state import bound_after, with_method
from .left_frame import LeftFrame, ResumeFactory
from .resume import (
    PASSED,
    SPARE,
    Path,
    ResumeSpec,
    break_tail,
    can_resume,
    entered,
)

CALLS = frozenset({"CALL", "CALL_FUNCTION_EX"})


def level(m: Machine, stop: Break) -> int:
    """Which of the frames of a break can be left in its middle: the deepest one, 0 for the root."""
    frames = stop.frames
    outside = m.handling.stack or m.modes or m.inner or m.differentiating or m.open_generators
    if outside or stop.looks or isinstance(stop, Thrown):
        return 0
    found = 0
    for number, frame in enumerate(frames[1:], 1):
        if not (frame.passes and _calls(frames[number - 1]) and _can_be_left(frame)):
            break
        if not skipped_file(frame.code.co_filename):
            found = number
    return found


def _calls(frame: Frame) -> bool:
    """Whether the frame is at a call whose result goes nowhere but on its stack."""
    instrs = frame.decoded.instrs
    instr = instrs[frame.pc - 1]
    return instr.op in CALLS and instr.op not in FINAL and instrs[instr.index + 1].head


def _can_be_left(frame: Frame) -> bool:
    """Whether another function can go on at the frame's instruction. Python code of graftjit that
    stands for a function in C has no frame in plain Python."""
    file = frame.code.co_filename
    return (
        decode(frame.code).base is None
        and can_resume(frame.code, frame.pc - 1) is None
        and not frame.swapped
        and PREVIOUS not in frame.stack
        and (file.startswith(LIBRARY) or not file.startswith(own_files.FOLDERS))
    )


@dataclass(frozen=True, slots=True)
class Continuation:
    """The rest of an inlined function, as a call.

    `target` is a resume callable; where it is None, the first of `values` is the function to call.
    """

    target: Any
    values: list[Value]

    def begin(self, asm: Assembler, arguments: list[Emitter]) -> None:
        """Push the callable and its arguments, the `values`. It returns a pending call, or a
        result."""
        asm.begin_call(lambda: asm.load_const(_native.run_pending))
        if self.target is None:
            function, *arguments = arguments
            asm.begin_call(function)
        else:
            asm.begin_call(lambda: asm.load_const(self.target))
        for push in arguments:
            push()

    def end(self, asm: Assembler) -> None:
        """Call it."""
        asm.end_call(len(self.values) - (self.target is None))
        asm.end_call(1)


def continuation(
    m: Machine, frames: tuple[Frame, ...], stop: Break, make: ResumeFactory
) -> Continuation:
    """What the root calls where the innermost of these frames breaks; they are those below it."""
    *between, last = frames
    found = _innermost(m, last, stop, make)
    for frame in reversed(between):
        found = _calling(m, frame, found, stop, make)
    return found


def _innermost(m: Machine, frame: Frame, stop: Break, make: ResumeFactory) -> Continuation:
    index = frame.pc
    left = LeftFrame(m, frame, index, with_method(frame.stack, frame.decoded.instrs[index]))
    spec = left.resume_at(_over(make, frame, stop), stop.reason, stop.where, index, ())
    held = _cells(frame)
    cells: Value = Sequence(list(held), tuple) if held else Const(None)
    return Continuation(spec.callable, [cells, *_passed(left, spec.stack, spec.bound)])


def _calling(
    m: Machine, frame: Frame, inner: Continuation, stop: Break, make: ResumeFactory
) -> Continuation:
    """The continuation of a frame that is at the call of another one."""
    index = frame.pc - 1
    left = LeftFrame(m, frame, index, list(frame.stack), inner=inner.values)
    shape = left.shape[: len(frame.stack)]
    bound = bound_after(frame.code, (), set(left.restored), shape)
    asm = entered(frame.code, index, shape, bound)
    arguments = [asm.fresh("inner") for _ in inner.values]
    asm.args += tuple(arguments)
    inner.begin(asm, [partial(asm.take_fast, name) for name in arguments])

    def resume_for(target: int, path: Path) -> ResumeSpec:
        return left.resume_at(_over(make, frame), stop.reason, stop.where, target, path)

    break_tail(asm, frame.code, index, resume_for, instead=inner.end)
    rest = Rest(asm.finish(), frame.scope, _cells(frame))
    _between.put(rest.code, True)
    return Continuation(None, [rest, *_passed(left, shape, bound), *inner.values])


# Codes of frames between.
_between = PerCode(lambda code: False)


def calls_inner(value: Any) -> bool:
    """Whether a constant of replacement code is the code of such a frame."""
    return type(value) is types.CodeType and _between(value)


def _over(make: ResumeFactory, frame: Frame, begins: Break | None = None) -> ResumeFactory:
    """`make` for an inlined frame; `begins`: the break of the first instruction."""
    return lambda *way, **more: make(*way, frame.scope.names, begins, **more)


def _cells(frame: Frame) -> tuple[Cell, ...]:
    return tuple(frame.cells[name] for name in (*frame.code.co_cellvars, *frame.code.co_freevars))


def _passed(left: LeftFrame, shape: tuple[str, ...], bound: tuple[str, ...]) -> list[Value]:
    """The arguments of a continuation: stack items, then locals."""
    spare: list[Value] = [Const(None)] if shape[:1] == (SPARE,) else []
    kinds = [kind for kind in shape if kind != SPARE]
    items = [value for value, kind in zip(left.stack, kinds, strict=True) if kind in PASSED]
    return [*spare, *items, *(left.restored[name] for name in bound)]
