"""Log lines for events.

In: events as they are recorded. Out: lines of `logging`. The loggers are `graftjit.capture`,
`graftjit.ir`, `graftjit.codegen` and `graftjit.runtime`, below `graftjit`, which logs the warnings.
Breaks, recompiles and frames left to plain Python have level INFO, all others DEBUG. So nothing is
shown unless GRAFTJIT_DEBUG or the levels of these loggers ask for it. The level of the root logger
is ignored: a program that logs at DEBUG sees its own lines only. `Session.emit` calls `log`.
"""

from __future__ import annotations

import dataclasses
import logging

from . import events

LOGGER = logging.getLogger("graftjit")
PACKAGES = {
    name: logging.getLogger(f"graftjit.{name}") for name in ("capture", "ir", "codegen", "runtime")
}

# The package of an event, and the lowest GRAFTJIT_DEBUG that logs it. Default: runtime, 5.
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
    """Log the event if enabled. `debug`: GRAFTJIT_DEBUG; if it is 0, the loggers' levels decide."""
    package, rung = _LADDER.get(type(event), ("runtime", 5))
    severity = logging.INFO if rung == 1 else logging.DEBUG
    logger = PACKAGES[package]
    if (debug >= rung or not debug) and asked(logger, severity):
        logger.log(severity, "%s", one_line(event))


def asked(logger: logging.Logger, severity: int) -> bool:
    """Whether the levels of graftjit's loggers enable this. `isEnabledFor` is not used because it
    stores its answer in a cache that a program can see."""
    if logger.disabled or logger.manager.disable >= severity:
        return False
    own = logger.level or LOGGER.level
    if not own and severity < logging.WARNING:
        return False
    return severity >= (own or logger.getEffectiveLevel())


def one_line(event: events.Event) -> str:
    """The event as one line, without its long fields."""
    shown = " ".join(
        f"{field.name}={value!r}"
        for field in dataclasses.fields(event)
        if field.name not in _LEFT_OUT
        and (value := getattr(event, field.name)) not in ("", (), 0, None)
    )
    source = getattr(event, "source", "")
    shown = f"source={source!r} {shown}" if source and len(source) < 80 else shown
    place = "" if event.where is None else f" at {event.where.file}:{event.where.line}"
    return f"{type(event).__name__} {event.frame}{place} {shown}"


def to_stderr(debug: int) -> None:
    """Log what GRAFTJIT_DEBUG enables to stderr, unless the program has set up logging."""
    if debug and LOGGER.level == logging.NOTSET:
        LOGGER.setLevel(logging.DEBUG)
    if not LOGGER.handlers and not logging.getLogger().handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        LOGGER.addHandler(handler)
