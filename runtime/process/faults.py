"""Internal errors of graftjit: reported once, and never raised in the user's program.

In: an exception that is not the program's, and the name of the function. Out: one warning (WN607);
under GRAFTJIT_CHECK the exception itself. The caller then continues in plain Python, or with the
recorded calls. `fault_origin` decides whose an exception is.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from ..errors import REPORT_IT, Begun, CheckError, InternalError, ObservedSaving, Untrue
from ..events.events import RanPlain
from ..events.loggers import LOGGER
from .fault_origin import is_ours
from .session import SESSION

_PLAIN = "From here on it runs in plain Python: its results are right, but it is not compiled."


def warn_of_fault(name: str, error: Exception, then: str = _PLAIN) -> None:
    """Warn of an internal error, once per text. Under GRAFTJIT_CHECK raise it."""
    if SESSION.options.check:
        raise error
    what = f"{type(error).__name__}: {error}"
    text = f"{name}: an internal fault of graftjit ({what}). {then} {REPORT_IT}"
    safely(SESSION.warn_once, "WN607", text)


def halfway(
    name: str, error: BaseException, what: str = "while it changed objects that outlive the call"
) -> BaseException:
    """The exception for an internal error after which Python cannot repeat the call, since some
    effects would happen twice."""
    if SESSION.options.check or not isinstance(error, Exception):
        return error
    made = InternalError(
        f"a compiled part of {name} failed {what}",
        found=f"{type(error).__name__}: {error}",
        todo="do not use the objects that the call was changing. GRAFTJIT_DISABLE=1 runs everything"
        f" in plain Python. {REPORT_IT}",
    )
    made.__cause__ = error
    return made


def of_a_run(name: str, error: BaseException, ours: bool | None = None) -> RanPlain:
    """The event for a call that Python repeats, since its compiled program raised `error` and
    changed nothing.

    Either the program itself raises it (GB108), or it is an internal error (PL205). Errors after
    which Python must not repeat the call are raised. `ours`: the origin of the error, if known.
    """
    if isinstance(error, Begun):
        found = error.error
        raise (
            halfway(name, found, "after it had written to its inputs") if is_ours(found) else found
        )
    if isinstance(error, CheckError) or not isinstance(error, Exception):
        raise error
    if isinstance(error, ObservedSaving):
        return RanPlain(
            code="PL209", reason="active: saved-tensor hooks, and the frame has effects"
        )
    if isinstance(error, Untrue):
        return RanPlain(code="GB143", reason=str(error))
    reason = f"{type(error).__name__}: {error}"
    if not (is_ours(error) if ours is None else ours):
        return RanPlain(code="GB108", reason=reason)
    warn_of_fault(name, error, "This call ran in plain Python: its result is right.")
    detail = "".join(traceback.format_exception(error))
    let_go(error)
    return RanPlain(code="PL205", reason=reason, detail=detail)


def let_go(error: BaseException) -> None:
    """Drop the tracebacks of a reported error, whose frames keep the user's objects alive."""
    chain: list[BaseException | None] = [error]
    while chain:
        one = chain.pop()
        if one is None or one.__traceback__ is None:
            continue
        one.__traceback__ = None
        chain += [one.__cause__, one.__context__]


def safely(record: Callable[..., Any], *args: Any) -> None:
    """Record something. If recording fails, log that and continue."""
    try:
        record(*args)
    except Exception:
        LOGGER.exception("graftjit: an event could not be recorded")
