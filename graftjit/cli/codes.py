"""`python -m graftjit codes`: the table of codes, by code, family or word.

In: words of the user. Out: rows as text, JSON or Markdown on stdout. `code_docs` has the examples
and the page.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence

from ..runtime import codes
from ..runtime.errors import did_you_mean
from ..runtime.report.text import colour
from . import code_docs


def run(parsed: argparse.Namespace) -> int:
    if parsed.markdown:
        print(code_docs.page(), end="")
        return 0
    found: dict[str, codes.Code] = {}
    for word in parsed.code:
        rows = list(matching(word))
        if not rows:
            print(_none(word), file=sys.stderr)
            return 2
        found.update((row.id, row) for row in rows)
    rows = list(found.values() if parsed.code else codes.CODES.values())
    if parsed.json:
        print(json.dumps([code_docs.as_dict(row) for row in rows], indent=2))
    else:
        for line in text(rows, examples=len(rows) <= 3):
            print(line)
    return 0


def matching(word: str) -> Iterator[codes.Code]:
    """The rows that match a code, a family, or a word in their texts."""
    exact = codes.CODES.get(word.upper())
    if exact is not None:
        yield exact
        return
    prefixes = [family.prefix for family in codes.FAMILIES]
    if word.upper() in prefixes:
        yield from (row for row in codes.CODES.values() if row.id.startswith(word.upper()))
    elif word[:2].upper() not in prefixes or not word[2:].isdigit():
        yield from (row for row in codes.CODES.values() if _has(row, word.lower()))


def _has(row: codes.Code, word: str) -> bool:
    return any(word in part.lower() for part in (row.title, row.why, row.cure))


def _none(word: str) -> str:
    if word.upper() in codes.RETIRED:
        return f"{word.upper()} was a code of an earlier version; nothing raises it any more"
    if any(c.isdigit() for c in word):
        return f"there is no code {word.upper()}" + did_you_mean(word, codes.CODES)
    return f"no code has the word {word!r}" + did_you_mean(
        word, {part for row in codes.CODES.values() for part in row.title.split()}
    )


def text(rows: Sequence[codes.Code], examples: bool) -> Iterator[str]:
    """The rows under the titles of their families. `examples`: with the examples."""
    coloured = colour.wanted(sys.stdout)
    width = min(100, shutil.get_terminal_size((100, 24)).columns)
    last = ""
    for row in rows:
        family = codes.family(row.id)
        if family.prefix != last:
            last = family.prefix
            if row is not rows[0]:
                yield ""
            yield colour.painted(f"{family.prefix}  {family.title}", "head", coloured)
            if family.cost != "-":
                yield from _wrapped("cost: ", family.cost, width, indent=4)
        yield f"{colour.painted(row.id, 'head', coloured)}  {row.title}"
        yield from _wrapped("why:  ", row.why, width)
        yield from _wrapped("cure: ", row.cure, width)
        example = code_docs.example(row.id) if examples else None
        for title, program in () if example is None else example.parts:
            yield f"       {colour.painted(title + ':', 'title', coloured)}"
            yield from (f"         {line}".rstrip() for line in program.splitlines())


def _wrapped(title: str, words: str, width: int, indent: int = 7) -> list[str]:
    return textwrap.wrap(
        words,
        max(40, width),
        initial_indent=" " * indent + title,
        subsequent_indent=" " * (indent + len(title)),
        break_long_words=False,
        break_on_hyphens=False,
    )
