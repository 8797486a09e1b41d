"""Colour of text reports and of the command line: the styles, detection of colour support, and
output.

In: lines of `styled_text`. Out: text, with escape sequences only if requested. A stream gets colour
if it is a terminal. `NO_COLOR` disables it (https://no-color.org), `FORCE_COLOR` enables it, and
`TERM=dumb` has none, with the same precedence as Python's own tracebacks. The sixteen colours of
the terminal's theme are used, so that light and dark themes are readable.
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
    except ValueError:  # the stream is closed
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


def painted(text: str, style: str, colour: bool) -> str:
    """The text in one style."""
    return joined([((text, style),)], colour)


def output(stream: TextIO | None) -> TextIO:
    """The stream. None means the current standard output, or a dummy stream if there is none."""
    stream = sys.stdout if stream is None else stream
    return io.StringIO() if stream is None else stream


def width_of(stream: TextIO, most: int = 100) -> int:
    """The columns of the terminal, at most `most`, since longer lines are hard to read."""
    try:
        terminal = stream.isatty()
    except ValueError:
        terminal = False
    return min(most, shutil.get_terminal_size((most, 24)).columns) if terminal else most


def write(text: str, stream: TextIO) -> None:
    """Write the text and a newline. Characters that the stream cannot encode become escapes."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
