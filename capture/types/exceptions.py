"""Exception objects made inside the frame: construction, content, and C methods.

In: Instances of exception classes; the state of BaseException (`args`, `__cause__`, `__context__`,
notes) is in the machine's overlay like any attribute. Out: Values. An exception that was never
raised can be rebuilt at the frame's end; a raised one must be Python's own, because it has a
traceback. `interpreter.handlers_exceptions` raises them, `exception_groups` splits groups.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from ...runtime.guards.sources import Source
from ..breaks import Break, ExceptionLeaves, Thrown
from ..data_model import attributes
from ..values import containers
from ..values.containers import NotConstant
from ..values.registry import NONE, Args, Kwargs, models
from ..values.value import Const, Instance, Obj, Sequence, Unread, Value, is_none

if TYPE_CHECKING:
    from ..emit.emitter import Emitter
    from ..interpreter.machine import Machine

# C exception classes with state besides `args`: a break.
_OWN_STATE = (OSError, UnicodeError, ImportError, SyntaxError, SystemExit, BaseExceptionGroup)
_HEAP_TYPE = 1 << 9
_STATE = ("__cause__", "__context__", "__suppress_context__", "__traceback__")

# A traceback, whose content the walk does not know.
TRACEBACK = Value()


def is_exception(value: Value) -> bool:
    return isinstance(value, Instance) and issubclass(value.cls.value, BaseException)  # type: ignore[attr-defined]


def is_group(value: Value) -> bool:
    return isinstance(value, Instance) and issubclass(class_of(value), BaseExceptionGroup)


def class_of(value: Value) -> type:
    return value.cls.value  # type: ignore[attr-defined,no-any-return]


def c_base(cls: type) -> type:
    """The C class that an exception class is based on."""
    return next(base for base in cls.__mro__ if not base.__flags__ & _HEAP_TYPE)


# -- making ----------------------------------------------------------------------------------------
def make(m: Machine, fn: Obj, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """cls(*args, **kwargs) for an exception class."""
    cls = fn.value
    base = c_base(cls)
    if cls in (ExceptionGroup, BaseExceptionGroup) and not kwargs:
        return _groups().make_group(m, cls, args)  # type: ignore[no-any-return]
    if issubclass(base, _OWN_STATE) or type(cls) is not type:
        raise Break("GB108", f"{cls.__name__} is made")
    if attributes.of_class(m, cls, "__new__") is not attributes.mro_lookup(base, "__new__"):
        raise Break("GB126", f"{cls.__name__} has its own __new__")
    for name in ("args", *_STATE):
        if attributes.of_class(m, cls, name) is not vars(BaseException)[name]:
            raise Break("GB126", f"{cls.__name__} has its own {name}")
    made = Instance(fn)
    if attributes.class_attribute(m, made, "__del__") is not attributes.MISSING:
        raise Break("GB126", f"{cls.__name__} has a finalizer")
    m.heap.overlay[made] = {"args": Sequence(list(args), tuple)}
    if issubclass(base, StopIteration) and cls is not base:
        m.handling.raised_at[made] = m.root_index  # an __init__ that may never run sets its value
    init = attributes.class_attribute(m, made, "__init__")
    if init is attributes.mro_lookup(base, "__init__"):
        if kwargs:
            raise Break("GB108", f"{cls.__name__} is made with keywords")
        return made
    result = m.call(attributes.bind_raw(m, made, "__init__", init), args, kwargs)
    if not isinstance(result, Const) or result.value is not None:
        raise containers.raises("TypeError: __init__() should return None")
    return made


def of_class(cls: type) -> Instance:
    """A new object of one of Python's own exception classes; the caller fills its overlay."""
    return Instance(Obj(cls, source=Source("const", None, cls)))


def value_of(m: Machine, thrown: Thrown) -> Value:
    """The exception object; its `args` are known only if capture knows Python's own message."""
    if thrown.value is None:
        made = of_class(thrown.cls)
        m.heap.overlay[made] = {}
        if thrown.known is not None:
            m.heap.overlay[made]["args"] = containers.from_constant(thrown.known)
        if thrown.held is not None:
            m.heap.overlay[made]["args"] = Sequence(list(thrown.held), tuple)
        thrown.value = made
    return thrown.value


