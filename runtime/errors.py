"""Errors as classes: a code, the user's line with carets, what was expected, what was found, what
to do.

In: facts about a mistake or a failure. Out: exceptions with an actionable text. Each class also
derives from the builtin exception that plain Python would raise, so `except TypeError` works. All
packages raise them. Reports share `format_location`.
"""

from __future__ import annotations

import difflib
import linecache
from collections.abc import Iterable

from ..ir.location import Location

REPORT_IT = (
    "Please report it, with what GRAFTJIT_TRACE=DIR writes and `python -m graftjit doctor` prints."
)


class GraftError(Exception):
    """Base class of all exceptions that graftjit itself raises.

    code      a row of `runtime.codes`
    what      one sentence: what went wrong
    where     the user's line, if there is one
    expected, found, todo   one line each, omitted from the text if empty
    """

    default_code = "ER500"

    def __init__(
        self,
        what: str,
        *,
        code: str | None = None,
        where: Location | None = None,
        expected: str = "",
        found: str = "",
        todo: str = "",
    ) -> None:
        self.code = code or self.default_code
        self.what = what
        self.where = where
        self.expected = expected
        self.found = found
        self.todo = todo
        super().__init__(self._text())

    def _text(self) -> str:
        lines = [f"[{self.code}] {self.what}"]
        if self.where is not None:
            lines.append(format_location(self.where))
        for title, value in (
            ("expected", self.expected),
            ("found", self.found),
            ("what to do", self.todo),
        ):
            if value:
                lines.append(f"  {title + ':':<12}{value}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple:
        state = dict(self.__dict__)
        return _rebuild, (type(self), state)


def _rebuild(cls: type[GraftError], state: dict) -> GraftError:
    names = ("code", "where", "expected", "found", "todo")
    error = cls(state["what"], **{name: state[name] for name in names})
    error.__dict__.update(state)
    return error


class UserError(GraftError, TypeError):
    """An argument that graftjit cannot use: not a function, a class without `__call__`."""

    default_code = "ER501"


class OptionError(GraftError, ValueError):
    """A value of an option or an environment variable that is not allowed."""

    default_code = "ER502"


class BreakError(GraftError, RuntimeError):
    """A graph break under `fullgraph=True` or `jit_syntax_level="STRICT"`."""

    default_code = "ER503"


class BuildError(GraftError, RuntimeError):
    """A kernel could not be compiled or loaded."""

    default_code = "ER504"


class InternalError(GraftError, RuntimeError):
    """An error of graftjit itself, not of the user's program."""

    default_code = "ER505"


class CheckError(InternalError):
    """Two executions of the same thing disagree under GRAFTJIT_CHECK."""

    default_code = "ER506"


class UnsupportedPython(GraftError, ImportError):
    """graftjit cannot decode the bytecode of this interpreter."""

    default_code = "ER507"


class NotClean(GraftError, AssertionError):
    """`Report.assert_clean` found more breaks or recompiles than allowed."""

    default_code = "ER508"


class NativeMissing(GraftError, ImportError):
    """The extension is not built, or is for another Python."""

    default_code = "ER509"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`"; did you mean 'x'?"` if a known word is similar, else ""."""
    near = difflib.get_close_matches(word.lower(), {name.lower(): name for name in known}, n=1)
    by_lower = {name.lower(): name for name in known}
    return f"; did you mean {by_lower[near[0]]!r}?" if near else ""


def describe(value: object, limit: int = 60) -> str:
    """A value as text, for `found`: plain values literally, other objects by their type. It
    contains no addresses and does not call the value's `__repr__`."""
    kind = type(value).__name__
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if value is None or type(value) in (bool, int, float, complex, str, bytes):
        text = repr(value)
        return f"{text if len(text) <= limit else text[: limit - 3] + '...'} ({kind})"
    return f"an object of type {kind}"


def format_location(where: Location, indent: str = "  ", width: int | None = None) -> str:
    """`File "f.py", line 3, in g`, the user's line, and carets under the columns.

    If the line is not readable (typed at a prompt, generated), the text is the first line alone.
    `width` cuts long lines around the carets.
    """
    head = f'{indent}File "{where.shown}", line {where.line}, in {where.function}'
    if where.line is None:
        return f'{indent}File "{where.shown}", in {where.function}'
    snippet = source_snippet(where, None if width is None else width - len(indent) - 2)
    if snippet is None:
        return head
    text, carets = snippet
    lines = [head, f"{indent}  {text}"]
    if carets:
        lines.append(f"{indent}  {carets}")
    return "\n".join(lines)


def source_snippet(where: Location, width: int | None = None) -> tuple[str, str] | None:
    """The user's line without its indentation, and the carets under it; None if it is not
    readable."""
    if where.line is None:
        return None
    line = linecache.getline(where.file, where.line).rstrip("\r\n")
    if not line.strip():
        return None
    start, end = _character_range(where, line)
    lead = len(line) - len(line.lstrip())
    text = line.strip()
    start, end = max(0, start - lead), max(0, min(end - lead, len(text)))
    if width is not None and columns(text) > width:
        text, start, end = _cut(text, start, end, width)
    if end <= start:
        return text, ""
    # Tabs are kept and wide characters take two columns, so that the carets are aligned.
    pad = "\t".join(" " * columns(part) for part in text[:start].split("\t"))
    return text, pad + "^" * max(1, columns(text[start:end]))


def _character_range(where: Location, line: str) -> tuple[int, int]:
    """The range in characters; code objects count UTF-8 bytes. (0, 0) if unknown."""
    if where.column is None:
        return 0, 0
    data = line.encode("utf-8")
    start = len(data[: where.column].decode("utf-8", "replace"))
    if where.end_line not in (None, where.line) or where.end_column is None:
        return start, len(line.rstrip())
    return start, len(data[: where.end_column].decode("utf-8", "replace"))


def _cut(text: str, start: int, end: int, width: int) -> tuple[str, int, int]:
    """A window of `width` columns that shows the start of the range, and the range within it."""
    first = 0
    if columns(text[:end]) > width - 3:
        first = max(0, start - 1)
        while first > 0 and columns(text[first - 1 :]) <= width - 3:
            first -= 1
    lead = "..." if first else ""
    last, room = first, width - len(lead)
    if columns(text[first:]) > room:
        room -= 3
        while last < len(text) and columns(text[first : last + 1]) <= room:
            last += 1
        window, shown = text[first:last] + "...", last - first
    else:
        window, shown = text[first:], len(text) - first
    move = len(lead) - first
    return lead + window, start + move, min(end + move, len(lead) + shown)


def columns(text: str) -> int:
    """The number of terminal columns of a text."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


class Begun(BaseException):
    """The program had changed its inputs when it raised `error`. A BaseException, so that no
    handler on the way catches it."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class ObservedSaving(Exception):
    """Saved-tensor hooks are active around a program whose frame has effects: see
    `runtime.autograd.saving_hooks`."""


class Unusual(Exception):
    """A size that tensor data decide is 0 or 1: see `runtime.guards.dynamic_sizes`."""


class Untrue(Exception):
    """The results of an operator of another library do not look as its fake rule says: see
    `runtime.executor.promises`."""
