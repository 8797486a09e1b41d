"""What is logged of events: by the logger of the room that they come from, and from which GRAFTJIT_DEBUG on.

In: events as they are recorded. Out: lines of `logging`. The loggers are `graftjit.capture`, `graftjit.ir`, `graftjit.codegen`
and `graftjit.runtime`, below `graftjit`, which gives the warnings. Breaks, recompiles and frames left to plain Python
are of level INFO, all else is DEBUG; so nothing is seen unless it is asked for, by GRAFTJIT_DEBUG or by the levels of
these loggers. The root logger's level does not count: a program that logs at DEBUG gets its own lines alone. Called by
`Session.emit`.
"""

from __future__ import annotations

import dataclasses
import logging

from . import events

LOGGER = logging.getLogger("graftjit")
ROOMS = {
    name: logging.getLogger(f"graftjit.{name}") for name in ("capture", "ir", "codegen", "runtime")
}

# The room of an event, and the GRAFTJIT_DEBUG from which it is logged; those that are not here: runtime, 5.
_LADDER: dict[type[events.Event], tuple[str, int]] = {
    events.GraphBreak: ("capture", 1),
    events.RanPlain: ("capture", 1),
    events.Recompile: ("runtime", 1),
    events.Captured: ("capture", 2),
    events.Adopted: ("runtime", 2),
    events.FrameSeen: ("capture", 2),
    events.Fallback: ("codegen", 2),
    events.Compiled: ("codegen", 3),
    events.KernelBuilt: ("codegen", 3),
    events.Tuned: ("codegen", 3),
    events.Symbolic: ("capture", 5),
}
_LEFT_OUT = {"at", "frame", "where", "guards", "detail", "steps", "sketch", "source", "entry"}


def log(event: events.Event, debug: int) -> None:
    """Write a line, if it is asked for. `debug`: GRAFTJIT_DEBUG, 0 where only the loggers' levels say what is."""
    room, rung = _LADDER.get(type(event), ("runtime", 5))
    severity = logging.INFO if rung == 1 else logging.DEBUG
    logger = ROOMS[room]
    if (debug >= rung or not debug) and asked(logger, severity):
        logger.log(severity, "%s", one_line(event))


def asked(logger: logging.Logger, severity: int) -> bool:
    """Whether the levels of our loggers let this through. `isEnabledFor` would keep its answer in a table that a
    program can see."""
    if logger.disabled or logger.manager.disable >= severity:
        return False
    own = logger.level or LOGGER.level
    if not own and severity < logging.WARNING:
        return False
    return severity >= (own or logger.getEffectiveLevel())


def one_line(event: events.Event) -> str:
    """The event in words, without what is long."""
    told = " ".join(
        f"{field.name}={value!r}"
        for field in dataclasses.fields(event)
        if field.name not in _LEFT_OUT and (value := getattr(event, field.name)) not in ("", (), 0, None)
    )  # fmt: skip
    source = getattr(event, "source", "")
    told = f"source={source!r} {told}" if source and len(source) < 80 else told
    place = "" if event.where is None else f" at {event.where.file}:{event.where.line}"
    return f"{type(event).__name__} {event.frame}{place} {told}"


def to_stderr(debug: int) -> None:
    """What GRAFTJIT_DEBUG=n asks for goes to stderr, unless the program has said where to log."""
    if debug and LOGGER.level == logging.NOTSET:
        LOGGER.setLevel(logging.DEBUG)
    if not LOGGER.handlers and not logging.getLogger().handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        LOGGER.addHandler(handler)
