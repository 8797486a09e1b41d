"""Where warnings and log records of this moment go, asked without giving one.

In: a category of warnings, or a logger. Out: whether Python's library alone will handle them: no
exception, and no code of the program's that could see or change what a frame computes. Guards call
these objects ("context" sources), so each call asks again.
"""

from __future__ import annotations

import logging
import sys
import types
import warnings
import weakref
from typing import Any

# Their parts that type checkers do not know.
_WARNINGS: Any = warnings
_LOGGING: Any = logging
_OF_LOGGERS = (
    *("isEnabledFor", "getEffectiveLevel", "makeRecord", "handle", "callHandlers"),
    *("filter", "_log", "findCaller"),
)
_METHODS = {name: getattr(logging.Logger, name) for name in _OF_LOGGERS}
_IS_ENABLED = logging.Logger.isEnabledFor
_LEVEL = logging.Logger.getEffectiveLevel
_HANDLERS = (
    *(logging.NullHandler, logging.StreamHandler, logging.FileHandler, _LOGGING._StderrHandler),
)
_OWN = frozenset(
    {"emit", "handle", "format", "filter", "acquire", "release", "handleError", "terminator"}
)
_C_METHODS = (types.MethodDescriptorType, types.BuiltinFunctionType)


# -- warnings --------------------------------------------------------------------------------------
class Outlet:
    """Where a warning of a category goes: a callable for a "context" source.

    "printed": on a stream, if no filter drops it; "recorded": to the list of a `catch_warnings`;
    "program": an exception, or code of the program's.
    """

    __slots__ = ("__name__", "_category")

    def __init__(self, category: type[Warning]) -> None:
        self._category = weakref.ref(category)
        self.__name__ = f"outlet_of_{category.__name__}"

    def __call__(self) -> str:
        category = self._category()
        if category is None or _raises(category) or not _is_library(_WARNINGS._showwarnmsg):
            return "program"
        if warnings.showwarning is not _WARNINGS._showwarning_orig:
            return "program"
        if recording() is not None:
            return "recorded"
        plain = _is_library(_WARNINGS._showwarnmsg_impl) and _writes_in_c(sys.stderr)
        return "printed" if plain and _formats() else "program"


def recording() -> list[Any] | None:
    """The list in which warnings are recorded now."""
    shown = _WARNINGS._showwarnmsg_impl
    if type(shown) is types.BuiltinFunctionType and shown.__name__ == "append":
        held = shown.__self__
        return held if type(held) is list else None
    return None


def _raises(category: type[Warning]) -> bool:
    """Whether a filter may make an exception of such a warning; those of a walk are no filters."""
    if _WARNINGS.defaultaction == "error":
        return True
    return any(
        one[0] == "error"
        and type.__subclasscheck__(one[2], category)
        and not hasattr(type(one[3]), "over_a_walk")
        for one in _WARNINGS.filters
    )


def prints_in_c() -> bool:
    """Whether `print` runs no code of the program's."""
    return writes_in_c(sys.stdout)


def writes_in_c(stream: Any) -> bool:
    """Whether this is a stream whose methods run no code of the program's."""
    return _writes_in_c(stream) or type(stream).__module__ in _LIBRARIES


# Whose streams are Python code, which sees nothing of the program.
_LIBRARIES = frozenset({"ipykernel.iostream"})


def _formats() -> bool:
    return warnings.formatwarning is _WARNINGS._formatwarning_orig


def _is_library(function: Any) -> bool:
    if type(function) is not types.FunctionType:
        return False
    return function.__code__.co_filename == warnings.simplefilter.__code__.co_filename


def _writes_in_c(stream: Any) -> bool:
    """Whether writing to a stream runs no Python code of its class."""
    if stream is None:
        return True
    return all(isinstance(getattr(type(stream), n, None), _C_METHODS) for n in ("write", "flush"))


# -- logging ---------------------------------------------------------------------------------------
class Enabled:
    """Whether a logger takes records of a level: a callable for a "context" source."""

    __slots__ = ("__name__", "_level", "_logger")

    def __init__(self, logger: logging.Logger, level: int) -> None:
        self._logger, self._level = weakref.ref(logger), level
        self.__name__ = f"{logger.name.replace('.', '_')}_takes_{logging.getLevelName(level)}"

    def __call__(self) -> bool | None:
        logger: Any = self._logger()
        # Capture has asked `is_plain`; the two methods that run here are asked each time.
        kind: Any = type(logger)
        if (
            logger is None
            or kind.isEnabledFor is not _IS_ENABLED
            or kind.getEffectiveLevel is not _LEVEL
            or "getEffectiveLevel" in logger.__dict__
        ):
            return None
        return _IS_ENABLED(logger, self._level)


class Handled:
    """Whether the library alone handles the records of a logger."""

    __slots__ = ("__name__", "_logger")

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = weakref.ref(logger)
        self.__name__ = f"{logger.name.replace('.', '_')}_is_handled_by_logging"

    def __call__(self) -> bool:
        logger: Any = self._logger()
        if logger is None or not is_plain(logger) or logger.filters:
            return False
        if logging.getLogRecordFactory() is not logging.LogRecord:
            return False
        found = 0
        while logger:
            found += len(logger.handlers)
            if not all(map(_is_plain_handler, logger.handlers)):
                return False
            logger = logger.parent if logger.propagate else None
        last = logging.lastResort
        return bool(found) or last is None or _is_plain_handler(last)


def is_plain(logger: Any) -> bool:
    """Whether this is a logger with the library's own methods."""
    kind = type(logger)
    return (
        issubclass(kind, logging.Logger)
        and all(getattr(kind, name) is method for name, method in _METHODS.items())
        and _METHODS.keys().isdisjoint(vars(logger))
    )


def _is_plain_handler(handler: Any) -> bool:
    if type(handler) not in _HANDLERS or handler.filters or not _OWN.isdisjoint(vars(handler)):
        return False
    formatter = handler.formatter
    if formatter is not None and (
        type(formatter) is not logging.Formatter or "format" in vars(formatter)
    ):
        return False
    flush = vars(handler).get("flush")
    if flush is not None and not isinstance(flush, _C_METHODS):
        return False
    return _writes_in_c(getattr(handler, "stream", None))
