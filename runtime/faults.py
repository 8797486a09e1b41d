"""A fault of graftjit itself: told once, and never the user's exception.

In: an exception that is not the program's, and the name of what it concerns. Out: one warning (WN607); under
GRAFTJIT_CHECK the exception itself. Whoever calls this goes on in plain Python, or by the calls as they were written.
`is_ours` tells such an exception from those of torch and the program.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from typing import Any

from .errors import REPORT_IT, CheckError, InternalError
from .events import RanPlain
from .logs import LOGGER
from .session import SESSION
from .taking_back import Begun

_PLAIN = "It runs in plain Python from here on: what it gives is right, nothing of it is compiled."


_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_ROOMS = tuple(
    os.path.join(_HERE, room) + os.sep
    for room in ("graftjit", "capture", "codegen", "ir", "runtime")
)
# What a line of ours raises that nobody meant to raise. torch's own functions, which our lines call for the program, raise others.
_SLIPS = (AssertionError, AttributeError, LookupError, NameError, StopIteration, UnicodeError)


def is_ours(error: BaseException) -> bool:
    """Whether an exception out of what runs for the program is a fault of ours, not what the program itself would raise."""
    if isinstance(error, (InternalError, SystemError)):
        return True
    if not isinstance(error, _SLIPS) or isinstance(error, IndexError):
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_filename.startswith(_ROOMS)


def tell(name: str, error: Exception, then: str = _PLAIN) -> None:
    """Warn of a fault, once a text. Under GRAFTJIT_CHECK it is raised."""
    if SESSION.options.check:
        raise error
    what = f"{type(error).__name__}: {error}"
    text = f"{name}: an internal fault of graftjit ({what}). {then} {REPORT_IT}"
    safely(SESSION.warn_once, "WN607", text)


def of_a_run(name: str, error: BaseException) -> RanPlain:
    """What is told of a call that Python begins again, since its compiled program raised this and has changed nothing: that the
    program itself raises, or of a fault. What Python is not to begin again is raised."""
    if isinstance(error, Begun):
        if is_ours(error.error) and not SESSION.options.check:
            raise InternalError(
                f"a compiled part of {name} failed after it had written to its inputs",
                found=f"{type(error.error).__name__}: {error.error}",
                todo=f"do not use what the call was to change. {REPORT_IT}",
            ) from error.error
        raise error.error
    if isinstance(error, CheckError) or not isinstance(error, Exception):
        raise error
    reason = f"{type(error).__name__}: {error}"
    if not is_ours(error):
        return RanPlain(code="GB108", reason=reason)
    tell(name, error, "This call ran in plain Python: what it gives is right.")
    return RanPlain(code="PL205", reason=reason, detail="".join(traceback.format_exception(error)))


def safely(record: Callable[..., Any], *args: Any) -> None:
    """Record something; a fault of the record's own is logged and goes no further."""
    try:
        record(*args)
    except Exception:
        LOGGER.exception("graftjit: an event could not be recorded")
