"""Generators that are made and consumed inside the frame: their bodies are walked a step at a time.

In: a call of a generator function. Out: an Iterator whose step walks the body to its next `yield`. A generator
that leaves the frame, or is suspended where a handler waits for it, is a break.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .breaks import Break
from .bytecodes import Instr, stack_effect
from .iteration import iterate
from .machine import Frame, Machine, handles
from .values import Const, Iterator, Value

if TYPE_CHECKING:
    from collections.abc import Callable


def make_generator(m: Machine, frame: Frame) -> Iterator:
    """The generator over a fresh frame; nothing of its body is walked yet."""
    made = Iterator("generator", [frame], lambda: None)
    made.step = _stepper(m, frame)
    return made


def _stepper(m: Machine, frame: Frame) -> Callable[[], Value | None]:
    def step() -> Value | None:
        if frame.result is not None:
            return None
        if frame in m.frames:
            raise Break("GB108", "ValueError: generator already executing")
        if frame.pc and frame.decoded.instrs[frame.pc - 1].op == "YIELD_VALUE":
            frame.push(Const(None))  # what `yield` gives when the consumer is a plain loop
        return m.run_to_yield(frame)

    return step


@handles("RETURN_GENERATOR")
def _return_generator(m: Machine, f: Frame, i: Instr) -> None:
    f.push(Const(None))  # the first `send`, which the next instruction drops


@handles("YIELD_VALUE")
def _yield_value(m: Machine, f: Frame, i: Instr) -> None:
    if _guarded(f, i):
        raise Break("GB107", "a generator that yields inside try or with")
    f.yielded = f.pop()


def closing_is_seen(f: Frame) -> bool:
    """Whether a try or with of the generator runs code when it is dropped half way: replacement code may hold
    it a little longer than the program does."""
    return any(i.op == "YIELD_VALUE" and _guarded(f, i) for i in f.decoded.instrs)


def _guarded(f: Frame, i: Instr) -> bool:
    """Whether a handler of the user's own covers the yield: closing the generator there would run it.

    From 3.12 on the whole body is covered by a handler of the compiler's, which is entered with an empty stack
    and only turns a StopIteration into a RuntimeError.
    """
    if i.handler is None:
        return False
    entry = f.decoded.instrs[i.handler : i.handler + 2]
    return not any(instr.arg == "STOPITERATION_ERROR" for instr in entry)


# -- yield from ------------------------------------------------------------------------------------------
@handles("GET_YIELD_FROM_ITER")
def _get_yield_from_iter(m: Machine, f: Frame, i: Instr) -> None:
    f.push(iterate(m, f.pop()))


@handles("SEND")
def _send(m: Machine, f: Frame, i: Instr) -> None:
    sent = f.pop()
    source = f.stack[-1]
    if not isinstance(source, Iterator) or not (isinstance(sent, Const) and sent.value is None):
        raise Break("GB107", "a value sent through yield from")
    item = source.step()
    if item is not None:
        f.push(item)
        return
    result = source.parts[0].result if source.kind == "generator" else Const(None)
    popped, pushed = stack_effect(i, jump=True)
    if (
        pushed < popped
    ):  # the receiver goes with the exhausted step; later versions have END_SEND for it
        f.pop()
    f.push(result)
    f.pc = i.target  # type: ignore[assignment]


@handles("END_SEND")
def _end_send(m: Machine, f: Frame, i: Instr) -> None:
    result = f.pop()
    f.pop()
    f.push(result)
