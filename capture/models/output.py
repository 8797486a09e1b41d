"""Warnings and log records of a frame: effects at their place, with the program's lines.

In: calls of `warnings.warn` and of loggers, with constants. Out: effects that give the warning or
the record when the frame's graph has run. A guard says that Python's library alone handles it
(`runtime.guards.shown_output`): it raises nothing, and runs no code of the program's. Then nothing
can tell that it comes after the graph. Filters, registries, levels and handlers are asked when the
effect runs, as in plain Python.
"""

from __future__ import annotations

import _warnings
import logging
from typing import TYPE_CHECKING, Any

from ...runtime import own_files
from ...runtime.guards import shown_output
from ...runtime.guards.sources import Source
from ...runtime.safe_access import in_classes
from .. import helpers
from ..breaks import Break
from ..data_model.polyfills import walk_as_written
from ..exact_type import is_kind
from ..values.containers import NotConstant, as_constant, compute
from ..values.effects import Called
from ..values.frames import Frame
from ..values.registry import NONE, Args, Kwargs, models
from ..values.value import Const, Obj, Sequence, Value, is_none
from ..values.wrap import CONST_TYPES

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

_CODE = "GB103"
_OWN = own_files.PACKAGES["capture"]


def _asked(m: Machine, kind: Any, about: Any, *more: Any) -> Source:
    """The source of one of the callables of `shown_output`."""
    key = (kind, id(about), *more)
    if key not in m.heap.asked:
        m.heap.asked[key] = kind(about, *more)
        m.heap.keep.append(about)
    return Source("context", None, m.heap.asked[key])


def _happens(m: Machine, step: Any, *items: Value, writes: tuple[Value, ...] = ()) -> None:
    m.activity += 1
    m.journal.effects.append(Called(step, items, writes=writes))


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


# -- warnings --------------------------------------------------------------------------------------
@models(_warnings.warn)
def _warn(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    given = dict(zip(("message", "category", "stacklevel", "source"), args, strict=False)) | kwargs
    _refuse_inside(m)
    if not is_none(given.get("source", NONE)):
        raise Break(_CODE, "a warning with a source")
    if _constant(m, given.get("skip_file_prefixes"), "a prefix") not in (None, ()):
        raise Break(_CODE, "a warning that skips files")
    text = _constant(m, given.get("message"), "a warning")
    level = _constant(m, given.get("stacklevel", Const(1)), "a stack level")
    if type(text) is not str or type(level) is not int:
        raise Break(_CODE, "a warning that is not a text")
    category, shown = _category(m, given.get("category", NONE))
    outlet = _asked(m, shown_output.Outlet, category)
    goes = outlet.key()
    if goes == "program":
        raise Break(_CODE, "a warning that raises, or that code of the program handles")
    m.guard("equals", outlet, goes)
    writes = (_recording(m),) if goes == "recorded" else ()
    frame, above = _place(m, max(level, 1))
    if frame is None:
        _happens(m, _warnings.warn, Const(text), shown, Const(above + 1), writes=writes)
        return NONE
    place = Const(frame.code.co_filename), Const(_line(m, frame))
    scope = frame.scope.source
    names = () if scope is None else (Value(source=scope),)
    _happens(m, helpers.warn_at, Const(text), shown, *place, *names, writes=writes)
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
    source = _asked(m, shown_output.Enabled, real, number)
    return m.wrap(source.key(), source)


_PARAMETERS = (*("self", "level", "msg", "args", "exc_info", "extra", "stack_info", "stacklevel"),)


@models(logging.Logger._log)
def _log(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    given = dict(zip(_PARAMETERS, args, strict=False)) | kwargs
    _refuse_inside(m)
    real = _logger(m, given["self"])
    for name in ("exc_info", "extra", "stack_info"):
        if _constant(m, given.get(name), f"{name} of a log record"):
            raise Break(_CODE, f"a log record with {name}")
    level, text = (_constant(m, given[name], "a log record") for name in ("level", "msg"))
    stack = _constant(m, given.get("stacklevel", Const(1)), "a stack level")
    values = _constant(m, given["args"], "an argument of a log record")
    plain = type(values) is tuple and all(type(value) in CONST_TYPES for value in values)
    if type(text) is not str or type(level) is not int or type(stack) is not int or not plain:
        raise Break(_CODE, "a log record of what is not a text and constants")
    record = logging.LogRecord("", level, "", 0, text, values, None)
    compute(record.getMessage)  # logging prints the stack where it raises
    handled = _asked(m, shown_output.Handled, real)
    if not handled.key():
        raise Break(_CODE, "a log record that code of the program handles")
    m.guard("equals", handled, True)
    parts = given["self"], Const(level), Const(text), Const(values)
    frame, above = _place(m, max(stack, 1), logging._srcfile or "")
    if frame is None:
        _happens(m, helpers.log_above, *parts, Const(above))
        return NONE
    place = frame.code.co_filename, _line(m, frame), frame.code.co_name
    _happens(m, helpers.log_at, *parts, Const(place))
    return NONE


_LEVELS = ("debug", "info", "warning", "error", "critical", "log", "warn")
walk_as_written(*(getattr(logging.Logger, name) for name in _LEVELS))
walk_as_written(logging.Logger.getEffectiveLevel, logging.Logger.hasHandlers)
