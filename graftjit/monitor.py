"""What graftjit does from one moment on, as a report: for a test, or any other part of a run.

In: a block. Out: a report of the events in it, whatever function they belong to, and whether they stay within limits.
What was compiled before the block is part of it as far as calls in the block have used it: a graph break is one for
each test that meets it, in whatever order tests run. Recompiles are those of the block. Used by the plugin for
pytest (graftjit_pytest.py).
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
    """What may happen. `allow`: codes that do not count, "GB103", or the letters of a family, "RC"."""

    max_breaks: int = 0
    max_recompiles: int = 1
    allow: tuple[str, ...] = ()


def limits_of(
    max_breaks: int = 0, max_recompiles: int = 1, allow: str | tuple[str, ...] | list[str] = ()
) -> Limits:
    """Checked. Raises OptionError (a ValueError) for what is no number and no code."""
    codes = (allow,) if isinstance(allow, str) else tuple(allow)
    for name, value in (("max_breaks", max_breaks), ("max_recompiles", max_recompiles)):
        if type(value) is not int or value < 0:
            raise OptionError(
                f"{name}={value!r} is not allowed", expected="a whole number from 0", found=repr(value)
            )  # fmt: skip
    for code in codes:
        if code not in CODES and not any(known.startswith(code) for known in CODES if code):
            raise OptionError(
                f"there is no code {code}" + did_you_mean(str(code), CODES), expected="codes like GB103",
                found=repr(code),
            )  # fmt: skip
    return Limits(max_breaks, max_recompiles, codes)


class Watch:
    """Made by `watching`."""

    def __init__(self) -> None:
        self._serial = SESSION.log.serial()
        self._answered = _answered()

    def report(self, name: str = "this test", allow: tuple[str, ...] = ()) -> Report:
        """What has happened since, and what holds of the entries that have answered calls since, whenever they were
        made; but for events of the codes in `allow`."""
        log, before = SESSION.log, self._answered
        used = {entry for entry, hits in _answered().items() if hits > before.get(entry, 0)}
        fresh = log.of(since=self._serial)
        older = (e for e in log.of()[: -len(fresh) or None] if e.entry in used)
        found = [*(e for e in older if type(e) not in _ONCE), *fresh]
        frames = {event.frame for event in found}
        found += [event for event in everything_counted() if event.frame in frames]
        return Report(name, tuple(e for e in found if not _allowed(getattr(e, "code", ""), allow)))

    def unclean(self, name: str, limits: Limits) -> str:
        """Why that is not within the limits, with the report; "" if it is."""
        try:
            self.report(name, limits.allow).assert_clean(limits.max_breaks, limits.max_recompiles)
        except NotClean as error:
            return str(error)
        return ""


_ONCE = (events.Recompile, events.GuardFailed)  # they happened when the entry was made, not now


def _answered() -> dict[int, int]:
    """How many calls each entry has answered so far."""
    found = (event for event in everything_counted() if isinstance(event, events.Counted))
    return dict(pair for event in found for pair in event.entry_hits)


def _allowed(code: str, allow: tuple[str, ...]) -> bool:
    return bool(code) and code.startswith(allow) if allow else False


@contextlib.contextmanager
def watching() -> Iterator[Watch]:
    """What happens in the block outlives the functions that it happens to."""
    with SESSION.log.keeping():
        yield Watch()
