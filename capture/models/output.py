"""Printed text, warnings and log records of a frame: effects at their place, with its lines.

In: calls of `print`, `write` of a text stream, `warnings.warn` and loggers, with constants,
numbers, tensors and texts of them (`values.texts`). Out: effects that give the output when the
frame's graph has run. A guard says that Python's library alone handles it
(`runtime.guards.shown_output`): it runs no code of the program's. Then nothing can tell that it
comes after the graph. Streams, filters, registries, levels and handlers are asked when the effect
runs, as in plain Python.
"""

from __future__ import annotations

import _warnings
import enum
import io
import logging
import re
import types
from typing import TYPE_CHECKING, Any

import torch

from ...runtime import own_files
from ...runtime.guards import shown_output
from ...runtime.guards.sources import Source
from ...runtime.safe_access import in_classes
from .. import helpers
from ..breaks import Break
from ..data_model import attributes
from ..data_model.polyfills import walk_as_written
from ..exact_type import is_kind
from ..values import symbolic_numbers, texts
from ..values.containers import (
    NotConstant,
    as_constant,
    compute,
    dict_items,
    dict_set,
    sequence_items,
)
from ..values.effects import Called
from ..values.frames import Frame
from ..values.registry import NONE, Args, Kwargs, models
from ..values.symbolic_numbers import SymbolicNumber
from ..values.texts import Text
from ..values.value import Const, Dict, Obj, Sequence, Tensor, Value, is_none
from ..values.wrap import CONST_TYPES

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

_CODE = "GB103"
_OWN = own_files.PACKAGES["capture"]


def _happens(
    m: Machine,
    step: Any,
    *items: Value,
    named: Kwargs | None = None,
    writes: tuple[Value, ...] = (),
) -> None:
    m.activity += 1
    pairs = tuple((named or {}).items())
    m.journal.effects.append(Called(step, items, pairs, writes, calm=True))


def _constant(m: Machine, value: Value | None, what: str) -> Any:
    try:
        return None if value is None else as_constant(m, value)
    except NotConstant:
        raise Break(_CODE, f"{what} that is not a constant") from None


def _refuse_inside(m: Machine) -> None:
    if m.inner or m.modes:
        raise Break(_CODE, "output inside of a transform or under a mode")


def _line(m: Machine, frame: Frame) -> int:
    where = m.where if frame is m.frames[-1] else frame.decoded.instrs[frame.pc - 1].where
    return (where.line if where is not None else None) or frame.code.co_firstlineno


def _place(m: Machine, level: int, but: str = "") -> tuple[Frame | None, int]:
    """The walked frame `level` above, or (None, how far it is above the root).

    Frames of the file `but` do not count.
    """
    frames = [frame for frame in reversed(m.frames) if frame.code.co_filename != but]
    among = frames[:level]
    if len(among) < level or level > 1:
        # Functions of ours take the place of others, which may have more frames or none.
        for frame in among:
            if frame.code.co_filename.startswith(_OWN):
                raise Break(_CODE, f"output at stack level {level} of a modelled function")
    # An effect runs the innermost of these functions again, without those above it.
    if m.repeated and (len(among) < level or among[-1] not in m.frames[m.repeated :]):
        raise Break(_CODE, "output at the line of a cached function's caller")
    if len(among) == level:
        return among[-1], 0
    return None, level - len(frames)


# -- what is shown ---------------------------------------------------------------------------------
def _argument(m: Machine, value: Value, by: tuple[Any, ...] = (str, str)) -> Value:
    """A value as it is shown after the program; containers as they are now.

    The program's methods run now: an object is shown by its texts, which stand for its str() and
    its repr(). A container shows what it holds by repr() alone.
    """
    if isinstance(value, SymbolicNumber) or _is_simple(value):
        return value
    if isinstance(value, Tensor) and value.cls is torch.Tensor and texts.shows(m, value):
        return value
    if isinstance(value, Sequence) and value.cls in (list, tuple, torch.Size):
        return _sequence(m, value, _HELD)
    if isinstance(value, Dict) and value.cls is dict:
        return _dict(m, value, _HELD)
    if isinstance(value, (Tensor, Sequence, Dict)):
        raise Break(_CODE, f"output of a {getattr(value.cls, '__name__', 'value')}")
    first, *rest = [m.call(Obj(step), [value], {}) for step in dict.fromkeys(by)]
    if by == (str, str):
        return first
    return texts.made(m, helpers.Shown, first, rest[0] if rest else first)


