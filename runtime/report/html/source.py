"""Sources on a report's page: the relevant parts of the user's files, and kernels, highlighted.

In: the relevant lines of each file; the sources of kernels. Out: plain values for the page's data:
text in segments, with the highlighter's tokens as runs ("4k1.3f": four characters of a keyword, one
plain, three of a function name). `runtime.report.html.data` calls this module.
"""

from __future__ import annotations

import linecache
import os
import sysconfig
from collections.abc import Iterable
from typing import Any

from ..records import Place
from ..source_lines import is_internal, short_path

WHOLE_FILE = 400  # longest file, in lines, that is shown whole
AROUND = 14  # context lines around a relevant line of a longer file
MOST_LINES = 4000  # limit of lines per file
MOST_HIGHLIGHTED = 600_000  # limit of highlighted characters in all kernel sources
MOST_SOURCES = 1_400_000  # limit of characters in all kernel sources

# Token types of the highlighter, most specific first, with the letters of the page's style sheet.
_LETTERS = (
    ("Token.Comment.Preproc", "p"),
    ("Token.Comment", "c"),
    ("Token.Literal.String", "s"),
    ("Token.Literal.Number", "m"),
    ("Token.Keyword.Type", "t"),
    ("Token.Keyword", "k"),
    ("Token.Operator.Word", "k"),
    ("Token.Name.Function", "f"),
    ("Token.Name.Class", "t"),
    ("Token.Name.Builtin", "b"),
    ("Token.Name.Decorator", "d"),
)


def _letter(name: str) -> str:
    return next((letter for start, letter in _LETTERS if name.startswith(start)), ".")


def runs(text: str, language: str) -> str:
    """The tokens of `text` as runs, whose total length is that of the text, line ends included."""
    from pygments.lexers import CppLexer, PythonLexer

    lexer = (CppLexer if language == "cpp" else PythonLexer)(
        stripnl=False, stripall=False, ensurenl=False
    )
    known: dict[Any, str] = {}
    out: list[str] = []
    last, length = "", 0
    for kind, part in lexer.get_tokens(text):
        letter = known.get(kind)
        if letter is None:
            letter = known[kind] = _letter(str(kind))
        if letter != last and length:
            out.append(f"{length}{last}")
            length = 0
        last, length = letter, length + len(part)
    if length and last != ".":
        out.append(f"{length}{last}")
    return "".join(out)


def language_of(source: str) -> str:
    """ "python" for a Triton kernel, "cpp" for one in C++ or CUDA."""
    return "python" if "@triton" in source or "\ndef " in source or source[:4] == "def " else "cpp"


def _segments(lines: list[str], wanted: Iterable[int]) -> list[tuple[int, int]]:
    """The (first, last) lines, from 1, of the file's parts on the page."""
    if len(lines) <= WHOLE_FILE:
        return [(1, len(lines))] if lines else []
    out: list[tuple[int, int]] = []
    held = 0
    for line in sorted(wanted):
        first, last = max(1, line - AROUND), min(len(lines), line + AROUND)
        if first > last:
            continue
        if out and first <= out[-1][1] + 6:
            first = out.pop()[0]
        out.append((first, last))
        held += last - first
        if held > MOST_LINES:
            break
    return out


def file_data(path: str, wanted: set[int], newest: float) -> dict[str, Any]:
    """One file of the page. A file written after `newest`, the time of the last event, is marked as
    changed."""
    lines = [line.rstrip("\r\n") for line in linecache.getlines(path)]
    segments = _segments(lines, wanted)
    parts = []
    coloured = runs_by_line(lines) if segments else []
    for first, last in segments:
        text = "\n".join(lines[first - 1 : last])
        parts.append({"start": first, "text": text, "runs": coloured[first - 1 : last]})
    return {
        "path": path,
        "short": short_name(path),
        "total": len(lines),
        "mine": is_the_users(path),
        "changed": bool(lines) and bool(newest) and _written(path) > newest + 1,
        "segments": parts,
    }


def runs_by_line(lines: list[str]) -> list[str]:
    """The runs of each line. The file is tokenised as a whole, so that multi-line strings are
    recognised."""
    from pygments.lexers import PythonLexer

    text = "\n".join(lines)
    out: list[str] = []
    row: list[str] = []
    known: dict[Any, str] = {}
    for kind, part in PythonLexer(stripnl=False, ensurenl=False).get_tokens(text):
        letter = known.get(kind)
        if letter is None:
            letter = known[kind] = _letter(str(kind))
        for number, piece in enumerate(part.split("\n")):
            if number:
                out.append(_joined(row))
                row = []
            if piece:
                row.append(f"{len(piece)}{letter}")
    out.append(_joined(row))
    return out


def _joined(row: list[str]) -> str:
    while row and row[-1].endswith("."):
        row.pop()
    return "".join(row)


def _written(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:  # a notebook cell or a deleted file
        return 0.0


def is_the_users(path: str) -> bool:
    """Whether a file belongs to the user, not to an installed package, Python or graftjit."""
    parts = path.replace("\\", "/").split("/")
    return not (
        {"site-packages", "dist-packages"} & set(parts)
        or path == "?"
        or path.startswith(("<frozen", sysconfig.get_path("stdlib") + os.sep))
        or is_internal(Place(path))
    )


def short_name(path: str) -> str:
    """A short name for a file: relative to site-packages or to the working directory, else its base
    name."""
    for folder in ("site-packages", "dist-packages"):
        head, found, tail = path.replace("\\", "/").rpartition(f"/{folder}/")
        if found and head:
            return tail
    short = short_path(path)
    return (
        os.path.basename(path) or path if os.path.isabs(short) or short.startswith("...") else short
    )


class Sources:
    """The sources of kernels without duplicates. Their total size is limited."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._known: dict[str, int] = {}
        self._held = 0

    def add(self, source: str) -> int:
        """The number of a source; -1 if it is empty, -2 if the limit is reached."""
        if not source.strip():
            return -1
        number = self._known.get(source)
        if number is None:
            if self._held + len(source) > MOST_SOURCES:
                return -2
            self._held += len(source)
            number = self._known[source] = len(self.rows)
            language = language_of(source)
            coloured = runs(source, language) if self._held <= MOST_HIGHLIGHTED else ""
            self.rows.append({"text": source, "runs": coloured})
        return number
