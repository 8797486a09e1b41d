"""Exceptions that the captured path raises and handles itself: raise, except, finally, with.

In: a `Thrown` on its way, and the instructions of the handlers. Out: the walk goes on in the handler. What
nobody in the frame handles, or what a break meets while it is handled, is a break at the instruction of the root
frame that raised: Python raises it there, with its own message and traceback.
"""

from __future__ import annotations

from typing import Any

from ..runtime.sources import Source
from . import attributes, containers
from .breaks import Break, Thrown
from .bytecodes import Instr
from .machine import Frame, Machine, handles
from .tables import NONE
from .unmodelled import INTRINSICS
from .values import PREVIOUS, Const, Instance, Obj, Sequence, Value

# Exception classes of C with state beside `args`: left to Python.
_OWN_STATE = (OSError, UnicodeError, ImportError, SyntaxError, SystemExit, BaseExceptionGroup)
_HEAP_TYPE = 1 << 9

TRACEBACK = Value()  # the third argument of __exit__; nothing of it is known


def is_exception(value: Value) -> bool:
    return isinstance(value, Instance) and issubclass(value.cls.value, BaseException)  # type: ignore[attr-defined]


def c_base(cls: type) -> type:
    """The class of C that a class of exceptions is built on."""
    return next(base for base in cls.__mro__ if not base.__flags__ & _HEAP_TYPE)


# -- objects ---------------------------------------------------------------------------------------------
def make(m: Machine, fn: Obj, args: list[Value], kwargs: dict[str, Value]) -> Instance:
    """cls(*args, **kwargs) for a class of exceptions."""
    cls = fn.value
    base = c_base(cls)
    if issubclass(base, _OWN_STATE) or type(cls) is not type:
        raise Break("GB108", f"{cls.__name__} is made")
    if attributes.of_class(m, cls, "__new__") is not attributes.mro_lookup(base, "__new__"):
        raise Break("GB126", f"{cls.__name__} has its own __new__")
    made = Instance(fn)
    m.overlay[made] = {"args": Sequence(list(args), tuple)}
    m.raised_at[made] = m.root_index
    init = attributes.class_attribute(m, made, "__init__")
    if init is attributes.mro_lookup(base, "__init__"):
        if kwargs:
            raise Break("GB108", f"{cls.__name__} is made with keywords")
        return made
    m.call(attributes.bind_raw(m, made, "__init__", init), args, kwargs)
    return made


def value_of(m: Machine, thrown: Thrown) -> Value:
    """The exception object; its `args` are known only where capture knows Python's own message."""
    if thrown.value is None:
        made = Instance(Obj(thrown.cls, source=Source("const", None, thrown.cls)))
        m.overlay[made] = {}
        if thrown.known is not None:
            m.overlay[made]["args"] = containers.from_constant(thrown.known)
        thrown.value = made
    return thrown.value


def field(m: Machine, value: Instance, name: str) -> Value:
    """A C-level attribute of an exception object."""
    stored = m.overlay[value].get(name)
    if stored is not None:
        return stored
    cls = value.cls.value  # type: ignore[attr-defined]
    if name == "value" and issubclass(cls, StopIteration):
        args = field(m, value, "args")
        assert isinstance(args, Sequence)
        return args.items[0] if args.items else NONE
    if name == "__cause__":
        return NONE
    if name == "args":
        raise Break("GB108", f"the message of {cls.__name__}, which Python writes")
    raise Break("GB112", f"attribute {name!r} of an exception")


def text(m: Machine, value: Instance, fn: Any) -> Value:
    """str() or repr() by the C class, of constant arguments."""
    cls = value.cls.value  # type: ignore[attr-defined]
    args = containers.as_constant(m, field(m, value, "args"))
    if fn is repr and cls is not c_base(cls):
        raise Break("GB112", "repr() of an exception of the program's own")
    return containers.fold(lambda: fn(c_base(cls)(*args)))


def c_method(m: Machine, value: Value, name: str, args: list[Value]) -> Value:
    """A method of BaseException."""
    assert isinstance(value, Instance)
    if name == "__init__":
        m.overlay[value]["args"] = Sequence(list(args), tuple)
        return NONE
    if name in ("__str__", "__repr__"):
        return text(m, value, str if name == "__str__" else repr)
    raise Break("GB112", f"{name}() of an exception")


