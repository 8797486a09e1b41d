"""Lines of styled text, of which the text report is made.

In: texts with names of styles. Out: `Line`s. They are cut and wrapped by the terminal columns of
their characters, so that wide characters and emoji keep their alignment. The modules of
`report.text` use it; `text.colour` writes the lines with or without colour.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from ..errors import columns

Span = tuple[str, str]
"""A text and its style, a row of `text.colour.STYLES`; "" is plain."""

Line = tuple[Span, ...]

# A number and its unit stay on one line.
_WORDS = re.compile(r"\S*\d (?:[mun]?s|%|B|[KMG]iB|GB/s)(?![^\W_])\S*|\S+|\s+")
_ADDRESS = re.compile(r"\s*(?:\bobject )?\bat 0x[0-9a-fA-F]{4,}")


def line(*parts: str | Span) -> Line:
    """One line of texts, each plain or with its style."""
    return tuple((part, "") if isinstance(part, str) else part for part in parts)


def plain(spans: Line) -> str:
    return "".join(text for text, _style in spans).rstrip()


def clean(text: str) -> str:
    """The text on one line, without memory addresses."""
    return _ADDRESS.sub("", " ".join(text.split()))


def cut(text: str, width: int, front: bool = False) -> str:
    """At most `width` columns; "..." marks what was cut at the end or, with `front`, at the
    beginning."""
    if columns(text) <= width:
        return text
    kept, room = [], max(0, width - 3)
    for character in reversed(text) if front else text:
        room -= columns(character)
        if room < 0:
            break
        kept.append(character)
    return "..." + "".join(reversed(kept)) if front else "".join(kept).rstrip() + "..."


def wrap(
    spans: Iterable[str | Span], width: int, first: str = "", rest: str = ""
) -> Iterator[Line]:
    """The words on lines of at most `width` columns. The first line begins with `first`, the others
    with `rest`. Longer words are cut."""
    found: list[Span] = [(first, "")]
    used, fresh, gap = columns(first), True, False
    for text, style in line(*spans):
        for word in _WORDS.findall(text):
            if word.isspace():
                gap = True
                continue
            needed = columns(word) + (gap and not fresh)
            if used + needed > width and not fresh:
                yield tuple(found)
                found, used, fresh = [(rest, "")], columns(rest), True
                needed = columns(word)
            if gap and not fresh:
                found.append((" ", ""))
            found.append((cut(word, max(8, width - used)), style))
            used, fresh, gap = used + needed, False, False
    if not fresh:
        yield tuple(found)


def field(title: str, value: str, width: int, indent: str, style: str = "") -> Iterator[Line]:
    """A titled text with aligned lines; nothing if the text is empty."""
    text = clean(value)
    if text:
        first = f"{indent}{title:<6}"
        for found in wrap([(text, style)], width, first, " " * len(first)):
            head, *others = found
            yield ((head[0], "title"), *others) if head[0] == first else found


def table(rows: Sequence[Sequence[Span]], right: Sequence[bool], indent: str = "  ") -> list[Line]:
    """Rows of cells in columns; `right` tells for each column whether it is right-aligned."""
    widths = [max(columns(row[n][0]) for row in rows) for n in range(len(right))] if rows else []
    found = []
    for row in rows:
        spans: list[Span] = [(indent, "")]
        for (text, style), width, to_right in zip(row, widths, right, strict=True):
            pad = " " * (width - columns(text))
            spans += [(pad, ""), (text, style)] if to_right else [(text, style), (pad, "")]
            spans.append(("  ", ""))
        found.append(tuple(spans))
    return found


# -- Numbers ---------------------------------------------------------------------------------------


def counted(count: int, word: str) -> str:
    """ "1 break", "2 breaks", "2 library calls"."""
    plural = "es" if word.endswith("s") else "ies" if word.endswith("ry") else "s"
    if count == 1:
        return f"1 {word}"
    return f"{count} {word[:-1] if plural == 'ies' else word}{plural}"


_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def duration(seconds: float) -> str:
    """Three digits and a unit: "1.25 s", "41.3 ms", "812 us", "90 ns"."""
    for unit, name in _UNITS:
        # A value that rounds to a thousand of a unit is shown in the next one.
        if seconds >= unit * 0.9995 or name == "ns":
            value = seconds / unit
            digits = 0 if value >= 99.95 or name == "ns" else 1 if value >= 9.995 else 2
            return f"{value:.{digits}f} {name}"
    return "0 s"


def percent(share: float) -> str:
    """ "41 %". Only 0 is shown as 0, and only 1 as 100."""
    if 0 < share < 0.01:
        return "<1 %"
    return f"{99 if 0.99 <= share < 0.9995 else round(share * 100)} %"


def sizes(count: float) -> str:
    """Bytes: "512 B", "1.5 KiB"."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def listed(items: Sequence[str], most: int) -> str:
    """ "a, b, c and 4 more"."""
    shown = ", ".join(items[:most])
    return shown if len(items) <= most else f"{shown} and {len(items) - most} more"
