"""One erasable line on a terminal while something takes long.

In: what is done, in a few words. Out: from the second second on, a line on standard error with the time so far, gone
when it is done; nothing where standard error is no terminal.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import TextIO

from ...ir.dataclass import dataclass

AFTER = 1.0  # seconds
STEP = 0.5
_ERASE = "\r\033[K"


@dataclass(slots=True)
class _Line:
    """What is being done, and, where it is known, which part of it."""

    title: str
    detail: str = ""

    def text(self, seconds: float) -> str:
        return f"graftjit: {self.title}{self.detail and ': '}{self.detail} ({seconds:.0f} s)"


_LINES: list[_Line] = []  # of the blocks under way; the innermost is shown


@contextlib.contextmanager
def told(title: str) -> Iterator[None]:
    """The line, for as long as the block takes."""
    stream = sys.stderr
    if stream is None or not stream.isatty():
        yield
        return
    done, line = threading.Event(), _Line(title)
    teller = threading.Thread(
        target=_tell, args=(stream, line, done), name="graftjit: progress", daemon=True
    )
    _LINES.append(line)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()
        _LINES.remove(line)


def detail(text: str) -> None:
    """Which part of what is told of is being done now."""
    if _LINES:
        _LINES[-1].detail = text


def _tell(stream: TextIO, line: _Line, done: threading.Event) -> None:
    start = time.monotonic()
    shown = False
    while not done.wait(STEP if shown else AFTER):
        if _LINES[-1:] != [line]:  # another one is within this one, and is shown
            continue
        shown = True
        stream.write(_ERASE + line.text(time.monotonic() - start))
        stream.flush()
    if shown:
        stream.write(_ERASE)
        stream.flush()