# -- on its way ------------------------------------------------------------------------------------------
def catch(m: Machine, frame: Frame, instr: Instr, thrown: Thrown) -> bool:
    """Enter the handler that covers the instruction; False if there is none."""
    if instr.handler is None:
        return False
    value = value_of(m, thrown)
    m.raised_at.setdefault(value, m.root_index)
    m.activity += 1
    del frame.stack[instr.handler_depth :]
    if instr.handler_lasti:
        frame.push(Const(0))  # where it was raised: only tells the line of a frame that is over
    frame.push(value)
    frame.pc = instr.handler
    return True


def throw(value: Value) -> Thrown:
    """The raise of an exception object."""
    assert isinstance(value, Instance)
    cls = value.cls.value  # type: ignore[attr-defined]
    return Thrown(cls, None, f"{cls.__name__} is raised", value)


def is_thrown(error: Thrown, *kinds: type[BaseException]) -> bool:
    return issubclass(error.cls, kinds)


@handles("RAISE")
def _raise(m: Machine, f: Frame, i: Instr) -> None:
    cause = f.pop() if i.arg == 2 else None
    if i.arg == 0:
        if not m.handling or not is_exception(m.handling[-1]):
            raise Break("GB108", "a raise of what is being handled")
        raise throw(m.handling[-1])
    value = f.pop()
    if isinstance(value, Obj) and isinstance(value.value, type):
        if not issubclass(value.value, BaseException):
            raise containers.raises("TypeError: exceptions must derive from BaseException")
        value = m.call(value, [], {})
    if not is_exception(value):
        raise Break("GB108", "a raise statement")
    if cause is not None:
        if not is_exception(cause) and cause is not NONE and not _none(cause):
            raise Break("GB108", "a raise from something else")
        m.overlay[value]["__cause__"] = cause
    m.raised_at[value] = m.root_index
    raise throw(value)


def _none(value: Value) -> bool:
    return isinstance(value, Const) and value.value is None


@handles("RERAISE")
def _reraise(m: Machine, f: Frame, i: Instr) -> None:
    value = f.pop()
    if not is_exception(value):
        raise Break("GB108", "an exception goes on")
    raise throw(value)


@handles("PUSH_EXC_INFO")
def _push_exc_info(m: Machine, f: Frame, i: Instr) -> None:
    (value,) = f.leave(1)
    f.push(PREVIOUS)
    f.push(value)
    m.handling.append(value)


@handles("POP_EXCEPT")
def _pop_except(m: Machine, f: Frame, i: Instr) -> None:
    if f.pop() is not PREVIOUS or not m.handling:
        raise Break("GB108", "the end of a handler")
    m.handling.pop()


@handles("CHECK_EXC_MATCH")
def _check_exc_match(m: Machine, f: Frame, i: Instr) -> None:
    wanted, value = f.pop(), f.peek(1)
    cls = attributes.real_class(value)
    assert cls is not None
    chain = attributes.bases(m, cls)
    f.push(Const(any(kind in chain for kind in _kinds(m, wanted))))


def _kinds(m: Machine, wanted: Value) -> list[type]:
    if isinstance(wanted, Sequence) and wanted.cls is tuple:
        return [k for item in containers.sequence_items(m, wanted) for k in _kinds(m, item)]
    kind = wanted.value if isinstance(wanted, Obj) else None
    if isinstance(kind, type) and issubclass(kind, BaseException):
        return [kind]
    raise Break("GB108", "except with something that is no class of exceptions")


@handles("CALL_INTRINSIC_1")
def _intrinsic(m: Machine, f: Frame, i: Instr) -> None:
    if i.arg != "STOPITERATION_ERROR":
        raise Break(*INTRINSICS.get(i.arg, ("GB101", f"instruction {i.op} {i.arg}")))
    value = f.pop()
    if is_exception(value) and issubclass(attributes.real_class(value) or object, StopIteration):
        error = value_of(
            m, Thrown(RuntimeError, ("generator raised StopIteration",), "RuntimeError")
        )
        m.overlay[error]["__cause__"] = value
        m.raised_at[error] = m.root_index
        value = error
    f.push(value)


@handles("WITH_EXCEPT_START")
def _with_except_start(m: Machine, f: Frame, i: Instr) -> None:
    value, leave = f.peek(1), f.peek(4)
    f.push(m.call(leave, [attributes.type_of(m, value), value, TRACEBACK], {}))
