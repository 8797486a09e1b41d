"""Colour: which style looks how, where colour may be written, and the writing.

In: lines of `text_layout`. Out: text, with escapes only where they were asked for. A stream gets colour if it is a
terminal; `NO_COLOR` forbids it (https://no-color.org), `FORCE_COLOR` demands it, `TERM=dumb` has none: the order is
that of Python's own tracebacks. Colours are the sixteen that a terminal's theme sets, so that light and dark ones
are both readable.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Iterable
from typing import TextIO

from ..styled_text import Line, plain

STYLES: dict[str, str] = {
    "": "",
    "head": "bold",
    "title": "dim",
    "dim": "dim",
    "good": "green",
    "bad": "bold red",
    "code": "bold red",
    "caret": "bold red",
    "place": "cyan",
    "user": "",
    "cure": "green",
    "cost": "yellow",
    "name": "bold",
}


def wanted(stream: TextIO | None) -> bool:
    """Whether this stream gets colour."""
    environment = os.environ
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR"):
        return True
    if environment.get("TERM") == "dumb" or stream is None:
        return False
    try:
        return stream.isatty()
    except ValueError:  # it is closed
        return False


def joined(lines: Iterable[Line], colour: bool) -> str:
    """The lines as one text."""
    if not colour:
        return "\n".join(plain(spans) for spans in lines)
    from rich.color import ColorSystem
    from rich.style import Style

    styles = {name: Style.parse(style) for name, style in STYLES.items()}
    return "\n".join(
        "".join(
            styles[style].render(text, color_system=ColorSystem.STANDARD) if text.strip() else text
            for text, style in spans
        ).rstrip()
        for spans in lines
    )


def output(stream: TextIO | None) -> TextIO:
    """The stream itself; None is standard output as it is now, and a bin where there is none."""
    stream = sys.stdout if stream is None else stream
    return io.StringIO() if stream is None else stream


def width_of(stream: TextIO, most: int = 100) -> int:
    """The columns of the terminal, at most `most`: longer lines are hard to read."""
    try:
        terminal = stream.isatty()
    except ValueError:
        terminal = False
    return min(most, shutil.get_terminal_size((most, 24)).columns) if terminal else most


def write(text: str, stream: TextIO) -> None:
    """The text and a newline; what the stream's encoding lacks is written as an escape, and is no error."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
