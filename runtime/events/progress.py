"""A progress line on the terminal during long operations.

In: a short description. Out: after one second, a line on standard error with the elapsed time,
which is erased at the end. Nothing is shown if standard error is no terminal.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import TextIO

from ...ir.dataclass import dataclass

AFTER = 1.0  # seconds until the line appears
STEP = 0.5
_ERASE = "\r\033[K"


@dataclass(slots=True)
class _Line:
    """The operation, and the part of it that is running, if known."""

    title: str
    detail: str = ""

    def text(self, seconds: float) -> str:
        return f"graftjit: {self.title}{self.detail and ': '}{self.detail} ({seconds:.0f} s)"


_LINES: list[_Line] = []  # of the running blocks; the innermost is shown


@contextlib.contextmanager
def displayed(title: str) -> Iterator[None]:
    """Show the line while the block runs."""
    stream = sys.stderr
    if stream is None or not stream.isatty():
        yield
        return
    done, line = threading.Event(), _Line(title)
    teller = threading.Thread(
        target=_display, args=(stream, line, done), name="graftjit: progress", daemon=True
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
    """Set the part of the operation that is running."""
    if _LINES:
        _LINES[-1].detail = text


def _display(stream: TextIO, line: _Line, done: threading.Event) -> None:
    start = time.monotonic()
    shown = False
    while not done.wait(STEP if shown else AFTER):
        # an inner block is shown instead
        if _LINES[-1:] != [line]:
            continue
        shown = True
        stream.write(_ERASE + line.text(time.monotonic() - start))
        stream.flush()
    if shown:
        stream.write(_ERASE)
        stream.flush()
