"""Reports on a part of a run, for example a test.

In: a block. Out: a report on its events, whichever function they belong to, and whether they are
within limits. Earlier compilations are included as far as calls in the block used them, so that a
graph break is reported for each test that meets it, in any order of tests. Recompiles are those of
the block. The pytest plugin (graftjit_pytest.py) uses this module.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from .ir.dataclass import dataclass
from .jit import everything_counted
from .runtime.codes import CODES
from .runtime.errors import NotClean, OptionError, did_you_mean
from .runtime.events import events
from .runtime.process.session import SESSION
from .runtime.report.report import Report


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits. `allow`: codes that do not count, "GB103", or the letters of a family, "RC"."""

    max_breaks: int = 0
    max_recompiles: int = 1
    allow: tuple[str, ...] = ()


def limits_of(
    max_breaks: int = 0, max_recompiles: int = 1, allow: str | tuple[str, ...] | list[str] = ()
) -> Limits:
    """Checked limits. Raises OptionError (a ValueError) for invalid numbers and unknown codes."""
    codes = (allow,) if isinstance(allow, str) else tuple(allow)
    for name, value in (("max_breaks", max_breaks), ("max_recompiles", max_recompiles)):
        if type(value) is not int or value < 0:
            raise OptionError(
                f"{name}={value!r} is not allowed",
                expected="a whole number from 0",
                found=repr(value),
            )
    for code in codes:
        if code not in CODES and not any(known.startswith(code) for known in CODES if code):
            raise OptionError(
                f"there is no code {code}" + did_you_mean(str(code), CODES),
                expected="codes like GB103",
                found=repr(code),
            )
    return Limits(max_breaks, max_recompiles, codes)


class Watch:
    """An observed block, made by `watching`."""

    def __init__(self) -> None:
        self._serial = SESSION.log.serial()
        self._answered = _answered()

    def report(self, name: str = "this test", allow: tuple[str, ...] = ()) -> Report:
        """The report on events since the start, and on entries that have answered calls since then,
        without events whose code is in `allow`."""
        log, before = SESSION.log, self._answered
        used = {entry for entry, hits in _answered().items() if hits > before.get(entry, 0)}
        fresh = log.of(since=self._serial)
        older = (e for e in log.of()[: -len(fresh) or None] if e.entry in used)
        found = [*(e for e in older if type(e) not in _ONCE), *fresh]
        frames = {event.frame for event in found}
        found += [event for event in everything_counted() if event.frame in frames]
        return Report(name, tuple(e for e in found if not _allowed(getattr(e, "code", ""), allow)))

    def unclean(self, name: str, limits: Limits) -> str:
        """The report with the reason if the limits were exceeded, else ""."""
        try:
            self.report(name, limits.allow).assert_clean(limits.max_breaks, limits.max_recompiles)
        except NotClean as error:
            return str(error)
        return ""


# These events belong to the time when the entry was made.
_ONCE = (events.Recompile, events.GuardFailed)


def _answered() -> dict[int, int]:
    """The number of calls that each entry has answered so far."""
    found = (event for event in everything_counted() if isinstance(event, events.Counted))
    return dict(pair for event in found for pair in event.entry_hits)


def _allowed(code: str, allow: tuple[str, ...]) -> bool:
    return bool(code) and code.startswith(allow) if allow else False


@contextlib.contextmanager
def watching() -> Iterator[Watch]:
    """Observe a block. Events are kept even if their functions die."""
    with SESSION.log.keeping():
        yield Watch()
