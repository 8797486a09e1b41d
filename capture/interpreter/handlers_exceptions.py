"""Exceptions that the captured path raises and handles itself: raise, except, finally, with.

In: a raised `Thrown`, and the instructions of handlers. Out: the walk continues in the handler. An
exception that no handler of the frame catches, and a break while one is handled, are a break at the
instruction of the root frame that raised: Python raises there, with its own message and traceback.
"""

from __future__ import annotations

from ..breaks import Break, Thrown
from ..bytecode.decoder import Instr
from ..data_model import attributes, conditional
from ..types.exceptions import (
    TRACEBACK,
    is_exception,
    kinds_of,
    nothing_outside,
    put_together,
    raised,
    store,
    throw,
    value_of,
)
from ..values import containers
from ..values.frames import Frame
from ..values.value import PREVIOUS, Const, Instance, Obj, is_none
from .machine import Machine, handles
from .unmodelled import INTRINSICS


# -- catching and raising --------------------------------------------------------------------------
@handles("RAISE")
def _raise(m: Machine, f: Frame, i: Instr) -> None:
    cause = f.pop() if i.arg == 2 else None
    if i.arg == 0:
        if not m.handling.stack and nothing_outside(m):
            message = "No active exception to reraise"
            raise Thrown(RuntimeError, (message,), f"RuntimeError: {message}")
        if not m.handling.stack or not is_exception(m.handling.stack[-1]):
            raise Break("GB108", "a raise of the exception being handled")
        raise throw(m.handling.stack[-1])
    value = f.pop()
    if isinstance(value, Obj) and isinstance(value.value, type):
        if not issubclass(value.value, BaseException):
            raise containers.raises("TypeError: exceptions must derive from BaseException")
        value = m.call(value, [], {})
    if not is_exception(value):
        raise Break("GB108", "a raise statement")
    assert isinstance(value, Instance)
    if cause is not None:
        if isinstance(cause, Obj) and isinstance(cause.value, type):
            cause = m.call(cause, [], {})
        if not is_exception(cause) and not is_none(cause):
            raise Break("GB108", "a raise from something else")
        store(m, value, "__cause__", cause)
    raised(m, value)
    m.handling.derived.pop(value, None)
    raise throw(value)


@handles("RERAISE")
def _reraise(m: Machine, f: Frame, i: Instr) -> None:
    value = f.pop()
    if not is_exception(value):
        raise Break("GB108", "an exception propagates")
    if value not in m.handling.raised_at:  # made by an except*
        put_together(m, value)
    raise throw(value)


@handles("PUSH_EXC_INFO")
def _push_exc_info(m: Machine, f: Frame, i: Instr) -> None:
    (value,) = f.leave(1)
    f.push(PREVIOUS)
    f.push(value)
    m.handling.stack.append(value)


@handles("POP_EXCEPT")
def _pop_except(m: Machine, f: Frame, i: Instr) -> None:
    if f.pop() is not PREVIOUS or not m.handling.stack:
        raise Break("GB108", "the end of a handler")
    m.handling.stack.pop()


@handles("CHECK_EXC_MATCH")
def _check_exc_match(m: Machine, f: Frame, i: Instr) -> None:
    wanted, value = f.pop(), f.peek(1)
    cls = attributes.real_class(value)
    assert cls is not None
    chain = attributes.bases(m, cls)
    f.push(Const(any(kind in chain for kind in kinds_of(m, wanted))))


@handles("CALL_INTRINSIC_1")
def _intrinsic(m: Machine, f: Frame, i: Instr) -> None:
    if i.arg != "STOPITERATION_ERROR":
        raise Break(*INTRINSICS.get(i.arg, ("GB101", f"instruction {i.op} {i.arg}")))
    value = f.pop()
    if is_exception(value) and issubclass(attributes.real_class(value) or object, StopIteration):
        error = value_of(
            m, Thrown(RuntimeError, ("generator raised StopIteration",), "RuntimeError")
        )
        assert isinstance(error, Instance)
        store(m, error, "__cause__", value)
        m.heap.overlay[error]["__context__"] = value
        m.handling.raised_at[error] = m.root_index
        value = error
    f.push(value)


@handles("WITH_EXCEPT_START")
def _with_except_start(m: Machine, f: Frame, i: Instr) -> None:
    conditional.refuse(m)
    value, leave = f.peek(1), f.peek(4)
    f.push(m.call(leave, [attributes.type_of(m, value), value, TRACEBACK], {}))
