"""The user's lines in the text report: the file as one would type it, the line, and carets under its columns.

In: a `Place`. Out: lines. The code's columns count UTF-8 bytes, a terminal's count cells: `errors.source_snippet`
turns one into the other. Lines that cannot be read (made by `exec`, a file that is gone) have their place alone; a
cell of a notebook goes by its number.
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
    """Relative to the working folder or to where packages lie, if that is shorter; cut at the front to `width`."""
    path = shown_file(path)
    package = path.replace(os.sep, "/").rpartition("/site-packages/")[2]
    if len(package) < len(path):
        return cut(package, width, front=True)
    if os.path.isabs(path):
        try:
            relative = os.path.relpath(path)
        except (ValueError, OSError):  # another drive, or no working folder any more
            relative = path
        if not relative.startswith("..") and len(relative) < len(path):
            path = relative
    return cut(path, width, front=True)


def short_place(place: Place, width: int = 40) -> str:
    """ "model.py:12"; empty where unknown."""
    if place.file == "?":
        return ""
    at = "" if place.line is None else f":{place.line}"
    return short_path(place.file, width - len(at)) + at


def is_internal(place: Place) -> bool:
    """A line of torch's or of graftjit's own: steps on the way to the user's."""
    torch = getattr(sys.modules.get("torch"), "__file__", None)
    of_torch = torch is not None and place.file.startswith(os.path.dirname(torch) + os.sep)
    return of_torch or own_files.is_own(place.file)


def where(place: Place, width: int, indent: str, lead: str = "") -> Line:
    """`File "f.py", line 3, in g`, as tracebacks have it, so that editors find the place."""
    told = f'", line {place.line}, in {place.function}'
    if place.line is None:
        told = f'", in {place.function}'
    start = f'{indent}{lead}File "'
    told = cut(told, max(8, width - len(start) - 12))
    path = short_path(place.file, max(8, width - len(start) - len(told)))
    return line(start, (path, "place"), told)


def snippet(place: Place, width: int, indent: str, others: Sequence[Place] = ()) -> Iterator[Line]:
    """The place, the user's line and carets; `others` are places in the same line, with carets of their own."""
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
    """The user's line without carets, cut at its end."""
    found = None if place.file == "?" else source_snippet(Location(place.file, place.line))
    return cut(found[0].expandtabs(4), width) if found else ""


def chain(inlined: Iterable[Place], width: int, indent: str) -> Iterator[Line]:
    """The user's calls that lead to a place, outermost first; those within torch and graftjit are left out."""
    for place in inlined:
        if place.file != "?" and not is_internal(place):
            yield where(place, width, indent)
            text = source_line(place, width - len(indent) - 2)
            if text:
                yield line(f"{indent}  ", (text, "dim"))
