"""A fault of graftjit itself: told once, and never the user's exception.

In: an exception that is not the program's, and the name of what it concerns. Out: one warning (WN607); under
GRAFTJIT_CHECK the exception itself. Whoever calls this goes on in plain Python, or by the calls as they were written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .errors import REPORT_IT
from .logs import LOGGER
from .session import SESSION

_PLAIN = "It runs in plain Python from here on: what it gives is right, nothing of it is compiled."


def tell(name: str, error: Exception, then: str = _PLAIN) -> None:
    """Warn of a fault, once a text. Under GRAFTJIT_CHECK it is raised."""
    if SESSION.options.check:
        raise error
    what = f"{type(error).__name__}: {error}"
    text = f"{name}: an internal fault of graftjit ({what}). {then} {REPORT_IT}"
    safely(SESSION.warn_once, "WN607", text)


def safely(record: Callable[..., Any], *args: Any) -> None:
    """Record something; a fault of the record's own is logged and goes no further."""
    try:
        record(*args)
    except Exception:
        LOGGER.exception("graftjit: an event could not be recorded")