def build(e: Emitter, value: Instance) -> None:
    """Emit the construction of an exception that was never raised."""
    if value in e.m.handling.raised_at:
        raise ExceptionLeaves(e.m.handling.raised_at[value])
    cls, fields = class_of(value), dict(e.m.heap.overlay[value])
    args = fields.pop("args")
    assert isinstance(args, Sequence)
    items = [partial(e.push, item) for item in args.items]
    base = c_base(cls)
    if is_group(value) and (
        args.items[1].items  # type: ignore[attr-defined]
        != fields["exceptions"].items  # type: ignore[attr-defined,union-attr]
    ):
        raise Break("GB125", "an exception group made of a list that was changed since")
    if issubclass(base, (BaseExceptionGroup, StopIteration, MemoryError)):
        e.asm.call_const(cls, *items)
    else:
        e.asm.call_const(base.__new__, lambda: e.push(value.cls), *items)
    e._remember(value)
    for name in ("message", "exceptions") if is_group(value) else ():
        fields.pop(name)
    suppressed = fields.pop("__suppress_context__", None)
    if suppressed is not None:
        fields["__suppress_context__"] = suppressed  # after the cause, which sets it
    for name, item in fields.items():
        if item is not None:
            e.set_raw(value, name, item)


# -- content
# ---------------------------------------------------------------------------------------------
def field(m: Machine, value: Instance, name: str) -> Value:
    """A C-level attribute of an exception object."""
    stored = m.heap.overlay[value].get(name)
    if stored is not None and (name != "__traceback__" or value not in m.handling.raised_at):
        return stored
    cls = class_of(value)
    if name == "value" and issubclass(cls, StopIteration):
        args = field(m, value, "args")
        assert isinstance(args, Sequence)
        return args.items[0] if args.items else NONE
    if name == "__cause__" or (
        name in _STATE[:2] + _STATE[3:] and value not in m.handling.raised_at
    ):
        return NONE
    if name == "__suppress_context__":
        return Const(False)
    if name == "__context__" and nothing_outside(m):
        return m.heap.overlay[value].setdefault(name, NONE) or NONE
    if name == "args":
        raise Break("GB108", f"the message of {cls.__name__}, which Python writes")
    raise Break("GB112", f"attribute {name!r} of an exception")


def store(m: Machine, value: Instance, name: str, item: Value | None) -> bool:
    """value.name = item for the state of BaseException; False for other names."""
    if name == "args" and not (isinstance(item, Sequence) and item.cls is tuple):
        raise Break("GB112", "the arguments of an exception are set to a value that is not a tuple")
    if name not in _STATE:
        return False
    if item is None:
        raise Break("GB112", f"{name} of an exception is deleted")
    if name in _STATE[:2] and not is_exception(item) and not is_none(item):
        raise Break("GB112", f"{name} of an exception is set")
    if name == "__traceback__" and not is_none(item):
        raise Break("GB112", "the traceback of an exception is set")
    if name == "__suppress_context__" and not (
        isinstance(item, Const) and type(item.value) is bool
    ):
        raise Break("GB112", f"{name} is set to a value that is not a bool")
    m.activity += 1
    m.heap.overlay[value][name] = item
    if name == "__cause__":
        m.heap.overlay[value]["__suppress_context__"] = Const(True)
    return True


def raised(m: Machine, value: Value) -> None:
    """Note a new raise: the handled exception becomes its context (_PyErr_SetObject)."""
    m.handling.raised_at[value] = m.root_index
    if m.handling.stack:
        chained(m, value, m.handling.stack[-1])
    # Otherwise its context is the exception that the caller is handling: see `field`.


def chained(m: Machine, value: Value, outer: Value) -> None:
    """Make `outer`, which is being handled, the context of a new exception."""
    if isinstance(outer, Unread):
        outer = outer.read()
    if outer is not value:
        _cut(m, outer, value)
        m.heap.overlay[value]["__context__"] = outer


def handled(m: Machine) -> Value:
    """The exception that is being handled, or None."""
    if m.handling.stack:
        value = m.handling.stack[-1]
        return value.read() if isinstance(value, Unread) else value
    if not nothing_outside(m):
        raise Break("GB132", "an exception that the caller of this function handles")
    return NONE