_HELD = (repr, repr)


def _is_simple(value: Value) -> bool:
    return isinstance(value, Const) and type(value.value) in CONST_TYPES


def _sequence(m: Machine, value: Sequence, by: tuple[Any, ...]) -> Sequence:
    return Sequence([_argument(m, one, by) for one in sequence_items(m, value)], value.cls)


def _dict(m: Machine, value: Dict, by: tuple[Any, ...]) -> Dict:
    copy = Dict({})
    for key, item in dict_items(m, value):
        if not _is_calm(m, key):
            raise Break(_CODE, "output of a dict with keys of the program's own classes")
        dict_set(m, copy, key, _argument(m, item, by))
    return copy


def _is_calm(m: Machine, key: Value) -> bool:
    """Whether a key's repr() runs no code of the program's: it runs after the program."""
    if isinstance(key, Sequence) and key.cls in (tuple, torch.Size):
        return all(_is_calm(m, one) for one in sequence_items(m, key))
    if not isinstance(key, Obj):
        return isinstance(key, Const)
    real, found = key.value, in_classes(type(key.value), "__repr__")
    plain = any(found is base.__dict__["__repr__"] for base in _REPRS)
    return plain and not (is_kind(real, enum.Enum) and type(real._value_) not in CONST_TYPES)


_REPRS = (enum.Enum, type, object, types.FunctionType, types.BuiltinFunctionType)


def _refuse_handled(m: Machine) -> None:
    """Break in a `try`: its handler could catch what a stream raises."""
    for frame in m.frames:
        instrs = frame.decoded.instrs
        handler = instrs[frame.pc - 1].handler
        if handler is None:
            continue
        leaves_block = any(one.op == "WITH_EXCEPT_START" for one in instrs[handler : handler + 3])
        if not (leaves_block and m.contexts):
            raise Break(_CODE, "output in a try block or a with block of the program's")


