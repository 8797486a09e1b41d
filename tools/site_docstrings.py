"""How the reference shows our docstrings: their rows of `name   what it is` become a list. mkdocs.yml names this file.

In: docstrings as they are written here, for people who read code: prose, and rows of one or more names, two spaces or more,
and a text that may go on in lines that are indented further. Out: Markdown of the same content.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from griffe import Extension

ROW = re.compile(r"(?P<names>\*{0,2}[a-z_]\w*(?:, \*{0,2}[a-z_]\w*)*) {2,}(?P<text>\S.*)")


def as_markdown(docstring: str) -> str:
    """The docstring with its rows as items of a list."""
    return "\n".join(_lines(docstring)).strip("\n")


def _lines(docstring: str) -> Iterator[str]:
    inside = False
    for line in docstring.splitlines():
        row = ROW.fullmatch(line)
        if row is not None:
            if not inside:
                yield ""
            names = ", ".join(f"`{name}`" for name in row["names"].split(", "))
            yield f"- {names}: {row['text']}"
        elif inside and line.startswith(" "):
            yield f"  {line.strip()}"
        else:
            if inside and line.strip():
                yield ""
            yield line
        inside = row is not None or (inside and line.startswith(" "))


class Rows(Extension):
    """Corrects the docstring of everything that griffe reads."""

    def on_instance(self, *, obj: Any, **_others: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)

    def on_attribute_instance(self, *, attr: Any, **_others: Any) -> None:
        """The lists of a report are computed when they are asked for: to a reader they are lists."""
        kind = attr.annotation
        if str(getattr(kind, "left", "")) == "ClassVar":
            kind = kind.slice
        if str(getattr(kind, "left", "")) == "_List":
            kind.left = "list"
            attr.annotation, attr.value = kind, None
