"""Source lines in the text report: location, the user's line, and carets under its columns.

In: a `Place`. Out: lines. Columns of code count UTF-8 bytes, columns of a terminal count cells;
`errors.source_snippet` converts them. If the source is not readable (code from `exec`, a deleted
file), only the location is shown. A notebook cell is shown by its number.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ...ir.location import Location, shown_file
from .. import own_files
from ..errors import source_snippet
from .styled_text import Line, cut, line

if TYPE_CHECKING:
    from .records import Place


def short_path(path: str, width: int = 60) -> str:
    """The path relative to the working directory or to site-packages, if that is shorter. It is cut
    at the front to `width`."""
    path = shown_file(path)
    package = path.replace(os.sep, "/").rpartition("/site-packages/")[2]
    if len(package) < len(path):
        return cut(package, width, front=True)
    if os.path.isabs(path):
        try:
            relative = os.path.relpath(path)
        # another drive, or the working directory no longer exists
        except (ValueError, OSError):
            relative = path
        if not relative.startswith("..") and len(relative) < len(path):
            path = relative
    return cut(path, width, front=True)


def short_place(place: Place, width: int = 40) -> str:
    """ "model.py:12", or "" if unknown."""
    if place.file == "?":
        return ""
    at = "" if place.line is None else f":{place.line}"
    return short_path(place.file, width - len(at)) + at


def is_internal(place: Place) -> bool:
    """Whether the line is in torch or graftjit, between the user's lines."""
    torch = getattr(sys.modules.get("torch"), "__file__", None)
    of_torch = torch is not None and place.file.startswith(os.path.dirname(torch) + os.sep)
    return of_torch or own_files.is_own(place.file)


def where(place: Place, width: int, indent: str, lead: str = "") -> Line:
    """`File "f.py", line 3, in g`, the form of tracebacks, which editors recognise."""
    shown = f'", line {place.line}, in {place.function}'
    if place.line is None:
        shown = f'", in {place.function}'
    start = f'{indent}{lead}File "'
    shown = cut(shown, max(8, width - len(start) - 12))
    path = short_path(place.file, max(8, width - len(start) - len(shown)))
    return line(start, (path, "place"), shown)


def snippet(place: Place, width: int, indent: str, others: Sequence[Place] = ()) -> Iterator[Line]:
    """The location, the user's line and carets. `others` are places in the same line with their own
    carets."""
    if place.file == "?":
        return
    yield where(place, width, indent)
    found = _read(place, max(20, width - len(indent) - 2))
    if found is not None:
        text, carets = found
        yield line(f"{indent}  ", (text, "user"))
        for other in others:
            same = _read(other, max(20, width - len(indent) - 2))
            if same is not None and same[0] == text:  # else the line was cut elsewhere
                carets = "".join(
                    one if one != " " else two
                    for one, two in itertools.zip_longest(carets, same[1], fillvalue=" ")
                )
        if carets:
            yield line(f"{indent}  ", (carets, "caret"))


def _read(place: Place, width: int | None = None) -> tuple[str, str] | None:
    at = Location(
        place.file, place.line, place.end_line, place.column, place.end_column, place.function
    )
    return source_snippet(at, width)


def source_line(place: Place, width: int) -> str:
    """The user's line without carets, cut at the end."""
    found = None if place.file == "?" else source_snippet(Location(place.file, place.line))
    return cut(found[0].expandtabs(4), width) if found else ""


def chain(inlined: Iterable[Place], width: int, indent: str) -> Iterator[Line]:
    """The calls in the user's code that lead to a place, outermost first."""
    for place in inlined:
        if place.file != "?" and not is_internal(place):
            yield where(place, width, indent)
            text = source_line(place, width - len(indent) - 2)
            if text:
                yield line(f"{indent}  ", (text, "dim"))