# -- print -----------------------------------------------------------------------------------------
@models(print)
def _print(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    _refuse_inside(m)
    _refuse_handled(m)
    named = dict(kwargs)
    file = named.get("file", NONE)
    if is_none(file):
        if not shown_output.prints_in_c():
            raise Break(_CODE, "call of print() with a stream of the program's own")
        m.guard("equals", Source("context", None, shown_output.prints_in_c), True)
    elif not isinstance(file, Obj) or not shown_output.writes_in_c(file.value):
        raise Break(_CODE, "print() to a stream of the program's own kind")
    for name in ("sep", "end", "flush"):
        one = named.get(name, NONE)
        if not is_none(one) and not symbolic_numbers.is_of(one, (str, bool, int)):
            raise Break(_CODE, f"print() with this {name}")
    if not named.keys() <= {"sep", "end", "flush", "file"}:
        raise Break(_CODE, "print() with these keywords")
    _happens(m, print, *[_argument(m, one) for one in args], named=named)
    return NONE


def _stream(m: Machine, args: Args) -> Obj:
    """The stream of a call of a method of one."""
    _refuse_inside(m)
    _refuse_handled(m)
    stream = args[0] if args else NONE
    if not isinstance(stream, Obj) or not shown_output.writes_in_c(stream.value):
        raise Break(_CODE, "a stream of the program's own kind")
    m.same_object(stream)
    return stream


def _writes(step: Any) -> None:
    @models(step)
    def write(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        stream = _stream(m, args)
        if len(args) != 2 or kwargs or not texts.is_text(args[1]) or texts.is_open(args[1]):
            raise Break(_CODE, "write() of what is not a constant text")
        _happens(m, step, *args, writes=(stream,))
        return Const(len(args[1].value))  # type: ignore[attr-defined]


for _cls in (io.TextIOWrapper, io.StringIO):
    _writes(_cls.write)


def _flushes(step: Any) -> None:
    @models(step)
    def flush(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        stream = _stream(m, args)
        if len(args) != 1 or kwargs:
            raise Break(_CODE, "flush() with arguments")
        _happens(m, step, stream, writes=(stream,))
        return NONE


for _cls in (io.TextIOWrapper, io.StringIO):
    _flushes(_cls.flush)


# -- warnings --------------------------------------------------------------------------------------
@models(_warnings.warn)
def _warn(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    given = dict(zip(("message", "category", "stacklevel", "source"), args, strict=False)) | kwargs
    _refuse_inside(m)
    if not is_none(given.get("source", NONE)):
        raise Break(_CODE, "a warning with a source")
    if _constant(m, given.get("skip_file_prefixes"), "a prefix") not in (None, ()):
        raise Break(_CODE, "a warning that skips files")
    message = given.get("message", NONE)
    text = message.real if isinstance(message, Text) else _constant(m, message, "a warning")
    level = _constant(m, given.get("stacklevel", Const(1)), "a stack level")
    if type(text) is not str or type(level) is not int:
        raise Break(_CODE, "a warning that is not a text")
    category, shown = _category(m, given.get("category", NONE))
    if any(given["action"] == "error" for _, given in m.journal.filters):
        raise Break(_CODE, "a warning that a filter of this frame may raise")
    outlet = m.heap.question(shown_output.Outlet, category)
    goes = outlet.key()
    if goes == "program":
        raise Break(_CODE, "a warning that raises, or that code of the program handles")
    m.guard("equals", outlet, goes)
    writes = (_recording(m),) if goes == "recorded" else ()
    frame, above = _place(m, max(level, 1))
    if frame is None:
        _happens(m, _warnings.warn, message, shown, Const(above + 1), writes=writes)
        return NONE
    place = Const(frame.code.co_filename), Const(_line(m, frame))
    scope = frame.scope.source
    names = () if scope is None else (Value(source=scope),)
    _happens(m, helpers.warn_at, message, shown, *place, *names, writes=writes)
    return NONE


_OF_EXCEPTIONS = ("__new__", "__init__", "__str__", "__del__")


def _category(m: Machine, value: Value) -> tuple[type[Warning], Value]:
    if is_none(value):
        return UserWarning, Obj(UserWarning)
    if not isinstance(value, Obj) or not is_kind(value.value, type):
        raise Break(_CODE, "a warning of this category")
    category = value.value
    if not issubclass(category, Warning) or type(category) is not type:
        raise Break(_CODE, "a warning of this category")
    for name in _OF_EXCEPTIONS:
        raw = in_classes(category, name)
        if not any(raw is vars(base).get(name) for base in _BASES) and name != "__del__":
            raise Break(_CODE, f"a warning of {category.__name__}, which has its own {name}")
    if hasattr(category, "__del__"):
        raise Break(_CODE, f"a warning of {category.__name__}, which has a finalizer")
    return category, value


_BASES = tuple(
    base for cls in (*Warning.__subclasses__(), Warning) for base in cls.__mro__ if base is not None
)


def _recording(m: Machine) -> Value:
    """The list that gets the warning; the frame cannot read it any more."""
    source = Source("context", None, shown_output.recording)
    value = m.wrap(shown_output.recording(), source)
    assert isinstance(value, Sequence)
    if value.changed or (value.shut is None and value not in m.heap.recordings):
        raise Break(_CODE, "a warning to a list that the frame has read")

    def stop() -> int:
        raise Break(_CODE, "the list with the warnings of this frame")

    value.shut = stop
    m.heap.recordings.add(value)
    return value


# -- logging ---------------------------------------------------------------------------------------
def _logger(m: Machine, value: Value) -> logging.Logger:
    if not isinstance(value, Obj) or not shown_output.is_plain(value.value):
        raise Break(_CODE, "a logger of the program's own kind")
    if m.heap.overlay.get(value):
        raise Break(_CODE, "a logger whose attributes were set in this frame")
    m.same_object(value)
    found: logging.Logger = value.value
    return found


@models(logging.Logger.isEnabledFor)
def _is_enabled_for(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    logger, level = [*args, *kwargs.values()]
    real, number = _logger(m, logger), _constant(m, level, "a level")
    if type(number) is not int:
        raise Break(_CODE, "a level that is not an int")
    source = m.heap.question(shown_output.Enabled, real, number)
    return m.wrap(source.key(), source)


_PARAMETERS = (*("self", "level", "msg", "args", "exc_info", "extra", "stack_info", "stacklevel"),)


@models(logging.Logger._log)
def _log(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    given = dict(zip(_PARAMETERS, args, strict=False)) | kwargs
    _refuse_inside(m)
    real = _logger(m, given["self"])
    for name in ("exc_info", "stack_info"):
        if _constant(m, given.get(name), f"{name} of a log record"):
            raise Break(_CODE, f"a log record with {name}")
    level = _constant(m, given["level"], "a log record")
    message = _argument(m, given["msg"])
    text = texts.shown(message) if texts.is_text(message) else None
    stack = _constant(m, given.get("stacklevel", Const(1)), "a stack level")
    values = _of_record(m, given["args"], text)
    plain = isinstance(values, Sequence) or type(values) is Const
    if type(text) is not str or type(level) is not int or type(stack) is not int or not plain:
        raise Break(_CODE, "a log record of what is not a text and its arguments")
    extra = _extra(m, given.get("extra", NONE))
    record = logging.LogRecord("", level, "", 0, text, texts.shown(values), None)
    compute(record.getMessage)  # logging prints the stack where it raises
    handled = m.heap.question(shown_output.Handled, real)
    if not handled.key():
        raise Break(_CODE, "a log record that code of the program handles")
    m.guard("equals", handled, True)
    parts = given["self"], Const(level), message, values, extra
    frame, above = _place(m, max(stack, 1), logging._srcfile or "")
    if frame is None:
        _happens(m, helpers.log_above, *parts, Const(above))
        return NONE
    place = frame.code.co_filename, _line(m, frame), frame.code.co_name
    _happens(m, helpers.log_at, *parts, Const(place))
    return NONE


def _of_record(m: Machine, value: Value, text: Any) -> Value:
    """The arguments of a record: a tuple, or the dict whose items the text asks for by name."""
    if isinstance(value, Sequence) and value.cls is tuple:
        items = sequence_items(m, value)
        if len(items) == 1 and isinstance(items[0], Dict):
            return Sequence([_of_record(m, items[0], text)], tuple)
        asks = type(text) is str and _ASKS_FOR_REPR.search(text)
        return _sequence(m, value, (str, repr if asks else str))
    if isinstance(value, Dict) and value.cls is dict:
        return _dict(m, value, (str, repr))
    return _argument(m, value)


_ASKS_FOR_REPR = re.compile(r"%[-#0 +\d*.]*[ra]")


def _extra(m: Machine, value: Value) -> Value:
    """The dict of attributes for a record; the library raises for names that a record has."""
    if is_none(value):
        return NONE
    if not isinstance(value, Dict) or value.cls is not dict:
        raise Break(_CODE, "a log record with extra attributes that are not in a dict")
    for key, item in dict_items(m, value):
        name = key.value if type(key) is Const else None
        if type(name) is not str or name in _NAMES or type(item) is not Const:
            raise Break(_CODE, "a log record with these extra attributes")
    return _argument(m, value)


_NAMES = {"message", "asctime", *vars(logging.LogRecord("", 0, "", 0, "", (), None))}
_LEVELS = ("debug", "info", "warning", "error", "critical", "log", "warn")
walk_as_written(*(getattr(logging.Logger, name) for name in _LEVELS))
walk_as_written(logging.Logger.getEffectiveLevel, logging.Logger.hasHandlers)
_OF_ADAPTERS = (
    *(*_LEVELS, "_log", "isEnabledFor", "getEffectiveLevel", "hasHandlers"),
    *("process", "__init__"),
)
walk_as_written(*(getattr(logging.LoggerAdapter, name) for name in _OF_ADAPTERS))


@models(logging.getLogger)
def _get_logger(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    """logging.getLogger(name) of a logger that exists"""
    given = [*args, *kwargs.values()]
    name = _constant(m, given[0], "the name of a logger") if given else None
    if len(given) > 1 or type(name) not in (str, type(None)) or kwargs.keys() - {"name"}:
        raise Break(_CODE, "getLogger() with these arguments")
    root = attributes.load_attr(m, Obj(logging, source=Source("const", None, logging)), "root")
    if not name or name == logging.root.name:
        return root
    manager = attributes.load_attr(m, root, "manager")
    loggers = attributes.load_attr(m, manager, "loggerDict")
    real = getattr(manager, "value", None)
    if type(real) is not logging.Manager or not isinstance(loggers, Dict):
        raise Break(_CODE, "a manager of loggers of the program's own kind")
    if not isinstance(real.loggerDict.get(name), logging.Logger):
        raise Break(_CODE, "getLogger() of a logger that does not exist yet")
    return m.get_item(loggers, Const(name))