@models(sys.exception)
def _exception(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    return handled(m)


@models(sys.exc_info)
def _exc_info(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    value = handled(m)
    if value is NONE:
        return Sequence([NONE] * 3, tuple)
    return Sequence([attributes.type_of(m, value), value, TRACEBACK], tuple)


def put_together(m: Machine, value: Value) -> None:
    """Note an exception that propagates without having been raised: it has no context."""
    if value not in m.handling.raised_at:
        m.heap.overlay[value].setdefault("__context__", NONE)
    m.handling.raised_at[value] = m.root_index


def nothing_outside(m: Machine) -> bool:
    """Whether the frame's caller is handling no exception; guarded."""
    if not m.handling.outside:
        m.guard("unhandled", None, None)
    return not m.handling.outside


def _cut(m: Machine, start: Value, value: Value) -> None:
    """Cut the chain of contexts where it leads back to `value`."""
    seen: set[Value] = set()
    at: Value | None = start
    while isinstance(at, Instance) and at not in seen:
        seen.add(at)
        after = m.heap.overlay[at].get("__context__")
        if after is value:
            m.heap.overlay[at]["__context__"] = NONE
            return
        at = after


# -- text and methods ------------------------------------------------------------------------------
def text(m: Machine, value: Instance, fn: Any) -> Value:
    """str() or repr() by the C class, for constant arguments."""
    if fn is repr and not _of_python(value):
        raise Break("GB112", "repr() of an exception of the program's own")
    try:
        real = _constant(m, value, whole=fn is repr)
    except NotConstant:
        raise Break("GB112", f"{fn.__name__}() of an exception that holds no constants") from None
    return containers.fold(lambda: fn(real))


def _of_python(value: Value) -> bool:
    cls = class_of(value)
    return cls in (c_base(cls), ExceptionGroup)


def _constant(m: Machine, value: Instance, whole: bool = True) -> BaseException:
    """A real exception of the C class; a group that is not `whole` has dummy members."""
    args = field(m, value, "args")
    assert isinstance(args, Sequence)
    if not is_group(value):
        return c_base(class_of(value))(*containers.as_constant(m, args))  # type: ignore[no-any-return]
    inner = field(m, value, "exceptions")
    assert isinstance(inner, Sequence)
    if not whole:
        message = containers.as_constant(m, args.items[0])
        return class_of(value)(message, [Exception()] * len(inner.items))  # type: ignore[no-any-return]
    if not all(is_exception(one) and _of_python(one) for one in inner.items):
        raise NotConstant
    parts = [_constant(m, one) for one in inner.items]  # type: ignore[arg-type]
    assert isinstance(args.items[1], Sequence)
    return class_of(value)(  # type: ignore[no-any-return]
        containers.as_constant(m, args.items[0]), args.items[1].cls(parts)
    )


def c_method(m: Machine, value: Value, name: str, args: list[Value]) -> Value:
    """A method of BaseException."""
    assert isinstance(value, Instance)
    if name == "__init__":
        m.heap.overlay[value]["args"] = Sequence(list(args), tuple)
        return NONE
    if name in ("__str__", "__repr__"):
        return text(m, value, str if name == "__str__" else repr)
    if name == "add_note" and len(args) == 1:
        return _add_note(m, value, args[0])
    if name == "with_traceback" and len(args) == 1 and is_none(args[0]):
        m.heap.overlay[value]["__traceback__"] = NONE
        return value
    if is_group(value):
        return _groups().group_method(m, value, name, args)  # type: ignore[no-any-return]
    raise Break("GB112", f"{name}() of an exception")


def _groups() -> Any:
    # `exception_groups` imports this file
    from . import exception_groups

    return exception_groups


def _add_note(m: Machine, value: Instance, note: Value) -> Value:
    if not (isinstance(note, Const) and isinstance(note.value, str)):
        raise Break("GB112", "add_note() with a text that is not a constant")
    if attributes.class_attribute(m, value, "__notes__") is not attributes.MISSING:
        raise Break("GB112", "add_note() where the class has notes")
    notes = m.heap.overlay[value].get("__notes__")
    if notes is None:
        notes = m.heap.overlay[value]["__notes__"] = Sequence([], list)
    if not isinstance(notes, Sequence) or notes.cls is not list:
        raise containers.raises("TypeError: Cannot add note: __notes__ is not a list")
    containers.append(m, notes, [note])
    m.activity += 1
    return NONE


def throw(value: Value) -> Thrown:
    """The raise of an exception object."""
    cls = class_of(value)
    return Thrown(cls, None, f"{cls.__name__} is raised", value)


def kinds_of(m: Machine, wanted: Value) -> list[type]:
    """The classes that an except clause names: one, or a tuple of them, in which there are no
    tuples.
    """
    several = isinstance(wanted, Sequence) and wanted.cls is tuple
    found = []
    for item in containers.sequence_items(m, wanted) if several else [wanted]:  # type: ignore[arg-type]
        kind = item.value if isinstance(item, Obj) else None
        if not isinstance(kind, type) or not issubclass(kind, BaseException):
            raise Break("GB108", "except with a value that is not a class of exceptions")
        found.append(kind)
    return found


attributes.C_STATE[BaseException] = (field, store)
