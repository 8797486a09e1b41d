"""Generators made and consumed inside the frame: their bodies are walked step by step.

In: a call of a generator function. Out: an Iterator whose step walks the body to its next `yield`.
A generator that leaves the frame, or is suspended inside a handler's range at the frame's end, is a
break.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..breaks import Break, Thrown
from ..bytecode.decoder import Decoded, Instr
from ..types.exceptions import chained, is_exception, put_together, raised, throw, value_of
from ..values.containers import raises
from ..values.frames import Frame
from ..values.registry import NONE
from ..values.value import Iterator, Sequence, Value, is_none

if TYPE_CHECKING:
    from ..interpreter.machine import Machine


def make_generator(m: Machine, frame: Frame) -> Iterator:
    """The generator over a new frame; nothing of its body is walked yet."""
    return Iterator("generator", [frame], lambda made: _resume(m, frame, NONE))


def _suspended(frame: Frame) -> bool:
    """Whether the frame is suspended at a yield."""
    return bool(frame.pc) and frame.decoded.instrs[frame.pc - 1].op == "YIELD_VALUE"


def _resume(m: Machine, frame: Frame, sent: Value) -> Value | None:
    """Walk to the next yield; None at the end."""
    if frame.result is not None:
        return None
    if frame in m.frames:
        raise raises("ValueError: generator already executing")
    if _suspended(frame):
        frame.push(sent)  # the result of `yield`
    return _walk(m, frame)


def _walk(m: Machine, frame: Frame) -> Value | None:
    m.open_generators.discard(frame)
    outside = len(m.handling.stack)
    m.handling.stack += frame.handling
    try:
        return m.run_to_yield(frame)
    except Thrown as error:
        frame.result = NONE
        if issubclass(error.cls, StopIteration):
            raise raises("RuntimeError: generator raised StopIteration") from None
        raise
    finally:  # its handled exceptions are visible only inside
        frame.handling = m.handling.stack[outside:]
        del m.handling.stack[outside:]


def _finished(m: Machine, frame: Frame) -> Thrown:
    """The StopIteration of a generator that has returned."""
    error = Thrown(StopIteration, None, "StopIteration")
    result = frame.result
    assert result is not None
    value = value_of(m, error)
    m.heap.overlay[value]["args"] = Sequence(
        [] if result is NONE or is_none(result) else [result], tuple
    )
    m.handling.raised_at[value] = m.root_index
    return error


def _send_method(m: Machine, of: Iterator, args: list[Value]) -> Value:
    (sent,) = args
    frame = of.parts[0]
    if not frame.pc and not is_none(sent):
        raise raises("TypeError: can't send non-None value to a just-started generator")
    item = _resume(m, frame, sent)
    if item is None:
        raise _finished(m, frame)
    return item


def _throw_method(m: Machine, of: Iterator, args: list[Value]) -> Value:
    (value,) = args
    if not is_exception(value):
        value = m.call(value, [], {})
    if not is_exception(value):
        raise Break("GB107", "throw() of an exception that was not made here")
    item = _throw_into(m, of.parts[0], throw(value))
    if item is None:
        raise _finished(m, of.parts[0])
    return item


def _throw_into(m: Machine, frame: Frame, thrown: Thrown) -> Value | None:
    """Raise at the yield where the generator is suspended."""
    if frame in m.frames:
        raise raises("ValueError: generator already executing")
    m.open_generators.discard(frame)
    value = value_of(m, thrown)
    (raised if thrown.cls is GeneratorExit else put_together)(m, value)
    if frame.handling:
        chained(m, value, frame.handling[-1])
    instr = frame.decoded.instrs[frame.pc - 1]
    if frame.result is not None or not _suspended(frame) or not m.catch(frame, instr, thrown):
        over, frame.result = frame.result is not None, frame.result or NONE
        if issubclass(thrown.cls, StopIteration) and not over:
            raise raises("RuntimeError: generator raised StopIteration")
        raise thrown
    return _walk(m, frame)


def _close_method(m: Machine, of: Iterator, args: list[Value]) -> Value:
    try:
        item = _throw_into(m, of.parts[0], Thrown(GeneratorExit, (), "GeneratorExit"))
    except Thrown as error:
        if issubclass(error.cls, (GeneratorExit, StopIteration)):
            return NONE
        raise
    if item is not None:
        raise raises("RuntimeError: generator ignored GeneratorExit")
    result = of.parts[0].result
    # Since Python 3.13, close() returns the generator's return value.
    return NONE if result is None or sys.version_info < (3, 13) else result


def _next_method(m: Machine, of: Iterator, args: list[Value]) -> Value:
    return _send_method(m, of, [NONE])


def _exactly(count: int, method: _Model) -> _Model:
    """A method with a fixed number of arguments; others are a break, so that Python raises."""

    def checked(m: Machine, of: Iterator, args: list[Value]) -> Value:
        if len(args) != count:
            raise Break("GB107", "a method of a generator with these arguments")
        return method(m, of, args)

    return checked


_Model = Callable[["Machine", Iterator, list[Value]], Value]
GENERATOR_METHODS: dict[str, _Model] = {
    "send": _exactly(1, _send_method),
    "throw": _exactly(1, _throw_method),  # others pass a class, a value and a traceback
    "close": _exactly(0, _close_method),
    "__next__": _exactly(0, _next_method),
}


def closing_is_seen(decoded: Decoded) -> bool:
    """Whether a try or with of the generator runs code when it is dropped half way: replacement
    code may hold it a little longer than the program does."""
    return any(i.op == "YIELD_VALUE" and is_guarded(decoded, i) for i in decoded.instrs)


def is_guarded(decoded: Decoded, i: Instr) -> bool:
    """Whether a handler of the user's own covers the yield: closing the generator there would run
    it.

    From 3.12 on, a handler of the compiler's covers the whole body; it is entered with an empty
    stack and only turns a StopIteration into a RuntimeError.
    """
    if i.handler is None:
        return False
    entry = decoded.instrs[i.handler : i.handler + 2]
    if entry[0].op == "CLEANUP_THROW":  # of the compiler's too, around `yield from`
        return is_guarded(decoded, entry[0])
    return not any(instr.arg == "STOPITERATION_ERROR" for instr in entry)
