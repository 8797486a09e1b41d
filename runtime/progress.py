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

AFTER = 1.0  # seconds
STEP = 0.5
_ERASE = "\r\033[K"


@contextlib.contextmanager
def told(title: str) -> Iterator[None]:
    """The line, for as long as the block takes."""
    stream = sys.stderr
    if stream is None or not stream.isatty():
        yield
        return
    done = threading.Event()
    teller = threading.Thread(
        target=_tell, args=(stream, title, done), name="graftjit: progress", daemon=True
    )
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


def _tell(stream: TextIO, title: str, done: threading.Event) -> None:
    start = time.monotonic()
    shown = False
    while not done.wait(STEP if shown else AFTER):
        shown = True
        stream.write(f"{_ERASE}graftjit: {title} ({time.monotonic() - start:.0f} s)")
        stream.flush()
    if shown:
        stream.write(_ERASE)
        stream.flush()
